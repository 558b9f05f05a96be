"""Run programs on Spark from the command line: progress, and Ctrl-C that loses nothing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from anabranch.api.program import Program
from anabranch.api.query import Query
from anabranch.api.session import Session
from anabranch.cli.interrupts import Asked, Interrupts, interrupts
from anabranch.cli.live import Screen, screen
from anabranch.clock import Clock, SystemClock
from anabranch.epoch.triggers import Trigger
from anabranch.errors import AnabranchError
from anabranch.state.stores import Place

_REFRESH_S = 0.2
DRAINING = "finishing what is planned, then it ends; Ctrl-C again stops at once, nothing is lost"
STOPPING = "stopping at once; what is committed stays, the rest is run again next time"


@dataclass(frozen=True, slots=True)
class Options:
    """How programs are run."""

    trigger: Trigger | None
    checkpoint: Place | None
    parallelism: int | None
    master: str
    conf: Mapping[str, str]
    policy: str = "klink"
    """Whose turn it is, of several."""
    memory_limit: int | None = None
    goal: str | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """What a query did."""

    program: str
    epochs: int
    rows: int
    seconds: float
    late: int = 0
    """Rows that came too late for all of their windows."""
    failed: int = 0
    """Rows that failed and were left out, as `on_error` says."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What all queries did, and why they ended."""

    queries: tuple[Ran, ...]
    asked: Asked = Asked.GO_ON
    """What the user asked for; without it they came to their end."""
    code: int = 0
    """The exit status."""


def run_on_spark(
    programs: Sequence[Program], options: Options, clock: Clock | None = None
) -> Ended:
    """Run programs side by side to their end; Ctrl-C drains them, a second one stops them.

    Raises:
        AnabranchError: One of them failed; the others are drained.
        KeyboardInterrupt: Ctrl-C came before anything ran.
    """
    clock = clock or SystemClock()
    print(f"starting Spark ({options.master})", file=sys.stderr)
    began = clock.elapsed()
    with interrupts() as asked:
        with _session(programs, options) as session:
            queries = _started(programs, options, asked, session)
            with screen(clock) as shown:
                _watch(queries, shown, asked)
        for query in queries:
            query.await_termination()
    seconds = clock.elapsed() - began
    code = asked.code if asked.asked is Asked.STOP else 0
    return Ended(tuple(_ran(query, seconds) for query in queries), asked.asked, code)


@contextmanager
def _session(programs: Sequence[Program], options: Options) -> Iterator[Session | None]:
    """The session of several programs; one has Spark for itself."""
    if len(programs) == 1:
        yield None
        return
    with Session(
        policy=options.policy,
        memory_limit=options.memory_limit,
        master=options.master,
        conf=options.conf,
    ) as session:
        yield session


def _started(
    programs: Sequence[Program], options: Options, asked: Interrupts, session: Session | None
) -> list[Query]:
    queries: list[Query] = []
    try:
        queries.extend(_start(program, options, session) for program in programs)
        asked.starting = False
    except BaseException:
        # What has begun ends in order, and the first error is the one that counts.
        for query in queries:
            with suppress(AnabranchError):
                query.stop(drain=not asked.asked)
        raise
    return queries


def _start(program: Program, options: Options, session: Session | None = None) -> Query:
    checkpoint = options.checkpoint
    if checkpoint is not None and session is not None:
        checkpoint = checkpoint / program.name
    chosen: dict[str, Any] = {
        "trigger": options.trigger,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "parallelism": "auto" if options.parallelism is None else options.parallelism,
        "goal": options.goal,
    }
    if session is None:
        query = program.start(**chosen, master=options.master, conf=options.conf)
    else:
        query = session.start(program, **chosen)
    for note in query.notes:
        print(f"{query.name}: {note}", file=sys.stderr)
    return query


def _watch(queries: Sequence[Query], shown: Screen, asked: Interrupts) -> None:
    """Show how all are until they have ended, and end them as the user asks."""
    done = Asked.GO_ON
    while active := [query for query in queries if query.is_active]:
        wanted = _wanted(queries, asked)
        if wanted > done:
            done = wanted
            if asked.asked:
                shown.say(DRAINING if wanted is Asked.DRAIN else STOPPING)
            for query in active:
                _end(query, drain=wanted is Asked.DRAIN)
        shown.show(queries)
        _wait(active[0])


def _wanted(queries: Sequence[Query], asked: Interrupts) -> Asked:
    """What to do: what the user asks, or to drain where one of several has failed."""
    failed = any(query.exception() is not None for query in queries)
    return max(asked.asked, Asked.DRAIN if failed else Asked.GO_ON)


def _end(query: Query, *, drain: bool) -> None:
    """Ask a query to end, without waiting: it is watched to its end, and may be asked again."""

    def stop() -> None:
        with suppress(AnabranchError):  # whoever waits for the query is told
            query.stop(drain=drain)

    threading.Thread(target=stop, name=f"anabranch-end-{query.name}", daemon=True).start()


def _wait(query: Query) -> None:
    with suppress(AnabranchError):  # it is told when all have ended
        query.await_termination(_REFRESH_S)


def _ran(query: Query, seconds: float) -> Ran:
    totals = query.statistics()
    late, failed = totals["lateRows"], totals["failedRows"]
    return Ran(query.name, totals["epochs"], totals["rows"], seconds, late, failed)
