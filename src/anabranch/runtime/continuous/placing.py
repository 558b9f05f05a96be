"""Where a resident task runs: a long task of Spark's, or a thread for tests."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from anabranch.errors import AnabranchError, ProgramError
from anabranch.program.graph import Graph
from anabranch.program.operators.together import Lookup
from anabranch.runtime.continuous.channel import Address
from anabranch.runtime.continuous.messages import Orders


@runtime_checkable
class Placer(Protocol):
    """Starts resident tasks, one at a time."""

    @property
    def slots(self) -> int:
        """How many cores a task has to itself."""
        ...

    @property
    def most_workers(self) -> int | None:
        """How many workers the largest node has cores for; None: no node is known yet."""
        ...

    @property
    def host(self) -> str:
        """Where tasks reach the driver."""
        ...

    def place(self, orders: Orders, address: Address) -> Future[None]:
        """Start a task, which connects to the address; done when the task is over.

        It fails with `JobFailed` where the task did not end by itself.
        """
        ...

    def cancel(self) -> None:
        """End the task that was placed last, if it is not over. Safe from any thread."""
        ...

    def close(self) -> None:
        """Nothing is placed any more."""
        ...


SPREAD = (
    'a program that needs more than one machine belongs to trigger=ab.epochs("100 ms"), whose '
    "lanes are on all executors; a checkpoint may change its trigger"
)
"""What to do about a program that is too large for a node."""


def refuse_too_wide(workers: int, placer: Placer, kind: type[AnabranchError], what: str) -> None:
    """Refuse more workers than the largest node has cores: a resident task is on one.

    Raises:
        AnabranchError: Of the kind that is given. It says how many there are, and what to use.
    """
    most = placer.most_workers
    if most is not None and workers > most:
        message = f"{what}: {workers} workers are too many for one node"
        cores = "1 core" if most == 1 else f"{most} cores"
        why = f"with ab.continuous all workers are in one task, and the largest node has {cores}"
        raise kind(message, why=why, so=f"take {most} or fewer; {SPREAD}")


def refuse_unfit(graph: Graph) -> None:
    """Refuse a program that cannot be resident yet.

    Raises:
        ProgramError: It says why, and what to use instead.
    """
    for lookup in graph.of(Lookup):
        if lookup.table.refresh is not None:
            message = f"{lookup.name}: its table is loaded again and again"
            why = "versions of tables cannot be had with the trigger ab.continuous yet"
            so = 'start it with ab.epochs("100 ms"), or load the table once'
            raise ProgramError(message, site=lookup.site, why=why, so=so)
