"""What the elastic bench takes for a gap, a rate and a right answer; Spark twice, and little of it."""

from __future__ import annotations

import time
from dataclasses import asdict

import polars as pl
import pytest

import anabranch as ab
from anabranch.runtime.assembly import Settings as Running
from anabranch.runtime.assembly import assemble
from anabranch.simulate.inline import InlineExecutor
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock
from bench.benches import elastic
from bench.elastic import arriving, cluster, cotenant, executors, peer, remote, rescale, structured
from bench.elastic.arriving import Arriving
from bench.elastic.executors import Loss
from bench.elastic.ground import FULL, QUICK, TINY, ground
from bench.elastic.peer import Restart
from bench.elastic.rescale import Change, Run, Seen
from bench.elastic.watched import Commit, Gap
from bench.harness.stand import Settings, Stand

LOSSES = {
    "anabranch": [Loss(1.0, {"backup": 3})],
    "durable-only": [Loss(2.0, {"checkpoint": 3})],
}


def commit(at, lanes=1, rows=10):
    return Commit(at, lanes, rows)


def change(steady, gap, turn, executors=1):
    gaps = Gap(0.0, commit(steady)), Gap(10.0, commit(10.0 + gap))
    return Change(*gaps, 10.0, turn, executors)


def test_rows_come_as_they_are_asked_for(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(arriving.time, "monotonic", lambda: now[0])
    source = Arriving(50)

    assert {0: 50} == source.latest()
    source.flood(20)
    assert [{0: 70}, {0: 90}] == [source.latest(), source.latest()]
    source.pace(10.0)
    assert {0: 90} == source.latest()
    now[0] = 102.0
    assert 110 == source.arrived(now[0])
    assert {0: 110} == source.latest()
    source.finish()
    now[0] = 200.0
    assert {0: 110} == source.latest()
    assert source.finished(0)


def test_what_comes_out_is_what_polars_gives(tmp_path):
    source = Arriving(300, rows=2_000)
    settings = Running(ab.available_now(max_rows=400), lanes=2, slices=8)
    graph = arriving.program(source, tmp_path).freeze()
    assembled = assemble(graph, settings, InlineExecutor(), MockClock())
    while not assembled.loop.over:
        assembled.loop.step()
    assembled.loop.close()
    assembled.close()

    arriving.require_right(tmp_path, 2_300, 300)
    with pytest.raises(AssertionError):
        arriving.require_right(tmp_path, 2_200, 300)


def test_a_gap_is_compared_with_the_time_before_and_with_others():
    runs = {
        "anabranch": [Run(change(1.0, 1.5, 3.0), change(1.0, 2.0, 4.0))],
        "migrate": [Run(change(9.0, 6.0, 6.0), change(9.0, 8.0, 8.0))],
    }
    restarted = [(Restart(2.0, 30.0, 31.0), Restart(2.0, 40.0, 41.0))]

    rows = rescale.rows_of("rescale-1mb", runs)
    rows += peer.rows_of("structured-1mb", 9.0, restarted)

    ratios = {(row.metric, row.system, row.against): row.ratio for row in rows if row.against}
    assert 1.5 == ratios["longest_gap", "anabranch", "steady"]
    assert 0.25 == ratios["longest_gap", "anabranch", "migrate"]
    assert 15.0 == ratios["longest_gap", "structured-streaming", "steady"]
    assert 0.5 == ratios["turn_time_down", "anabranch", "migrate"]


def test_neighbours_are_compared_with_what_they_did_before():
    steady, changing = cotenant.Beside(100.0, 8.0), cotenant.Beside(50.0, 6.0)

    rows = cotenant.rows_of("cotenant", {"rescale": [cotenant.Run(steady, changing)]})

    found = {(row.metric, row.against): row.ratio for row in rows if row.against}
    assert 0.5 == found["query_throughput", "steady"]
    assert 0.75 == found["program_throughput", "steady"]


def test_files_of_rows_are_whole_and_in_order(tmp_path):
    feeding = structured.Feeding(tmp_path / "in", keys=10)
    feeding.load()

    found = pl.read_parquet(sorted((tmp_path / "in").glob("*.parquet")))
    assert arriving.rows_of(0, 12, 10).equals(found)


def test_the_full_scale_has_the_cases_that_are_asked_for():
    asked = {"rescale-64mb", "rescale-256mb", "rescale-1gb", "checkpoint-1gb", "slices-16"}

    found = elastic.chosen(FULL, ())

    assert asked | {"slices-1024", "cotenant", "state-1gb", "recover-64mb"} <= set(found)
    assert {"slices-8"} == set(elastic.chosen(QUICK, ("slices-8",)))


def test_cases_that_need_executors_say_which():
    asked = elastic.chosen(FULL, ("recover-executor-*", "memory-*", "rescale-cluster"))

    found = {name: executors.named(name) for name in asked}

    assert 8 == len(found)
    assert {2, 3, 4} == {found[f"recover-executor-{left}"].executors for left in (1, 2, 3)}
    far = {name for name, case in found.items() if case.conf}
    assert {f"recover-executor-{left}-remote" for left in (1, 2, 3)} == far
    assert "local-cluster[2,1,768]" == found["memory-2"].master == found["rescale-cluster"].master
    others = [name for name in elastic.chosen(FULL, ()) if name not in found]
    assert not any(map(executors.named, [*others, "recover-executor-0", "recover-executor"]))


def test_time_and_origins_of_a_loss_are_told_of_each_system():
    ours, theirs = Loss(1.0, {"memory": 64, "backup": 32}), Loss(4.0, {"checkpoint": 32})

    rows = executors.rows_of("recover-executor-1", {"anabranch": [ours], "durable-only": [theirs]})

    found = {(row.metric, row.system): (row.value, row.ratio) for row in rows}
    assert (1.0, 0.25) == found["recovery_time", "anabranch"]
    assert (32, None) == found["slices_from_backup", "anabranch"]
    assert (32, None) == found["slices_from_checkpoint", "durable-only"]
    assert (0, None) == found["slices_from_memory", "durable-only"]


@pytest.mark.parametrize(("ours", "theirs"), [("checkpoint", "checkpoint"), ("backup", "backup")])
def test_a_loss_that_was_made_good_in_another_way_is_refused(ours, theirs):
    runs = {"anabranch": [Loss(1.0, {ours: 3})], "durable-only": [Loss(1.0, {theirs: 3})]}

    with pytest.raises(RuntimeError, match="from copies"):
        executors.rows_of("recover-executor-1", runs)


def test_a_lane_that_is_not_elsewhere_is_refused():
    case = executors.named("rescale-cluster")
    apart, together = (Run(change(1, 1, 1, many), change(1, 1, 1)) for many in (2, 1))

    executors.require_apart(case, Seen({"anabranch": [apart], "migrate": [apart]}, 1, 1, 1.0))
    with pytest.raises(RuntimeError, match="at full width"):
        executors.require_apart(case, Seen({"anabranch": [apart, together]}, 1, 1, 1.0))


def test_state_of_a_checkpoint_far_away_is_late_and_nothing_else(tmp_path):
    waited, kept = [], LocalStore(tmp_path)
    store = remote.Slow(kept, 0.03, waited.append)

    store.create("state/a/1.delta", b"x")
    store.create("plans/1", b"y")

    assert (b"x", b"y") == (store.read("state/a/1.delta"), store.read("plans/1"))
    assert [0.03] == waited


def test_a_checkpoint_is_where_it_is_unless_the_environment_says_otherwise(tmp_path, monkeypatch):
    monkeypatch.delenv(remote.READ_MS, raising=False)
    assert isinstance(remote.store_at_distance(tmp_path, "process"), LocalStore)
    monkeypatch.setenv(remote.READ_MS, "30")
    assert isinstance(remote.store_at_distance(tmp_path, "process"), remote.Slow)


def test_what_a_case_tells_from_its_process_is_told_on(capsys):
    seen = []
    telling, row = cluster.Telling(), executors.rows_of("c", LOSSES)[0]
    telling.begin("c", 2)
    telling.step("anabranch")
    cluster.tell(rows=[asdict(row)], notes=["so it is"])

    class Noted:
        def begin(self, case, steps):
            seen.append((case, steps))

        def step(self, system):
            seen.append(system)

    stand = Stand(progress=Noted())
    lines = ["what Spark says\n", *capsys.readouterr().out.splitlines(keepends=True)]
    assert [row] == cluster.heard(lines, stand)
    assert [("c", 2), "anabranch"] == seen
    assert ["so it is"] == stand.notes


@pytest.mark.slow
@pytest.mark.spark
def test_ways_to_write_checkpoints_give_the_same_and_not_the_same_files():
    stand = Stand(Settings(runs=1, warmups=0, quick=True))
    began = time.monotonic()

    with ground(TINY) as here:
        rows = elastic.checkpoint(stand, here, TINY.checkpoint)

    found = {(row.metric, row.system, row.against) for row in rows}
    assert ("worst_epoch", "anabranch", "none") in found
    assert ("bytes_per_epoch", "anabranch", "synchronous") in found
    assert all(0 < row.value < time.monotonic() - began for row in rows if row.unit == "s")


@pytest.mark.slow
@pytest.mark.spark
def test_two_executors_have_their_state_in_memory():
    stand = Stand(Settings(runs=1, warmups=0))

    (row,) = cluster.measured(stand, "memory-2", scale="tiny")

    assert ("memory_share", "ratio", 1.0) == (row.metric, row.unit, row.value)
