"""Pass 1: what is known of each operator, and why.

The rules, each with what makes it sound:

- An operator of Polars expressions is stateless and pure: it was refused when it was written unless
  every node of every expression looks at one row alone (M8).
- A Python function is what the analysis of its code proves. What is not proved is `unknown`, and an
  unknown operator is never divided: "only what is proved is parallel" (M, what follows, 7).
- A proved function is taken for unknown, too, if it reads data from before the call - a global, a
  variable of a function around, an attribute, a default, what a container holds - that a function
  of another operator can get hold of which is neither proved nor declared: that one might change
  it while the program runs. Functions, classes and modules as such are no data; a constant is, if
  it is in globals that both reach, since it can be rebound; one in a variable that only the proved
  function has is not reached by others.
- What an author declares with `@ab.operator` stands in for a proof and is listed as declared.
  `pure=True` alone says of a function of one record that it keeps nothing. `pure=False` takes a
  proof back: such a function is unknown.
- An operator with a key sees no other key's state (M11), so it is keyed by it. `process` over the
  whole stream is sequential whatever its function does (M14).
- A lookup is stateless whatever gives its table: the table's version is fixed in the log (M13).
- A record that fails and is skipped or becomes a dead letter leaves no row: "one" is then
  "at-most-one".
- A column is forwarded if it leaves under its own name, with its own type and its own value, in
  every row. Values that are equal as keys (M6) count as the same: it is used for keys alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from anabranch.compiler.forwarding import kept_beside, selected, without
from anabranch.compiler.functions.verdict import Verdict
from anabranch.compiler.plan import Plan, Selectivity, State, Traits
from anabranch.compiler.reason import Reason
from anabranch.program.expressions import Expression
from anabranch.program.functions import Function
from anabranch.program.graph import Graph
from anabranch.program.operators import keyed, rowwise, together, windowed
from anabranch.program.operators.edges import Feedback, Read, Write
from anabranch.program.operators.operator import OUT, Operator
from anabranch.program.windows import Rows

if TYPE_CHECKING:
    from anabranch.compiler.proof import Proof

_FACTS = ("state", "selectivity", "forwards", "pure")


def infer_traits(plan: Plan) -> Plan:
    """Say of every operator what it keeps, how many rows it makes of one, and what it forwards."""
    judge = _Judge(plan.graph)
    found = tuple(judge.traits_of(op) for op in plan.graph.operators)
    if judge.doubt():
        found = tuple(judge.traits_of(op) for op in plan.graph.operators)
    return replace(plan, traits=found)


def _analyser() -> Callable[..., Verdict]:
    # Loaded when a program with functions is compiled: writing one must not wait for it.
    from anabranch.compiler.functions.analyse import analyse

    return analyse


@dataclass(frozen=True, slots=True)
class _Judged:
    """What is known of a function: by proof, else by its author, else nothing."""

    proved: bool
    selectivity: Selectivity = "unknown"
    forwards: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    proof: Proof | None = None


@dataclass(slots=True)
class _Judge:
    graph: Graph
    _verdicts: dict[tuple[int, bool], tuple[object, Verdict]] = field(default_factory=dict)
    """One function may be in many operators: it is looked into once. It is held here so that no
    other gets its id."""
    _folds: dict[int, Callable[..., Any]] = field(default_factory=dict)
    _opaque: dict[int, tuple[Operator, Function]] = field(default_factory=dict)
    """Functions that are neither proved nor declared, each with the first operator it is in."""
    _doubted: dict[int, Reason] = field(default_factory=dict)
    """Proved functions that read what an opaque one reaches."""

    def doubt(self) -> bool:
        """Take back proofs that rest on data which an opaque function may change; if there are."""
        reads = [(key, found) for key, found in self._verdicts.items() if found[1].data.found]
        if not self._opaque or not reads:
            return False
        from anabranch.compiler.functions.reach import Reach

        for op, function in self._opaque.values():
            reach = Reach(function.call)
            for (number, _), (_, verdict) in reads:
                shared = reach.has(verdict.data) if verdict.proved else None
                if shared is not None:
                    text = f"reads {shared}, which {function.name} of {op.name} may change"
                    so = f"pass it in the record, or declare {function.name} with @ab.operator(...)"
                    self._doubted.setdefault(number, Reason(f"{text}: {so}", function.site))
        return bool(self._doubted)

    def traits_of(self, op: Operator) -> Traits:
        given = self.graph.output(op.inputs[0]).schema if op.inputs else pl.Schema()
        found = self._rowwise(op, given)
        return found if getattr(op, "on_error", "fail") == "fail" else _failing(found)

    # By kind

    def _rowwise(self, op: Operator, given: pl.Schema) -> Traits:  # noqa: C901, PLR0911, PLR0912
        columns = tuple(given)
        match op:
            case Read():
                text = "a source's splits are read each on its own, and each row knows its place"
                return Traits("stateless", "one", reasons=(_at(op, text),))
            case Write(ordered=ordered):
                text = "writes rows in order" if ordered else "writes rows in any order"
                return Traits("stateless", "one", forwards=columns, reasons=(_at(op, text),))
            case rowwise.Filter(predicate=Function() as function):
                found = self._function(op, function, given)
                return replace(found, selectivity="at-most-one", forwards=columns)
            case rowwise.Map(function=function):
                return replace(self._function(op, function, given), selectivity="one")
            case rowwise.FlatMap(function=function):
                return self._function(op, function, given)
            case rowwise.MapBatches(function=function):
                return self._batches(op, function, given)
            case rowwise.Filter() | rowwise.Split():
                return _by_expressions(op, "at-most-one", columns)
            case rowwise.Select(expressions=found):
                return _by_expressions(op, "one", selected(found, given))
            case rowwise.WithColumns(expressions=found):
                return _by_expressions(op, "one", kept_beside(found, given))
            case rowwise.Drop(columns=gone):
                return _by_expressions(op, "one", without(columns, gone))
            case rowwise.Rename(names=names):
                moved = {name for pair in names for name in pair}
                return _by_expressions(op, "one", without(columns, moved))
            case rowwise.Explode(column=column):
                return _by_expressions(op, "any", without(columns, (column,)))
            case rowwise.WithEventTime():
                return _by_expressions(op, "one", columns)
            case together.Union():
                text = "a row of a union is a row of one of its streams"
                return Traits("stateless", "one", forwards=columns, reasons=(_at(op, text),))
            case together.Lookup():
                return _lookup(op, columns)
            case _:
                return self._with_state(op, given)

    def _with_state(self, op: Operator, given: pl.Schema) -> Traits:  # noqa: PLR0911, PLR0912
        match op:
            case keyed.Process(function=function):
                return self._process(op, function, given)
            case keyed.Reduce(key=key, function=function):
                made = self._folds.setdefault(id(function.call), partial(_folded, function.call))
                folded = replace(function, call=made, takes_state=False)
                found = self._keyed(op, folded, key, given)
                return replace(found, selectivity="one", forwards=_among(key, found.forwards))
            case keyed.Deduplicate(key=key):
                text = f"a row is judged by the rows of its {_names(key)} alone"
                return Traits("keyed", "at-most-one", key, tuple(given), reasons=(_at(op, text),))
            case keyed.Match():
                return self._match(op)
            case together.Join(on=on):
                text = f"rows meet only rows with the same {_names(on)}"
                return Traits("keyed", "any", on, on, reasons=(_at(op, text),))
            case windowed.WindowAggregate():
                return _window(op, op.windowing, op.windowing.by)
            case windowed.WindowApply():
                return self._apply(op)
            case Feedback():
                text = "what enters in one epoch comes out in the next, all at once"
                return Traits("whole", "one", reasons=(_at(op, text),))
            case _:
                text = "it holds rows of all keys until the watermark has passed them"
                return Traits("whole", "any", forwards=tuple(given), reasons=(_at(op, text),))

    def _process(self, op: keyed.Process, function: Function, given: pl.Schema) -> Traits:
        if op.key is not None:
            found = self._keyed(op, function, op.key, given)
        else:
            text = "one state for the whole stream: there is no key_by before process"
            found = self._function(op, function, given)
            found = replace(found, state="whole", reasons=(_at(op, text), *found.reasons))
        return _with_timers(found) if function.has_timers else found

    def _batches(self, op: rowwise.MapBatches, function: Function, given: pl.Schema) -> Traits:
        trusted = op.elementwise
        found = replace(self._function(op, function, given, trusted=trusted), forwards=())
        if not op.elementwise:
            text = "the function takes each epoch's rows as one frame: there is no elementwise=True"
            reasons = (_at(op, text),)
            return replace(found, state="whole", selectivity="any", reasons=reasons)
        said = replace(
            found,
            state="stateless",
            selectivity="any",
            declared=("elementwise", *found.declared),
            reasons=(_at(op, "declared elementwise: any cut of the rows gives the same rows"),),
        )
        return said if function.declared.state in (None, "stateless") else found

    def _match(self, op: keyed.Match) -> Traits:
        found = Traits("keyed", "at-most-one", op.key, op.key)
        text = f"a pattern is matched among the rows of one {_names(op.key)}"
        reasons, given = [_at(op, text)], self.graph.output(op.inputs[0]).schema
        for step in op.steps:
            if isinstance(step.predicate, Expression):
                continue
            judged = self._function(op, step.predicate, given)
            if judged.state != "stateless":
                return replace(found, state="unknown", pure=False, reasons=judged.reasons)
            reasons += judged.reasons
        return replace(found, reasons=tuple(reasons))

    def _apply(self, op: windowed.WindowApply) -> Traits:
        windowing = op.windowing
        forwards = without(windowing.by, op.columns)
        found = replace(_window(op, windowing, forwards), selectivity="any")
        judged = self._function(op, op.function, pl.Schema())
        said = replace(found, pure=judged.pure, declared=judged.declared)
        if found.state == "whole" or judged.state == "stateless":
            return replace(said, reasons=(*found.reasons, *judged.reasons))
        return replace(said, state="unknown", reasons=(*judged.reasons, *found.reasons))

    # Functions

    def _keyed(
        self, op: Operator, function: Function, key: tuple[str, ...], given: pl.Schema
    ) -> Traits:
        found = self._function(op, function, given)
        if found.state == "whole":
            return found
        if found.state == "unknown":
            return replace(found, key=key)
        text = f"its state is by {_names(key)}: no key knows of another"
        return replace(found, state="keyed", key=key, reasons=(_at(op, text), *found.reasons))

    def _function(
        self, op: Operator, function: Function, given: pl.Schema, *, trusted: bool = False
    ) -> Traits:
        """A function by itself: stateless where it is proved or declared to keep nothing.

        `trusted`: its operator is declared to be so in another way.
        """
        said, judged = function.declared, self._judged(op, function, given)
        if said.pure is False or not (judged.proved or said.state or said.pure or trusted):
            self._opaque.setdefault(id(function.call), (op, function))
        names = tuple(name for name in _FACTS if getattr(said, name) is not None)
        reasons = judged.reasons
        if names:
            words = ", ".join(f"{name}={getattr(said, name)!r}" for name in names)
            reasons = (Reason(f"{function.name} is declared {words}", function.site), *reasons)
        kept = _alike(op, said.forwards or (), given)
        return Traits(
            said.state or _state(judged.proved, said.pure),
            said.selectivity or judged.selectivity,
            forwards=judged.forwards if said.forwards is None else kept,
            pure=judged.proved if said.pure is None else said.pure,
            declared=names,
            reasons=reasons,
            proof=judged.proof if said.state is None and said.pure is None else None,
        )

    def _judged(self, op: Operator, function: Function, given: pl.Schema) -> _Judged:
        call, takes_state = function.call, function.takes_state
        key = (id(call), takes_state)
        if key not in self._verdicts:
            self._verdicts[key] = (call, _analyser()(call, takes_state=takes_state))
        _, verdict = self._verdicts[key]
        if id(call) in self._doubted:
            doubt = _authors_own(self._doubted[id(call)], function)
            return _Judged(proved=False, reasons=(doubt,))
        reasons = tuple(_authors_own(each, function) for each in verdict.reasons)
        if not verdict.proved:  # what was not understood may do anything to rows as well
            return _Judged(proved=False, reasons=reasons)
        forwards = verdict.forwards.among(_alike(op, given, given))
        proof = _proof(op, function, verdict)
        return _Judged(verdict.proved, verdict.selectivity, tuple(forwards), reasons, proof)


def _proof(op: Operator, function: Function, verdict: Verdict) -> Proof:
    from anabranch.compiler.functions.fingerprint import fingerprint
    from anabranch.compiler.proof import Proof

    return Proof(op.name, function.name, function.call, fingerprint(function.call, verdict))


def _folded(fold: Callable[..., Any], record: dict[str, Any]) -> Any:
    """What the analysis sees of `fold(value, record)`: two records of the same key.

    Value and record have the same columns, belong to the call, and hold the same key: the first
    value is a record, and a later one holds the key if the function forwards it, from either.
    """
    return fold(record, {**record})


def _authors_own(reason: Reason, function: Function) -> Reason:
    """A reason with its subject, at a line of the author's."""
    ours = reason.site is not None and reason.site.file == __file__
    return Reason(f"{function.name}: {reason.text}", function.site if ours else reason.site)


def _state(proved: bool, pure: bool | None) -> State:  # noqa: FBT001 - a fact, not a mode
    if pure is None:
        return "stateless" if proved else "unknown"
    return "stateless" if pure else "unknown"


def _by_expressions(op: Operator, selectivity: Selectivity, forwards: tuple[str, ...]) -> Traits:
    text = "looks at one row at a time"
    return Traits("stateless", selectivity, forwards=forwards, reasons=(_at(op, text),))


def _lookup(op: together.Lookup, columns: tuple[str, ...]) -> Traits:
    few: Selectivity = "one" if op.how == "left" else "at-most-one"
    text = f"a row meets {op.table.text}, whose version is fixed for an epoch"
    selectivity: Selectivity = "any" if op.many else few
    return Traits("stateless", selectivity, forwards=columns, reasons=(_at(op, text),))


def _window(op: Operator, windowing: windowed.Windowing, forwards: tuple[str, ...]) -> Traits:
    selectivity: Selectivity = "at-most-one" if isinstance(windowing.window, Rows) else "any"
    if windowing.by:
        text = f"its windows are by {_names(windowing.by)}: no group knows of another"
        return Traits("keyed", selectivity, windowing.by, forwards, reasons=(_at(op, text),))
    return Traits("whole", selectivity, reasons=(_at(op, "one group: the window has no by"),))


def _with_timers(found: Traits) -> Traits:
    """Timers make rows of no record."""
    return found if "selectivity" in found.declared else replace(found, selectivity="any")


def _failing(found: Traits) -> Traits:
    return replace(found, selectivity="at-most-one") if found.selectivity == "one" else found


def _alike(op: Operator, columns: Iterable[str], given: pl.Schema) -> tuple[str, ...]:
    """Those columns that leave with the name and type they came with."""
    output = op.outputs.get(OUT)
    made = pl.Schema() if output is None else output.schema
    return tuple(name for name in columns if name in given and made.get(name) == given[name])


def _among(columns: Iterable[str], found: Iterable[str]) -> tuple[str, ...]:
    wanted = set(found)
    return tuple(name for name in columns if name in wanted)


def _names(columns: Iterable[str]) -> str:
    return ", ".join(columns)


def _at(op: Operator, text: str) -> Reason:
    return Reason(text, op.site)
