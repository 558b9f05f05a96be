"""Plans on all hosts: the one that is deployed, and older ones by which something was made.

What heads have made may be made again, by us or by Spark, as long as it is kept: it is then made by
the plan of the first time, whatever is deployed by now. So a plan goes with the last of that.
"""

from __future__ import annotations

import pickle
import threading
from dataclasses import dataclass
from typing import Any

from anabranch.spark.private import Broadcast, Function, Spark, broadcast_value


@dataclass(frozen=True, slots=True)
class Shipped:
    """A plan as tasks see it: unpickled where it is first wanted."""

    id: str
    number: int

    def load(self) -> Any:
        """The plan; to be called in a worker."""
        return pickle.loads(broadcast_value(self.number))  # noqa: S301 - the driver's own


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan, and what its heads are: they make rows for so many lanes."""

    shipped: Shipped
    broadcast: Broadcast
    lanes: int
    head: Function

    @property
    def id(self) -> str:
        """What it is deployed as."""
        return self.shipped.id


class ShippedPlans:
    """The plans of one set of lanes. Safe from any thread."""

    def __init__(self, spark: Spark) -> None:
        """Begin with none."""
        self._spark = spark
        self._lock = threading.Lock()
        self._plans: dict[str, Plan] = {}
        self._uses: dict[str, int] = {}
        self._deployed: str | None = None

    @property
    def deployed(self) -> Plan:
        """The newest one."""
        assert self._deployed is not None
        return self._plans[self._deployed]

    @property
    def ids(self) -> frozenset[str]:
        """Those that are there."""
        return frozenset(self._plans)

    def deploy(self, plan: Plan) -> None:
        """Have it instead of the one before, which goes when nothing is left that it made."""
        with self._lock:
            self._plans[plan.id] = plan
            before, self._deployed = self._deployed, plan.id
            if before is not None and before != plan.id:
                self._tidy(before)

    def hold(self, plan_id: str | None = None) -> Plan:
        """Something is made by a plan, or by the one that is deployed: it is kept for that."""
        with self._lock:
            plan = self.deployed if plan_id is None else self._plans[plan_id]
            self._uses[plan.id] = self._uses.get(plan.id, 0) + 1
            return plan

    def release(self, plan_id: str) -> None:
        """Something that was made by it is gone."""
        with self._lock:
            if plan_id in self._plans:
                self._uses[plan_id] -= 1
                self._tidy(plan_id)

    def close(self) -> None:
        """Let go of all."""
        with self._lock:
            plans, self._plans, self._uses, self._deployed = self._plans, {}, {}, None
        for plan in plans.values():
            self._spark.forget_broadcast(plan.broadcast)

    def _tidy(self, plan_id: str) -> None:
        if plan_id != self._deployed and not self._uses.get(plan_id):
            self._uses.pop(plan_id, None)
            self._spark.forget_broadcast(self._plans.pop(plan_id).broadcast)
