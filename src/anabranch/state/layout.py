"""What lies where in a checkpoint, and what is in its small files.

    metadata                        which program this is the checkpoint of
    lease/<n>                       run n has begun; the highest n owns the directory
    program/<n>                     what run n keeps state for (see `description`)
    epochs/<epoch>_<run>.plan       written ahead: what the epoch will read, and maybe others
    epochs/<first>-<last>_<run>.plan    the same, of several such files, written when committed
    tables/<lookup>/<n>_<run>.arrow a version of a lookup's table; plans name those that hold
    state/<operator>/
      <epoch>_<run>_<lane>_<id>.delta   what a lane changed, up to that epoch
      <epoch>_<run>_<lane>_<id>.snap    all that a lane held after that epoch
    commits/<number>                a group of epochs is durable: the only commit point
    published/<number>              all output up to that commit is visible

Numbers are written with ten digits, so that names sort as numbers do. Files are made once and never
changed.

Commits are numbered one after the other, and their files are named by the number, not by an epoch:
of two runs that commit after the same commit, with groups of whatever length, only one can make the
file. Plans carry their run, so that what a fenced run still writes is in nobody's way; the commits
say which plans count (`Commit.plans`, `Commit.adopted`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote

from anabranch.ids import Offset, Partition
from anabranch.state.envelope import (
    Fields,
    Json,
    as_count,
    as_int,
    as_json,
    as_partition,
    as_text,
    mapping_of,
    object_of,
    optional,
    pair_of,
    pairs,
    refuse,
    seal,
    tuple_of,
    unseal,
)

FORMAT = 1
METADATA = "metadata"
LEASES, PLANS, STATE, COMMITS, PUBLISHED = "lease/", "epochs/", "state/", "commits/", "published/"
PROGRAMS, TABLES = "program/", "tables/"

_LONGEST_NAME = 120
_NUMBER = re.compile(r"[0-9]{10,19}")
_TABLE = re.compile(r"tables/[^/]+/[0-9]{10,19}_([0-9]+)\.arrow")
_PLAN = re.compile(r"epochs/([0-9]{10,19})(?:-[0-9]{10,19})?_([0-9]+)\.plan")
_DELTA = re.compile(r"state/([^/]+)/([0-9]{10,19})_([0-9]+)_([0-9]+)_([0-9A-Za-z-]+)\.(delta|snap)")


def lease_path(number: int) -> str:
    """Where the lease of a run is.

    >>> lease_path(3)
    'lease/0000000003'
    """
    return f"{LEASES}{number:010d}"


def program_path(run: int) -> str:
    """Where a run says what it keeps state for.

    >>> program_path(3)
    'program/0000000003'
    """
    return f"{PROGRAMS}{run:010d}"


def plan_path(epoch: int, run: int, last: int | None = None) -> str:
    """Where a run plans an epoch; or where it has put plans of many epochs together.

    >>> plan_path(12, 3), plan_path(12, 3, last=99)
    ('epochs/0000000012_3.plan', 'epochs/0000000012-0000000099_3.plan')
    """
    up_to = "" if last is None else f"-{last:010d}"
    return f"{PLANS}{epoch:010d}{up_to}_{run}.plan"


def table_path(lookup: str, number: int, run: int) -> str:
    """Where a run puts a version of a lookup's table.

    >>> table_path("ads", 2, 3)
    'tables/ads/0000000002_3.arrow'
    """
    return f"{TABLES}{folder_of(lookup)}/{number:010d}_{run}.arrow"


def run_of_table(path: str) -> int | None:
    """The run that wrote a version of a table; None: it is none.

    >>> run_of_table("tables/ads/0000000002_3.arrow"), run_of_table("tables/notes.txt")
    (3, None)
    """
    named = _TABLE.fullmatch(path)
    return None if named is None else int(named[1])


def commit_path(number: int) -> str:
    """Where a commit is.

    >>> commit_path(4)
    'commits/0000000004'
    """
    return f"{COMMITS}{number:010d}"


def published_path(number: int) -> str:
    """Where it is written that a commit is published, and all before it.

    >>> published_path(4)
    'published/0000000004'
    """
    return f"{PUBLISHED}{number:010d}"


@dataclass(frozen=True, slots=True)
class DeltaName:
    """The name of a delta or snapshot: the last epoch in it, and the attempt that wrote it.

    >>> DeltaName("count by/user", epoch=7, run=2, lane=1, id="0a").path
    'state/count%20by%2Fuser/0000000007_2_1_0a.delta'
    """

    operator: str
    epoch: int
    run: int
    lane: int
    id: str
    snapshot: bool = False

    @property
    def path(self) -> str:
        """The file's path in the checkpoint."""
        suffix = "snap" if self.snapshot else "delta"
        name = f"{self.epoch:010d}_{self.run}_{self.lane}_{self.id}.{suffix}"
        return f"{STATE}{folder_of(self.operator)}/{name}"


def folder_of(operator: str) -> str:
    """An operator's name as that of a folder: plain ASCII, and no longer than a folder may be."""
    plain = quote(operator, safe=" ").replace(" ", "%20").replace("~", "%7E")
    if plain.startswith("."):
        plain = "%2E" + plain[1:]
    if len(plain) <= _LONGEST_NAME:
        return plain
    return f"{plain[: _LONGEST_NAME - 33]}~{hashlib.sha256(operator.encode()).hexdigest()[:32]}"


def is_snapshot(path: str) -> bool:
    """Whether a file holds all that its lane held, so that nothing older is needed with it."""
    return path.endswith(".snap")


def number_of(path: str) -> int | None:
    """The number of a lease, program, commit or acknowledgement; None: it is no such file.

    >>> number_of("commits/0000000004")
    4
    """
    name = path.rpartition("/")[2]
    return int(name) if _NUMBER.fullmatch(name) else None


def plan_of(path: str) -> tuple[int, int] | None:
    """The epoch and run in a plan's name; None: it is no plan.

    >>> plan_of("epochs/0000000012_3.plan"), plan_of("epochs/0000000012-0000000099_3.plan")
    ((12, 3), (12, 3))
    """
    found = _PLAN.fullmatch(path)
    return (int(found[1]), int(found[2])) if found else None


def is_folded(path: str) -> bool:
    """Whether a file of plans was made of others, for a commit.

    >>> is_folded("epochs/0000000012_3.plan"), is_folded("epochs/0000000012-0000000099_3.plan")
    (False, True)
    """
    return "-" in path


@lru_cache(maxsize=1 << 14)  # the same ones are asked for at every commit
def delta_of(path: str) -> DeltaName | None:
    """What a delta's path says; of a very long operator's name only its beginning. None: no delta.

    >>> delta_of("state/count/0000000007_2_1_0a.snap").lane
    1
    """
    found = _DELTA.fullmatch(path)
    if found is None:
        return None
    operator, epoch, run, lane, unique, suffix = found.groups()
    name = unquote(operator)
    return DeltaName(name, int(epoch), int(run), int(lane), unique, snapshot=suffix == "snap")


@dataclass(frozen=True, slots=True)
class Metadata:
    """Which program a checkpoint is of.

    >>> Metadata.from_bytes("metadata", Metadata("q1", "views", 0).to_bytes()).program
    'views'
    """

    id: str
    program: str
    created: int
    """Microseconds since 1970-01-01 UTC."""
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        """The file's content."""
        return seal(
            {"id": self.id, "program": self.program, "created": self.created, "format": self.format}
        )

    @classmethod
    def from_bytes(cls, path: str, data: bytes) -> Metadata:
        """Read the file's content."""
        fields = Fields(path, unseal(path, data))
        found = cls(
            id=fields.take("id", as_text),
            program=fields.take("program", as_text),
            created=fields.take("created", as_int),
            format=fields.take("format", as_count),
        )
        fields.finish()
        return found


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of a run to write to a checkpoint: it has it until there is a higher number.

    The number is what plans, deltas and commits call their `run`.

    >>> Lease.from_bytes("lease/1", Lease(1, "r-1", "host:77").to_bytes()).holder
    'host:77'
    """

    number: int
    run_id: str
    holder: str

    def to_bytes(self) -> bytes:
        """The file's content."""
        return seal({"number": self.number, "run_id": self.run_id, "holder": self.holder})

    @classmethod
    def from_bytes(cls, path: str, data: bytes) -> Lease:
        """Read the file's content."""
        fields = Fields(path, unseal(path, data))
        found = cls(
            number=fields.take("number", as_count),
            run_id=fields.take("run_id", as_text),
            holder=fields.take("holder", as_text),
        )
        fields.finish()
        return found


@dataclass(frozen=True, slots=True)
class EpochPlan:
    """What an epoch will read, written before any of it is read (M1).

    An epoch that was planned and not committed is run again with these very offsets. `hint` and
    `memory` are JSON values of the source's; `lanes` and `owners` (the version of the
    configuration) say how wide it was meant to run. `tables` are the versions of lookup tables that
    hold for it, paths by the lookup's name; left out of the file where there are none, as in files
    of older versions. `run` is filled in by the commit machine, and so are `file`, the epoch that a
    file is called by which holds this plan behind others (None: its own), and `last`, where the
    file's name tells that of the last epoch, too.

    >>> plan = EpochPlan(epoch=4, source="clicks", offsets={0: (7, 9)})
    >>> EpochPlan.all_from_bytes("epochs/4_1.plan", plan.to_bytes()) == (plan,)
    True
    """

    epoch: int
    source: str
    offsets: Mapping[Partition, tuple[Offset, Offset]]
    idle: tuple[Partition, ...] = ()
    finished: tuple[Partition, ...] = ()
    hint: Json = None
    lanes: int = 0
    owners: int = 0
    memory: Json = None
    tables: Mapping[str, str] = field(default_factory=dict)
    run: int = 0
    file: int | None = None
    last: int | None = None

    @property
    def path(self) -> str:
        """Where this plan is."""
        return plan_path(self.epoch if self.file is None else self.file, self.run, self.last)

    def to_bytes(self, following: Sequence[EpochPlan] = ()) -> bytes:
        """The content of a file with this plan and those of the epochs behind it."""
        more: dict[str, Json] = {}
        if following:
            more["following"] = [each.told() for each in following]
        if self.last is not None:
            more["last"] = self.last
        return seal(self.told() | more)

    def told(self) -> dict[str, Json]:
        """What a file says of it."""
        return {
            "epoch": self.epoch,
            "run": self.run,
            "source": self.source,
            "offsets": [[each, list(range_)] for each, range_ in self.offsets.items()],
            "idle": list(self.idle),
            "finished": list(self.finished),
            "hint": self.hint,
            "lanes": self.lanes,
            "owners": self.owners,
            "memory": self.memory,
            **({"tables": dict(self.tables)} if self.tables else {}),
        }

    @classmethod
    def all_from_bytes(cls, path: str, data: bytes) -> tuple[EpochPlan, ...]:
        """Read the file's content: the plans of epochs that follow one another, of one run."""
        content = dict(unseal(path, data))
        following = content.pop("following", [])
        if not isinstance(following, list) or not all(isinstance(x, dict) for x in following):
            refuse(path, "key 'following': plans of epochs are expected")
        last = content.pop("last", None)
        first = replace(cls._of(path, content), last=None if last is None else _count(path, last))
        behind = (cls._of(path, each) for each in following)
        found = (first, *(replace(each, file=first.epoch, last=first.last) for each in behind))
        for at, each in enumerate(found):
            if (each.epoch, each.run) != (first.epoch + at, first.run):
                refuse(path, f"epoch {each.epoch} of run {each.run} is out of place")
        if first.last not in (None, found[-1].epoch):
            refuse(path, f"it ends with epoch {found[-1].epoch} and says {first.last}")
        return found

    @classmethod
    def _of(cls, path: str, content: Mapping[str, Json]) -> EpochPlan:
        fields = Fields(path, content)
        found = cls(
            epoch=fields.take("epoch", as_count),
            run=fields.take("run", as_count),
            source=fields.take("source", as_text),
            offsets=fields.take("offsets", mapping_of(as_partition, pair_of(as_json, as_json))),
            idle=fields.take("idle", tuple_of(as_partition)),
            finished=fields.take("finished", tuple_of(as_partition)),
            hint=fields.take("hint", as_json),
            lanes=fields.take("lanes", as_count),
            owners=fields.take("owners", as_count),
            memory=fields.take("memory", as_json),
            tables=fields.take("tables", object_of(as_text)) if "tables" in fields else {},
        )
        fields.finish()
        return found


def _count(path: str, value: Json) -> int:
    return Fields(path, {"last": value}).take("last", as_count)


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """All output up to a commit has been published.

    >>> Acknowledgement.from_bytes("published/4", Acknowledgement(4, 2).to_bytes())
    Acknowledgement(number=4, run=2)
    """

    number: int
    run: int

    def to_bytes(self) -> bytes:
        """The file's content."""
        return seal({"number": self.number, "run": self.run})

    @classmethod
    def from_bytes(cls, path: str, data: bytes) -> Acknowledgement:
        """Read the file's content."""
        fields = Fields(path, unseal(path, data))
        found = cls(fields.take("number", as_count), fields.take("run", as_count))
        fields.finish()
        return found


_PerPartition = Mapping[str, Mapping[Partition, Any]]


@dataclass(frozen=True, slots=True)
class Commit:
    """A group of consecutive epochs that is durable, all or none, with what was true after it.

    `watermarks` (microseconds; None: before all time), `positions`, `row_numbers` and
    `greatest_times` are by source, the last three by partition as well. `owners` has the lane of
    each slice. `deltas` names the winning attempts by operator and lane, `staged` the winning
    output by sink, epoch by epoch, the messages in the order of their rows. The first commit of
    each run has no epochs (`last` is `first` - 1): it closes the log to older runs.

    The commit machine fills in the rest: `number`, `run`, `parent` (a number), `plans` (paths, each
    once), `adopted` (paths of plans of older runs that are still to be run), `state_from` (the
    oldest commit whose deltas are needed to make the state; None: there is no state), `latest` (of
    each source the path of its newest plan so far) and `dropped` (operators that are no longer in
    the program, or begin anew: what was kept of them before this commit is not state any more).
    `quarantined` are the row numbers, by source and partition, of records in its epochs that were
    passed over, `undivided` the operators of which one lane has all slices, whoever owns them.
    `snapshots` are files that hold all that there was of some slices behind an epoch of this commit
    or an older one, by operator, each with those slices. `version` is that of the configuration,
    which says who owns what: it is greater where anything of that has changed. These last six are
    left out of the file where they are empty or 0, as in files of older versions.

    >>> commit = Commit(first=0, last=1, positions={"clicks": {0: 9, "a": None}})
    >>> Commit.from_bytes("commits/1", commit.to_bytes()) == commit
    True
    """

    first: int
    last: int
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    positions: Mapping[str, Mapping[Partition, Offset]] = field(default_factory=dict)
    row_numbers: Mapping[str, Mapping[Partition, int]] = field(default_factory=dict)
    greatest_times: Mapping[str, Mapping[Partition, int]] = field(default_factory=dict)
    owners: tuple[int, ...] = ()
    lanes: int = 0
    deltas: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    staged: Mapping[str, tuple[tuple[int, tuple[Json, ...]], ...]] = field(default_factory=dict)
    statistics: Mapping[str, Json] = field(default_factory=dict)
    number: int = 0
    run: int = 0
    parent: int | None = None
    plans: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    state_from: int | None = None
    latest: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    quarantined: Mapping[str, Mapping[Partition, tuple[int, ...]]] = field(default_factory=dict)
    undivided: tuple[str, ...] = ()
    snapshots: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    version: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be a group of epochs."""
        if not 0 <= self.first <= self.last + 1:
            message = f"a commit of epochs {self.first} to {self.last}"
            raise ValueError(message)
        if any(not 0 <= lane < self.lanes for lane in self.owners):
            message = f"slices are owned by lanes that are not there; lanes: {self.lanes}"
            raise ValueError(message)
        self._check_plans()
        self._check_deltas()
        self._check_staged()

    def _check_plans(self) -> None:
        # They are read, and removed when they are old: other files must not be taken for them.
        for path in (*self.plans, *self.adopted, *self.latest.values()):
            if plan_of(path) is None:
                message = f"a plan is not named as plans are: {path!r}"
                raise ValueError(message)

    def _check_deltas(self) -> None:
        for operator, by_lane in self.deltas.items():
            if not by_lane.keys() <= set(self.owners):
                message = f"deltas of {operator!r} are of lanes that own no slice: {list(by_lane)}"
                raise ValueError(message)
            if any(delta_of(path) is None for path in by_lane.values()):
                message = f"deltas of {operator!r} are not named as deltas are: {by_lane}"
                raise ValueError(message)
        for operator, by_path in self.snapshots.items():
            names = {path: delta_of(path) for path in by_path}
            if any(name is None or not name.snapshot for name in names.values()):
                message = f"snapshots of {operator!r} are not named as snapshots are: {by_path}"
                raise ValueError(message)

    def _check_staged(self) -> None:
        for sink, entries in self.staged.items():
            epochs = [epoch for epoch, _ in entries]
            inside = all(self.first <= epoch <= self.last for epoch in epochs)
            if not inside or epochs != sorted(set(epochs)):
                message = (
                    f"output of {sink!r} is staged for epochs {epochs}, not each once in order"
                )
                raise ValueError(message)

    def slices_of(self, operator: str, lane: int) -> frozenset[int]:
        """The slices of an operator's state that a lane has."""
        whole = operator in self.undivided
        return frozenset(at for at, owner in enumerate(self.owners) if whole or owner == lane)

    @property
    def is_opening(self) -> bool:
        """Whether this is a run's first, without epochs."""
        return self.last < self.first

    @property
    def delta_paths(self) -> tuple[str, ...]:
        """The paths of all deltas and snapshots it names."""
        deltas = [path for by_lane in self.deltas.values() for path in by_lane.values()]
        return (*deltas, *(path for by_path in self.snapshots.values() for path in by_path))

    @property
    def path(self) -> str:
        """Where this commit is."""
        return commit_path(self.number)

    def to_bytes(self) -> bytes:
        """The file's content."""
        passed_over = {
            source: [[partition, list(rows)] for partition, rows in by_partition.items()]
            for source, by_partition in self.quarantined.items()
        }
        added = {
            "latest": dict(self.latest),
            "dropped": list(self.dropped),
            "quarantined": passed_over,
            "undivided": list(self.undivided),
            "snapshots": {
                each: [[path, list(slices)] for path, slices in by_path.items()]
                for each, by_path in self.snapshots.items()
            },
            "version": self.version,
        }
        return seal(
            {
                "number": self.number,
                "run": self.run,
                "parent": self.parent,
                "first": self.first,
                "last": self.last,
                "watermarks": dict(self.watermarks),
                "positions": _by_partition(self.positions),
                "row_numbers": _by_partition(self.row_numbers),
                "greatest_times": _by_partition(self.greatest_times),
                "owners": list(self.owners),
                "lanes": self.lanes,
                "deltas": {each: pairs(by_lane) for each, by_lane in self.deltas.items()},
                "staged": {
                    sink: [[epoch, list(messages)] for epoch, messages in entries]
                    for sink, entries in self.staged.items()
                },
                "plans": list(self.plans),
                "adopted": list(self.adopted),
                "state_from": self.state_from,
                "statistics": dict(self.statistics),
                **{key: value for key, value in added.items() if value},
            }
        )

    @classmethod
    def from_bytes(cls, path: str, data: bytes) -> Commit:
        """Read the file's content."""
        fields = Fields(path, unseal(path, data))
        values: dict[str, Any] = {key: fields.take(key, check) for key, check in _COMMIT.items()}
        values |= {key: fields.take(key, check) for key, check in _ADDED.items() if key in fields}
        fields.finish()
        try:
            return cls(**values)
        except ValueError as error:
            refuse(path, str(error), error)


_COMMIT = {
    "number": as_count,
    "run": as_count,
    "parent": optional(as_count),
    "first": as_count,
    "last": as_int,
    "watermarks": object_of(optional(as_int)),
    "positions": object_of(mapping_of(as_partition, as_json)),
    "row_numbers": object_of(mapping_of(as_partition, as_count)),
    "greatest_times": object_of(mapping_of(as_partition, as_int)),
    "owners": tuple_of(as_count),
    "lanes": as_count,
    "deltas": object_of(mapping_of(as_count, as_text)),
    "staged": object_of(tuple_of(pair_of(as_count, tuple_of(as_json)))),
    "plans": tuple_of(as_text),
    "adopted": tuple_of(as_text),
    "state_from": optional(as_count),
    "statistics": object_of(as_json),
}
_ADDED: Mapping[str, Callable[[Json], Any]] = {
    "latest": object_of(as_text),
    "dropped": tuple_of(as_text),
    "quarantined": object_of(mapping_of(as_partition, tuple_of(as_count))),
    "undivided": tuple_of(as_text),
    "snapshots": object_of(mapping_of(as_text, tuple_of(as_count))),
    "version": as_count,
}
"""Keys that files of older versions do not have."""


def _by_partition(mapping: _PerPartition) -> dict[str, list[list[Json]]]:
    return {source: pairs(by_partition) for source, by_partition in mapping.items()}
