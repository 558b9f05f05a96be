"""Python values as bytes: what users keep in state, and keys.

    version (1 byte)  value
    value   = tag (1 byte)  body
    N F T                 None, False, True
    i  8 bytes            whole number in 64 bits, little endian
    I  length  bytes      any other whole number, two's complement
    d  8 bytes            float; every NaN is one
    s b  length  bytes    text (UTF-8), bytes
    m  8 bytes  zone      datetime: microseconds of its clock since 1970
    a  4 bytes            date: its number of days, 0001-01-01 being 1
    t  8 bytes  zone      time of day: microseconds
    l  4 4 4 bytes        timedelta: days, seconds, microseconds
    e  length  bytes      Decimal, as text
    L U S Z  count  ...   list, tuple, set, frozenset (sets in the order of their encodings)
    D  count  ...         dict: key, value, in its own order
    C  length  bytes  count  ...   dataclass: its name, then length bytes, value for each field
    zone    = fold (1 byte), N | o (offset: 4 4 4 bytes, name: s or N) | z length bytes (a name)
    length, count = 7 bits a byte, the lowest first, the highest bit says that more follow

Values of the same type that are equal have the same bytes, except that 0.0 and -0.0 stay what they
are, dicts keep their order and decimals their digits: nothing that a program can see is lost. Only
the types themselves are taken, no subclasses: those would come back as something else. A dataclass
comes back only where the program has one of that name (see `classes`): nothing is ever imported.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sized
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn, TypeAlias
from zoneinfo import ZoneInfo

from anabranch.errors import CheckpointError
from anabranch.state import classes

VERSION = 1
DEEPEST = 64
"""How deep values may lie in each other; a value that contains itself ends here too."""

_Out: TypeAlias = list[bytes]
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - what the clock shows, whatever its zone
_MICROSECOND = timedelta(microseconds=1)
_WORD, _DAYS, _SPAN = struct.Struct("<q"), struct.Struct("<i"), struct.Struct("<iii")
_DOUBLE = struct.Struct("<d")
_NAN = b"d" + _DOUBLE.pack(math.nan)
_HEAD = bytes([VERSION])
_LOW, _HIGH = -(2**63), 2**63 - 1


def encode(value: Any) -> bytes:
    """A value as bytes; a TypeError names the type that cannot be kept.

    >>> decode(encode({"a": [1, None, (2.5, b"x")]}))
    {'a': [1, None, (2.5, b'x')]}
    """
    out = [_HEAD]
    (_WRITERS.get(type(value)) or _writer(value))(value, out, 0)
    return b"".join(out)


def encode_as(kind: type, other: type) -> None:
    """Encode values of a type as if they were of another: they come back as that."""
    _WRITERS[kind] = _WRITERS[other]


def decode(code: bytes) -> Any:
    """The value in bytes that `encode` gave; a CheckpointError if they are anything else."""
    if code[:1] != _HEAD:
        message = "a kept value has an unknown version"
        have = f"version {code[0]}" if code else "no bytes at all"
        raise CheckpointError(message, have=have, so=f"version {VERSION} is known here")
    reader = _Reader(code)
    try:
        value = reader.value(0)
    except _MALFORMED as error:
        raise _broken(str(error), reader.at) from error
    if reader.at != len(code):
        why = "bytes follow the value"
        raise _broken(why, reader.at)
    return value


def _refuse(value: Any) -> NoReturn:
    message = f"a {type(value).__name__} cannot be kept"
    raise TypeError(message)


# Writing


def _write(value: Any, out: _Out, depth: int) -> None:
    (_WRITERS.get(type(value)) or _writer(value))(value, out, depth)


def _writer(value: Any) -> Callable[[Any, _Out, int], None]:
    """What writes values of a type that was not met before: a dataclass."""
    kind = type(value)
    if not classes.can_be_known(kind):
        _refuse(value)
    classes.know(kind)
    head, names = _named(b"C", classes.name_of(kind)), classes.fields_of(kind)
    head += _length(len(names))
    marks = [(name, _named(b"", name)) for name in names]

    def write(value: Any, out: _Out, depth: int) -> None:
        classes.require_fields_only(value, names)
        out.append(head)
        deeper = _deeper(depth)
        for name, mark in marks:
            out.append(mark)
            _write(getattr(value, name), out, deeper)

    _WRITERS[kind] = write
    return write


def _named(tag: bytes, name: str) -> bytes:
    body = name.encode()
    return tag + _length(len(body)) + body


def _fixed(tag: bytes) -> Callable[[Any, _Out, int], None]:
    return lambda value, out, depth: out.append(tag)  # noqa: ARG005 - one signature for all


def _write_int(value: int, out: _Out, depth: int) -> None:  # noqa: ARG001
    if _LOW <= value <= _HIGH:
        out.append(b"i" + _WORD.pack(value))
    else:
        _sized(b"I", value.to_bytes(_width(value), "little", signed=True), out)


def _width(value: int) -> int:
    """The fewest bytes that hold a number and its sign."""
    return ((value if value >= 0 else ~value).bit_length() + 8) // 8


def _write_float(value: float, out: _Out, depth: int) -> None:  # noqa: ARG001
    out.append(b"d" + _DOUBLE.pack(value) if value == value else _NAN)  # noqa: PLR0124 - NaN is not


def _write_str(value: str, out: _Out, depth: int) -> None:  # noqa: ARG001
    body = value.encode("utf-8", "surrogatepass")
    out.append(b"s" + _length(len(body)) + body)


def _write_bytes(value: bytes, out: _Out, depth: int) -> None:  # noqa: ARG001
    _sized(b"b", value, out)


def _write_datetime(value: datetime, out: _Out, depth: int) -> None:
    shown = value.replace(tzinfo=None, fold=0)
    out.append(b"m" + _WORD.pack((shown - _EPOCH) // _MICROSECOND))
    _write_zone(value.tzinfo, value.fold, out, depth)


def _write_date(value: date, out: _Out, depth: int) -> None:  # noqa: ARG001
    out.append(b"a" + _DAYS.pack(value.toordinal()))


def _write_time(value: time, out: _Out, depth: int) -> None:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    out.append(b"t" + _WORD.pack(seconds * 1_000_000 + value.microsecond))
    _write_zone(value.tzinfo, value.fold, out, depth)


def _write_timedelta(value: timedelta, out: _Out, depth: int) -> None:  # noqa: ARG001
    out.append(b"l" + _SPAN.pack(value.days, value.seconds, value.microseconds))


def _write_decimal(value: Decimal, out: _Out, depth: int) -> None:  # noqa: ARG001
    _sized(b"e", str(value).encode(), out)


def _write_zone(zone: tzinfo | None, fold: int, out: _Out, depth: int) -> None:
    out.append(b"\1" if fold else b"\0")
    if zone is None:
        out.append(b"N")
    elif type(zone) is timezone:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        out.append(b"o" + _SPAN.pack(offset.days, offset.seconds, offset.microseconds))
        _write(None if name == timezone(offset).tzname(None) else name, out, depth)
    elif type(zone) is ZoneInfo and zone.key is not None:
        _sized(b"z", zone.key.encode(), out)
    else:
        message = f"a time zone of type {type(zone).__name__} cannot be kept"
        raise TypeError(message)


def _items(tag: bytes) -> Callable[[Any, _Out, int], None]:
    def write(value: Any, out: _Out, depth: int) -> None:
        out.append(tag + _length(len(value)))
        deeper = _deeper(depth)
        for each in value:
            # As _write does, without a call more: states are encoded once a key and epoch.
            (_WRITERS.get(type(each)) or _writer(each))(each, out, deeper)

    return write


def _members(tag: bytes) -> Callable[[Any, _Out, int], None]:
    def write(value: Any, out: _Out, depth: int) -> None:
        out.append(tag + _length(len(value)))
        deeper, members = _deeper(depth), []
        for each in value:
            one: _Out = []
            _write(each, one, deeper)
            members.append(b"".join(one))
        out.extend(sorted(members))

    return write


def _write_dict(value: dict[Any, Any], out: _Out, depth: int) -> None:
    out.append(b"D" + _length(len(value)))
    deeper = _deeper(depth)
    for key, each in value.items():
        _write(key, out, deeper)
        _write(each, out, deeper)


def _sized(tag: bytes, body: bytes, out: _Out) -> None:
    out.append(tag + _length(len(body)) + body)


def _length(count: int) -> bytes:
    if count < 0x80:
        return _SHORT[count]
    found = bytearray()
    while count >= 0x80:
        found.append(count & 0x7F | 0x80)
        count >>= 7
    found.append(count)
    return bytes(found)


_SHORT = [bytes([count]) for count in range(0x80)]


def _deeper(depth: int) -> int:
    if depth >= DEEPEST:
        message = f"a value lies more than {DEEPEST} deep in others, or in itself"
        raise TypeError(message)
    return depth + 1


_WRITERS: dict[type, Callable[[Any, _Out, int], None]] = {
    type(None): _fixed(b"N"),
    bool: lambda value, out, depth: out.append(b"T" if value else b"F"),  # noqa: ARG005
    int: _write_int,
    float: _write_float,
    str: _write_str,
    bytes: _write_bytes,
    datetime: _write_datetime,
    date: _write_date,
    time: _write_time,
    timedelta: _write_timedelta,
    Decimal: _write_decimal,
    list: _items(b"L"),
    tuple: _items(b"U"),
    set: _members(b"S"),
    frozenset: _members(b"Z"),
    dict: _write_dict,
}


# Reading


class _Malformed(Exception):
    """Bytes that no value has."""


_MALFORMED = (
    _Malformed, struct.error, ValueError, OverflowError, TypeError, LookupError, InvalidOperation,
)  # fmt: skip


class _Reader:
    """A place in the bytes; everything it takes is there and is small enough."""

    __slots__ = ("at", "code")

    def __init__(self, code: bytes) -> None:
        """Begin behind the version."""
        self.code, self.at = code, 1

    def value(self, depth: int) -> Any:
        at = self.at
        if at >= len(self.code):
            raise _Malformed("it is cut short")  # noqa: EM101 - told below
        read = _READERS.get(self.code[at])
        if read is None:
            raise _Malformed(f"no value begins with byte {self.code[at]}")  # noqa: EM102 - told below
        self.at = at + 1
        return read(self, depth)

    def count(self, depth: int) -> int:
        """How many elements follow, each at least a byte, at a depth that values may have."""
        if depth >= DEEPEST:
            raise _Malformed("too deep")  # noqa: EM101 - told below
        return self.length()

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.code):
            raise _Malformed("it is cut short")  # noqa: EM101 - told below
        found = self.code[self.at : end]
        self.at = end
        return found

    def length(self) -> int:
        """A length or a count, which no more than the bytes that are left can satisfy."""
        found = shift = 0
        while True:
            if self.at >= len(self.code):
                raise _Malformed("it is cut short")  # noqa: EM101 - told below
            byte = self.code[self.at]
            self.at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 63:
                raise _Malformed("a length has no end")  # noqa: EM101 - told below
        if found > len(self.code) - self.at:
            raise _Malformed("a length is beyond the end")  # noqa: EM101 - told below
        return found

    def sized(self) -> bytes:
        return self.take(self.length())

    def word(self) -> int:
        (found,) = _WORD.unpack_from(self.code, self.at)
        self.at += 8
        return found  # type: ignore[no-any-return]

    def zone(self) -> dict[str, Any]:
        fold = self.take(1)[0]
        tag = self.take(1)
        if fold > 1 or tag not in b"Noz":
            raise _Malformed("no time zone looks like this")  # noqa: EM101 - told below
        zone: tzinfo | None = None
        if tag == b"o":
            zone = _offset(_span(self), self.value(DEEPEST))
        elif tag == b"z":
            zone = ZoneInfo(self.sized().decode())
        return {"fold": fold, "tzinfo": zone}


def _offset(offset: timedelta, name: Any) -> timezone:
    if name is not None:
        return timezone(offset, name)
    return UTC if not offset else timezone(offset)


def _span(reader: _Reader) -> timedelta:
    days, seconds, micros = _SPAN.unpack(reader.take(12))
    return timedelta(days, seconds, micros)


def _big(reader: _Reader) -> int:
    body = reader.sized()
    found = int.from_bytes(body, "little", signed=True)
    if _LOW <= found <= _HIGH or _width(found) != len(body):
        raise _Malformed("a whole number is longer than it need be")  # noqa: EM101 - told below
    return found


def _datetime(reader: _Reader) -> datetime:
    shown = _EPOCH + timedelta(microseconds=reader.word())
    return shown.replace(**reader.zone())


def _time(reader: _Reader) -> time:
    shown = reader.word()
    if not 0 <= shown < 86_400_000_000:
        raise _Malformed("no day has such a time")  # noqa: EM101 - told below
    return (_EPOCH + timedelta(microseconds=shown)).time().replace(**reader.zone())


def _double(reader: _Reader, depth: int) -> float:  # noqa: ARG001
    (found,) = _DOUBLE.unpack_from(reader.code, reader.at)
    reader.at += 8
    return found  # type: ignore[no-any-return]


def _text(reader: _Reader, depth: int) -> str:  # noqa: ARG001
    return reader.sized().decode("utf-8", "surrogatepass")


def _dict(reader: _Reader, depth: int) -> dict[Any, Any]:
    count, found = reader.count(depth), dict[Any, Any]()
    for _ in range(count):
        key = reader.value(depth + 1)
        found[key] = reader.value(depth + 1)
    _require_all(found, count)
    return found


def _instance(reader: _Reader, depth: int) -> Any:
    kind = classes.named(reader.sized().decode())
    found: dict[str, Any] = {}
    for _ in range(reader.count(depth)):
        name = reader.sized().decode()
        found[name] = reader.value(depth + 1)
    return classes.made(kind, found)


def _list(reader: _Reader, depth: int) -> list[Any]:
    return [reader.value(depth + 1) for _ in range(reader.count(depth))]


def _set(reader: _Reader, depth: int) -> set[Any]:
    elements = _list(reader, depth)
    found = set(elements)
    _require_all(found, len(elements))
    return found


def _require_all(found: Sized, count: int) -> None:
    if len(found) != count:
        raise _Malformed("an element comes twice")  # noqa: EM101 - told below


_BY_TAG: dict[bytes, Callable[[_Reader, int], Any]] = {
    b"N": lambda reader, depth: None,  # noqa: ARG005 - one signature for all
    b"F": lambda reader, depth: False,  # noqa: ARG005
    b"T": lambda reader, depth: True,  # noqa: ARG005
    b"i": lambda reader, depth: reader.word(),  # noqa: ARG005
    b"I": lambda reader, depth: _big(reader),  # noqa: ARG005
    b"d": _double,
    b"s": _text,
    b"b": lambda reader, depth: reader.sized(),  # noqa: ARG005
    b"m": lambda reader, depth: _datetime(reader),  # noqa: ARG005
    b"a": lambda reader, depth: date.fromordinal(_DAYS.unpack(reader.take(4))[0]),  # noqa: ARG005
    b"t": lambda reader, depth: _time(reader),  # noqa: ARG005
    b"l": lambda reader, depth: _span(reader),  # noqa: ARG005
    b"e": lambda reader, depth: Decimal(reader.sized().decode("ascii")),  # noqa: ARG005
    b"L": _list,
    b"U": lambda reader, depth: tuple(_list(reader, depth)),
    b"S": _set,
    b"Z": lambda reader, depth: frozenset(_set(reader, depth)),
    b"D": _dict,
    b"C": _instance,
}
_READERS = {tag[0]: read for tag, read in _BY_TAG.items()}


def _broken(why: str, at: int) -> CheckpointError:
    return CheckpointError("a kept value cannot be read", why=f"{why}, at byte {at}")
