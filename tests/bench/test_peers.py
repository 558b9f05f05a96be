from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from bench.cli import main
from bench.harness.machine import ROOT
from bench.peers import environment, race, task, text
from bench.peers.environment import Environment, UnavailableError
from bench.peers.work import Case, Found, Order, found_from_json, found_to_json
from bench.workloads import ysb, ysb_files
from bench.workloads.ysb_files import FileSet

FILES = FileSet(Path("/tmp/x"), 100, 10, 3)
NOTHING = Environment("nothing", ("no-such-thing-as-this==1.0",))


def test_orders_and_results_travel_as_text():
    case = Case("c", FILES, 2, 1, 2, 3)
    order = Order("spark", {"width": "1"}, (case,), Path("/tmp/y"))
    found = [Found("c", 100, 0.5, (1.0, 2.5), {"jobs": 1.5}, 3, 10_000_000)]

    assert order == Order.from_json(order.to_json())
    assert found == found_from_json(found_to_json(found))


def test_files_hold_the_events_in_order_and_are_modified_in_order(tmp_path):
    files = FileSet(tmp_path / "in", 100, 10, 3)
    files.write()

    paths = sorted((tmp_path / "in").iterdir())
    assert [files.path(number) for number in range(3)] == paths
    times = [path.stat().st_mtime for path in paths]
    assert sorted(set(times)) == times
    expected = files.expected(3)
    assert expected["views"].sum() == sum(files.expected(1)["views"]) + _views(paths[1:])


def _views(paths):
    return sum((pl.read_parquet(path)["event_type"] == "view").sum() for path in paths)


def test_an_unknown_peer_is_a_usage_error(capsys):
    assert 2 == main(["ysb", "--peer", "storm"])

    assert (
        "bench: no peer 'storm'; ysb has spark, flink, bytewax, bytewax-events\n"
        == capsys.readouterr().err
    )


def test_one_unknown_peer_among_several_is_a_usage_error(capsys):
    assert 2 == main(["ysb", "--peer", "spark,storm"])

    assert (
        "bench: no peer 'storm'; ysb has spark, flink, bytewax, bytewax-events\n"
        == capsys.readouterr().err
    )


def test_a_wrong_output_is_refused(tmp_path):
    files = FileSet(tmp_path / "in", 400, 20, 2)
    files.write()
    found = Found("c", 400, 1.0, (), {}, 2, 20_000_000)
    right = files.expected(2).filter(files.expected(2)["window_end"].dt.epoch("us") <= 20_000_000)
    out = tmp_path / "out"
    out.mkdir()

    right.write_parquet(out / "a.parquet")
    race.require_equal(Case("c", files, 1, 1, 1), found, out)
    right[1:].write_parquet(out / "a.parquet")
    with pytest.raises(AssertionError):
        race.require_equal(Case("c", files, 1, 1, 1), found, out)


@pytest.mark.slow
@pytest.mark.spark
def test_both_systems_give_what_must_come_out():
    with race.ground(race.TINY) as ground:
        for system in (race.OURS, race.SPARK):
            case = ground.cases(system)[1]
            found = ground.run(system, [case])[case.name]

            assert found.throughput > 0
            assert found.latencies_ms
            assert found.parts_ms


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "options"),
    [
        (race.FLINK, {"lookup": "join"}),
        (race.FLINK, {"lookup": "each"}),
        (race.BYTEWAX, {"width": "1"}),
        (race.BYTEWAX, {"width": "2"}),
        (race.BY_EVENT, {"width": "1"}),
    ],
)
def test_systems_with_an_environment_of_their_own_give_what_must_come_out(system, options):
    if environment.found(system.environment) is None:
        pytest.skip(f"{system.environment.title} is not installed: ./x bench ysb --peer does that")
    with race.ground(race.TINY) as ground:
        case = replace(ground.cases(system)[1], options=options)
        found = ground.run(system, [case])[case.name]

        assert found.throughput > 0
        assert case.single == len(found.latencies_ms)
        assert found.parts_ms


def _order(case):
    return Order("flink", {"lookup": "join", "interval": "1 s"}, (case,), Path("/tmp/y"))


def _task(tmp_path, case):
    order = tmp_path / "order"
    order.write_text(_order(case).to_json())
    [found] = task.read(order)
    return found


def test_a_task_says_what_its_order_says(tmp_path):
    case = Case("c", FILES, 2, 2, 3, 2, {"lookup": "each"})
    found = _task(tmp_path, case)

    assert ((0, 4), (4, 10), (10, 12), (12, 14)) == found.phases
    assert {"lookup": "each", "interval": "1 s"} == found.options
    assert _order(case).output(case) == found.output
    assert FILES.path(7) == found.path(7)


def test_what_was_timed_is_what_the_race_reads(tmp_path):
    found = _task(tmp_path, Case("c", FILES, 1, 3, 2, 2))
    told = json.dumps([task.answer(found, task.Timed(0.5, (1.0, 3.0)), 40_000)])

    expected = Found("c", 200, 0.5, (1.0, 3.0), {"given to committed": 2.0}, 7, 40_000_000)
    assert [expected] == found_from_json(told)


def test_a_warm_up_that_closes_no_window_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"^c: the warm-up closes no window; it has to be longer$"):
        _task(tmp_path, Case("c", FILES, 1, 2, 3))


def test_what_processes_without_polars_go_by_is_what_the_workload_says():
    assert f"{task.LATENESS_MS // 1000} seconds" == ysb_files.LATENESS
    assert timedelta(milliseconds=task.WINDOW_MS) == ysb.WINDOW


@pytest.mark.slow
def test_other_interpreters_need_nothing_of_ours():
    modules = "import bench.peers.bytewax, bench.peers.flink"

    subprocess.run([sys.executable, "-S", "-c", modules], cwd=ROOT, check=True)


def test_text_holds_the_rows_of_the_files_in_order(tmp_path):
    files = FileSet(tmp_path / "in", 100, 10, 5)
    files.write()
    found = _task(tmp_path, Case("c", files, 1, 3, 2))
    text.write(found)

    for first, last in found.phases:
        parts = [pl.read_csv(found.text(first, last, part), has_header=False) for part in (0, 1)]
        rows = [parts[number % 2].row(number // 2) for number in range(100 * (last - first))]
        events = pl.concat(pl.read_parquet(files.path(number)) for number in range(first, last))
        columns = ("ad_id", "event_type", pl.col("event_time").dt.epoch("ms"))
        assert events.select(*columns).rows() == rows


@pytest.mark.slow
def test_what_cannot_be_installed_is_said_in_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)

    reason = r"^nothing 1\.0 cannot be installed for Python 3\.\d+: No matching distribution .*$"
    with pytest.raises(UnavailableError, match=reason):
        environment.interpreter(NOTHING, tmp_path)
    assert [] == list((tmp_path / "peers").iterdir())
    assert environment.found(NOTHING, tmp_path) is None


def test_an_environment_that_is_there_is_not_made_again(tmp_path):
    python = NOTHING.directory(tmp_path) / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()

    assert python == environment.interpreter(NOTHING, tmp_path)


@pytest.fixture
def nothing_installs(monkeypatch):
    def interpreter(given, _cache=None):
        raise UnavailableError.because(given, "no network")

    monkeypatch.setattr(environment, "interpreter", interpreter)


@pytest.mark.usefixtures("nothing_installs")
def test_a_peer_that_cannot_be_had_is_left_out(capsys):
    had, missing = race.available([race.FLINK, race.SPARK])

    assert [race.SPARK] == had
    version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    why = f"flink 2.3.0 cannot be installed for {version}: no network"
    assert [f"flink is left out: {why}"] == missing
    assert f"bench: flink is left out: {why}" == capsys.readouterr().err.splitlines()[-1]


@pytest.mark.usefixtures("nothing_installs")
def test_nothing_is_measured_without_a_peer(capsys, tmp_path):
    assert 1 == main(["ysb", "--peer", "bytewax", "--quick"], tmp_path)

    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith(
        "bench: nothing was measured: bytewax is left out: bytewax 0.21.1 cannot"
    )
    assert [] == list(tmp_path.iterdir())
