"""Queue-size throttling (QST): push from the entrance, one operator at a time.

After Prasaad et al. 2018, section 6.1 and equation 1.
"""

from __future__ import annotations

from anabranch.scheduling.pipeline_view import PipelineView


def thresholds(view: PipelineView) -> tuple[float, ...]:
    """How many tuples may wait behind each operator before it is not scheduled.

    >>> from anabranch.scheduling.pipeline_view import OperatorView
    >>> half = OperatorView(waiting=1, workers=0, most=1, cost=1.0, selectivity=0.5)
    >>> thresholds(PipelineView((half, half), capacity=30.0))
    (20.0, 10.0)
    """
    cumulative = view.cumulative
    total = sum(cumulative)
    return tuple(view.capacity * each / total if total else view.capacity for each in cumulative)


def queue_size_throttling(view: PipelineView) -> int | None:
    """The earliest operator behind which fewer tuples wait than may.

    Where all that have work are throttled, the last of them: it is the one that makes room, and a
    worker that waited instead would wait forever.
    """
    behind = (*(each.waiting for each in view.operators[1:]), 0)
    limits, able = thresholds(view), view.schedulable
    for at in able:
        if behind[at] < limits[at]:
            return at
    return able[-1] if able else None
