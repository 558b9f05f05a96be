"""Estimated time (ET): to whoever would take longest. After Prasaad et al. 2018, section 6.3."""

from __future__ import annotations

from anabranch.scheduling.pipeline_view import OperatorView, PipelineView


def priority(operator: OperatorView) -> float:
    """How long its worklist takes with one worker more (equation 2).

    >>> priority(OperatorView(waiting=6, workers=1, most=2, cost=0.5, selectivity=1.0))
    1.5
    >>> priority(OperatorView(waiting=6, workers=2, most=2, cost=0.5, selectivity=1.0))
    0.0
    """
    if operator.workers >= operator.most:
        return 0.0
    return operator.waiting * operator.cost / (operator.workers + 1)


def estimated_time(view: PipelineView) -> int | None:
    """The operator that has the most work for each of its workers; of equals the last."""
    able = view.schedulable
    return max(able, key=lambda at: (priority(view.operators[at]), at), default=None)
