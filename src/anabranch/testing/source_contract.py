"""Whether a source keeps its contract (`anabranch.connectors.base.Source`), rule by rule.

What is asked is what a run asks: the source is looked at, cut by `limit`, planned, read by a
copy in another process, and read again by a new one that was told the source's memory.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.connectors.base import Source
from anabranch.errors import ProgramError
from anabranch.testing.source_elsewhere import check_copies, check_restart
from anabranch.testing.source_later import check_later
from anabranch.testing.source_ranges import check_plans, check_ranges
from anabranch.testing.source_under_check import SourceUnderCheck


def check_source(
    source: Source,
    *,
    rows: int = 100,
    advance: Callable[[], object] | None = None,
    again: Callable[[], Source] | None = None,
    event_time: str | None = None,
) -> None:
    """Fail unless a source keeps the contract of sources; up to `rows` of each partition are read.

    Ranges of offsets are read again, side by side, in parts, by copies in tasks, and from every
    offset on by new processes that were told the source's memory: what comes must be the same. An
    AssertionError says which rule is broken, at which offsets, what was expected and found, and
    what to do.

    `advance` lets more records come, for rules about what changes: it puts a file into the
    directory, or moves a clock. `again` makes the source anew, as a program that is started again
    does; without it a copy from before the first look is taken for that. `event_time` names the
    column that a `hint` is about.

    >>> from anabranch.connectors.records import Records
    >>> check_source(Records([{"n": n} for n in range(10)], partitions=3))
    """
    __tracebackhide__ = True
    if not isinstance(source, Source):
        message = f"check_source: not a source: {source!r}"
        raise ProgramError(message, so="derive from ab.sources.Source")
    check = SourceUnderCheck(source, rows, event_time)
    fresh = check.fresh() if again is None else again
    if not check.look() and advance is not None:
        advance()
        check.look()
    check.require_records()
    check_ranges(check)
    check_plans(check)
    check_copies(check)
    check_restart(check, fresh)
    check_later(check, advance, fresh)
