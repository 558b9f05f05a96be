"""The small text files of a checkpoint: a version line, one JSON object, a checksum.

    v1
    {"epoch":4,"run":2,...}
    crc32c 1a2b3c4d

The checksum is that of all bytes before its line. What is read is checked before it is believed: a
file of another version, a flipped bit, a missing or unknown key and a value of another type are
refused with the file's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeAlias, TypeVar

from crc32c import crc32c

from anabranch.errors import CheckpointError, RunError
from anabranch.ids import Partition

VERSION = 1
LARGEST = 256 << 20
"""Bytes of the largest file that is read: a commit of a hundred epochs has some 100 KiB."""

Json: TypeAlias = Any
"""None, bool, int, float, str, and lists and dicts of them."""

_T = TypeVar("_T")
_VERSION_LINE = re.compile(rb"v([0-9]{1,9})\n")
_CHECK_LINE = re.compile(rb"crc32c ([0-9a-f]{8})\n")
_CHECK_BYTES = len(b"crc32c 00000000\n")


def seal(content: Mapping[str, Json]) -> bytes:
    r"""Put an object into its envelope.

    >>> seal({"epoch": 4})
    b'v1\n{"epoch":4}\ncrc32c 465b3f37\n'
    """
    body = b"v%d\n%s\n" % (VERSION, as_line(content))
    if len(body) + _CHECK_BYTES > LARGEST:
        _refuse_large(len(body) + _CHECK_BYTES)
    return body + b"crc32c %08x\n" % crc32c(body)


def _refuse_large(size: int) -> NoReturn:
    """Say so before it is written: nobody could read the checkpoint any more."""
    message = f"a file of the checkpoint would have {size:,} bytes; {LARGEST:,} are the most"
    why = "rows for Memory and Callback sinks are in the commit of their epochs"
    so = "write so many rows to Files; or begin anew, with smaller epochs by max_rows="
    raise RunError(message, why=why, so=so)


def as_line(content: Mapping[str, Json]) -> bytes:
    """One JSON object on one line; what JSON cannot say is refused."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.encode()


def unseal(path: str, data: bytes) -> dict[str, Json]:
    """Take an object out of the envelope read from `path`."""
    if len(data) > LARGEST:
        refuse(path, f"it has {len(data)} bytes, more than any file of its kind")
    version = _VERSION_LINE.match(data)
    if version is None:
        refuse(path, "it does not begin with a version line")
    if int(version[1]) != VERSION:
        refuse_newer(path, f"v{int(version[1])}", f"v{VERSION}")
    body, check = data[:-_CHECK_BYTES], _CHECK_LINE.fullmatch(data[-_CHECK_BYTES:])
    if check is None:
        refuse(path, "it does not end with a checksum: it is cut off, or was changed")
    if int(check[1], 16) != crc32c(body):
        refuse(path, "its checksum is wrong: it was damaged, or changed by hand")
    return parse_object(path, body[version.end() :])


def parse_object(path: str, text: bytes) -> dict[str, Json]:
    """One JSON object and nothing else; no NaN, no key twice."""
    try:
        content = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        refuse(path, f"it holds no JSON: {error}", error)
    if not isinstance(content, dict):
        refuse(path, "it holds no JSON object")
    return content


def refuse(path: str, why: str, cause: BaseException | None = None) -> NoReturn:
    """Say that a file of the checkpoint cannot be used."""
    message = f"checkpoint file {path} cannot be read"
    so = "restore it from a copy of the checkpoint, or start from a savepoint"
    raise CheckpointError(message, why=why, so=so) from cause


class NewerFormatError(CheckpointError):
    """A file that a newer version wrote: it is whole, and not for this one to judge."""


def refuse_newer(path: str, found: str, known: str) -> NoReturn:
    """Say that a file of the checkpoint comes from another version of Anabranch."""
    message = f"checkpoint file {path} was written by a newer version of Anabranch"
    why = f"its format is {found}, this version reads {known}"
    raise NewerFormatError(message, why=why, so="run the version that wrote it, or a later one")


class Fields:
    """The keys of an object that was read, taken one by one; each must be there, and no other.

    >>> fields = Fields("lease/1", {"number": 1})
    >>> fields.take("number", as_count)
    1
    >>> fields.finish()
    """

    def __init__(self, path: str, content: Mapping[str, Json]) -> None:
        """Take the object read from `path`."""
        self._path = path
        self._left = dict(content)

    def __contains__(self, key: str) -> bool:
        """Whether a key is there and was not taken yet."""
        return key in self._left

    def take(self, key: str, check: Callable[[Json], _T]) -> _T:
        """The value of a key, if `check` accepts it."""
        if key not in self._left:
            refuse(self._path, f"key {key!r} is missing")
        value = self._left.pop(key)
        try:
            return check(value)
        except (TypeError, ValueError) as error:
            refuse(self._path, f"key {key!r}: {error}", error)

    def finish(self) -> None:
        """Refuse what was not taken."""
        if self._left:
            refuse(self._path, f"unknown key {min(self._left)!r}")


def as_int(value: Json) -> int:
    """Check that it is a whole number; true and false are none."""
    if type(value) is not int:
        message = f"not a whole number: {value!r}"
        raise TypeError(message)
    return value


def as_count(value: Json) -> int:
    """Check that it is a whole number from 0."""
    if as_int(value) < 0:
        message = f"below 0: {value!r}"
        raise ValueError(message)
    return int(value)


def as_text(value: Json) -> str:
    """Check that it is text."""
    if not isinstance(value, str):
        message = f"not text: {value!r}"
        raise TypeError(message)
    return value


def as_json(value: Json) -> Json:
    """Any JSON value."""
    return value


def as_partition(value: Json) -> Partition:
    """Check that it is a partition's name: a whole number or text."""
    return value if isinstance(value, str) else as_int(value)


def optional(check: Callable[[Json], _T]) -> Callable[[Json], _T | None]:
    """Null, or what `check` accepts."""
    return lambda value: None if value is None else check(value)


def tuple_of(check: Callable[[Json], _T]) -> Callable[[Json], tuple[_T, ...]]:
    """A list of what `check` accepts, as a tuple."""
    return lambda value: tuple(check(each) for each in _list(value))


def object_of(check: Callable[[Json], _T]) -> Callable[[Json], dict[str, _T]]:
    """An object with values that `check` accepts."""

    def convert(value: Json) -> dict[str, _T]:
        if not isinstance(value, dict):
            message = f"not an object: {value!r}"
            raise TypeError(message)
        return {key: check(each) for key, each in value.items()}

    return convert


_K = TypeVar("_K")


def pair_of(
    first: Callable[[Json], _K], second: Callable[[Json], _T]
) -> Callable[[Json], tuple[_K, _T]]:
    """A list of two."""

    def convert(value: Json) -> tuple[_K, _T]:
        left, right = _list(value)
        return first(left), second(right)

    return convert


def mapping_of(
    key: Callable[[Json], _K], check: Callable[[Json], _T]
) -> Callable[[Json], dict[_K, _T]]:
    """A list of pairs, as a dict: JSON's own keys are text only, and partitions may be numbers."""
    pair = pair_of(key, check)

    def convert(value: Json) -> dict[_K, _T]:
        pairs = [pair(each) for each in _list(value)]
        found = dict(pairs)
        if len(found) != len(pairs):
            message = "a key is there twice"
            raise ValueError(message)
        return found

    return convert


def pairs(mapping: Mapping[Any, Json]) -> list[list[Json]]:
    """A mapping as a list of pairs, in its own order.

    >>> pairs({0: 7, "a": 8})
    [[0, 7], ['a', 8]]
    """
    return [[key, value] for key, value in mapping.items()]


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        message = f"not a list: {value!r}"
        raise TypeError(message)
    return value


def _unique(found: Iterable[tuple[str, Json]]) -> dict[str, Json]:
    content: dict[str, Json] = {}
    for key, value in found:
        if key in content:
            message = f"key {key!r} is there twice"
            raise ValueError(message)
        content[key] = value
    return content


def _no_constant(name: str) -> NoReturn:
    message = f"{name} is no JSON"
    raise ValueError(message)
