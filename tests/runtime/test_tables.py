"""Lookup tables that change: every epoch has its version, in the log (M13)."""

from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

import anabranch as ab
from anabranch.epoch.triggers import available_now
from anabranch.errors import RunError
from anabranch.program.operators.together import Lookup
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.tables import Tables
from anabranch.simulate.inline import KIND, UNKIND, InlineExecutor
from anabranch.state.layout import EpochPlan, table_path
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock, assert_same_rows, run_sequential

EVENTS = {"t": pl.Int64, "k": pl.String, "n": pl.Int64}


def events(count):
    return [{"t": 40 * at, "k": "abc"[at % 3], "n": at} for at in range(count)]


class Prices:
    """A table that is another one every twelve seconds, up to the last."""

    def __init__(self, *versions):
        self.versions, self.clock = versions, MockClock()

    def __call__(self):
        at = int(self.clock.elapsed() // 12)
        return self.versions[min(at, len(self.versions) - 1)]


def table(**prices):
    return pl.DataFrame({"k": list(prices), "price": list(prices.values())})


def program(prices, *, behind_windows=False, count=150):
    made = ab.Program("prices")
    source = ab.sources.Records(events(count), schema=EVENTS, partitions=2)
    stream = made.read(source, event_time="t", lateness="200 ms")
    if behind_windows:
        stream = stream.window(ab.tumbling("400 ms"), by="k").agg(n=ab.sum("n"))
    priced = stream.lookup(prices, on="k", how="left", refresh="10 s")
    priced.write(ab.sinks.Memory("rows"))
    if not behind_windows:
        by_price = priced.window(ab.tumbling("800 ms"), by="price")
        by_price.agg(m=ab.sum("n")).write(ab.sinks.Memory("sums"))
    return made


def run(made, checkpoint, prices, *, seed=0, mischief=KIND, steps=None, lanes=2, keep=None):
    clock = prices.clock
    settings = Settings(available_now(2), checkpoint, lanes, slices=8, keep=keep, in_flight=2)
    assembled = assemble(made.freeze(), settings, InlineExecutor(seed, mischief), clock)
    try:
        for _ in range(10_000 if steps is None else steps):
            if assembled.loop.over:
                return
            clock.advance(timedelta(seconds=3))
            assembled.loop.step()
    finally:
        assembled.loop.close()
        assembled.close()


def compared(made, checkpoint: Path):
    expected = run_sequential(made, log=checkpoint)
    for write in made.freeze().sinks:
        assert_same_rows(expected[write.name], write.sink.rows)
    return expected


VERSIONS = (table(a=1, b=2), table(a=1, b=2), table(a=10, c=30), table(b=200, c=300))


@pytest.mark.parametrize("behind_windows", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_every_epoch_sees_the_version_that_its_plan_names(behind_windows, seed, tmp_path):
    prices = Prices(*VERSIONS)
    made = program(prices, behind_windows=behind_windows)

    run(made, tmp_path / "ckpt", prices, seed=seed, mischief=UNKIND if seed else KIND)

    shown = {row["price"] for row in compared(made, tmp_path / "ckpt")["rows"]}
    files = list((tmp_path / "ckpt" / "tables").rglob("*.arrow"))
    # Two of the four are the same, which is one version; how often it is looked is the clock's.
    assert 2 <= len(files) <= 3
    assert 300 in shown
    assert shown & {1, 10}


@pytest.mark.parametrize("seed", range(3))
def test_versions_that_no_plan_names_are_removed(tmp_path, seed):
    """Twenty versions; two commits can be gone back to."""
    prices = Prices(*(table(a=at, b=at) for at in range(20)))
    made = program(prices, count=400)

    run(made, tmp_path / "ckpt", prices, keep=2, seed=seed, mischief=UNKIND if seed else KIND)

    names = (tmp_path / "ckpt" / "epochs").glob("*.plan")
    plans = [
        plan
        for file in names
        for plan in EpochPlan.all_from_bytes(f"epochs/{file.name}", file.read_bytes())
    ]
    wanted = {path for plan in plans for path in plan.tables.values()}
    files = sorted(p for p in (tmp_path / "ckpt" / "tables").rglob("*") if p.is_file())
    there = {str(path.relative_to(tmp_path / "ckpt")) for path in files}
    assert wanted <= there
    assert len(there) <= len(wanted) + 4
    assert max(int(path.name.split("_")[0]) for path in files) >= 10


def test_versions_of_a_later_run_are_left_alone(tmp_path):
    """A driver that was asleep must not remove what the one after it has written."""
    store = LocalStore(tmp_path)
    store.create(table_path("lookup-1", 1, 9), b"later")
    store.create(table_path("lookup-1", 1, 2), b"earlier")
    prices = Prices(table(a=1))
    tables = Tables(store, prices.clock, 5, tuple(program(prices).freeze().of(Lookup)))

    (path,) = tables.current().values()

    assert {path, table_path("lookup-1", 1, 9)} == set(store.list("tables/"))


def test_planned_epochs_keep_their_versions_through_a_restart(tmp_path):
    old, new = Prices(*VERSIONS), Prices(table(a=7))
    first, second = program(old), program(new)
    run(first, tmp_path / "ckpt", old, steps=5)
    run(second, tmp_path / "ckpt", new, lanes=3)

    expected = run_sequential(second, log=tmp_path / "ckpt")
    for write, before in zip(second.freeze().sinks, first.freeze().sinks, strict=True):
        rows = [*before.sink.rows, *write.sink.rows]
        # Memory is at least once: the last commit before the restart may be told again.
        assert_same_rows(expected[write.name][-len(write.sink.rows) :], write.sink.rows)
        assert len(rows) >= len(expected[write.name])


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (pl.DataFrame({"k": ["a"], "price": ["1"]}), "the table's columns changed"),
        (table(a=1).vstack(table(a=2)), r"several rows for \('a',\)"),
        (3, "the table's columns changed"),
    ],
)
def test_a_version_that_cannot_be_used_ends_the_query(version, text, tmp_path):
    prices = Prices(VERSIONS[0], version)
    made = program(prices)

    with pytest.raises(RunError, match=text):
        run(made, tmp_path / "ckpt", prices)


def test_a_table_that_cannot_be_loaded_again_ends_the_query(tmp_path):
    class Gone(Prices):
        def __call__(self):
            if self.clock.elapsed() > 20:
                raise OSError("the disk is gone")
            return super().__call__()

    prices = Gone(VERSIONS[0])
    made = program(prices)

    with pytest.raises(RunError, match=r"(?s)could not be loaded again: the disk is gone.*at any"):
        run(made, tmp_path / "ckpt", prices)
