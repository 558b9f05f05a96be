"""Executors that are to go: lanes leave them first, whoever's they are.

Several queries may share a SparkContext. One of them may have an executor let go, but lanes of all
of them may be there: so who is to go is known to all, each query moves its lanes off, one after the
other and with their state, and an executor is sent away when nobody's lane is left on it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol
from weakref import WeakKeyDictionary, WeakSet

from anabranch.spark.private import Executor


class Tenant(Protocol):
    """A set of lanes."""

    @property
    def where(self) -> Mapping[int, Executor]:
        """Which executor each lane is on."""
        ...


class Departures:
    """The executors of one SparkContext that are to go, and whose lanes are where."""

    _lock = threading.Lock()
    _known: ClassVar[WeakKeyDictionary[Any, Departures]] = WeakKeyDictionary()

    def __init__(self) -> None:
        """Begin with nobody who is to go."""
        self._leaving: frozenset[str] = frozenset()
        self._tenants: WeakSet[Tenant] = WeakSet()

    @classmethod
    def of(cls, sc: Any) -> Departures:
        """Those of a SparkContext."""
        with cls._lock:
            return cls._known.setdefault(sc, cls())

    @property
    def leaving(self) -> frozenset[str]:
        """The ids of those who are to go."""
        return self._leaving

    def announce(self, ids: Iterable[str]) -> None:
        """Have these go, and nobody else."""
        self._leaving = frozenset(ids)

    def enter(self, tenant: Tenant) -> None:
        """Heed these lanes from now on."""
        with self._lock:
            self._tenants.add(tenant)

    def leave(self, tenant: Tenant) -> None:
        """Heed these lanes no more."""
        with self._lock:
            self._tenants.discard(tenant)

    def lanes(self) -> Counter[str]:
        """How many lanes are on each executor, by its id."""
        with self._lock:
            tenants = list(self._tenants)
        return Counter(executor.id for each in tenants for executor in each.where.values())
