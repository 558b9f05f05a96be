from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest

import anabranch as ab
from anabranch.runtime.assembly import Settings as Running
from anabranch.runtime.assembly import assemble
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import MockClock, run_sequential
from bench.benches import epochs
from bench.epochs import paced, slow, words
from bench.epochs.running import require_equal
from bench.epochs.words import Records, Words
from bench.harness.report import Report
from bench.harness.stand import Settings, Stand

IN_ORDER = Records(600, rate=200, by=200)
EARLY = replace(IN_ORDER, early=0.4)


def played(program, rows):
    """Run a program in this process, in epochs of so many rows."""
    settings = Running(ab.available_now(max_rows=rows), lanes=2, slices=8)
    assembled = assemble(program.freeze(), settings, InlineExecutor(), MockClock())
    while not assembled.loop.over:
        assembled.loop.step()
    assembled.loop.close()
    assembled.close()


def test_early_records_are_the_same_records_in_another_order():
    ordered, early = IN_ORDER.arrived(0, 600), EARLY.arrived(0, 600)

    assert not ordered.equals(early)
    assert ordered.equals(early.sort("t"))
    assert early.equals(pl.concat([EARLY.arrived(0, 250), EARLY.arrived(250, 600)]))


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("records", [IN_ORDER, EARLY], ids=["in-order", "early"])
def test_words_are_counted_as_polars_counts_them(records, held, tmp_path):
    sink = ab.sinks.Files(tmp_path / "out", format="parquet")
    played(words.counted(Words(records), sink, held=held), rows=200)

    require_equal(words.expected(records.rows, records.rate), tmp_path / "out")


def test_what_polars_counts_is_what_the_program_means():
    records = Records(40, rate=20, early=0.4, by=10)
    program = words.counted(Words(records), ab.sinks.Memory("out"))

    found = run_sequential(program, epoch_rows=10)["out"]

    expected = words.expected(records.rows, records.rate)
    assert expected.equals(pl.DataFrame(found, schema=expected.schema))


def test_a_lost_row_is_no_measurement(tmp_path):
    expected = words.expected(40, 20)
    expected[1:].write_parquet(tmp_path / "a.parquet")

    with pytest.raises(AssertionError):
        require_equal(expected, tmp_path)


def test_records_are_due_by_whole_epochs_and_the_last_look_says_whether_all_are(monkeypatch):
    now = [50.0]
    monkeypatch.setattr(paced.time, "monotonic", lambda: now[0])
    source = paced.Paced(Records(25, rate=10), per_second=10, epoch_rows=10)

    assert {0: 0} == source.latest()
    now[0] = 51.9
    assert {0: 10} == source.latest()
    now[0] = 99.0
    assert not source.finished(0)
    assert {0: 25} == source.latest()
    assert source.finished(0)


def test_one_partition_is_waited_for_and_no_other(monkeypatch, tmp_path):
    waited = []
    # Its own alone: others in this process sleep too.
    monkeypatch.setattr(slow, "time", SimpleNamespace(sleep=waited.append))
    source = slow.OneSlow(60, rate=80, wait=0.5)
    sink = ab.sinks.Files(tmp_path / "out", format="parquet")

    played(slow.counted(source, sink), rows=20)

    assert [0.5] * 3 == waited
    require_equal(slow.expected(source), tmp_path / "out")


@pytest.mark.slow
@pytest.mark.spark
def test_the_contract_names_systems_and_what_they_are_compared_with():
    stand = Stand(Settings(runs=1, warmups=0, quick=True))

    with epochs.ground(epochs.TINY) as here:
        rows = [row for case in epochs.CASES for row in case(stand, here)]

    found = {(row.system, row.against): row.metric for row in rows if row.against}
    assert "throughput" == found["disorder-40", "in-order"]
    assert "throughput" == found["watermarks-10x", "watermarks-1x"]
    assert "throughput" == found["hold-and-sort", "in-flight"]
    assert "throughput" == next(row.metric for row in rows if row.system == "1k-rows")
    assert "latency_p99" == found["no-priority", "priority"]
    slow_ones = {row.metric for row in rows if row.case == "slow-partition"}
    assert {"utilisation", "throughput"} == slow_ones
    assert all(0 < row.value <= 1 for row in rows if row.metric == "utilisation")
    together = {row.system: row.value for row in rows if row.metric == "epochs_per_job"}
    assert together["watermarks-10x"] > together["watermarks-1x"]
    assert Report("epochs", _header(), tuple(rows)).as_json()["rows"]


def _header():
    from bench.harness.machine import header

    return header()


def test_the_full_scale_is_the_papers():
    """1 million rows an epoch, 100 times as many watermarks, and epochs of 1,000 rows."""
    assert (1_000_000, 100, 1_000) == (epochs.FULL.epoch, epochs.FULL.times, epochs.FULL.due)
