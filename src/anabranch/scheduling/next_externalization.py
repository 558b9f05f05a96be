"""Next externalization: to what the next result waits for. After StreamBox (Miao et al. 2017).

Work that a watermark caused comes first: results leave by it. Then work towards the results that
are due next, by their windows or, where there are none, by when results left before. Where nothing
tells, the operator that has work of most windows: it holds up most.

In one chain whose bundles leave in order it is last in pipeline, whatever is known of when results
are due. All that waits at an operator has passed those before it, so it is older than what waits
there, and what is older leaves earlier. A bundle's work by watermark goes with it, divided by
partitions, none of which waits for another. It chooses otherwise where pipelines are several, or
results leave out of order, as in `simulate/`.
"""

from __future__ import annotations

from anabranch.scheduling.pipeline_view import OperatorView, PipelineView

NEVER = float("inf")


def rank(operator: OperatorView) -> tuple[bool, float, int]:
    """The smallest goes first."""
    due = NEVER if operator.due is None else operator.due
    return operator.watermarks == 0, due, -operator.open


def next_externalization(view: PipelineView) -> int | None:
    """The operator that the next result waits for; of equals the last."""
    return min(view.schedulable, key=lambda at: (*rank(view.operators[at]), -at), default=None)
