"""A commit's figures: Spark's keys, ours beside them, and where time went."""

import json
from itertools import pairwise

import polars as pl
import pytest

import anabranch as ab
from anabranch.api.starting import start
from anabranch.epoch.triggers import available_now, epochs
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.progress import overhead, where_time_went
from anabranch.simulate.inline import InlineExecutor
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock
from tests.runtime.test_inline import made

PATIENCE_S = 60
SPARKS = {
    "id",
    "runId",
    "name",
    "timestamp",
    "batchId",
    "batchDuration",
    "durationMs",
    "eventTime",
    "stateOperators",
    "sources",
    "sink",
    "numInputRows",
    "inputRowsPerSecond",
    "processedRowsPerSecond",
    "observedMetrics",
}
"""The keys of Spark's StreamingQueryProgress."""


def ran(tmp_path, name="campaign_views", **given):
    settings = Settings(available_now(7), tmp_path / "ckpt", 2, slices=8, keep=None, in_flight=16)
    query = start(made(name, tmp_path, **given).freeze(), settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)
    return query


def test_progress_has_sparks_keys_and_one_of_ours_and_is_json(tmp_path):
    for each in ran(tmp_path).recent_progress:
        assert SPARKS | {"anabranch"} == each.keys()
        assert each == json.loads(json.dumps(each))


def test_times_are_told_as_spark_tells_them(tmp_path):
    last = ran(tmp_path).recent_progress[-2]

    assert last["timestamp"].endswith("Z")
    assert "1970-01-01T00:00:" == last["eventTime"]["watermark"][:17]
    assert "1970-01-01T00:00:" == last["eventTime"]["max"][:17]


def test_rows_epochs_and_offsets_add_up(tmp_path):
    query = ran(tmp_path, count=60)
    progress = query.recent_progress

    assert 60 == sum(each["numInputRows"] for each in progress) == query.statistics()["rows"]
    epochs_told = [each["anabranch"]["epochs"] for each in progress]
    assert 0 == epochs_told[0][0]
    assert all(last + 1 == first for (_, last), (first, _) in pairwise(epochs_told))
    (source,) = progress[0]["sources"]
    assert [[0, 0]] == source["startOffset"]
    assert [[0, source["numInputRows"]]] == source["endOffset"]


def test_state_is_told_by_operator_with_what_it_wrote(tmp_path):
    (operator,) = ran(tmp_path).recent_progress[0]["stateOperators"]

    assert ("window-1", 2) == (operator["operatorName"], operator["numStateStoreInstances"])
    assert operator["customMetrics"]["writtenBytes"] > 0
    assert operator["numRowsUpdated"] > 0


def test_the_size_of_all_state_is_that_of_the_files_a_recovery_reads(tmp_path):
    """Each delta adds to it; slices that are written anew let go of older files."""
    settings = Settings(available_now(7), tmp_path / "ckpt", 2, slices=8, keep=None, in_flight=1)
    program = made("campaign_views", tmp_path, count=300)
    query = start(program.freeze(), settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)
    told = [each["stateOperators"][0]["customMetrics"] for each in query.recent_progress]

    assert sum(each["snapshots"] for each in told) >= 8
    links = recover(LocalStore(tmp_path / "ckpt")).chains["window-1"]
    assert told[-1]["stateBytes"] == sum(
        (tmp_path / "ckpt" / link.path).stat().st_size for link in links
    )
    assert told[-1]["stateBytes"] < sum(each["writtenBytes"] for each in told)


def test_state_that_was_taken_over_counts(tmp_path):
    """The second run has a commit of its own only, and the state of both."""
    rows = [{"t": t} for t in (1_000, 2_000, 3_000)]
    source = ab.testing.TestingSource([rows[0], ab.testing.EOF, *rows[1:]])
    program = ab.Program("sums")
    read = program.read(source, event_time="t", lateness="1 h")
    read.window(ab.tumbling("10 s")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    settings = Settings(epochs("1 s"), tmp_path / "ckpt", 2, slices=8, keep=None)

    sizes = []
    for _ in range(2):
        query = start(program.freeze(), settings, InlineExecutor(), clock=MockClock())
        assert query.await_termination(PATIENCE_S)
        sizes.append(query.recent_progress[0]["stateOperators"][0]["customMetrics"])

    assert sizes[0]["writtenBytes"] == sizes[0]["stateBytes"]
    assert sizes[0]["stateBytes"] + sizes[1]["writtenBytes"] == sizes[1]["stateBytes"]


def test_late_rows_are_counted(tmp_path):
    rows = [{"t": t} for t in (1_000, 50_000, 2_000, 3_000, 60_000)]
    program = ab.Program("late")
    read = program.read(ab.sources.Records(rows), event_time="t")
    read.window(ab.tumbling("10 s")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    settings = Settings(available_now(2), tmp_path / "ckpt", 2, slices=8, keep=None)

    query = start(program.freeze(), settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)

    assert 2 == sum(each["anabranch"]["lateRows"] for each in query.recent_progress)
    assert 2 == query.statistics()["lateRows"]
    assert 3 == query.statistics()["epochs"]


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_rows_that_failed_are_counted_where_they_are_read_and_in_lanes(on_error, tmp_path):
    """Two of six fail at once, and of the four that are left one behind a key."""

    def invert(record):
        return {"k": record["n"] % 2, "n": 6 // record["n"]}

    def refuse(record, state):
        if record["n"] == 6:
            raise ValueError
        yield record

    program = ab.Program("failing")
    read = program.read(ab.sources.Records([{"n": n} for n in (0, 1, 2, 0, 3, 4)]))
    out = {"k": pl.Int64, "n": pl.Int64}
    inverse = read.map(invert, out=out, on_error=on_error)
    kept = inverse.key_by("k").process(refuse, out=out, on_error=on_error)
    kept.write(ab.sinks.Memory("out"))
    settings = Settings(available_now(4), tmp_path / "ckpt", 2, slices=8, keep=None)

    query = start(program.freeze(), settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)

    assert 3 == query.statistics()["failedRows"]


def test_a_watermark_is_told_by_source_with_who_holds_it_and_how_far_it_is_behind(tmp_path):
    clock = MockClock(start=100.0)
    rows = [{"t": 1_000}, {"t": 3_000}]
    program = ab.Program("held")
    read = program.read(ab.sources.Records(rows, partitions=2), name="r", event_time="t")
    read.window(ab.tumbling("10 s")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    settings = Settings(available_now(1), tmp_path / "ckpt", 2, slices=8, keep=None)
    assembled = assemble(program.freeze(), settings, InlineExecutor(), clock)
    found = []
    assembled.loop.on_progress = found.append
    while not assembled.loop.over:
        assembled.loop.step()
    assembled.loop.close()
    assembled.close()

    told = found[-1]["anabranch"]["sources"]["r"]
    assert {"heldBy": [], "idle": [], "finished": [0, 1], "lagMs": None} == {
        key: told[key] for key in ("heldBy", "idle", "finished", "lagMs")
    }
    assert "+294247-01-10T04:00:54.775Z" == told["watermark"] == found[-1]["eventTime"]["watermark"]


class Slow(InlineExecutor):
    """A job takes two seconds, none of which is its tasks'."""

    def __init__(self, clock):
        super().__init__()
        self._time = clock

    def run(self, heads, lanes, merges=()):
        self._time.advance(2)
        return super().run(heads, lanes, merges)


def test_time_without_work_and_time_of_jobs_are_told_apart(tmp_path):
    """Nothing for 10 s, then a row: two jobs, of heads and of lanes, of 2 s each."""
    clock, items = MockClock(), []

    class Later(ab.sources.Source):
        schema = pl.Schema({"t": pl.Int64})

        def partitions(self):
            return (0,)

        def latest(self):
            return {0: len(items)}

        def plan(self, start, end):
            return [(start[0], end[0])]

        def read(self, split):
            yield from pl.DataFrame({"t": items[slice(*split)]}).to_arrow().to_batches()

    program = ab.Program("slow")
    read = program.read(Later(), event_time="t")
    read.window(ab.tumbling("10 s")).agg(n=ab.count()).write(ab.sinks.Memory("out"))
    settings = Settings(epochs("1 s"), tmp_path / "ckpt", 1, slices=8, keep=None)
    assembled = assemble(program.freeze(), settings, Slow(clock), clock)
    found = []
    assembled.loop.on_progress = found.append
    assert not assembled.loop.step()
    clock.advance(10)
    items.append(1)
    while assembled.loop.step():
        pass
    assembled.loop.close()
    assembled.close()

    (told,) = found
    assert 10_000 == told["anabranch"]["timeMs"]["idle"]
    assert 4_000 == told["durationMs"]["addBatch"] == told["durationMs"]["triggerExecution"]
    assert (1 / 14, 1 / 4) == (told["inputRowsPerSecond"], told["processedRowsPerSecond"])
    assert (2, 0, 0) == tuple(
        told["anabranch"][key] for key in ("jobs", "epochsUnderWay", "failures")
    )


def test_what_tasks_cannot_have_taken_is_sparks():
    assert 0.25 == overhead(1.0, [0.5, 0.75], slots=2)
    assert 1.0 == overhead(1.0, [], slots=2)
    assert 0.0 == overhead(1.0, [2.0], slots=2), "clocks of several processes differ"


def test_every_name_that_is_counted_has_its_place():
    names = ("latestOffset", "head read", "lane kernel", "lane exchange", "lane state", "publish")
    names += ("commitOffsets", "spark", "idle")

    told = where_time_went(dict.fromkeys(names, 1.0))

    assert 1000.0 * len(names) == sum(told.values())
    assert ["source", "kernel", "exchange", "state", "sink", "commit", "spark", "idle"] == list(
        told
    )


def test_only_the_newest_progress_is_kept(tmp_path):
    program = ab.Program("many")
    rows = [{"n": n} for n in range(800)]
    program.read(ab.sources.Records(rows)).write(ab.sinks.Memory("out"))
    settings = Settings(available_now(1), tmp_path / "ckpt", 1, slices=8, in_flight=4)

    query = start(program.freeze(), settings, InlineExecutor(), clock=MockClock())
    assert query.await_termination(PATIENCE_S)

    assert 100 == len(query.recent_progress) < query.statistics()["commits"]
    assert query.last_progress == query.recent_progress[-1]
    assert 799 == query.statistics()["lastCommitted"]
