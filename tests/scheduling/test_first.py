"""Whose work goes first shows in latencies, and nowhere else."""

import pytest

import anabranch as ab
from anabranch.epoch.machine import Rules
from anabranch.epoch.protocol import HeadWork, LaneWork
from anabranch.epoch.triggers import available_now
from anabranch.runtime.assembly import Settings, assemble
from anabranch.scheduling.session_machine import First, SessionMachine
from anabranch.simulate.inline import UNKIND, InlineExecutor
from anabranch.simulate.virtual import Costs, Load, Simulation
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from tests.runtime.programs import PROGRAMS

LANES = (LaneWork(3, 3, 0, {}), LaneWork(4, 4, 0, {}))
HEADS = (HeadWork(5, 0), HeadWork(6, 0), HeadWork(7, 0))


def test_lanes_go_into_every_cycle_and_heads_beside_them():
    cycle = SessionMachine(slots=2, heads=2).choose([*LANES, *HEADS])

    assert LANES == cycle.lanes
    assert HEADS[:2] == cycle.heads


def test_without_priority_lanes_wait_until_no_head_is_left():
    machine = SessionMachine(slots=2, heads=2, first=First.HEADS)

    first, second = machine.choose([*LANES, *HEADS]), machine.choose([*LANES, *HEADS[2:]])
    last = machine.choose(LANES)

    assert [(), HEADS[:2]] == [first.lanes, first.heads]
    assert [(), HEADS[2:]] == [second.lanes, second.heads]
    assert [LANES, ()] == [last.lanes, last.heads]


def test_what_is_learned_of_cycles_does_not_change_whose_work_goes_first():
    machine = SessionMachine(slots=2, heads=2, first=First.HEADS)

    assert First.HEADS is machine.learn(machine.choose(HEADS), 0.1, waiting=1).first
    assert First.HEADS is machine.learn(machine.choose(HEADS), 2.0, waiting=1).first


def simulated(first):
    """Epochs of 1,000 rows, at half of what can be done."""
    costs = Costs(job=0.03, head_row=2e-6, lane_epoch=0.003)
    load = Load(rate=50_000, seconds=10, max_rows=1000)
    return Simulation(Rules(every=0.001), load, costs, first=first).run()


def test_results_come_later_without_priority_though_as_much_is_done():
    with_priority, without = simulated(First.LANES), simulated(First.HEADS)

    assert with_priority.rows == without.rows == 500_000
    assert without.ended == pytest.approx(with_priority.ended, rel=0.01)
    assert without.median_latency > 2 * with_priority.median_latency


def ran(program, checkpoint, *, seed):
    """Run it to its end without priority; how many epochs the first commit holds."""
    settings = Settings(
        available_now(7), checkpoint, lanes=2, slices=8, keep=None, first=First.HEADS
    )
    assembled = assemble(program.freeze(), settings, InlineExecutor(seed, UNKIND), MockClock())
    told = []
    assembled.loop.on_progress = told.append
    while not assembled.loop.over:
        assembled.loop.step()
    assembled.loop.close()
    assembled.close()
    return len(told[0]["anabranch"]["latencyMs"])


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(4))
def test_without_priority_a_program_gives_what_it_means(name, seed, tmp_path):
    import polars as pl

    made, rows, schema = PROGRAMS[name]

    def program():
        source = ab.sources.Records(rows(60), schema=schema, partitions=1 + seed % 2)
        return made(source, ab.sinks.Files(tmp_path / "out", format="parquet"), ordered=True)

    together = ran(program(), tmp_path / "ckpt", seed=seed)

    expected = run_sequential(program(), log=tmp_path / "ckpt")["out"]
    found = pl.concat(map(pl.read_parquet, sorted((tmp_path / "out").glob("*.parquet"))))
    assert expected
    assert_same_rows(expected, found.rows(named=True))
    # Lanes have taken nothing before all was read.
    assert -(-60 // (7 * (1 + seed % 2))) == together
