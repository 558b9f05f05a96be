"""Last in pipeline (LP): pull from the exit. After Prasaad et al. 2018, section 6.2."""

from __future__ import annotations

from anabranch.scheduling.pipeline_view import PipelineView


def last_in_pipeline(view: PipelineView) -> int | None:
    """The last operator that has work for one worker more."""
    able = view.schedulable
    return able[-1] if able else None
