"""Much state of windows is added up a class of slices at a time: no epoch waits for all of it."""

from unittest import mock

import polars as pl
import pytest

import anabranch as ab
from anabranch.kernels.windows import state as panes
from anabranch.kernels.windows.kernel import WindowKernel
from anabranch.kernels.windows.state import Class, Sweep
from anabranch.kernels.windows.windows import Windows
from anabranch.program.log import Cut
from tests.kernels.moving import SLICES, Moving, assert_same

KEYS, EPOCH, EPOCHS = 2_000, 50, 400
SMALL, SHARD = 256, 64


@pytest.fixture
def query():
    """Sums by key in one long window, epoch by epoch; every key comes ten times."""
    rows = [{"t": n % 7, "k": n * 7_919 % KEYS, "n": n} for n in range(EPOCH * EPOCHS)]
    program = ab.Program("sums")
    read = program.read(ab.sources.Records(rows), name="rows", event_time="t")
    read.window(ab.tumbling("1 h"), by="k").agg(n=ab.sum("n")).write(ab.sinks.Memory("out"))
    log = [
        Cut("rows", {0: (first, first + EPOCH)}, finished=frozenset())
        for first in range(0, len(rows), EPOCH)
    ]
    with mock.patch.object(panes, "SMALL", SMALL), mock.patch.object(panes, "SHARD", SHARD):
        yield Moving.of(program, log, WindowKernel.of)


def test_no_fold_adds_up_more_than_a_few_classes(query):
    merged, added = Windows.merged, []

    def counted(self, frames):
        added[-1] += sum(frame.height for frame in frames)
        return merged(self, frames)

    state, deltas, swept = query.kernel.restore(()), [], 0
    with mock.patch.object(Windows, "merged", counted):
        for taken in query.epochs:
            added.append(0)
            given = query.kernel.run(taken, state)
            deltas.append(given.delta)
            state = given.state.fold(given.state.version)
            swept += state.sweep is not None

    assert KEYS == state.whole().height
    assert_same(query.kernel.restore(deltas).whole(), state.whole())
    assert swept > 50, "there was nothing to see"
    # What comes in, what is small, and the classes of one turn, of which the last may be too much.
    largest = 2 * KEYS // SLICES
    assert max(added) <= EPOCH + 2 * SMALL + panes.PACE * EPOCH + 2 * largest < KEYS
    assert sum(added) <= 16 * EPOCH * EPOCHS, "each row is added up a few times, no more"


def test_in_the_end_there_are_shards_alone(query):
    state = query.kernel.restore(())
    for taken in query.epochs:
        given = query.kernel.run(taken, state)
        state = given.state.fold(given.state.version)
    (shards,) = {
        each.shard.of for each in state.layers if each.shard is not None and not each.swept
    }

    assert shards == SLICES, "as many as there are slices, since a slice is too much for one"
    for each in state.layers:
        if each.shard is not None:
            assert {each.shard.at} == {at % each.shard.of for at in each.frame["slice"]}
    for at in range(SLICES):
        assert_same(state.whole(frozenset({at})), state.only(frozenset({at})).whole())


def test_classes_nest_or_are_apart():
    assert Class(1, 0).has(Class(8, 5))
    assert Class(4, 1).has(Class(8, 5))
    assert Class(8, 5).meets(Class(4, 1))
    assert not Class(4, 1).meets(Class(8, 6))
    assert not Class(8, 5).has(Class(4, 1))


def test_a_sweep_passes_every_slice_once():
    sweep, passed = Sweep(Class(4, 0), 10), []
    while sweep is not None:
        passed += [at for at in range(10) if at % 4 == sweep.next.at]
        assert sweep.left == set(range(10)) - set(passed)
        sweep = sweep.then()

    assert sorted(passed) == list(range(10))


def test_a_frame_of_rows_is_divided_by_class(query):
    given = query.kernel.run(query.epochs[0], query.kernel.restore(()))
    (layer,) = [each for each in given.state.layers if each.height]
    parts = [layer.of_class(Class(4, at)) for at in range(4)]

    assert layer.height == sum(part.height for part in parts)
    assert_same(layer.frame, pl.concat(parts))
