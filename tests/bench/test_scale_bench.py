"""Schneider's graphs in virtual time: efficient where work is heavy, bounded by order where not."""

import polars as pl
import pytest

from bench.benches import scale
from bench.benches.scale import GRAPHS, Ground
from bench.harness import registry
from bench.harness.stand import Settings, Stand
from bench.kernels.tasks import Tasks
from bench.scale import growth


def ratios(name, *, onward, work, channels):
    ground = Ground(onward, (1, channels), (work,), 40 * channels)
    return {row.system: row.ratio for row in scale.scaled(name, ground) if row.against}


def test_all_of_it_can_be_found():
    assert all(registry.find("scale").has(name) for name in GRAPHS)


@pytest.mark.parametrize("name", GRAPHS)
def test_heavy_work_scales(name):
    (found,) = ratios(name, onward=1e-6, work=1000, channels=8).values()

    assert 7.5 < found <= 8.0


@pytest.mark.parametrize(
    ("name", "most"), [("stateless", 3.0), ("stateful", 3.0), ("shuffle", 6.0)]
)
def test_what_goes_on_in_order_bounds_light_work(name, most):
    """A tuple costs 10 us and goes on in 5 us, one at a time, at each operator."""
    (found,) = ratios(name, onward=5e-6, work=10, channels=32).values()

    assert most - 1 < found <= most + 1e-9


def test_an_events_cost_is_told_by_input_and_by_keys():
    stand = Stand(Settings(runs=1, warmups=0, quick=True))
    found = [row for name in growth.NAMES for row in growth.measured(stand, name)]

    assert ["1 x", "4 x", "16 x", "1,000 keys", "10,000 keys"] == [row.system for row in found]
    assert all(row.value > 0 for row in found)
    assert all(row.against in {None, "1 x", "1,000 keys"} for row in found)


def test_what_grows_is_summed_right():
    tasks, given = Tasks(growth.program()), [growth.epoch(number, 7) for number in range(3)]
    made = [frame for each in given for frame in tasks.epoch([each])]
    made += tasks.epoch([given[0].clear()], last=True)

    kept = pl.concat(given).filter(pl.col("v") % 10 != 0)
    expected = kept.group_by("k").agg(total=(pl.col("v") * 3).sum()).sort("k")
    whole = pl.concat(made).filter(pl.col("window_start") == pl.lit(0).cast(pl.Datetime("us")))
    assert expected.rows() == whole.select("k", "total").sort("k").rows()
