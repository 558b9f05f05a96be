"""A stream program as its author holds it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from anabranch.api.options import Chosen
from anabranch.compiler.compile import compile_graph, plan_of
from anabranch.compiler.explain.forms import explain
from anabranch.compiler.plan import Plan
from anabranch.connectors.base import Source
from anabranch.epoch.triggers import Trigger
from anabranch.program.builder import Builder
from anabranch.program.functions import OnError
from anabranch.program.graph import Graph
from anabranch.program.operators.edges import Feedback, Read
from anabranch.program.operators.operator import OUT, Port
from anabranch.program.schema import SchemaLike
from anabranch.program.stream import FeedbackStream, Stream, stream_of

if TYPE_CHECKING:
    from anabranch.api.query import Query
    from anabranch.runtime.deployment import Durability


@final
class Program:
    """One sequential program over streams.

    >>> import anabranch as ab
    >>> import polars as pl
    >>> program = ab.Program("doubles")
    >>> numbers = program.read(ab.sources.Records([{"n": 1}, {"n": 2}]))
    >>> numbers.select(n=pl.col("n") * 2).write(ab.sinks.Memory("out"))
    >>> ab.testing.run_sequential(program)
    {'out': [{'n': 2}, {'n': 4}]}
    """

    def __init__(self, name: str) -> None:
        """Begin an empty program; the name is what users see in Spark's pages and in logs."""
        self._builder = Builder(name)

    def __repr__(self) -> str:
        """Say which program."""
        return f"<Program {self.name!r}>"

    @property
    def name(self) -> str:
        """The program's name."""
        return self._builder.name

    def read(  # noqa: PLR0913 - a user's options, by name
        self,
        source: Source,
        *,
        name: str | None = None,
        event_time: str | None = None,
        time_unit: str = "ms",
        lateness: str | timedelta = "0 s",
        idle_timeout: str | timedelta | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Read a source. `event_time` names the column that says when a record happened.

        Records may be up to `lateness` out of order; a partition that is empty for `idle_timeout`
        no longer holds the watermark. A row that the source could not read, and a null event time,
        obey `on_error`: they end the run, are left out and counted, or are `dead_letters`.
        """
        made = self._builder.add(
            "read",
            name,
            (),
            lambda b: Read.over(b, source, event_time, time_unit, lateness, idle_timeout, on_error),
        )
        return stream_of(self._builder, made)

    def feedback(
        self,
        schema: SchemaLike,
        *,
        name: str | None = None,
        event_time: str | None = None,
        time_unit: str = "ms",
    ) -> FeedbackStream:
        """A stream to read first and `.close(stream)` later: one epoch's rows enter the next."""
        made = self._builder.add(
            "feedback", name, (), lambda b: Feedback.over(b, schema, event_time, time_unit)
        )
        return FeedbackStream(self._builder, Port(made.id, OUT), made.outputs[OUT], made)

    def start(  # noqa: PLR0913 - a user's options, by name
        self,
        spark: Any = None,
        *,
        trigger: Trigger | None = None,
        checkpoint: str | Path | None = None,
        parallelism: int | Literal["auto"] = "auto",
        slices: int | Literal["auto"] = 128,
        goal: str | timedelta | None = None,
        durability: Durability = "process",
        master: str = "local[*]",
        conf: Mapping[str, str] | None = None,
    ) -> Query:
        """Run on Spark: the one given, else one of our own.

        An epoch a second unless `trigger` says otherwise: with `ab.continuous` the program is
        resident in one long task, and rows are through it in milliseconds. With a `checkpoint` a
        later start goes on where this one ended; without, all is forgotten at the end. It is a
        directory, or a place in an object store, such as `s3://bucket/path`. `parallelism` is the
        number of lanes; "auto": as many as the load calls for, up to the number of cores that Spark
        has or, where its settings give a range of executors, may have. `slices` is into how many
        parts keyed state is divided for the life of a checkpoint, so the most lanes that there can
        be; "auto": by the number of cores. `durability`: what is committed outlives the process, or
        a loss of power too. `goal` is how long what a window gives may take from its end, and a row
        where there are no windows; misses are counted, and a session goes by it.
        """
        chosen = Chosen.of(trigger, checkpoint, parallelism, slices, goal, durability)
        graph, explanation = self.freeze(), self.explain()
        # What runs programs is loaded when one runs: writing one must not wait for it. Spark's
        # processes get up meanwhile.
        from anabranch.spark.session import begin

        lanes = chosen.lanes if plan_of(graph).stages else 1
        begin(spark, master=master, conf=conf, lanes=lanes)
        from anabranch.api.starting import start_on_spark

        return start_on_spark(graph, chosen.settings(), spark, master, conf or {}, explanation)

    def freeze(self) -> Graph:
        """The program as a frozen graph, refused while it has loose ends."""
        return self._builder.freeze()

    def compile(self) -> Plan:
        """How the program runs: its regions, what is parallel by what, and why."""
        return compile_graph(self.freeze())

    def explain(self, format: Literal["text", "json", "mermaid"] = "text") -> str:  # noqa: A002
        """How the program runs, for its author to read: what is proved, and what to change."""
        return explain(self.compile(), format)
