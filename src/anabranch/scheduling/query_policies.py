"""The policies over queries by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from anabranch.scheduling.first_come import first_come
from anabranch.scheduling.highest_rate import highest_rate
from anabranch.scheduling.klink import klink
from anabranch.scheduling.next_window import next_window
from anabranch.scheduling.query_view import Policy
from anabranch.scheduling.round_robin import round_robin
from anabranch.scheduling.shortest_work import shortest_work

QUERY_POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "klink": klink,
        "fcfs": first_come,
        "rr": round_robin,
        "hr": highest_rate,
        "srw": shortest_work,
        "nem": next_window,
    }
)
SPARKS = ("spark-fifo", "spark-fair")
"""Spark's own: no turns, one epoch of a query under way at a time."""
