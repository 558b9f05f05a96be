"""Many programs on one Spark, scheduled by their progress."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, final

from anabranch.api.company import Company
from anabranch.api.options import Chosen
from anabranch.clock import SystemClock
from anabranch.compiler.compile import plan_of
from anabranch.config import size_of
from anabranch.epoch.triggers import Trigger
from anabranch.errors import AnabranchError, ProgramError, nearest
from anabranch.scheduling.query_policies import QUERY_POLICIES, SPARKS
from anabranch.scheduling.query_view import Policy
from anabranch.scheduling.slack import CYCLE_S

if TYPE_CHECKING:
    from anabranch.api.program import Program
    from anabranch.api.query import Query
    from anabranch.runtime.deployment import Durability

_LOG = logging.getLogger("anabranch")
_MODE = "spark.scheduler.mode"
CYCLES = 4
"""Of the paper's cycles that a query's may take: a Spark job alone takes a third of one."""

_sessions: weakref.WeakKeyDictionary[Any, Session] = weakref.WeakKeyDictionary()
"""By SparkContext: one each."""
_opening = threading.Lock()


@final
class Session:
    """The queries that share one Spark; `program.start()` is a session of one.

    Programs start and stop at any time. One that fails harms no other: each has processes of its
    own. Whose turn it is, is decided by `policy`: "klink" by how soon each query's next window has
    to fire; "fcfs", "rr", "hr" (highest rate), "srw" (shortest remaining work) and "nem" (the next
    window to end) are there to compare with, "spark-fifo" and "spark-fair" leave it to Spark. No
    output shows it. A function of one's own takes a view of a query and gives its rank, as a tuple;
    the smallest goes first (`ab.testing.check_policy` holds it to that).

    `lanes` are those of each query, unless it says how many. `memory_limit`, in bytes or as "2 GB",
    is for rows that were read and are not committed, of all queries together: above it what frees
    most goes first, and nobody reads more.
    """

    def __init__(
        self,
        spark: Any = None,
        *,
        policy: str | Policy = "klink",
        lanes: int | Literal["auto"] = "auto",
        memory_limit: int | str | None = None,
        master: str = "local[*]",
        conf: Mapping[str, str] | None = None,
    ) -> None:
        """Open a session on the Spark given, else on one of our own."""
        by = _check_policy(policy)
        name = policy if isinstance(policy, str) else getattr(policy, "__name__", "own")
        self._lanes, limit = _check_lanes(lanes), _limit(memory_limit)
        from anabranch.runtime.turns import SharedTurns
        from anabranch.spark.private import Spark
        from anabranch.spark.session import spark_context

        settings = dict(conf or {})
        if name == "spark-fair":
            settings.setdefault(_MODE, "FAIR")
        attached = spark_context(spark, master=master, app_name="anabranch", conf=settings)
        self._attached, self.policy, self._limit = attached, name, limit
        if name == "spark-fair" and attached.sc.getConf().get(_MODE, "FIFO") != "FAIR":
            _LOG.warning("this Spark is not fair: start it with %s=FAIR", _MODE)
        self._spark = Spark(attached.sc)
        self._slots = slots = max(1, self._spark.slots())
        self._turns = None if by is None else SharedTurns(name, by, slots, SystemClock(), limit)
        self._company, self._started, self._open = Company(self._fit), 0, True
        with _opening:
            # Last: whoever finds it there finds it whole.
            if (other := _sessions.get(attached.sc)) is not None and other.is_active:
                attached.stop()
                message = "this Spark has a session already"
                raise AnabranchError(message, so="start programs in that one, or stop it first")
            _sessions[attached.sc] = self

    def __repr__(self) -> str:
        """Say how many queries."""
        return f"<Session {self.policy!r}: {len(self.queries)} queries>"

    def __enter__(self) -> Self:
        """Be stopped at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    @property
    def is_active(self) -> bool:
        """Whether programs can be started."""
        return self._open

    @property
    def queries(self) -> list[Query]:
        """Those that run, in the order in which they were started."""
        return self._company.active

    def start(  # noqa: PLR0913 - a user's options, by name
        self,
        program: Program,
        *,
        trigger: Trigger | None = None,
        checkpoint: str | Path | None = None,
        parallelism: int | Literal["auto"] = "auto",
        slices: int | Literal["auto"] = 128,
        goal: str | timedelta | None = None,
        durability: Durability = "process",
    ) -> Query:
        """Start a program beside the others; options are those of `program.start`.

        `goal`: how long what a window gives may take from its end, or a row where there are no
        windows. Slack is counted against it, and what misses it is counted.
        """
        if not self._open:
            message = "the session is stopped"
            raise AnabranchError(message, so="open another one: ab.Session(...)")
        chosen = Chosen.of(trigger, checkpoint, parallelism, slices, goal, durability)
        graph, explanation = program.freeze(), program.explain()
        from anabranch.api.starting import start_on_spark

        more: dict[str, Any] = {}
        if chosen.trigger.checkpoint_every is None:
            more["lanes"] = chosen.lanes or self._lanes_for(bool(plan_of(graph).stages))
            if self._turns is None:
                more["in_flight"] = 1
            else:
                more |= {"seat": self._turns.enter(graph.name), "cycle": CYCLES * CYCLE_S}
        self._started += 1
        try:
            return start_on_spark(
                graph,
                chosen.settings(**more),
                self._attached.sc,
                "",
                {},
                explanation,
                pool=f"query-{self._started}" if self.policy == "spark-fair" else None,
                company=self._company,
            )
        except BaseException:
            if "seat" in more:
                more["seat"].leave()
            raise

    def add_listener(self, listener: Any) -> None:
        """Tell somebody of all queries: when they start, make progress and end.

        A function is given each progress as a dict. Anything else may have methods with the names
        of Spark's `StreamingQueryListener`: `onQueryStarted`, `onQueryProgress` and
        `onQueryTerminated`, each called with an event that has `id`, `runId` and `name`, and then
        `progress`, a dict, or `exception`, a text or None. What goes wrong in a listener is logged
        and harms no query.
        """
        self._company.listeners.add(listener)

    def remove_listener(self, listener: Any) -> None:
        """Tell it no more."""
        self._company.listeners.remove(listener)

    def await_any_termination(self, timeout: float | None = None) -> bool | None:
        """Wait until a query ends; raises its error. With a timeout (s): whether one has ended.

        Each end is told once: who calls it again waits for the next one.
        """
        query = self._company.next_end(timeout)
        if query is not None:
            query.await_termination()
        return query is not None if timeout is not None else None

    def stop(self, drain: bool = True) -> None:  # noqa: FBT001, FBT002 - as a query's
        """Stop all queries, with `drain` behind what is planned, and let go of Spark.

        Errors of queries are theirs: `query.exception()` has them.
        """
        if not self._open:
            return
        self._open = False
        stopping = [
            threading.Thread(target=_stop, args=(query, drain), daemon=True)
            for query in self.queries
        ]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        with _opening:
            if _sessions.get(self._attached.sc) is self:
                del _sessions[self._attached.sc]
        self._company.close()
        self._attached.stop()

    def statistics(self) -> dict[str, Any]:
        """What scheduling took, and how much was held at the worst moment."""
        turns = self._turns
        return {
            "policy": self.policy,
            "queries": len(self.queries),
            "slots": self._slots,
            "decisions": 0 if turns is None else turns.decisions,
            "decidingMs": 0.0 if turns is None else round(1000 * turns.deciding, 3),
            "memoryLimit": self._limit,
            "mostHeldBytes": None if turns is None else turns.most_held,
            "memoryModes": 0 if turns is None else turns.memory_modes,
        }

    def _fit(self) -> None:
        """Have as many turns at a time as there are slots: executors come and go."""
        if self._turns is not None and not self._spark.local:
            self._slots = max(1, self._spark.slots())
            self._turns.fit(self._slots)

    def _lanes_for(self, stages: bool) -> int:  # noqa: FBT001
        """How many lanes a query gets that says nothing: a share of the slots."""
        if not stages:
            return 1
        if self._lanes is not None:
            return self._lanes
        return max(1, self._slots // (1 + len(self.queries)))


def _stop(query: Query, drain: bool) -> None:  # noqa: FBT001
    try:
        query.stop(drain=drain)
    except Exception:  # noqa: BLE001 - it is the query's, which has it
        return


def _check_policy(policy: object) -> Policy | None:
    """What decides whose turn it is; None: Spark does."""
    if callable(policy):
        return policy
    known = (*QUERY_POLICIES, *SPARKS)
    if policy not in known:
        message = f"Session: there is no policy {policy!r}"
        so = nearest(policy, known) if isinstance(policy, str) else None
        raise ProgramError(message, have=", ".join(known), so=so or "take one of these")
    return QUERY_POLICIES.get(str(policy))


def _check_lanes(lanes: object) -> int | None:
    if lanes == "auto":
        return None
    if isinstance(lanes, int) and not isinstance(lanes, bool) and lanes >= 1:
        return lanes
    message = f"Session: lanes must be a whole number of at least 1, got {lanes!r}"
    raise ProgramError(message, so='or "auto": a share of the cores')


def _limit(given: int | str | None) -> int | None:
    if given is None:
        return None
    if isinstance(given, str) and (found := size_of(given)) is not None:
        return found
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return given
    message = f"Session: memory_limit must be a number of bytes, got {given!r}"
    raise ProgramError(message, so='write it like "2 GB" or 2_000_000_000')
