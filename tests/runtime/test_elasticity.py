"""Slices change lanes by what they cost, and lanes come and go by the load: decided by cycles alone."""

import numpy as np
import pytest

from anabranch.epoch.triggers import available_now
from anabranch.runtime import elasticity
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.elasticity import LOOK_EVERY, Elasticity, Seen
from anabranch.runtime.payload import LaneDone, StageDone
from anabranch.simulate.inline import InlineExecutor
from anabranch.state.slices import Owners
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from tests.runtime.test_inline import made, widths_of, written

SLICES = 8


def cycle(owners, rows, *, second=1e-6, took=1.0, backlog=0, more=False):
    """A cycle in which every slice had so many rows, each of which took so long."""
    lanes = {}
    for lane in range(owners.lanes):
        mine = [n if owner == lane else 0 for n, owner in zip(rows, owners.of, strict=True)]
        stage = StageDone(0, loads=tuple(mine))
        lanes[lane] = LaneDone(lane, (stage,), spent={"kernel": sum(mine) * second})
    return Seen(lanes, took, sum(rows), backlog, more)


def after(elastic, owners, rows, cycles, **options):
    """The wishes of some cycles that are all alike."""
    return [elastic.learn(cycle(owners, rows, **options), owners) for _ in range(cycles)]


def test_two_hot_slices_do_not_share_a_lane():
    owners = Owners.spread(SLICES, 2)
    hot = [50_000, 50_000, 10, 10, 10, 10, 10, 10]
    *before, wish = after(Elasticity(1.0, 2), owners, hot, LOOK_EVERY)

    assert {None} == set(before)
    assert wish.owners.of[0] != wish.owners.of[1]
    assert "the busiest lane had 100% of the work and will have 50%" in wish.because


def test_an_even_load_moves_nothing_however_long_it_lasts():
    owners, rng = Owners.spread(SLICES, 2), np.random.default_rng(1)
    elastic = Elasticity(1.0, 2)
    for _ in range(10):
        noisy = (20_000 * rng.uniform(0.9, 1.1, SLICES)).astype(int).tolist()
        assert {None} == set(after(elastic, owners, noisy, LOOK_EVERY))


def test_of_too_little_work_nothing_is_told():
    owners = Owners.spread(SLICES, 2)
    assert {None} == set(after(Elasticity(1.0, 2), owners, [100, *[0] * 7], 4 * LOOK_EVERY))


def test_the_last_look_counts_most():
    """What was hot yesterday is forgotten: otherwise slices would be moved for what is over."""
    owners, elastic = Owners.spread(SLICES, 2), Elasticity(1.0, 2)
    after(elastic, owners, [90_000, *[1_000] * 7], LOOK_EVERY)
    after(elastic, owners, [1_000] * 8, 100)
    after(elastic, owners, [20_000] * 8, 3 * LOOK_EVERY)
    costs = elastic.costs()
    assert max(costs) < 2 * min(costs)


@pytest.mark.parametrize("auto", [True, False])
def test_a_width_of_its_own_follows_the_load(auto):
    elastic, owners, widths = Elasticity(1.0, 4, auto=auto), Owners.spread(SLICES, 1), [1]
    for _ in range(40):
        # Lanes that are behind are at work all the time, and twice as many do twice as much.
        rows = [10_000 * owners.lanes] * SLICES
        lag = cycle(owners, rows, second=1 / sum(rows) * owners.lanes, took=1.0, more=True)
        wish = elastic.learn(lag, owners)
        if wish is not None:
            owners = wish.owners
            widths.append(owners.lanes)
            assert "rows wait" in wish.because or "overdue" in wish.because

    assert [1, 2, 4] == widths if auto else [1] == widths


def test_slots_are_asked_for_once_and_let_go_when_heads_and_lanes_have_not_needed_them():
    elastic, owners = Elasticity(1.0, 2, auto=True, most_slots=4), Owners.spread(SLICES, 2)
    rows = [10_000] * SLICES
    busy = {"second": 2 / sum(rows), "took": 1.0, "more": True}
    wishes = after(elastic, owners, rows, 10, **busy)

    assert [4] == [wish.slots for wish in wishes if wish is not None]
    assert {owners} == {wish.owners for wish in wishes if wish is not None}

    elastic.slots = 4
    calm = {"second": 0.8 / sum(rows), "took": 0.5}
    wishes = after(elastic, owners, rows, 1000, **calm)
    assert {3} == {wish.slots for wish in wishes if wish is not None}, "2 were too few of late"


def test_a_query_with_a_hot_key_moves_slices_and_gives_what_it_means(tmp_path, monkeypatch):
    """The clock stands still here, so the least of work is made to count."""
    monkeypatch.setattr(elasticity, "LOOK_EVERY", 2)
    monkeypatch.setattr(elasticity, "WORTH_S", 0.0)
    monkeypatch.setattr(elasticity, "_worked", lambda done: 1.0 + done.lane)
    settings = Settings(available_now(7), tmp_path / "ckpt", 2, slices=8, keep=None, in_flight=2)
    program = made("fraud", tmp_path, count=200)
    assembled = assemble(program.freeze(), settings, InlineExecutor(), MockClock())
    told = []
    assembled.loop.on_progress = told.append
    while not assembled.loop.over:
        assembled.loop.step()
    assembled.loop.close()
    assembled.close()

    assert any("slices change lanes" in each["anabranch"]["scaling"] for each in told)
    assert any(each["anabranch"]["slicesFrom"]["replica"] for each in told)
    assert [2] == widths_of(tmp_path / "ckpt")
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


class Granting(InlineExecutor):
    """Has one slot, and as many as are asked for three jobs later; a job takes a second."""

    fewest_slots, most_slots = 1, 2

    def __init__(self, clock):
        super().__init__(slots=1)
        self.clock, self.asked, self.left = clock, [], 0

    def want(self, slots):
        self.asked.append(slots)
        self.left = 3
        return True

    def run(self, heads, lanes, merges=()):
        self.clock.advance(1.0)
        done = super().run(heads, lanes, merges)
        self.left -= 1
        if not self.left:
            self.slots = self.asked[-1]
        return done


def test_a_query_that_lags_asks_for_slots_and_is_as_wide_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(elasticity, "_worked", lambda done: 1.0)
    settings = Settings(available_now(1), tmp_path / "ckpt", None, slices=8, keep=None, in_flight=2)
    program, clock = made("fraud", tmp_path, count=60), MockClock()
    executor = Granting(clock)
    assembled = assemble(program.freeze(), settings, executor, clock)
    told, widths = [], []
    assembled.loop.on_progress = told.append
    while not assembled.loop.over:
        assembled.loop.step()
        widths.append((assembled.loop._deployment.lanes, executor.slots))
    assembled.loop.close()
    assembled.close()

    assert [2] == executor.asked
    assert all(lanes <= slots for lanes, slots in widths)
    assert [1, 2] == widths_of(tmp_path / "ckpt")[:2]
    reasons = {each["anabranch"]["scaling"] for each in told}
    assert any("asking for 2 slots, there are 1" in each for each in reasons)
    assert_same_rows(
        run_sequential(program, log=tmp_path / "ckpt")["out"], written(tmp_path / "out")
    )


def test_slices_are_as_many_as_the_cores_call_for_and_stay_so(tmp_path):
    """A later run has more cores, and the checkpoint's number of slices."""
    counts = []
    for slots, stop in ((2, 4), (64, 500)):
        settings = Settings(available_now(7), tmp_path / "ckpt", 2, None, keep=None, in_flight=2)
        program = made("fraud", tmp_path, count=120)
        executor = InlineExecutor(slots=slots)
        assembled = assemble(program.freeze(), settings, executor, MockClock())
        counts.append(assembled.deployment.owners.slices)
        steps = 0
        while not assembled.loop.over and steps < stop:
            assembled.loop.step()
            steps += 1
        assembled.loop.close()
        assembled.close()

    assert [128, 128] == counts
    settings = Settings(available_now(7), tmp_path / "other", 2, None)
    fresh = assemble(program.freeze(), settings, InlineExecutor(slots=64), MockClock())
    assert 1024 == fresh.deployment.owners.slices
    fresh.loop.close()
    fresh.close()
