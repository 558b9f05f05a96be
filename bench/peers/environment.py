"""Python environments of other systems: made when they are first asked for, kept in the cache.

Each has its own, since what they need of Arrow and NumPy is not what we need. Holds after
`interpreter`: the Python that is returned has just the versions that are named here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from anabranch import config

PATIENCE_S = 900
"""Flink's archive has 300 MB."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What one system needs installed.

    >>> Environment("storm", ("storm==2.8", "pyarrow==1.0")).title
    'storm 2.8'
    """

    name: str
    packages: tuple[str, ...]
    """Names with versions; the first is the system's own."""

    @property
    def title(self) -> str:
        """The system and its version."""
        return f"{self.name} {self.packages[0].partition('==')[2]}"

    def directory(self, cache: Path) -> Path:
        """Where it is kept: another Python or another version has another one."""
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return cache / "peers" / f"{self.title.replace(' ', '-')}-{python}"


class UnavailableError(Exception):
    """A system cannot be had on this machine; the message is one line that says which and why."""

    @classmethod
    def because(cls, environment: Environment, why: str) -> UnavailableError:
        """Say what could not be installed."""
        python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        return cls(f"{environment.title} cannot be installed for {python}: {why}")


FLINK = Environment("flink", ("apache-flink==2.3.0",))
BYTEWAX = Environment("bytewax", ("bytewax==0.21.1", "pyarrow==26.0.1"))


def found(environment: Environment, cache: Path | None = None) -> Path | None:
    """The interpreter of an environment that has been made before; None if there is none."""
    made = environment.directory(config.cache_directory() if cache is None else cache)
    python = made / "bin" / "python"
    return python if python.exists() else None


def interpreter(environment: Environment, cache: Path | None = None) -> Path:
    """The interpreter of an environment, which is made if there is none yet.

    It appears whole or not at all, so several processes may ask for it at once.

    Raises:
        UnavailableError: It cannot be installed here.
    """
    cache = config.cache_directory() if cache is None else cache
    if (there := found(environment, cache)) is not None:
        return there
    made = environment.directory(cache)
    made.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{made.name}-", dir=made.parent))
    try:
        _install(environment, draft)
        _publish(draft, made)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return made / "bin" / "python"


def _install(environment: Environment, into: Path) -> None:
    _run(environment, [sys.executable, "-m", "venv", str(into)])
    # By its interpreter: scripts in `bin` name the draft's path, and it does not stay.
    pip = [str(into / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    _run(environment, [*pip, "install", "--quiet", *environment.packages])


def _publish(draft: Path, made: Path) -> None:
    try:
        draft.rename(made)
    except OSError:
        if not (made / "bin" / "python").exists():  # else another process was first
            raise


def _run(environment: Environment, command: list[str]) -> None:
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError.because(environment, f"not done in {PATIENCE_S} s") from error
    if ended.returncode:
        raise UnavailableError.because(environment, why(ended.stdout))


def why(output: str) -> str:
    """The one line of an installer's output that says what went wrong.

    >>> why("Looking in indexes\\nERROR: No matching distribution found for x==1\\n\\nnotice: ...")
    'No matching distribution found for x==1'
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error:")]
    last = (errors or lines or ["the installer said nothing"])[-1]
    return last.removeprefix("ERROR:").removeprefix("error:").strip()
