"""The header: what this machine is and which versions are here."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from bench.harness.report import Header

ROOT = Path(__file__).parents[2]


def header(now: datetime | None = None) -> Header:
    """Look at this machine."""
    day = (now or datetime.now(UTC)).date().isoformat()
    return Header(
        cores=_cores(),
        memory_gib=_memory_gib(),
        cpu=_cpu(),
        os=_system(),
        python=platform.python_version(),
        polars=_version("polars"),
        pyarrow=_version("pyarrow"),
        pyspark=_version("pyspark"),
        anabranch=_own_version(),
        commit=commit(ROOT),
        date=day,
    )


def commit(folder: Path) -> str | None:
    """The commit in short, with `-dirty` where files differ from it; None without one.

    Results files are left out: a benchmark writes them, and is no other program for it.
    """
    short = _output(["git", "rev-parse", "--short", "HEAD"], folder)
    if not short:
        return None
    changed = _output(["git", "status", "--porcelain", "--", ".", ":!bench/results"], folder)
    return f"{short}-dirty" if changed else short


def cpu_model(cpuinfo: str) -> str | None:
    r"""The model in the text of Linux' /proc/cpuinfo; not every processor has one there.

    >>> cpu_model("processor : 0\nmodel name\t: Xeon\n")
    'Xeon'
    """
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else None


def _cores() -> int:
    """The cores this process may use, which a container can make fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_gib() -> float | None:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):  # not every system says
        return None
    return round(size / 2**30, 1)


def _cpu() -> str:
    found = None
    with contextlib.suppress(OSError):
        found = cpu_model(Path("/proc/cpuinfo").read_text())
    if platform.system() == "Darwin":
        found = _output(["sysctl", "-n", "machdep.cpu.brand_string"], ROOT)
    return found or platform.processor() or platform.machine()


def _system() -> str:
    """The kernel by its numbers, as what follows may be a builder's name, and the distribution."""
    numbers = re.match(r"[\d.]*\d", platform.release())
    kernel = f"{platform.system()} {numbers[0] if numbers else ''}".strip()
    with contextlib.suppress(OSError):
        return f"{kernel}, {platform.freedesktop_os_release()['PRETTY_NAME']}"
    return kernel


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _own_version() -> str | None:
    try:
        import anabranch
    except ImportError:
        return None
    return anabranch.__version__


def _output(command: list[str], folder: Path) -> str | None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
