"""Where files to read are: a directory of this host, or any place that PyArrow's file systems know.

A place travels to tasks as its path or URL. Credentials are those of each process's environment.
"""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from anabranch.connectors.file_names import is_plain
from anabranch.errors import ProgramError, RunError
from anabranch.objects import refuse_secrets, scheme_of, scrubbed

OBJECT_STORES = ("s3", "gs", "gcs", "abfs", "abfss")
"""Where there are no directories: one in which nothing is cannot be told from one that is not."""
_KNOWN = ("s3", "gs", "abfss", "hdfs", "file")


class InputPlace(Protocol):
    """A directory to read files from, or a file alone."""

    @property
    def only(self) -> str | None:
        """The name of that file."""
        ...

    def names(self, known: Collection[str]) -> list[str]:
        """The relative names of all files that are there now, those hidden left out, in order.

        Those in `known` were files when they were seen before.
        """
        ...

    def size(self, name: str) -> int:
        """The bytes of a file when it was last listed, or `FileNotFoundError`."""
        ...

    def file(self, name: str) -> StoredFile:
        """A file."""
        ...


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """A directory of this host, or of a file system that all hosts see."""

    root: Path
    only: str | None = None

    def __str__(self) -> str:
        """The path."""
        return str(self.root)

    def names(self, known: Collection[str]) -> list[str]:
        """Links to directories are not followed; pipes and broken links are no files."""
        if self.only is not None:
            return [self.only] if (self.root / self.only).is_file() else []
        found = []
        for directory, below, names in os.walk(self.root, onerror=self._unreadable):
            below[:] = [name for name in below if not is_hidden(name)]
            # As text: a path a file took 20 us, of all files that ever came, at every look.
            inside = Path(directory).relative_to(self.root).as_posix()
            begin = "" if inside == "." else f"{inside}/"
            found += [
                f"{begin}{name}"
                for name in names
                if not is_hidden(name) and not name.endswith(".tmp")
            ]
        return sorted(name for name in found if name in known or (self.root / name).is_file())

    def size(self, name: str) -> int:
        """As it is now."""
        return (self.root / name).stat().st_size

    def file(self, name: str) -> Path:
        """Its path."""
        return self.root / name

    def _unreadable(self, error: OSError) -> None:
        # A directory inside may go while we walk; the files it held would have been seen or not.
        if isinstance(error, FileNotFoundError) and error.filename != str(self.root):
            return
        message = f"Files: the directory {error.filename} cannot be read"
        raise RunError(message, why=str(error)) from error


class RemotePlace:
    """A directory of a file system that PyArrow reaches by a URL."""

    def __init__(self, url: str, only: str | None = None) -> None:
        """`url` has no secrets in it."""
        self.url, self.only = url.rstrip("/"), only
        self._sizes: dict[str, int] = {}
        self._file_system: tuple[Any, str] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process has its own connections and credentials."""
        return type(self), (self.url, self.only)

    def __str__(self) -> str:
        """The URL."""
        return self.url

    def names(self, known: Collection[str]) -> list[str]:  # noqa: ARG002 - a list says what are files
        """Those whose names lead elsewhere are nobody's."""
        import pyarrow.fs as pafs

        file_system, root = self._connected
        with _telling("list", self.url):
            selector = pafs.FileSelector(root, allow_not_found=True, recursive=True)
            found = file_system.get_file_info(
                selector if self.only is None else [f"{root}/{self.only}"]
            )
        begin = len(root.rstrip("/")) + 1
        files = {each.path[begin:]: each.size for each in found if each.is_file}
        self._sizes = {
            name: size for name, size in files.items() if name == self.only or _is_visible(name)
        }
        return sorted(self._sizes)

    def size(self, name: str) -> int:
        """As it was listed: asking again would be a request a file and look."""
        if name not in self._sizes:
            raise FileNotFoundError(name)
        return self._sizes[name]

    def file(self, name: str) -> RemoteFile:
        """A file, which is not looked at yet."""
        return RemoteFile(self, name)

    def kind(self) -> Literal["file", "directory"] | None:
        """What is there; None: nothing."""
        import pyarrow.fs as pafs

        file_system, root = self._connected
        with _telling("look at", self.url):
            (found,) = file_system.get_file_info([root])
        if found.type == pafs.FileType.NotFound:
            return None
        return "file" if found.is_file else "directory"

    def open(self, name: str) -> Any:
        """A file of PyArrow's, or `FileNotFoundError`."""
        file_system, root = self._connected
        with _telling("read", f"{self.url}/{name}"):
            return file_system.open_input_file(f"{root}/{name}")

    @property
    def _connected(self) -> tuple[Any, str]:
        if self._file_system is None:
            self._file_system = self._connect()
        return self._file_system

    def _connect(self) -> tuple[Any, str]:
        import pyarrow as pa
        import pyarrow.fs as pafs

        try:
            file_system, root = pafs.FileSystem.from_uri(self.url)
        except (pa.ArrowException, OSError) as error:
            message = f"Files: {self.url} cannot be reached by PyArrow"
            have = ", ".join(f"{each}://" for each in _KNOWN)
            so = "for hdfs:// install Hadoop's libraries and set HADOOP_HOME and JAVA_HOME"
            why = scrubbed(str(error).splitlines()[0])
            hdfs = self.url.startswith(("hdfs", "viewfs"))
            raise ProgramError(message, why=why, have=have, so=so if hdfs else None) from error
        return file_system, root


class RemoteFile:
    """A file of a remote place, used as far as a `Path` is by readers."""

    def __init__(self, place: RemotePlace, name: str) -> None:
        """Nothing is opened."""
        self._place, self.name = place, name

    def __str__(self) -> str:
        """Its URL."""
        return f"{self._place}/{self.name}"

    def open(self, mode: Literal["rb"]) -> BinaryIO:  # noqa: ARG002 - as that of `Path`
        """Its bytes, from any place on."""
        return _Bytes(self._place.open(self.name), str(self))  # type: ignore[return-value]


StoredFile: TypeAlias = Path | RemoteFile
"""A file to read, wherever it is."""


def for_arrow(file: StoredFile) -> Any:
    """A file as PyArrow's readers take it."""
    import pyarrow as pa

    return file if isinstance(file, Path) else pa.PythonFile(file.open("rb"), "r")


class _Bytes(io.RawIOBase):
    """A file of PyArrow's whose failures are a network's.

    Readers take an error without a number for a file that is not whole, which may be passed over;
    all of PyArrow's remote errors are such.
    """

    def __init__(self, file: Any, told: str) -> None:
        self._file, self._told = file, told

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        with _telling("read", self._told):
            found: bytes = self._file.read(None if size is None or size < 0 else size)
            return found

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def input_place(given: str | os.PathLike[str]) -> InputPlace:
    """The directory or file that a user means."""
    scheme = scheme_of(given)
    if scheme is None or scheme == "file":
        # Tasks run elsewhere, where a relative path would mean another place.
        path = (local_path(str(given)) if scheme else Path(given)).absolute()
        if not path.exists():
            message = f"Files: {given} does not exist"
            raise ProgramError(message, so="create the directory first, or mend the path")
        return LocalPlace(path) if path.is_dir() else LocalPlace(path.parent, path.name)
    url = plain_url(str(given))
    place = RemotePlace(url)
    kind = place.kind()
    if kind is None and not _may_come(url, scheme):
        message = f"Files: {url} does not exist"
        raise ProgramError(message, so="create it first, or mend the URL")
    if kind == "file":
        above, _, name = place.url.rpartition("/")
        return RemotePlace(above, name)
    return place


def _may_come(url: str, scheme: str) -> bool:
    """Whether files may be put there: their bucket is there, and no directory need be."""
    if scheme not in OBJECT_STORES:
        return False
    bucket = urlsplit(url).netloc
    return RemotePlace(f"{scheme}://{bucket}").kind() is not None


def plain_url(given: str) -> str:
    """A URL without secrets and settings, or an error."""
    refuse_secrets(given)
    if "?" in given or "#" in given:
        message = f"Files: {given} has settings in it"
        raise ProgramError(message, so="put them into the environment, such as AWS_ENDPOINT_URL")
    return given


def local_path(url: str) -> Path:
    """The path of a `file://` URL.

    >>> local_path("file:///data/my%20views")
    PosixPath('/data/my views')
    """
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        message = f"{url} names no file of this host"
        raise ProgramError(message, so="write file:///path, with three slashes, or the path alone")
    return Path(unquote(parts.path))


def is_hidden(name: str) -> bool:
    """Whether a file or directory of this name is passed over."""
    return name.startswith(("_", "."))


def _is_visible(name: str) -> bool:
    parts = name.split("/")
    return is_plain(name) and not any(map(is_hidden, parts)) and not name.endswith(".tmp")


@contextmanager
def _telling(what: str, url: str) -> Iterator[None]:
    """Say what could not be done to which file; that it is not there is for others to tell."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        message = f"Files: cannot {what} {url}"
        so = "check the network, the endpoint and the credentials in the environment"
        why = scrubbed((str(error) or type(error).__name__).splitlines()[0])
        raise RunError(message, why=why, so=so) from error
