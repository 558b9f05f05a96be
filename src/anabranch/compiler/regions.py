"""Pass 2: which operators run together, and which of those regions are parallel.

Left to right, as in Schneider et al. (2012), section 3.3: an operator joins the region of the one
before it where that is safe, else it begins one. Every operator is in exactly one region.

A parallel region is a chain: its rows are divided at its entry, each part goes through copies of
its operators, and the parts are put together again behind it. Safe, by section 3.1 of that paper:

- *State.* Each operator is stateless or keyed. All rows of a key must meet the same copy, so the
  region is routed by a key that is part of every keyed operator's key: rows with equal operator
  keys have equal region keys. The region's key never becomes empty.
- *Forwarded.* Rows are routed by the key as it is at the entry, and a keyed operator looks at it
  where it stands. So every operator from the entry to the keyed one forwards the region's key.
- *Fan-in and fan-out.* Inside a region every operator has one input and one reader, so that it has
  one entry and one exit where order can be kept.
- *Fusion.* See `fusion`.

Beyond the paper, with what makes it sound:

- *Any selectivity.* The paper needs at most one row of one since its sequence numbers are single
  numbers. Order keys (M5) append a position for each row made of one, so rows that leave a copy
  are in the order of their keys and no two keys are equal.
- *Windows, timers and outer joins* make rows of a watermark, in phase 1. Every copy sees every
  watermark, and the key of such a row is made of the operator's number, the time and the key:
  it does not depend on which copy made it. Operators behind a keyed window are therefore like any
  other: what one copy gives is the part of the whole output that belongs to its keys, in order.
- *Joins* begin a region with two entries, both routed by the same columns of `on`: rows that can
  meet have equal keys and so the same copy. *Unions* begin one too and append the input's position.
- *Parallel sources.* A source's splits are independent, and its rows' order keys, partition and
  offset, are known where they are read, so a source begins a parallel region. Its splits are not
  divided by anyone's key, so a keyed operator never joins that region: a shuffle is between.
- *Parallel sinks.* `write(ordered=False)` joins the region before it; an ordered one is sequential.

What is over the whole stream, or unknown, is sequential; neighbours in a chain share a region.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from anabranch.compiler.fusion import Fusion, refuse_cycles, unsatisfied
from anabranch.compiler.loops import Loops
from anabranch.compiler.plan import SPREAD, Border, Plan, Region, Selectivity, State, Traits
from anabranch.ids import OperatorId
from anabranch.program.graph import Graph
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.operator import DEAD_LETTERS, LATE, Operator


def find_regions(plan: Plan) -> Plan:
    """Put every operator into one region.

    Fused operators that the first look puts into different regions get a second one, in which a
    region begins at the first of them; where that does not help they share a sequential region.
    """
    graph, fusion = plan.graph, Fusion()
    made = _formed(plan, fusion)
    if missed := unsatisfied(graph, made.homes):
        tried = _formed(plan, Fusion(begins=frozenset(min(pair) for pair in missed)))
        lost = unsatisfied(graph, tried.homes)
        begins = frozenset(min(pair) for pair in missed if pair not in lost)
        # A begin that helps one pair may part another: each round settles at least one of them.
        while lost:
            fusion = Fusion.sequential(graph, (*fusion.pairs, *lost), begins)
            made = _formed(plan, fusion)
            lost = unsatisfied(graph, made.homes)
        made = made if fusion.pairs else tried
    regions = _regions(plan, made)
    if fusion.pairs:
        refuse_cycles(graph, regions, fusion.pairs)
    return replace(plan, regions=regions)


@dataclass(slots=True, eq=False)
class _Open:
    """A region that may still grow at its right end."""

    parallel: bool
    operators: list[OperatorId] = field(default_factory=list)
    key: tuple[str, ...] | None = None
    carried: frozenset[str] = frozenset()
    """The columns that are now what they were at the entry."""
    entry: frozenset[str] = frozenset()
    """The columns at the entry."""
    source: Read | None = None
    state: State = "stateless"
    selectivity: Selectivity = "one"

    def add(self, op: Operator, traits: Traits, key: tuple[str, ...] | None) -> None:
        """Take an operator; `key` is the region's from here on."""
        self.operators.append(op.id)
        self.key = key
        self.carried &= frozenset(traits.forwards)
        self.selectivity = max(self.selectivity, traits.selectivity, key=SPREAD.index)
        if isinstance(op, Read):
            self.source = op
        if self.parallel and traits.state == "keyed":
            self.state = "keyed"


@dataclass(slots=True)
class _Formation:
    graph: Graph
    traits: tuple[Traits, ...]
    fusion: Fusion
    opened: list[_Open] = field(default_factory=list)
    homes: dict[OperatorId, _Open] = field(default_factory=dict)
    borders: dict[OperatorId, Border] = field(default_factory=dict)
    """Why an operator that began a region did not join the one before it."""
    fused: dict[int, _Open] = field(default_factory=dict)

    def place(self, op: Operator) -> None:
        """Put the next operator into a region."""
        traits = self.traits[op.id]
        together = self.fusion.home(op.id)
        if together is not None:
            self._fuse(op, traits, together)
            return
        border = self._border(op, traits) if op.inputs else None
        if op.inputs and border is None:
            region = self.homes[op.inputs[0].operator]
            self._add(region, op, traits, _common(region, traits))
            return
        if border is not None:
            self.borders[op.id] = border
        self._begin(op, traits)

    def _begin(self, op: Operator, traits: Traits) -> None:
        given = frozenset(self.graph.output(op.inputs[0]).schema if op.inputs else ())
        if isinstance(op, Write):
            before = self.homes[op.inputs[0].operator]
            region = _Open(before.parallel and not op.ordered, carried=given, entry=given)
        else:
            region = _Open(traits.parallelisable, carried=given, entry=given)
        self.opened.append(region)
        self._add(region, op, traits, traits.key if region.parallel else None)

    def _fuse(self, op: Operator, traits: Traits, number: int) -> None:
        if number not in self.fused:
            self.fused[number] = _Open(parallel=False)
            self.opened.append(self.fused[number])
        region = self.fused[number]
        if any(self.homes[port.operator] is not region for port in op.inputs):
            text = f"{op.name} is kept in one region with others by fuse_with"
            self.borders[op.id] = Border(op.id, text, "leave fuse_with out")
        self._add(region, op, traits, None)

    def _add(
        self, region: _Open, op: Operator, traits: Traits, key: tuple[str, ...] | None
    ) -> None:
        region.add(op, traits, key)
        self.homes[op.id] = region

    # What keeps an operator out of the region before it

    def _border(self, op: Operator, traits: Traits) -> Border | None:
        region = self.homes[op.inputs[0].operator]
        border = self._shape_border(op)
        if border is not None:
            return border
        if isinstance(op, Write):
            return _at_sink(op) if op.ordered and region.parallel else None
        if traits.parallelisable and not region.parallel:
            return Border(op.id, f"{op.name} may run in parallel")
        if region.parallel and not traits.parallelisable:
            return Border(op.id, _outside(op, traits), _advice(op, traits))
        return self._key_border(op, traits, region)

    def _shape_border(self, op: Operator) -> Border | None:
        """Whether the streams around an operator part it from the one before, whatever it does."""
        port, before = op.inputs[0], self.graph[op.inputs[0].operator]
        if len(op.inputs) > 1:
            return Border(op.id, f"{op.name} takes {len(op.inputs)} streams")
        if (readers := len(self.graph.readers(before.id))) > 1:
            return Border(op.id, f"{before.name} is read by {readers} operators")
        if port.output in (DEAD_LETTERS, LATE):
            what = "late records" if port.output == LATE else "dead letters"
            return Border(op.id, f"{op.name} reads the {what} of {before.name}, which have no key")
        if op.id in self.fusion.begins:
            text = f"{op.name} is kept in one region with a later operator by fuse_with"
            return Border(op.id, text, "leave fuse_with out")
        return None

    def _key_border(self, op: Operator, traits: Traits, region: _Open) -> Border | None:
        if not region.parallel or traits.state != "keyed" or _common(region, traits):
            return None
        key = ", ".join(traits.key or ())
        if region.source is not None and region.key is None:
            text = f"{op.name} is by {key}, and {region.source.name} does not divide its rows so"
            return Border(op.id, text)
        wanted = set(traits.key or ()) & set(region.key or region.entry)
        if wanted:
            who = self._changer(region, wanted)
            what = ", ".join(sorted(wanted))
            text = f"{op.name} is by {key}, and {who} does not forward {what}"
            return Border(op.id, text, f"leave {what} as it is in {who}")
        if region.key is None:
            text = f"{op.name} is by {key}, which the region's entry does not have yet"
            return Border(op.id, text)
        text = f"{op.name} is by {key}, and the region by {', '.join(region.key)}"
        return Border(op.id, text, "key both by a common column")

    def _changer(self, region: _Open, wanted: set[str]) -> str:
        """The first operator of a region that does not forward any of these columns."""
        left = set(wanted)
        for number in region.operators:
            left &= set(self.traits[number].forwards)
            if not left:
                return self.graph[number].name
        return self.graph[region.operators[-1]].name


def _common(region: _Open, traits: Traits) -> tuple[str, ...] | None:
    """The region's key with this operator in it; empty or None where there can be none."""
    if not region.parallel or traits.state != "keyed" or traits.key is None:
        return region.key
    if region.source is not None:
        return None
    before = traits.key if region.key is None else region.key
    shared = region.carried.intersection(traits.key)
    return tuple(name for name in before if name in shared)


def _at_sink(op: Write) -> Border:
    return Border(op.id, f"{op.name} takes its rows in order", "pass ordered=False to write")


def _outside(op: Operator, traits: Traits) -> str:
    if traits.state == "whole":
        return f"{op.name} is over the whole stream"
    return f"{op.name} is not proved to keep nothing"


def _advice(op: Operator, traits: Traits) -> str | None:
    match op.kind:
        case "process" if traits.state == "whole":
            return "put key_by before process"
        case "window" if traits.state == "whole":
            return "give the window a by"
        case "map_batches":
            return "pass elementwise=True if any cut of the rows gives the same rows"
    if traits.state == "unknown":
        function = getattr(op, "function", None) or getattr(op, "predicate", None)
        name = getattr(function, "name", "its function")
        return f"change what is not proved of {name}, or declare @ab.operator(pure=True) if it is"
    return None


def _formed(plan: Plan, fusion: Fusion) -> _Formation:
    formation = _Formation(plan.graph, plan.traits, fusion)
    for op in plan.graph.operators:
        formation.place(op)
    return formation


def _regions(plan: Plan, made: _Formation) -> tuple[Region, ...]:
    ends: dict[int, list[Border]] = {}
    for number, border in made.borders.items():
        for before in {id(made.homes[port.operator]) for port in plan.graph[number].inputs}:
            if before != id(made.homes[number]):
                ends.setdefault(before, []).append(border)
    return tuple(
        Region(
            at,
            tuple(region.operators),
            parallel=region.parallel,
            key=region.key,
            state=region.state if region.parallel else "whole",
            selectivity=region.selectivity,
            why=_why(plan, region, made.fusion),
            ends=tuple(ends.get(id(region), ())),
        )
        for at, region in enumerate(made.opened)
    )


def _why(plan: Plan, region: _Open, fusion: Fusion) -> str:
    operators = [plan.graph[number] for number in region.operators]
    if not region.parallel:
        return _why_sequential(plan, operators, fusion)
    looped = Loops.of(plan.graph).inside.intersection(region.operators)
    return _why_parallel(plan, region, operators) + (_IN_ONE_LANE if looped else "")


_IN_ONE_LANE = (
    "; it runs in one lane all the same, since it is in a loop: all that goes round in an epoch is "
    "there before the next one begins"
)


def _why_parallel(plan: Plan, region: _Open, operators: list[Operator]) -> str:
    if region.key is None:
        return "parallel, since no operator in it keeps anything from one row to the next"
    keyed = _list(op.name for op in operators if plan.traits[op.id].state == "keyed")
    verb = "keep" if " and " in keyed else "keeps"
    key = ", ".join(region.key)
    return f"parallel by {key}, since {keyed} {verb} nothing beyond one {key}"


def _why_sequential(plan: Plan, operators: list[Operator], fusion: Fusion) -> str:
    if fusion.home(operators[0].id) is not None:
        names = _list(op.name for op in operators if op.id in fusion.asked)
        return f"sequential, since fuse_with keeps {names} in one region and no parallel one can"
    for op in operators:
        traits = plan.traits[op.id]
        if not traits.parallelisable:
            return f"sequential, since {_blame(op, traits)}"
    sink = operators[0]
    if isinstance(sink, Write) and not sink.ordered:
        return f"sequential, since what {sink.name} writes comes from one place"
    return f"sequential, since {sink.name} takes its rows in order"


def _blame(op: Operator, traits: Traits) -> str:
    if traits.state == "whole" and traits.reasons:
        return f"{op.name} is over the whole stream ({traits.reasons[0].text})"
    told = traits.reasons[0].text if traits.reasons else "nothing is known of it"
    return f"{op.name} is not proved to keep nothing ({told})"


def _list(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
