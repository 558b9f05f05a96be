"""Where a resident task runs: a long task of Spark's, or a thread for tests."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from anabranch.errors import ProgramError
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
