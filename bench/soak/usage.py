"""What processes and directories hold, as Linux tells it in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anabranch.spark.processes import HEAD, LANE

PROC = Path("/proc")
MB = 1 << 20
_OWNER = "owner"
"""The file that a process holds open in each directory that it owns."""


@dataclass(frozen=True, slots=True)
class Processes:
    """What some processes hold together.

    >>> Processes(1, 20, 3, 7) + Processes(1, 10, 1, 5)
    Processes(count=2, memory=30, threads=4, descriptors=12)
    """

    count: int = 0
    memory: int = 0
    """Bytes of it that are in memory, shared ones in each process."""
    threads: int = 0
    descriptors: int = 0

    def __add__(self, other: Processes) -> Processes:
        return Processes(
            self.count + other.count,
            self.memory + other.memory,
            self.threads + other.threads,
            self.descriptors + other.descriptors,
        )


@dataclass(frozen=True, slots=True)
class Files:
    """How many files there are somewhere, and how large they are together."""

    count: int = 0
    size: int = 0


def by_role(root: int) -> dict[str, Processes]:
    """What this process holds ("driver"), and those below it: "jvm", "lanes", "heads", "others"."""
    found = {"driver": _held(root), **dict.fromkeys(("jvm", "lanes", "heads"), Processes())}
    for process in _below(root):
        with suppress(OSError):  # it is gone
            role = _role(process)
            found[role] = found.get(role, Processes()) + _held(process)
    return found


def files_below(folder: Path | str) -> Files:
    """All files below a directory; links are not followed, what goes while we look is left out."""
    count = size = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    below = files_below(entry.path)
                    count, size = count + below.count, size + below.size
                else:
                    size += entry.stat(follow_symlinks=False).st_size
                    count += 1
    return Files(count, size)


def owned_directories() -> list[Path]:
    """The directories that this process owns: for what is exchanged, and Spark's own."""
    held = (PROC / "self" / "fd").iterdir()
    found = set()
    for each in held:
        with suppress(OSError):
            place = each.readlink()
            if place.name == _OWNER and place.parent.name.startswith("anabranch-"):
                found.add(place.parent)
    return sorted(found)


def _below(root: int) -> Iterator[int]:
    parents = dict(_parents())
    for process in parents:
        above = parents.get(process)
        while above is not None and above != root:
            above = parents.get(above)
        if above == root:
            yield process


def _parents() -> Iterator[tuple[int, int]]:
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                # The name, in parentheses, may hold anything.
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
                yield int(folder.name), int(stat[1])


def _role(process: int) -> str:
    folder = PROC / str(process)
    if (folder / "comm").read_text().strip() == "java":
        return "jvm"
    variables = (folder / "environ").read_bytes().split(b"\0")
    names = {each.partition(b"=")[0].decode(errors="replace") for each in variables}
    return "lanes" if LANE in names else "heads" if HEAD in names else "others"


def _held(process: int) -> Processes:
    folder = PROC / str(process)
    facts = _facts((folder / "status").read_text().splitlines())
    memory = int(facts.get("VmRSS", "0 kB").split()[0]) * 1024
    return Processes(1, memory, int(facts["Threads"]), len(list((folder / "fd").iterdir())))


def _facts(lines: Iterable[str]) -> Mapping[str, str]:
    r"""What a status file says.

    >>> _facts(["VmRSS:\t  12 kB"])
    {'VmRSS': '12 kB'}
    """
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
