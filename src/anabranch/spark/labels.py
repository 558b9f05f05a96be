"""What Spark's pages call the jobs of a query's cycle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.observe.label import label
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.payload import HeadItem, LaneJob


def label_of(
    deployment: Deployment, heads: Sequence[Sequence[HeadItem]], lanes: Mapping[int, LaneJob]
) -> str:
    """The query's name, and the epochs of a cycle with this work."""
    stages = [stage for job in lanes.values() for stage in job.stages]
    epochs = {item.epoch for stage in stages for item in stage.items}
    tickets = {item.ticket for items in heads for item in items}
    return label(deployment.program, epochs, tickets, placed=len(deployment.inputs) == 1)
