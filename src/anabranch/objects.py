"""Object stores: the only place that knows obstore, which the extra `objects` brings.

An object is made whole by one request, and by `Bucket.create` only where its name is free. Settings
and credentials are those of the process's environment: a URL holds neither, so it may be pickled,
logged and shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from anabranch import config
from anabranch.errors import ProgramError, RunError, calling_site

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES = ("s3", "gs", "az", "abfs", "abfss")
"""Amazon S3 and what speaks its protocol, Google Cloud Storage, Azure's blobs by two names."""

RETRIES: Mapping[str, Any] = {"max_retries": 10, "retry_timeout": timedelta(minutes=3)}
"""How often a request that failed is sent again, the waits between growing up to 15 s."""

_TIMEOUT = timedelta(minutes=3)
"""Of one request: obstore's own 30 s are too few for a delta of some hundred MiB."""
_TRIES = 2
"""Of a create whose answer was lost; obstore sends such a request again on few errors only."""
_WRITER = "writer"
"""The attribute of an object that says which call made it."""

_FORM = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/?(.*)", re.DOTALL)
_SECRET = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*@")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(@[A-Za-z0-9][A-Za-z0-9.-]*)?")
_PART = re.compile(r"[^\x00-\x1f\x7f?#\\]+")


class Taken(Exception):
    """The name of an object that was to be made is in use, by somebody else's object."""


class Absent(Exception):
    """An object that was to be read is not there."""


@dataclass(frozen=True, slots=True)
class ObjectUrl:
    """A place in an object store, and all names below it.

    >>> place = ObjectUrl.of("s3://bucket/queries/views/")
    >>> place.bucket, place.path, str(place / "copy")
    ('bucket', 'queries/views', 's3://bucket/queries/views/copy')
    """

    scheme: str
    bucket: str
    path: str = ""

    @classmethod
    def of(cls, given: str) -> ObjectUrl:
        """Read one, or say what is wrong with it, at the user's line."""
        refuse_secrets(given)
        form = _FORM.fullmatch(given)
        scheme, bucket, rest = form.groups() if form else ("", "", "")
        if scheme not in SCHEMES:
            message = f"{given} is in no object store that is known"
            raise ProgramError(message, have=", ".join(f"{each}://" for each in SCHEMES))
        path = rest.rstrip("/")
        parts = path.split("/") if path else []
        if not _BUCKET.fullmatch(bucket) or not all(map(_is_plain, parts)):
            message = f"{given} names no place in an object store"
            so = f"write {scheme}://bucket/path; settings such as endpoints are in the environment"
            raise ProgramError(message, so=so)
        return cls(scheme, bucket, path)

    def __truediv__(self, name: str) -> ObjectUrl:
        """A place below."""
        return replace(self, path=f"{self.path}/{name}" if self.path else name)

    def __str__(self) -> str:
        """As users write it; there is no secret in it."""
        return f"{self.scheme}://{self.bucket}" + (f"/{self.path}" if self.path else "")


def scheme_of(given: str | PathLike[str]) -> str | None:
    """The scheme of a URL; None: it is a path.

    >>> scheme_of("s3://bucket/path"), scheme_of("data/in")
    ('s3', None)
    """
    form = _FORM.fullmatch(given) if isinstance(given, str) else None
    return form[1].lower() if form else None


def scrubbed(text: str) -> str:
    """A text without the secrets of URLs in it.

    >>> scrubbed("see s3://key:secret@bucket/path")
    'see s3://***@bucket/path'
    """
    return _SECRET.sub("***@", text)


def refuse_secrets(given: str) -> None:
    """Refuse a URL with a password in it: it would be in logs, checkpoints and processes."""
    if scrubbed(given) == given:
        return
    site = calling_site()
    message = f"{scrubbed(given)} has credentials in it"
    # The line that is wrong has them as well.
    site = replace(site, text=scrubbed(site.text))
    raise ProgramError(message, site=site, so=_CREDENTIALS)


def require_obstore(what: str) -> None:
    """Refuse at the user's line what needs obstore where it is not installed."""
    try:
        import obstore  # noqa: F401 - whether it can be imported is all that is asked
    except ImportError as error:
        message = f"{what} needs obstore, which is not installed"
        raise ProgramError(message, so='install it: pip install "anabranch[objects]"') from error


class Bucket:
    """The objects below a URL. It travels as the URL alone, and connects where it is first used."""

    def __init__(self, url: ObjectUrl, whose: str) -> None:
        """`whose` is the first word of its errors."""
        self.url, self.whose = url, whose

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process has its own connections and credentials."""
        return type(self), (self.url, self.whose)

    def create(self, name: str, data: bytes) -> None:
        """Make an object where there is none of that name, or raise `Taken`; never in part.

        This is a conditional put. A request may be done and its answer lost, and is then sent
        again, by obstore or here; the second finds the name taken, by this very call. So every call
        gives its object an attribute that no other has, and looks at it where the name is taken: it
        says who made the object, whatever is in it. Equal content would not: two runs that make
        copies of one checkpoint at the same place write the same bytes.

        A request that is lost may still arrive when this has raised `RunError`: nobody knows then
        whether the object is there, as the commit protocol expects of a store that failed. It may
        arrive when the object has been deleted: then it is there again, as after a loss of power.
        """
        writer = uuid4().hex
        for left in reversed(range(_TRIES)):
            try:
                with self._telling("write", name):
                    self._put(name, data, writer)
            except _Unanswered:
                if not left:
                    raise
            else:
                return

    def _put(self, name: str, data: bytes, writer: str) -> None:
        obstore = self._obstore
        try:
            obstore.put(
                self._client,
                self._key(name),
                data,
                mode="create",
                attributes={_WRITER: writer},
                use_multipart=False,
            )
        except obstore.exceptions.AlreadyExistsError as error:
            found = self._writer(name)
            if found is None:
                # S3 also says so (409) while another request for the name is under way.
                why = "the store says that the name is taken, and there is nothing"
                told = self._told("write", name, why, "start again")
                raise _Unanswered(told) from error
            if found != writer:
                raise Taken(name) from None

    def _writer(self, name: str) -> str | None:
        """The call that made an object, "" for one made elsewhere; None: it is not there."""
        try:
            found = self._obstore.get(self._client, self._key(name), options={"head": True})
        except FileNotFoundError:
            return None
        return str(found.attributes.get(_WRITER, ""))

    def read(self, name: str, most: int | None = None) -> bytes:
        """All of an object, or raise `Absent`; one of more than `most` bytes is refused."""
        with self._telling("read", name):
            found = self._obstore.get(self._client, self._key(name))
            size = found.meta["size"]
            if most is not None and size > most:
                why = f"it has {size} bytes, more than any file of its kind"
                told = self._told("read", name, why)
                raise told
            return bytes(found.bytes())

    def size(self, name: str) -> int:
        """How many bytes an object has, or raise `Absent`."""
        with self._telling("look at", name):
            found: int = self._obstore.head(self._client, self._key(name))["size"]
            return found

    def sizes(self, folder: str) -> dict[str, int]:
        """The names of all objects in a folder ("" or "a/b/") and below, each with its bytes."""
        begin = len(self.url.path) + 1 if self.url.path else 0
        with self._telling("list", folder):
            pages = self._obstore.list(self._client, self._key(folder) or None)
            return {each["path"][begin:]: each["size"] for page in pages for each in page}

    def delete(self, *names: str) -> None:
        """Remove objects as far as they are there."""
        for name in names:
            try:
                with self._telling("delete", name):
                    self._obstore.delete(self._client, self._key(name))
            except Absent:
                continue

    def copy(self, name: str, to: str) -> None:
        """Make an object of another's content, or raise `Taken` (by whomever) or `Absent`."""
        with self._telling("write", to):
            try:
                self._obstore.copy(self._client, self._key(name), self._key(to), overwrite=False)
            except self._obstore.exceptions.AlreadyExistsError:
                raise Taken(to) from None

    def require_fence(self, folder: str = "", *, copies: bool = False) -> None:
        """Refuse a store that makes an object where there is one: older ones do, and say nothing.

        With `copies` by copying as well. What a process that dies here leaves in `folder` begins
        with a dot.
        """
        first, second = (f"{folder}/.probe-{uuid4().hex}".strip("/") for _ in range(2))
        try:
            self.create(first, b"1")
            fenced = self._is_refused(lambda: self.create(first, b"2"))
            if fenced and copies:
                self.copy(first, second)
                fenced = self._is_refused(lambda: self.copy(first, second))
        finally:
            self.delete(first, second)
        if fenced:
            return
        message = f"{self.whose}: {self.url} cannot be used: it has no conditional puts"
        why = "it made an object under a name that was taken (If-None-Match: * was passed over)"
        raise RunError(message, why=why, so=_OTHER_STORE)

    @staticmethod
    def _is_refused(make: Callable[[], None]) -> bool:
        try:
            make()
        except Taken:
            return True
        return False

    def _key(self, name: str) -> str:
        return f"{self.url.path}/{name}".strip("/")

    @cached_property
    def _obstore(self) -> ModuleType:
        require_obstore(str(self.url))
        import obstore

        return obstore

    @cached_property
    def _client(self) -> ObjectStore:
        from obstore.store import from_url

        root = str(replace(self.url, path=""))
        client_options: Any = {
            "timeout": _TIMEOUT,
            "allow_http": config.objects_over_http(self.url.scheme),
        }
        retry_config: Any = dict(RETRIES)
        if self.url.scheme == "s3":
            # S3 copies whatever is there; the last step of a copy in parts is conditional.
            return from_url(
                root,
                config={"copy_if_not_exists": "multipart"},
                client_options=client_options,
                retry_config=retry_config,
            )
        return from_url(root, client_options=client_options, retry_config=retry_config)

    @contextmanager
    def _telling(self, what: str, name: str) -> Iterator[None]:
        """Say what could not be done to which object, why, and what helps."""
        try:
            yield
        except (OSError, NotImplementedError, self._obstore.exceptions.BaseError) as error:
            text = str(error)
            if isinstance(error, FileNotFoundError) and not _NO_BUCKET.search(text):
                raise Absent(name) from None
            why, so = _reason(error, text)
            told = self._told(what, name, why, so)
            if isinstance(error, self._obstore.exceptions.GenericError) and so in _MAY_BE_DONE:
                raise _Unanswered(told) from error
            raise told from error

    def _told(self, what: str, name: str, why: str, so: str | None = None) -> RunError:
        place = self.url / name if name else self.url
        return RunError(f"{self.whose}: cannot {what} {place}", why=why, so=so)


class _Unanswered(RunError):
    """A request failed, and nobody knows whether it was done."""

    def __init__(self, told: RunError) -> None:
        super().__init__(told.what, why=told.why, so=told.so)


def _is_plain(part: str) -> bool:
    return part not in ("", ".", "..") and _PART.fullmatch(part) is not None


_OTHER_STORE = "use a store that has them, such as Amazon S3, Google Cloud Storage or Azure"
_AGAIN = "check the network and the endpoint, then start again: what was committed is there"
_MAY_BE_DONE = (None, _AGAIN)
_CREDENTIALS = "put them into the environment of all processes, such as AWS_ACCESS_KEY_ID"
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_CODE = re.compile(r"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", re.DOTALL)
_NO_ONE = r"/latest/(api|meta-data)|169\.254\.|metadata\.google|MissingToken|[Mm]issing credential"
_ADVICE: tuple[tuple[str, str, str], ...] = (
    (
        _NO_ONE,
        "no credentials were found",
        _CREDENTIALS,
    ),
    (_NO_BUCKET.pattern, "there is no such bucket", "make the bucket first, or mend the URL"),
    (
        r"PermissionDenied|Unauthenticated|status code: 40[13]",
        "the store refuses these credentials",
        "give them the right to read, write, list and delete there",
    ),
    (
        r"PutMode::Create|copy-if-not-exists",
        "conditional requests are not supported or are switched off",
        _OTHER_STORE,
    ),
    (
        "BadScheme",
        "its endpoint is http, which is not encrypted",
        "use https, or set AWS_ALLOW_HTTP=true if that is meant",
    ),
    ("Account must be", "no account is named", "set AZURE_STORAGE_ACCOUNT_NAME"),
    (
        "HTTP error",
        "it cannot be reached",
        _AGAIN,
    ),
)
"""What a text of obstore's means, and what helps; the first that fits."""


def _reason(error: Exception, text: str) -> tuple[str, str | None]:
    text = f"{type(error).__name__}: {text}"
    shown = text.split("\n\nDebug source", 1)[0]
    answer = _CODE.search(shown)
    first = f"{answer[1]}: {answer[2]}" if answer else shown.splitlines()[0]
    for sign, meaning, so in _ADVICE:
        if re.search(sign, text):
            return f"{meaning} ({scrubbed(first)})", so
    return scrubbed(first), None
