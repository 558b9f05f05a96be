from __future__ import annotations

from pathlib import Path

import pytest

from bench.cli import main
from bench.peers import race
from bench.peers.work import Case, Found, Order, found_from_json, found_to_json
from bench.workloads.ysb_files import FileSet

FILES = FileSet(Path("/tmp/x"), 100, 10, 3)


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
    import polars as pl

    return sum((pl.read_parquet(path)["event_type"] == "view").sum() for path in paths)


def test_an_unknown_peer_is_a_usage_error(capsys):
    assert 2 == main(["ysb", "--peer", "storm"])

    assert "bench: no peer 'storm'; ysb has spark\n" == capsys.readouterr().err


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
