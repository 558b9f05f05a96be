"""How a difference from the sequential run is told: where they part, and how to run that again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anabranch.epoch.triggers import Trigger
from anabranch.program.log import Cut
from anabranch.testing.asked import WHAT
from anabranch.testing.compare import Difference, Rows
from anabranch.testing.lives import Schedule

_AROUND = 2
"""Rows told on either side of one that differs."""
_CUTS_TOLD = 30


def parted(sink: str, found: Difference) -> str:
    """Where a sink's rows part from those expected."""
    return "\n".join([_headline(sink, found), *_sides(found)])


def failed(
    what: str, schedule: Schedule, log: Sequence[Cut], *, other_input: bool, spark: bool
) -> AssertionError:
    """What is wrong, with the run it is wrong in."""
    told = _run(schedule, log, other_input=other_input, spark=spark)
    return AssertionError("\n".join([what, *(f"  {label:<6}{text}" for label, text in told)]))


def _run(
    schedule: Schedule, log: Sequence[Cut], *, other_input: bool, spark: bool
) -> Iterator[tuple[str, str]]:
    where = "on Spark" if spark else "in this process"
    yield "run", f"width {schedule.lanes}, {where}, {len(log)} epochs, seed {schedule.seed}"
    if schedule.rescale:
        yield "", f"rescaled at {dict(schedule.rescale)}"
    crashes = ", ".join(map(str, schedule.crashes)) or "none"
    yield "crash", crashes
    given = ["program", "inputs"] if other_input else ["program"]
    given += [f"widths=({schedule.lanes},)", f"trigger={_written(schedule.trigger)}"]
    if schedule.crashes:
        given.append(f"crash_at={[str(point) for point in schedule.crashes]}")
    if schedule.rescale:
        given.append(f"rescale_at={dict(schedule.rescale)}")
    given += [f"seed={schedule.seed}", *(["spark=True"] if spark else [])]
    yield "again", f"{WHAT}({', '.join(given)})"
    yield "log", f"[{', '.join(map(_cut_told, log[:_CUTS_TOLD]))}]"
    if len(log) > _CUTS_TOLD:
        yield "", f"and {len(log) - _CUTS_TOLD} more"


def _headline(sink: str, found: Difference) -> str:
    counts = f"{len(found.expected)} rows expected, {len(found.actual)} came"
    return f"sink {sink!r} differs from the sequential run at row {found.number} ({counts})"


def _sides(found: Difference) -> Iterator[str]:
    """The first row that differs, and some around it, of both sides."""
    last = max(len(found.expected), len(found.actual)) - 1
    low, high = max(0, found.number - _AROUND), min(last, found.number + _AROUND)
    for number in range(low, high + 1):
        mark = ">" if number == found.number else " "
        yield f"{mark} row {number}: expected {_row(found.expected, number)}"
        yield f"{mark} {' ' * len(f'row {number}:')} actual   {_row(found.actual, number)}"


def _row(rows: Rows, number: int) -> str:
    return str(dict(rows[number])) if number < len(rows) else "nothing"


def _written(trigger: Trigger) -> str:
    rows = "" if trigger.max_rows is None else f"max_rows={trigger.max_rows}"
    if trigger.bounded:
        return f"ab.available_now({rows})"
    return f"ab.epochs('{trigger.every // 1_000} ms'{', ' if rows else ''}{rows})"


def _cut_told(cut: Cut) -> str:
    """A cut as one writes it; tables are in no text."""
    given = [repr(cut.source), repr(dict(cut.offsets))]
    usual: Mapping[str, Any] = {
        "idle": frozenset(),
        "finished": None,
        "hint": None,
        "quarantined": frozenset(),
    }
    given += [
        f"{name}={getattr(cut, name)!r}"
        for name, value in usual.items()
        if getattr(cut, name) != value
    ]
    return f"ab.testing.Cut({', '.join(given)})"
