"""Hypothesis strategies: streams of records, programs over them, and cuts of a log.

Records have one schema, `EVENTS`, and most pieces of a program keep it, so that any sequence of
pieces is a program. Functions are written at module level: a runtime can pickle them by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import polars as pl
from hypothesis import strategies as st

from anabranch.api.program import Program
from anabranch.connectors.memory import Memory
from anabranch.connectors.records import Records
from anabranch.program import aggregates as agg
from anabranch.program.functions import KeyedOperator
from anabranch.program.log import Cut
from anabranch.program.operators.edges import Read
from anabranch.program.stream import FeedbackStream, Stream
from anabranch.program.windows import Window, rows, session, sliding, tumbling

Record: TypeAlias = dict[str, Any]
Piece: TypeAlias = Callable[[Stream], Stream]

EVENTS = {"t": pl.Int64, "k": pl.String, "n": pl.Int64, "x": pl.Float64}
"""Event time in ms, a key, a whole number that may be null, a float that may be NaN."""

SOURCE = "events"
SINK = "out"
_KEYS = ("a", "b", "", "é", None)
_LATENESS_MS = 2_000


@st.composite
def streams(
    draw: st.DrawFn, *, max_rows: int = 24, disorder_ms: int = 0, null_keys: bool = True
) -> list[Record]:
    """Records in time order, or up to `disorder_ms` out of it."""
    keys = _KEYS if null_keys else _KEYS[:-1]
    steps = draw(st.lists(st.sampled_from([0, 1, 400, 1_000, 3_500]), max_size=max_rows))
    now, records = draw(st.sampled_from([-5_000, 0, 10_000])), []
    for step in steps:
        now += step
        behind = draw(st.integers(0, disorder_ms)) if disorder_ms else 0
        records.append(
            {
                "t": now - behind,
                "k": draw(st.sampled_from(keys)),
                "n": draw(st.none() | st.integers(-20, 20)),
                "x": draw(st.sampled_from([0.0, -0.0, 1.5, -2.25, 0.1, float("nan")])),
            }
        )
    return records


@st.composite
def programs(
    draw: st.DrawFn,
    *,
    records: Sequence[Record] | None = None,
    partitions: int = 1,
    cut_safe: bool = False,
    max_pieces: int = 4,
) -> Program:
    """A program of up to `max_pieces` pieces over one source, into one ordered sink.

    Some of the pieces may be in a loop. With `cut_safe` only pieces whose output does not depend on
    the cuts of one partition without records behind the watermark (property 3): no timers, nothing
    with several inputs, no loop.
    """
    disorder = draw(st.sampled_from([0, _LATENESS_MS]))
    rows_ = draw(streams(disorder_ms=disorder)) if records is None else records
    program = Program("drawn")
    stream = program.read(
        Records(rows_, schema=EVENTS, partitions=partitions),
        name=SOURCE,
        event_time="t",
        lateness=f"{_LATENESS_MS} ms",
    )
    pool = _CUT_SAFE if cut_safe else _CUT_SAFE | _ANY
    pieces = draw(st.lists(pool, min_size=1, max_size=max_pieces))
    looped = range(0) if cut_safe else draw(_looped(len(pieces)))
    for at, piece in enumerate(pieces):
        if looped and at == looped.start:
            back = draw(_feedbacks(program))
            stream = draw(_ENTERED)(stream, back)
        stream = piece(stream)
        if looped and at + 1 == looped.stop:
            back.close(draw(_SLOWED)(stream))
    stream.write(Memory(SINK))
    return program


@st.composite
def networks(
    draw: st.DrawFn, *, max_sources: int = 3, max_pieces: int = 5, min_loops: int = 0
) -> Program:
    """A program of several streams: read, worked on, put together, and written, any number of each.

    There are up to two loops, or `min_loops` if that is more. The sinks are `out-0`, `out-1` and so
    on, some of dead letters and some not ordered.
    """
    program = Program("drawn")
    streams_ = [draw(_read(program, n)) for n in range(draw(st.integers(1, max_sources)))]
    loops = max(min_loops, draw(st.sampled_from([0, 0, 1, 2])))
    backs = [draw(_feedbacks(program)) for _ in range(loops)]
    for back in backs:
        streams_ += [back, draw(_ENTERED)(draw(st.sampled_from(streams_)), back)]
    letters = []
    for _ in range(draw(st.integers(1, max_pieces))):
        kind = draw(st.sampled_from(["piece", "piece", "piece", "together", "letters", "split"]))
        # What is put into a loop is worked on first, or hardly a row would go round.
        stream = draw(st.sampled_from(streams_[-3:] if loops else streams_))
        if kind == "piece":
            streams_.append(draw(_CUT_SAFE | _ANY)(stream))
        elif kind == "together":
            streams_.append(draw(_TOGETHER)(stream, draw(st.sampled_from(streams_))))
        elif kind == "letters":
            made = draw(_FAILING)(stream)
            streams_.append(made)
            letters.append(made.dead_letters)
        else:
            parts = stream.split(some=pl.col("n") > 0)
            streams_ += [parts.some, parts.rest]
    for back in backs:
        closing = draw(st.sampled_from(streams_[::-1]))
        back.close(draw(_SLOWED)(closing))
    written = draw(st.lists(st.sampled_from([*streams_, *letters]), max_size=2))
    told = letters if loops else []
    for number, stream in enumerate([*written, *told, streams_[-1]]):
        stream.write(Memory(f"{SINK}-{number}"), ordered=draw(st.sampled_from([True, True, False])))
    return program


@st.composite
def _read(draw: st.DrawFn, program: Program, number: int) -> Stream:
    records = draw(streams(max_rows=16, disorder_ms=draw(st.sampled_from([0, _LATENESS_MS]))))
    source = Records(records, schema=EVENTS, partitions=draw(st.integers(1, 2)))
    return program.read(source, name=f"{SOURCE}-{number}", event_time="t", lateness="2 s")


@st.composite
def cuts(draw: st.DrawFn, program: Program, *, max_rows: int = 6) -> list[Cut]:
    """A log for a program of one source: epochs of some rows of each partition, up to the end."""
    (read,) = program.freeze().of(Read)
    end = read.source.latest()
    at, log = dict.fromkeys(end, 0), list[Cut]()
    while at != end or not log:
        to = {p: min(end[p], at[p] + draw(st.integers(0, max_rows))) for p in end}
        log.append(Cut(read.name, {p: (at[p], to[p]) for p in end}))
        at = to
    return log


# Pieces row by row


def _filtered(stream: Stream) -> Stream:
    return stream.filter(pl.col("n").is_null() | (pl.col("n") % 3 != 1))


def _shifted(stream: Stream) -> Stream:
    return stream.with_columns(n=pl.col("n") + 1)


def _is_even(record: Record) -> bool:
    return record["n"] is None or record["n"] % 2 == 0


def _filtered_by_python(stream: Stream) -> Stream:
    return stream.filter(_is_even)


def _negated(record: Record) -> Record:
    return {**record, "n": None if record["n"] is None else -record["n"]}


def _mapped(stream: Stream) -> Stream:
    return stream.map(_negated, out=EVENTS)


def _repeated(record: Record) -> Any:
    for number in range((record["n"] or 0) % 3):
        yield {**record, "n": number}


def _flat_mapped(stream: Stream) -> Stream:
    return stream.flat_map(_repeated, out=EVENTS)


# Pieces with state


def _running(record: Record, state: Any) -> Any:
    state.value = (state.value or 0) + (record["n"] or 1)
    state.list.append(record["n"])
    yield {**record, "n": state.value % 101}


def _processed(stream: Stream) -> Stream:
    return stream.key_by("k").process(_running, out=EVENTS)


def _processed_whole(stream: Stream) -> Stream:
    return stream.process(_running, out=EVENTS)


def _later(value: Record, record: Record) -> Record:
    return {**record, "n": value["n"] if record["n"] is None else record["n"]}


def _reduced(stream: Stream) -> Stream:
    return stream.key_by("k").reduce(_later)


def _deduplicated(stream: Stream) -> Stream:
    return stream.key_by("k", "n").deduplicate(within="2 s")


def _ordered(stream: Stream) -> Stream:
    return stream.in_time_order()


class _Silence(KeyedOperator):
    """Says when a key has been silent for two seconds."""

    out = EVENTS

    def on_record(self, record: Record, state: Any) -> Any:
        state.clear()
        state.value = record
        state.timer_at(record["t"] + 2_000)

    def on_timer(self, at: Any, state: Any) -> Any:
        yield {**state.value, "t": at}


def _timed(stream: Stream) -> Stream:
    return stream.key_by("k").process(_Silence)


# Pieces with windows, brought back to the common schema


def _windowed(window: Window) -> Piece:
    def piece(stream: Stream) -> Stream:
        found = stream.window(window, by="k").agg(
            n=agg.count(), x=agg.sum(pl.col("x").fill_nan(1.0)), first=agg.first("n")
        )
        return found.select(
            pl.col("window_end").alias("t"), "k", (pl.col("n") + pl.col("first")).alias("n"), "x"
        )

    return piece


def _windowed_finely(window: Window) -> Piece:
    """By more columns than what may follow it: both are in one region, by what they share."""

    def piece(stream: Stream) -> Stream:
        found = stream.window(window, by=["n", "k"]).agg(x=agg.sum(pl.col("x").fill_nan(1.0)))
        return found.select(pl.col("window_end").alias("t"), "k", "n", "x")

    return piece


# Pieces with several inputs


def _reunited(stream: Stream) -> Stream:
    parts = stream.split(small=pl.col("n") < 0, big=pl.col("n") > 5)
    return parts.big.with_columns(n=pl.col("n") * 2).union(parts.rest).union(parts.small)


def _doubled(stream: Stream) -> Stream:
    return stream.with_columns(n=pl.lit(1, pl.Int64)).union(stream)


def _merged(stream: Stream) -> Stream:
    return stream.merge(stream.with_columns(x=pl.col("x") + 1))


def _joined(stream: Stream) -> Stream:
    other = stream.select("t", "k", m=pl.col("n"))
    pairs = stream.join(other, on="k", within="1 s", how="left", name=None)
    return pairs.select("t", "k", n=pl.col("m"), x=pl.col("x"))


def _halved(record: Record) -> Record:
    return {**record, "n": 10 // record["n"]}


def _halving(record: Record, state: Any) -> Any:
    state.value = (state.value or 0) + 1
    yield {**record, "n": state.value // record["n"]}


def _halved_frame(frame: pl.DataFrame) -> pl.DataFrame:
    if frame["n"].null_count():
        message = "a number is missing"
        raise ValueError(message)
    return frame.with_columns(pl.col("n") + 1)


_FAILING = st.sampled_from(
    [
        lambda s: s.map(_halved, out=EVENTS, on_error="dead_letter"),
        lambda s: s.key_by("k").process(_halving, out=EVENTS, on_error="dead_letter"),
        lambda s: s.process(_halving, out=EVENTS, on_error="dead_letter"),
        lambda s: s.map_batches(_halved_frame, out=EVENTS, on_error="dead_letter"),
        lambda s: s.map_batches(
            _halved_frame, out=EVENTS, elementwise=True, on_error="dead_letter"
        ),
    ]
)


def _unioned(stream: Stream, other: Stream) -> Stream:
    return stream.union(other)


def _merged_with(stream: Stream, other: Stream) -> Stream:
    return stream.merge(other)


def _joined_with(stream: Stream, other: Stream) -> Stream:
    right = other.select("t", "k", m=pl.col("n"))
    pairs = stream.join(right, on="k", within="1 s", how="full")
    times = pl.col("t").fill_null(pl.col("t_right"))
    return pairs.select(times, "k", n=pl.col("n") + pl.col("m"), x=pl.col("x"))


_TOGETHER = st.sampled_from([_unioned, _merged_with, _joined_with])


# Loops: what goes round must come to an end, whatever pieces make of it


@st.composite
def _looped(draw: st.DrawFn, pieces: int) -> range:
    """The pieces that are in a loop; often none."""
    if draw(st.integers(0, 2)):
        return range(0)
    first = draw(st.integers(0, pieces - 1))
    return range(first, draw(st.integers(first, pieces - 1)) + 1)


def _feedbacks(program: Program) -> st.SearchStrategy[FeedbackStream]:
    return st.builds(lambda: program.feedback(EVENTS, event_time="t"))


def _aged(stream: Stream) -> Stream:
    """No piece makes a time earlier: a row goes round two or three times."""
    return stream.with_columns(t=pl.col("t") + 4_000).filter(pl.col("t") < 6_000)


def _first_few(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.head(4)


def _few(stream: Stream) -> Stream:
    return stream.map_batches(_first_few, out=EVENTS)


def _new(stream: Stream) -> Stream:
    """A row goes round once for each time it says."""
    return stream.key_by("t").deduplicate()


_SLOWED = st.sampled_from([_aged, _few, _new])
_ENTERED = st.sampled_from(
    [
        _unioned,
        _merged_with,
        lambda stream, back: back.union(stream),
        lambda stream, back: back.merge(stream),
        lambda stream, back: stream.join(
            back.select("t", "k", m=pl.col("n")), on="k", within="5 s", how="left"
        ).select("t", "k", n=pl.col("n").fill_null(pl.col("m")), x=pl.col("x")),
    ]
)

_CUT_SAFE = st.sampled_from(
    [
        _filtered,
        _shifted,
        _filtered_by_python,
        _mapped,
        _flat_mapped,
        _processed,
        _processed_whole,
        _reduced,
        _deduplicated,
        _ordered,
        _windowed(tumbling("2 s")),
        _windowed(sliding("3 s", "1 s")),
        _windowed(session("1 s")),
        _windowed(rows(3, step=2)),
        _windowed_finely(tumbling("2 s")),
        _windowed_finely(sliding("3 s", "1 s")),
    ]
)
_ANY = st.sampled_from([_timed, _reunited, _doubled, _merged, _joined])
