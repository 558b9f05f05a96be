"""The policies of a pipeline by name: which operator a worker is given to."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from anabranch.config import PipelinePolicy
from anabranch.scheduling.current_throughput import current_throughput
from anabranch.scheduling.estimated_time import estimated_time
from anabranch.scheduling.last_in_pipeline import last_in_pipeline
from anabranch.scheduling.next_externalization import next_externalization
from anabranch.scheduling.pipeline_view import Choice
from anabranch.scheduling.queue_size_throttling import queue_size_throttling

PIPELINE_POLICIES: Mapping[PipelinePolicy, Choice] = MappingProxyType(
    {
        "lp": last_in_pipeline,
        "ct": current_throughput,
        "et": estimated_time,
        "qst": queue_size_throttling,
        "nem": next_externalization,
    }
)
