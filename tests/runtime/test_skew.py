"""One key that has half of all rows, among few others or a million: scenario 20."""

from collections import Counter

import numpy as np
import polars as pl
import pytest

import anabranch as ab
from anabranch.epoch.triggers import available_now
from anabranch.runtime import elasticity
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import UNKIND, InlineExecutor
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from tests.runtime.test_inline import written

HOT, HOUR = 7, 3_600_000
SCHEMA = {"t": pl.Int64, "k": pl.Int64, "n": pl.Int64}


def skewed(home, rows, keys, epoch):
    """Every other row is of one key; of the others each comes as often, in no order."""
    key = np.full(rows, HOT)
    key[1::2] = np.random.default_rng(20).permutation(rows // 2) % keys
    frame = pl.DataFrame({"t": np.arange(rows), "k": key, "n": key % 11})
    home.mkdir()
    for at in range(0, rows, epoch):
        frame[at : at + epoch].write_parquet(home / f"{at:09d}.parquet")
    last = pl.DataFrame({"t": [2 * HOUR], "k": [0], "n": [0]})  # the first hour is over then
    last.write_parquet(home / f"{rows:09d}.parquet")
    return frame


def run(program, home, epoch):
    """To the end, on an unkind executor; what owned what at last."""
    settings = Settings(available_now(epoch), home / "ckpt", 2, slices=16, in_flight=2)
    assembled = assemble(program.freeze(), settings, InlineExecutor(1, UNKIND), MockClock())
    loop = assembled.loop
    while not loop.over:
        loop.step()
    loop.close()
    assembled.close()
    return loop._deployment.owners


def read(program, home):
    source = ab.sources.Files(home / "in", format="parquet", schema=SCHEMA)
    return program.read(source, name="in", event_time="t")


def files(home):
    return ab.sinks.Files(home / "out", format="parquet")


def rows_of(done):
    """What a lane is taken to have spent: the clock stands still here."""
    return float(sum(sum(stage.loads or ()) for stage in done.stages))


@pytest.mark.slow
def test_a_hot_key_among_a_million_is_counted_right(tmp_path):
    """Judged by Polars from the rows themselves: for the oracle they would be too many."""
    keys, epoch = 1_000_000, 100_000
    frame = skewed(tmp_path / "in", 2 * keys, keys, epoch)
    program = ab.Program("skew")
    counted = read(program, tmp_path).window(ab.tumbling("1 h"), by="k")
    counted.agg(seen=ab.count(), n=ab.sum("n")).write(files(tmp_path), name="out", ordered=False)
    run(program, tmp_path, epoch)

    found = pl.read_parquet(tmp_path / "out" / "*.parquet").select("k", "seen", "n").sort("k")
    expected = frame.group_by("k").agg(seen=pl.len().cast(pl.Int64), n=pl.col("n").sum()).sort("k")
    assert keys == len(found)
    assert expected.equals(found)


def total(row, state):
    state.value = (state.value or 0) + row["n"]
    yield {"k": row["k"], "n": state.value}


@pytest.mark.slow
def test_the_slice_of_a_hot_key_gets_a_lane_to_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(elasticity, "LOOK_EVERY", 4)
    monkeypatch.setattr(elasticity, "_worked", rows_of)
    skewed(tmp_path / "in", 20_000, 500, 1000)

    def program():
        made = ab.Program("skew")
        keyed = read(made, tmp_path).key_by("k")
        keyed.process(total, out={"k": pl.Int64, "n": pl.Int64}).write(files(tmp_path), name="out")
        return made

    owners = run(program(), tmp_path, 1000)

    lanes = Counter(owners.of)
    assert 2 >= min(lanes.values()), f"it has much company: {lanes}"
    expected = run_sequential(program(), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))
