"""Schneider's graphs in virtual time: efficient where work is heavy, bounded by order where not."""

import pytest

from bench.benches import scale
from bench.benches.scale import GRAPHS, Ground
from bench.harness import registry


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
