from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from functools import partial

import polars as pl
import pytest

import anabranch as ab
from anabranch.runtime import assembly
from anabranch.runtime.exchange import OwnedDirectory
from bench.benches import soak
from bench.cli import main
from bench.harness.stand import Settings, Stand
from bench.soak import query, usage
from bench.workloads import ysb

LIVE = (90.0, 91.0)


def sample(at, **figures):
    made = int(10 * at)
    known = {
        ("checkpoint-commits", "files", "files"): 100.0,
        ("jvm", "memory", "MB"): 500.0,
        ("lanes", "threads", "threads"): 12.0,
        ("staging", "files", "files"): 0.0,
        ("output", "files", "files"): 100.0 * at,
    }
    given = {tuple(name.split("_")): value for name, value in figures.items()}
    return soak.Sample(at, rows=1000 * made, commits=made, figures={**known, **given})


def by_place(rows):
    return {(row.case, row.metric, row.system): row for row in rows}


def test_what_stays_is_flat_and_output_may_grow():
    rows, notes = soak.told([sample(60.0 * n) for n in range(1, 9)], LIVE)

    found = by_place(rows)
    assert ["All but the output is flat.", notes[1]] == notes
    assert "Retention works: 4,800 commits were made, at most 100 files kept." == notes[1]
    last = found["output", "files", "last"]
    assert [45_000.0, "first", 5.0] == [last.value, last.against, last.ratio]
    assert pytest.approx(6000.0) == found["output", "files_slope", "all"].value
    assert pytest.approx(10_000.0) == found["query", "throughput", "last"].value


@pytest.mark.parametrize(
    ("figure", "values", "says"),
    [
        ("jvm_memory_MB", range(500, 660, 20), "jvm memory (by +20 MB a minute)"),
        ("lanes_threads_threads", range(12, 28, 2), "lanes threads (by +2 threads a minute)"),
        ("staging_files_files", range(0, 320, 40), "staging files (by +40 files a minute)"),
    ],
)
def test_what_grows_is_told(figure, values, says):
    samples = [sample(60.0 * n, **{figure: float(v)}) for n, v in enumerate(values, 1)]

    _, (verdict, _) = soak.told(samples, LIVE)

    assert f"NOT FLAT: {says}." == verdict


def test_commits_that_are_all_kept_are_told():
    samples = [
        sample(60.0 * n, **{"checkpoint-commits_files_files": 600.0 * n}) for n in range(1, 9)
    ]

    _, (verdict, retention) = soak.told(samples, LIVE)

    assert "checkpoint-commits files" in verdict
    assert retention.startswith("Retention DOES NOT WORK: 4,800 commits")


@pytest.mark.parametrize(("end", "flat"), [(120.0, True), (122.0, False)])
def test_a_heap_that_grows_is_told(end, flat):
    rows, (verdict, _) = soak.told([sample(60.0 * n) for n in range(1, 9)], (100.0, end))

    assert end == by_place(rows)["jvm", "heap", "last"].value
    assert flat is ("jvm heap" not in verdict)


def test_what_is_zero_has_no_ratio():
    rows, _ = soak.told([sample(60.0 * n) for n in range(1, 9)], LIVE)

    last = by_place(rows)["staging", "files", "last"]
    assert [0.0, None, None] == [last.value, last.against, last.ratio]


def test_processes_are_known_by_what_they_are():
    """A family of its own: whoever runs this test may have others, a Spark for one."""
    kinds = {"lanes": {usage.LANE: "x-0-0"}, "heads": {usage.HEAD: "x"}, "others": {}}
    family = (
        "import os, subprocess, sys\n"
        "told = [sys.executable, '-c', 'print(1, flush=True); input()']\n"
        "pipe = subprocess.PIPE\n"
        f"born = [subprocess.Popen(told, stdin=pipe, stdout=pipe, env={{**os.environ, **each}})\n"
        f"        for each in {list(kinds.values())!r}]\n"
        "[each.stdout.readline() for each in born]\n"
        "print(1, flush=True); input()\n"
        "[each.communicate(b'\\n') for each in born]\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", family], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as root:
        root.stdout.readline()
        found = usage.by_role(root.pid)
        root.communicate(b"\n")

    assert [1, 1, 1] == [found[kind].count for kind in kinds]
    assert 0 == found["jvm"].count
    assert all(each.memory > usage.MB for each in (found["driver"], found["lanes"]))
    assert found["lanes"].threads >= 1
    assert found["lanes"].descriptors >= 3


def test_directories_are_owned_by_whoever_holds_their_lock(tmp_path):
    owned = OwnedDirectory.create("exchange", tmp_path)
    try:
        assert owned.path in usage.owned_directories()
    finally:
        owned.remove()
    assert owned.path not in usage.owned_directories()


def test_files_are_counted_with_those_below_and_links_are_not_followed(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "one").write_bytes(b"123")
    (tmp_path / "two").write_bytes(b"45")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)

    found = usage.files_below(tmp_path)

    assert 3 == found.count  # the link is one
    assert found.size >= 5
    assert usage.Files() == usage.files_below(tmp_path / "nowhere")


def soaked(tmp_path, rows):
    """The soak's query over its first so many events, in this process."""
    from anabranch.runtime.assembly import Settings as Running
    from anabranch.runtime.assembly import assemble
    from anabranch.simulate.inline import InlineExecutor
    from anabranch.testing import MockClock

    program = query.program(tmp_path / "out")
    assembled = assemble(
        program.freeze(),
        # Few in flight: all that is planned is worked through at the end.
        Running(ab.epochs("1 ms", max_rows=50_000), tmp_path / "ckpt", lanes=2, in_flight=4),
        InlineExecutor(),
        MockClock(),
    )
    read = []
    assembled.loop.on_progress = lambda told: read.append(told["numInputRows"])
    while sum(read) < rows:
        assembled.loop.step()
    assembled.loop.stop(drain=True)
    while not assembled.loop.over:
        assembled.loop.step()
    assembled.loop.close()
    assembled.close()
    return sum(read)


@pytest.mark.slow
def test_the_closed_form_is_what_comes_out_and_nothing_else(tmp_path):
    rows = soaked(tmp_path, 700_000)

    query.require_right(tmp_path / "out", rows)

    with pytest.raises(AssertionError):
        query.require_right(tmp_path / "out", rows + 300_000)
    first, *_ = sorted((tmp_path / "out" / "views").glob("*.parquet"))
    whole = pl.read_parquet(first)
    for wrong in (
        whole.with_columns(pl.col("views") + 1),
        whole[1:],
        whole.with_columns(pl.col("window_start") + timedelta(seconds=10)),
    ):
        wrong.write_parquet(first)
        with pytest.raises(AssertionError):
            query.require_right(tmp_path / "out", rows)
    whole.write_parquet(first)
    other, *_ = sorted((tmp_path / "out" / "milestones").glob("*.parquet"))
    pl.read_parquet(other)[1:].write_parquet(other)
    with pytest.raises(AssertionError):
        query.require_right(tmp_path / "out", rows)


def test_twenty_users_buy_by_mail_once_in_300_events():
    events = ysb.events(
        pl.int_range(3000, dtype=pl.UInt64, eager=True), rate=query.RATE, variant="deterministic"
    )

    bought = events.filter(pl.col("event_type") == "purchase", pl.col("ad_type") == "mail")

    assert [10] * 20 == bought["user_id"].value_counts()["count"].to_list()


def test_minutes_are_for_what_takes_as_long_as_it_is_told(capsys):
    assert 2 == main(["start", "--minutes", "1"])

    assert "bench: start takes as long as it takes: no --minutes\n" == capsys.readouterr().err


@pytest.mark.parametrize("minutes", ["0", "-1", "inf", "nan", "ten"])
def test_minutes_that_are_none_are_refused(minutes, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["soak", "--minutes", minutes])

    assert 2 == stopped.value.code


@pytest.mark.slow
@pytest.mark.spark
def test_a_soak_sees_all_there_is(monkeypatch):
    monkeypatch.setattr(soak, "WARM_COMMITS", 2)
    monkeypatch.setattr(soak, "WARM_SHARE", 0.0)
    monkeypatch.setattr(soak, "EPOCH_ROWS", 100_000)
    # What is planned when it is stopped is still worked through: of 64 epochs that takes long.
    monkeypatch.setattr(assembly, "Settings", partial(assembly.Settings, in_flight=4))
    stand = Stand(Settings(minutes=0.05))

    rows = soak.measure(stand)

    found = by_place(rows)
    for role in ("driver", "jvm", "lanes", "heads"):
        assert found[role, "memory", "last"].value > 10
        assert found[role, "threads", "last"].value >= 1
    assert found["checkpoint", "files", "last"].value > 3
    assert found["output", "files_slope", "all"].value > 0
    assert found["jvm", "heap", "last"].high > 1
    assert any("commits were made" in note for note in stand.notes)
