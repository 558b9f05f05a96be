"""Current throughput (CT): to whoever lags behind. After Prasaad et al. 2018, section 6.4."""

from __future__ import annotations

from anabranch.scheduling.pipeline_view import PipelineView


def effective(view: PipelineView) -> tuple[float, ...]:
    """Tuples each operator gets done in the current window, as tuples of the input (equation 3).

    What its workers will have spent on it when their time slices are over, in tuples, each of which
    stands for more or less than one of the pipeline's. One that lets nothing through, or costs
    nothing, is never behind.

    >>> from anabranch.scheduling.pipeline_view import OperatorView
    >>> half = OperatorView(waiting=1, workers=1, most=2, cost=0.5, selectivity=0.5, spent=1.0)
    >>> effective(PipelineView((half, half), time_slice=1.0))
    (8.0, 16.0)
    """
    return tuple(
        (each.spent + each.workers * view.time_slice) / unit
        if (unit := each.cost * through) > 0
        else float("inf")
        for each, through in zip(view.operators, view.cumulative, strict=True)
    )


def current_throughput(view: PipelineView) -> int | None:
    """The operator with the least throughput; of equals the last."""
    done = effective(view)
    return min(view.schedulable, key=lambda at: (done[at], -at), default=None)
