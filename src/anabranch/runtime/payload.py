"""What a driver sends to a task and gets back. Small values; data lies in files they name.

What goes to tasks is pickled, as Spark does with their code. What comes back is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

from anabranch.ids import Marks
from anabranch.kernels.letters import Origins
from anabranch.state.chain import Part
from anabranch.state.slices import Owners

Chain: TypeAlias = Mapping[str, tuple[Part, ...]]
"""The files that states are made of, by operator."""

Origin: TypeAlias = Literal["memory", "shared", "replica", "backup", "checkpoint"]
"""The lane's own process had it, or mapped another's files, or had it at hand for another lane; or
it was read from files: from copies that the process had of them, or from the checkpoint's own."""

Tables: TypeAlias = Mapping[str, str]
"""The versions of lookup tables that hold for an epoch: files in the checkpoint, by lookup."""


COUNTED_SLICES = 4096
"""With more slices than this nobody counts the rows of each."""


@dataclass(frozen=True, slots=True)
class HeadItem:
    """One split of what was cut from a source."""

    source: int
    """Its number among the sources."""
    ticket: int
    attempt: int
    number: int
    """The split's place among those that were cut: rows are ordered by it first."""
    partition: int
    split: Any
    tables: Tables = field(default_factory=dict)
    without: tuple[int, ...] = ()
    """Rows of the split that are passed over."""
    until: int | None = None
    """Take so many of its rows only: for a trial, of which nothing counts."""


@dataclass(frozen=True, slots=True)
class LaneItem:
    """One epoch as one lane of a stage takes it: where its parts lie, and the watermarks."""

    epoch: int
    ticket: int
    attempt: int
    parts: Mapping[int, tuple[Any, ...]]
    """By the number of the stage's entry."""
    marks: Marks
    origins: Origins | None = None
    """Where its records come from, if somebody reads dead letters."""
    tables: Tables = field(default_factory=dict)
    until: int | None = None
    """Leave out rows behind this place of the epoch: for a trial, of which nothing counts."""
    routed: Owners | None = None
    """Which lane each slice was in when the parts were made, if it was another than now."""

    def made_for(self, lane: int, slices: frozenset[int] | None) -> tuple[int, ...]:
        """The lanes for which rows were made that are in a lane's slices now; None: it has all.

        >>> item = LaneItem(0, 0, 0, {}, {}, routed=Owners.spread(slices=4, lanes=4))
        >>> item.made_for(1, frozenset([2, 3])), replace(item, routed=None).made_for(1, frozenset())
        ((2, 3), (1,))
        """
        if self.routed is None or slices is None:
            return (lane,)
        return tuple(sorted({self.routed.of[each] for each in slices}))


@dataclass(frozen=True, slots=True)
class Shared:
    """A stage's state at a version, in files of a lane that other processes of its host can map."""

    stage: int
    version: str
    place: tuple[Any, ...]
    """Where it is told what it is made up of: the fields of a `resident_files.FilePlace`.

    Nothing: there was no room for it.
    """
    token: str
    """What stands at the beginning of that."""


@dataclass(frozen=True, slots=True)
class Replica:
    """The state of some slices that another lane has, to be at hand at a version of that lane's.

    It is made of all files in `chain`, or from the replica `since` on of what changed behind it.
    """

    stage: int
    version: str
    slices: frozenset[int]
    chain: Chain
    since: str | None = None
    base: Shared | None = None
    """What it may begin from instead of all files, if that can be mapped."""
    tail: Chain = field(default_factory=dict)
    """What changed behind that."""


@dataclass(frozen=True, slots=True)
class Heritage:
    """A version of state, some slices of which are taken over.

    Where it was another lane's there may be a replica `since`, behind which is the `tail`.
    """

    version: str
    slices: frozenset[int]
    since: str | None = None
    tail: Chain = field(default_factory=dict)
    chain: Chain | None = None
    """The files that these slices are made of, where nobody has the version."""

    def only(self, slices: frozenset[int]) -> Heritage:
        """What is taken over of these."""
        return replace(self, slices=self.slices & slices)


@dataclass(frozen=True, slots=True)
class Backup:
    """Files that a process is to have copies of, of each the slices; and those to let go of."""

    keep: Mapping[str, frozenset[int]]
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Backed:
    """What became of that: of which files there are copies, and are none any more."""

    kept: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dual:
    """Epochs of slices that another lane has and takes too: nothing of it counts but the state."""

    stage: int
    slices: frozenset[int]
    since: str
    """The replica to go on from."""
    tail: Chain
    """What was changed behind that before these epochs."""
    items: tuple[LaneItem, ...]


@dataclass(frozen=True, slots=True)
class StageJob:
    """A lane's epochs of one stage in order, from the state `parent` on.

    Each attempt makes its own version. A process that does not have the parent makes it of what it
    has of its `heritage`, or of the files in `chain`, which are sent only when a process said so.
    """

    stage: int
    parent: str
    items: tuple[LaneItem, ...]
    chain: Chain | None = None
    heritage: tuple[Heritage, ...] = ()
    """What the parent is made of, where slices have changed lanes."""
    follows: bool = True
    """Whether the parent is what the lane's last delta made: the next one then names it."""
    compact: tuple[int, ...] = ()
    """Slices of which all there is is to be written behind this."""
    told: tuple[frozenset[int], ...] = ()
    """Slices of which is to be told what has changed, by a digest: another lane takes them too."""


@dataclass(frozen=True, slots=True)
class LaneJob:
    """All that a lane does in one cycle; its stages have nothing to do with each other there."""

    lane: int
    stages: tuple[StageJob, ...]
    replicas: tuple[Replica, ...] = ()
    """What its process is to have at hand of other lanes; it is made beside the stages' work."""
    backup: Backup | None = None
    """What it is to have copies of for when others are lost; they are made beside it, too."""
    dual: tuple[Dual, ...] = ()
    """What it takes besides of slices that will be its own."""
    share: tuple[int, ...] = ()
    """Stages whose state others are to map."""


@dataclass(frozen=True, slots=True)
class MergeItem:
    """Rows of several lanes for one sink, to be put into one order and staged."""

    sink: str
    epoch: int
    parts: tuple[Any, ...]
    attempt: str
    near: str = ""
    """The node where most of its bytes are."""


@dataclass(frozen=True, slots=True)
class MergeDone:
    """What a sink said of rows that were put into one order."""

    sink: str
    epoch: int
    message: Any
    fetched: dict[str, int] = field(default_factory=dict)
    """Bytes, by where they came from."""


@dataclass(frozen=True, slots=True)
class HeadDone:
    """What became of a split."""

    ticket: int
    number: int
    partition: int
    rows: int = 0
    greatest: int | None = None
    parts: dict[int, Any] = field(default_factory=dict)
    """What lies in the exchange, by the number of the exit."""
    staged: dict[str, Any] = field(default_factory=dict)
    """What sinks said, by their names."""
    error: dict[str, Any] | None = None
    spent: dict[str, float] = field(default_factory=dict)
    """Seconds, by what they went into."""
    letters: int = 0
    """How many records failed and were left out."""
    size: int = 0
    """Bytes of what lies in the exchange."""


@dataclass(frozen=True, slots=True)
class EpochDone:
    """What a lane of a stage made of one epoch: rows in the exchange, or staged by sinks."""

    epoch: int
    rows: int
    late: int
    parts: dict[int, Any] = field(default_factory=dict)
    """What lies in the exchange, by the number of the exit."""
    staged: dict[str, Any] = field(default_factory=dict)
    """What sinks said, by their names."""
    letters: int = 0
    """How many records failed and were left out."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A file with all that there was of some slices of an operator's state, at a version."""

    operator: str
    path: str
    slices: tuple[int, ...]
    version: str
    size: int
    """Its bytes."""


@dataclass(frozen=True, slots=True)
class StageDone:
    """What became of a stage's job in a lane."""

    stage: int
    version: str = ""
    epochs: tuple[EpochDone, ...] = ()
    deltas: dict[str, str] = field(default_factory=dict)
    """The file of what changed, by operator."""
    snapshots: tuple[Snapshot, ...] = ()
    """Those that were written since the job before, of this version or of older ones."""
    changed: dict[str, int] = field(default_factory=dict)
    """How many rows of state changed, by operator."""
    origins: dict[str, int] = field(default_factory=dict)
    """Of how many slices the state that it went on from came from where."""
    loads: tuple[int, ...] = ()
    """How many rows of each slice came in; none: it is not counted."""
    sizes: dict[str, int] = field(default_factory=dict)
    """The bytes of these files, by operator."""
    digests: tuple[str, ...] = ()
    """Of what has changed, as it was to be told."""
    memory: dict[str, int] = field(default_factory=dict)
    """The bytes of state that the lane has in memory, by operator."""
    disk: dict[str, int] = field(default_factory=dict)
    """Those that it has on its local disk."""


@dataclass(frozen=True, slots=True)
class LaneDone:
    """What became of a lane's job; with `missing` or an error nothing of it counts."""

    lane: int
    stages: tuple[StageDone, ...] = ()
    missing: tuple[int, ...] = ()
    """Stages whose state this process does not have."""
    ready: tuple[str, ...] = ()
    """The versions of the replicas that are at hand."""
    unready: int = 0
    """How many replicas could not be made since it was last asked."""
    making: int = 0
    """How many are being made."""
    backed: Backed = field(default_factory=Backed)
    """Of what it has copies."""
    dual: tuple[tuple[str, str], ...] = ()
    """What became of slices that it took besides: a version, and a digest of what changed."""
    error: dict[str, Any] | None = None
    spent: dict[str, float] = field(default_factory=dict)
    """Seconds, by what they went into."""
    node: str = ""
    """Where it was."""
    fetched: dict[str, int] = field(default_factory=dict)
    """Bytes of its rows, by where they came from."""
    shared: tuple[Shared, ...] = ()
    """The states that others can map."""
    crowded: str = ""
    """Why it has more state in memory than it may; nothing: it has not."""
    died: bool = False
    """Whether its process ended while it was at it."""

    @classmethod
    def gone(cls, job: LaneJob) -> LaneDone:
        """What there is of a job whose process ended."""
        return cls(job.lane, missing=tuple(each.stage for each in job.stages), died=True)


def heads_to_bytes(done: list[HeadDone]) -> bytes:
    """Results as JSON."""
    return json.dumps([asdict(each) for each in done]).encode()


def heads_from_bytes(data: bytes) -> list[HeadDone]:
    """Results back from JSON."""
    return [_numbered(HeadDone(**each)) for each in json.loads(data)]


def merges_to_bytes(done: list[MergeDone]) -> bytes:
    """Results as JSON."""
    return json.dumps([asdict(each) for each in done]).encode()


def merges_from_bytes(data: bytes) -> list[MergeDone]:
    """Results back from JSON."""
    return [MergeDone(**each) for each in json.loads(data)]


def lane_to_bytes(done: LaneDone) -> bytes:
    """A result as JSON."""
    return json.dumps(asdict(done)).encode()


def lane_from_bytes(data: bytes) -> LaneDone:
    """A result back from JSON."""
    facts = json.loads(data)
    stages = tuple(_stage(each) for each in facts.pop("stages"))
    missing, ready = tuple(facts.pop("missing")), tuple(facts.pop("ready"))
    facts["backed"] = Backed(**{name: tuple(paths) for name, paths in facts["backed"].items()})
    facts["dual"] = tuple((version, changed) for version, changed in facts["dual"])
    told = facts.pop("shared")
    shared = tuple(Shared(**{**each, "place": tuple(each["place"])}) for each in told)
    return LaneDone(stages=stages, missing=missing, ready=ready, shared=shared, **facts)


def _stage(facts: dict[str, Any]) -> StageDone:
    epochs = tuple(_numbered(EpochDone(**each)) for each in facts.pop("epochs"))
    written = facts.pop("snapshots")
    snapshots = tuple(Snapshot(**{**each, "slices": tuple(each["slices"])}) for each in written)
    loads, digests = tuple(facts.pop("loads")), tuple(facts.pop("digests"))
    return StageDone(epochs=epochs, snapshots=snapshots, loads=loads, digests=digests, **facts)


def _numbered(done: Any) -> Any:
    """JSON has no keys but text."""
    return replace(done, parts={int(number): part for number, part in done.parts.items()})
