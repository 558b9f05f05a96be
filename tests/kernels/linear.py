"""Hypothesis strategies of linear programs: every piece keeps one schema, so any sequence fits."""

from __future__ import annotations

from typing import Any

import polars as pl
import polars.selectors as cs
from hypothesis import strategies as st

import anabranch as ab

EVENTS = {
    "t": pl.Int64,
    "k": pl.String,
    "f": pl.Float64,
    "n": pl.Int64,
    "words": pl.List(pl.String()),
}
NAN = float("nan")
LATENESS_MS = 1_000


@st.composite
def records(draw, *, max_rows: int = 30, behind_ms: int = 4_000):
    """Records in rough time order; some lie far enough back to be late."""
    now, found = draw(st.sampled_from([-7_000, 0, 10_000])), []
    for step in draw(st.lists(st.sampled_from([0, 1, 700, 1_500]), max_size=max_rows)):
        now += step
        found.append(
            {
                "t": now - draw(st.sampled_from([0, 0, 1, 900, behind_ms])),
                "k": draw(st.sampled_from(["a", "b", "", "é", None])),
                "f": draw(st.sampled_from([0.0, -0.0, NAN, None, 1.5, -2.25, 0.1])),
                "n": draw(st.none() | st.integers(-20, 20)),
                "words": draw(st.none() | st.lists(st.sampled_from(["x", "y", None]), max_size=3)),
            }
        )
    return found


def read(program: ab.Program, rows: list[Any], partitions: int, **options: Any) -> Any:
    source = ab.sources.Records(rows, schema=EVENTS, partitions=partitions)
    return program.read(source, event_time="t", lateness=f"{LATENESS_MS} ms", **options)


@st.composite
def programs(draw) -> ab.Program:
    program = ab.Program("drawn")
    stream = read(program, draw(records()), draw(st.integers(1, 3)))
    for piece in draw(st.lists(st.sampled_from(STATELESS), max_size=3)):
        stream = piece(stream)
    if (stateful := draw(st.sampled_from([*STATEFUL, None]))) is not None:
        stream = stateful(stream)
        for piece in draw(st.lists(st.sampled_from(STATELESS), max_size=2)):
            stream = piece(stream)
    stream.write(ab.sinks.Memory("out"))
    return program


# Without state


def filtered(stream):
    return stream.filter(pl.col("n").is_null() | (pl.col("n") % 3 != 1))


def filtered_by_all(stream):
    return stream.filter(pl.any_horizontal(cs.numeric().is_not_null()))


def filtered_by_python(stream):
    return stream.filter(lambda record: record["k"] != "a")


def shifted(stream):
    return stream.with_columns(n=pl.col("n") + 1, f=pl.col("f") * 2)


def all_again(stream):
    return stream.select(pl.all())


def texts_changed(stream):
    return stream.with_columns(cs.string().str.to_uppercase())


def renamed(stream):
    there = stream.rename({"n": "m"}).with_columns(pl.col("m") * 2)
    return there.select("t", "k", "f", pl.col("m").alias("n"), "words")


def constant(stream):
    return stream.with_columns(n=7).drop("f").with_columns(f=pl.lit(0.5)).select(*EVENTS)


def mapped(stream):
    def negated(record):
        n = record.pop("n")
        return {**record, "n": None if n is None else -n}

    return stream.map(negated, out=EVENTS)


def flat_mapped(stream):
    def repeated(record):
        shared = dict(record)
        for number in range((record["n"] or 0) % 3):
            shared["n"] = number
            yield shared
            shared["words"] = ["later"]

    return stream.flat_map(repeated, out=EVENTS)


def listed(stream):
    return stream.flat_map(lambda record: [record, {"t": record["t"], "k": "new"}], out=EVENTS)


def exploded(stream):
    one = stream.explode("words").rename({"words": "word"})
    lists = one.with_columns(words=pl.concat_list(pl.col("word"), pl.lit("z")))
    return lists.select(*EVENTS)


TABLE = pl.DataFrame({"k": ["a", "b", None], "extra": [1, None, 3]})
MANY = pl.DataFrame({"f": [0.0, NAN, -0.0, 0.1], "extra": [10, 20, 30, 40]})


def looked_up(stream):
    return _added(stream.lookup(TABLE, on="k", how="left"))


def looked_up_inner(stream):
    return _added(stream.lookup(MANY.unique("f", keep="first"), on="f"))


def looked_up_many(stream):
    return _added(stream.lookup(MANY, on="f", how="left", many=True))


def _added(stream):
    return stream.with_columns(n=pl.col("n") + pl.col("extra").fill_null(0)).drop("extra")


STATELESS = [
    filtered, filtered_by_all, filtered_by_python, shifted, all_again, texts_changed, renamed,
    constant, mapped, flat_mapped, listed, exploded, looked_up, looked_up_inner, looked_up_many,
]  # fmt: skip


# With state


def running(record, state):
    state.value = (state.value or 0) + (record["n"] or 1)
    state.list.append(record["n"])
    if len(state.list) > 4:
        state.clear()
        return
    state.map[record["k"]] = state.map.get(record["k"], 0) + 1
    text = f"{state.key} {state.watermark}"
    yield {**record, "n": state.value, "k": text}
    if state.value % 2:
        yield {**record, "n": len(state.list), "words": [str(each) for each in state.map.values()]}


def processed(*key):
    return lambda stream: stream.key_by(*key).process(running, out=EVENTS)


def processed_whole(stream):
    return stream.process(running, out=EVENTS)


def windowed(*by):
    def piece(stream):
        found = stream.window(ab.tumbling("2 s"), by=list(by) or None).agg(
            rows=ab.count(),
            known=ab.count("n"),
            total=ab.sum("n"),
            floats=ab.sum(pl.col("f").fill_nan(1.0)),
            low=ab.min("f"),
            high=ab.max("f"),
            least=ab.min("k"),
            longest=ab.max(pl.col("words").list.len()),
        )
        return found.select(
            pl.col("window_end").alias("t"),
            pl.col("least").alias("k"),
            (pl.col("high") if "k" in by else pl.col("low")).alias("f"),
            (pl.col("rows") * 100 + pl.col("total") + pl.col("known")).alias("n"),
            pl.concat_list(
                pl.col("floats").round(6).cast(pl.String),
                *(pl.col(name).cast(pl.String) for name in by),
                pl.col("longest").cast(pl.String),
            ).alias("words"),
        )

    return piece


STATEFUL = [
    processed("k"), processed("f"), processed("f", "k"), processed_whole,
    windowed(), windowed("k"), windowed("f"), windowed("f", "k"),
]  # fmt: skip
