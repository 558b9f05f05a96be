"""Operators with state: a key's records one at a time, in order (M11, M12, M14)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import RunError
from anabranch.program.expressions import Expression
from anabranch.program.operators import keyed as ops
from anabranch.program.operators.operator import OUT, Output
from anabranch.program.pattern import Step
from anabranch.testing.sequential.frames import evaluated
from anabranch.testing.sequential.node import Emitted, Node
from anabranch.testing.sequential.row import BEFORE_TIME, Row, caused_by_watermark
from anabranch.testing.sequential.rowwise import results
from anabranch.testing.sequential.state import Kept, State, require_keepable
from anabranch.testing.sequential.times import LAST_INSTANT, shown
from anabranch.testing.sequential.values import conform, copied, key_of, order_of

# A key's timers in one sweep. At the end of time every timer is due, also one set for tomorrow.
_ENDLESS = 100_000


def counts(time: int, within: int, watermark: float) -> bool:
    """Whether something at this time still counts for records of this epoch.

    It does for every record that is not behind the watermark and at most `within` away; what no
    longer counts may be forgotten, and no log can tell that it was.
    """
    return time + within >= watermark


class ProcessNode(Node[ops.Process]):
    """A function with state a key; the whole stream is one key."""

    def __init__(self, op: ops.Process, inputs: Sequence[Output]) -> None:
        """Begin with no keys."""
        super().__init__(op, inputs)
        self._keys: dict[Any, tuple[tuple[Any, ...], Kept]] = {}

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Call the function; an exception undoes what it wrote."""
        key = key_of(row.values, self.op.key or ())
        kept = self._alive(key, row.time)
        if row.time is not None:
            kept.seen = row.time if kept.seen is None else max(kept.seen, row.time)

        def run() -> list[Row]:
            made = self._called(key, kept, self._function, row.values)
            return [row.child(sub, values) for sub, values in enumerate(made)]

        return self.attempt(row, run)

    def advance(self, watermark: float, epoch: int) -> Emitted:
        """Fire what is due in order (time, key); what a timer sets fires in the same sweep if due.

        A timer set at or before the one that is firing follows it at once, so rows never go back.
        """
        before, now, sub = self.watermark, BEFORE_TIME, 0
        self.watermark = watermark
        fired_of: Counter[Any] = Counter()
        while (due := self._due(watermark)) is not None:
            at, order, key, kept = due
            fired_of[order] += 1
            if fired_of[order] > _ENDLESS:
                message = (
                    f"{self.op.name}: the timers of key {_bare(key)!r} set each other for ever"
                )
                so = "set no timer when state.watermark is the end of time: all are due then"
                raise RunError(message, site=self.op.site, so=so)
            kept.timers.discard(at)
            sub = sub + 1 if at <= now else 0
            now = max(now, at)
            if self._expired(kept, at):
                del self._keys[order]
                continue
            values = self._timer(key, at)
            time = int(min(max(at, before), LAST_INSTANT))
            fired = caused_by_watermark(epoch, self.op.id, now, order, time, values)
            yield from self._fire(fired.child(sub, values), key, kept, at)

    def _fire(self, row: Row, key: tuple[Any, ...], kept: Kept, at: int) -> Emitted:
        def run() -> list[Row]:
            made = self._called(key, kept, self._on_timer, shown(at, self.given.time))
            return [row.child(sub, values) for sub, values in enumerate(made)]

        return self.attempt(row, run)

    def _function(self, record: Any, state: State) -> Any:
        function = self.op.function
        if function.is_class:
            return function.call.on_record(record, state)
        return function.call(record, state) if function.takes_state else function.call(record)

    def _on_timer(self, at: Any, state: State) -> Any:
        return self.op.function.call.on_timer(at, state)

    def _called(self, key: tuple[Any, ...], kept: Kept, function: Any, given: Any) -> list[Any]:
        """Call on copies, and keep the copy only if all went well."""
        schema, time = self.op.outputs[OUT].schema, self.given.time
        draft = kept.copy()
        state = State(_bare(key), shown(self.watermark, time), draft, time, self._fires)
        made = [conform(copied(each), schema) for each in results(function(copied(given), state))]
        require_keepable(draft)
        self._keys[order_of(key)] = (key, draft.copy())
        if draft.empty:
            del self._keys[order_of(key)]
        return made

    @property
    def _fires(self) -> bool:
        return self.op.function.has_timers

    def _alive(self, key: tuple[Any, ...], time: int | None) -> Kept:
        """The key's state, or a new one where it has outlived its time."""
        kept = self._keys.get(order_of(key), (key, Kept()))[1]
        ttl, seen = self.op.ttl, kept.seen
        forgotten = ttl is not None and seen is not None and not counts(seen, ttl, self.watermark)
        return Kept() if forgotten or self._expired(kept, time) else kept.copy()

    def _expired(self, kept: Kept, time: int | None) -> bool:
        ttl = self.op.ttl
        if ttl is None or kept.seen is None or time is None:
            return False
        return kept.seen + ttl < time

    def _due(self, watermark: float) -> tuple[int, Any, tuple[Any, ...], Kept] | None:
        due = (
            (at, order_of(key), key, kept)
            for key, kept in self._keys.values()
            for at in kept.timers
            if at <= watermark
        )
        return min(due, key=lambda each: each[:2], default=None)

    def _timer(self, key: tuple[Any, ...], at: int) -> dict[str, Any]:
        """What a dead letter of a timer tells of it."""
        return {
            **dict(zip(self.op.key or (), key, strict=True)),
            "timer": shown(at, self.given.time),
        }


class ReduceNode(Node[ops.Reduce]):
    """The running combination of a key's records."""

    def __init__(self, op: ops.Reduce, inputs: Sequence[Output]) -> None:
        """Begin with no keys."""
        super().__init__(op, inputs)
        self._values: dict[Any, dict[str, Any]] = {}

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Combine and emit; the first record is the first value."""
        key = order_of(key_of(row.values, self.op.key))

        def run() -> list[Row]:
            new = row.values
            if key in self._values:
                given = self.op.function.call(copied(self._values[key]), copied(row.values))
                new = conform(copied(given), self.given.schema)
            self._values[key] = new
            return [row.with_values(new)]

        return self.attempt(row, run)


class DeduplicateNode(Node[ops.Deduplicate]):
    """A record passes unless one with its key passed near it in event time."""

    def __init__(self, op: ops.Deduplicate, inputs: Sequence[Output]) -> None:
        """Begin with nothing passed."""
        super().__init__(op, inputs)
        self._passed: dict[Any, list[int | None]] = {}

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Pass the record or drop it; only a passed one is remembered."""
        key = order_of(key_of(row.values, self.op.key))
        if any(self._near(passed, row) for passed in self._passed.get(key, ())):
            return ()
        self._passed.setdefault(key, []).append(row.time)
        return [(OUT, row)]

    def _near(self, passed: int | None, row: Row) -> bool:
        within = self.op.within
        if within is None:
            return True
        assert passed is not None
        return abs(passed - row.at()) <= within and counts(passed, within, self.watermark)


@dataclass(slots=True)
class _Run:
    """A pattern begun: the rows taken so far."""

    rows: list[Row] = field(default_factory=list)

    def spans(self, row: Row, within: int) -> bool:
        times = [each.at() for each in [*self.rows, row]]
        return max(times) - min(times) <= within


class MatchNode(Node[ops.Match]):
    """Every record may begin a run; the first complete run is the match, and all begin anew."""

    def __init__(self, op: ops.Match, inputs: Sequence[Output]) -> None:
        """Begin with no runs."""
        super().__init__(op, inputs)
        self._runs: dict[Any, list[_Run]] = {}
        self._pattern = [step for step in op.steps for _ in range(step.times)]

    def take(self, row: Row, position: int) -> Emitted:  # noqa: ARG002
        """Carry each run on, oldest first, then begin a new one."""
        return self.attempt(row, lambda: self._matches(row))

    def _matches(self, row: Row) -> list[Row]:
        key = key_of(row.values, self.op.key)
        runs, kept = [*self._runs.get(order_of(key), ()), _Run()], []
        for run in runs:
            if not self._lives(run, row):
                continue
            if self._holds(self._pattern[len(run.rows)], row):
                carried = _Run([*run.rows, row])
                if len(carried.rows) == len(self._pattern):
                    self._runs.pop(order_of(key), None)
                    return [row.with_values(self._result(key, carried))]
                kept.append(carried)
            elif self.op.skip and run.rows:
                kept.append(run)
        self._runs[order_of(key)] = kept
        return []

    def _lives(self, run: _Run, row: Row) -> bool:
        """Whether the run still fits the time, for this record and at this watermark."""
        first = min((each.at() for each in run.rows), default=row.at())
        in_time = run.spans(row, self.op.within)
        return in_time and (not run.rows or counts(first, self.op.within, self.watermark))

    def _holds(self, step: Step, row: Row) -> bool:
        if isinstance(step.predicate, Expression):
            return bool(evaluated(row.values, self.given.schema, step.predicate))
        return bool(step.predicate.call(copied(row.values)))

    def _result(self, key: tuple[Any, ...], run: _Run) -> dict[str, Any]:
        values: dict[str, Any] = dict(zip(self.op.key, key, strict=True))
        values["match_start"] = shown(run.rows[0].at(), self.given.time)
        values["match_end"] = shown(run.rows[-1].at(), self.given.time)
        taken = iter(run.rows)
        for step in self.op.steps:
            values[step.name] = [copied(next(taken).values) for _ in range(step.times)]
        return values


def _bare(key: tuple[Any, ...]) -> Any:
    return key[0] if len(key) == 1 else key
