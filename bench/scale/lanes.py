"""Every other workload with one lane and with two, on Spark: those that have no bench of their own.

The Yahoo benchmark, StreamBox's six, the fraud program, top words, tweet similarity and parametric
operators; Linear Road, taxi trips and TPCx-BB are `lrb`, `nyt` and `tpcxbb`, Schneider's kernels
are in `applications`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import polars as pl

import anabranch as ab
from bench.backlog import buffer
from bench.backlog.runs import Workload
from bench.streambox.paced import Paced, named
from bench.workloads import fraud, parametric, similarity, top_words, ysb
from bench.workloads.parametric import Knobs

SECONDS = 12
"""Of event time that a run of StreamBox's has: windows are of one."""
BEGIN = 1_000_000.0
"""When their first rows are due: long ago, so that all are there."""
ONE_STATE = "Windows without a key end in one lane."
PYTHON = "Most of it is plain Python by key."
RATE, BUFFER = 100_000, 1_000_000
CALLS_A_SECOND, TEXTS_A_SECOND = 1_000, 1_000
WORK = 4
"""Products of a matrix for each tuple, at each of two parametric operators."""


def _ysb(rows: int) -> ab.Program:
    """Ad events that are made before, and played again with later times."""
    made = buffer.replayed("ad-events", _events, rows, size=BUFFER, time="event_time", rate=RATE)
    return ysb.campaign_views(made)


def _events(rows: int) -> pl.DataFrame:
    found = ysb.events(pl.int_range(rows, dtype=pl.UInt64, eager=True), rate=RATE)
    return found.with_columns(pl.col("event_time").dt.epoch("ms"))


def _streambox(rows: int, name: str) -> ab.Program:
    home = Path(_home().name) / f"{name}-{rows}"
    home.mkdir(exist_ok=True)
    source = Paced(name, max(2, rows // SECONDS), float(SECONDS), home, rows=rows)
    source.go(BEGIN)
    program = ab.Program(name)
    stream = program.read(source, name="in", event_time="t")
    named(name).query(stream).write(ab.sinks.Memory("out"), name="out")
    return program


@cache
def _home() -> tempfile.TemporaryDirectory[str]:
    """Gone when this process ends."""
    return tempfile.TemporaryDirectory(prefix="anabranch-bench-")


def _fraud(rows: int) -> ab.Program:
    made = fraud.source(rows, rate=CALLS_A_SECOND)
    return fraud.high_mobility(made, area_codes=fraud.INTERESTING)


def _parametric(rows: int) -> ab.Program:
    made = parametric.source(rows, rate=TEXTS_A_SECOND)
    return parametric.pipeline(made, (Knobs("stateless", WORK), Knobs("keyed", WORK)))


def _six(rows: Mapping[str, int], why: Mapping[str, str]) -> dict[str, Workload]:
    return {
        f"lanes-{name}": Workload(partial(_streambox, name=name), count, why.get(name, ""))
        for name, count in rows.items()
    }


WORKLOADS: Mapping[str, Workload] = {
    "lanes-ysb": Workload(_ysb, 96_000_000),
    **_six(
        {
            "grep": 9_600_000,
            "wordcount": 2_400_000,
            "join": 4_800_000,
            "distinct": 2_400_000,
            "netmon": 9_600_000,
            "tweets": 2_400_000,
        },
        dict.fromkeys(("grep", "distinct", "tweets"), ONE_STATE),
    ),
    "lanes-fraud": Workload(_fraud, 480_000, PYTHON),
    "lanes-top-words": Workload(
        lambda rows: top_words.top_words(top_words.source(rows, rate=TEXTS_A_SECOND)),
        120_000,
        PYTHON,
    ),
    "lanes-similarity": Workload(
        lambda rows: similarity.similar(similarity.source(rows, rate=TEXTS_A_SECOND)),
        120_000,
        PYTHON,
    ),
    "lanes-parametric": Workload(_parametric, 120_000, PYTHON),
}
