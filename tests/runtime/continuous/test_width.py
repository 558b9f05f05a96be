"""How many workers a resident program has: the peak is found, and what is found is kept."""

import threading

import polars as pl
import pytest

import anabranch as ab
from anabranch.api.starting import start
from anabranch.clock import SystemClock
from anabranch.runtime.assembly import Settings
from anabranch.runtime.continuous.messages import Totals
from anabranch.runtime.continuous.width import Width
from anabranch.simulate.residence import ThreadPlacer
from anabranch.testing import assert_same_rows, run_sequential
from tests.runtime.continuous.resident import SCHEMA, totals


def widths(speeds, commits, *, more=True, at_work=0.95, workers=1):
    """The widths of so many commits, a second each, where a width does so many rows a second."""
    width, found = Width(slots=max(speeds), slices=64), []
    for _ in range(commits):
        rows = {"in": speeds[workers]}
        told = Totals(rows, epochs=50, more=50 if more else 0, at_work=at_work)
        workers = width.learn(workers, told, seconds=1.0)
        found.append(workers)
    return found, width


@pytest.mark.parametrize(
    ("speeds", "peak"),
    [
        ({1: 100, 2: 190}, 2),
        ({1: 100, 2: 60}, 1),
        ({1: 100, 2: 190, 3: 250, 4: 200}, 3),
        ({1: 100, 2: 190, 3: 280, 4: 360}, 4),
    ],
)
def test_the_peak_is_found_and_kept(speeds, peak):
    found, width = widths(speeds, commits=100)

    assert {peak} == set(found[-60:])
    assert "worker" in width.because


def test_a_program_that_keeps_up_is_left_alone():
    found, width = widths({1: 100, 2: 190}, commits=100, more=False)

    assert {1} == set(found)
    assert not width.because


def test_workers_with_time_to_spare_become_fewer():
    found, _ = widths(
        dict.fromkeys(range(1, 5), 100), commits=100, more=False, at_work=0.1, workers=4
    )

    assert 1 == found[-1]


def test_a_program_that_lags_changes_its_width_and_gives_the_same_rows(tmp_path):
    """Rows without end: it lags at once, tries two workers, and judges them."""
    judged, reasons = threading.Event(), []
    out, clock = ab.sinks.Memory("out"), SystemClock()
    source = ab.sources.Generator(
        lambda n: pl.DataFrame({"n": n, "k": n % 7, "t": n * 10}), schema=SCHEMA, vectorized=True
    )
    program, placer = totals(source, out), ThreadPlacer(clock)
    settings = Settings(ab.continuous("1 ms", "20 ms"), tmp_path, None, slices=8, keep=None)
    query = start(program.freeze(), settings, placer, clock=clock)
    note = query._loop.on_progress

    def noted(progress):
        note(progress)
        because = progress["anabranch"]["scaling"]
        if because and because not in reasons:
            reasons.append(because)
        if placer.placed >= 2:
            judged.set()

    query._loop.on_progress = noted
    judged.wait()
    query.stop()

    assert any("trying 2" in each for each in reasons)
    assert_same_rows(run_sequential(program, log=tmp_path)["out"], out.rows)
