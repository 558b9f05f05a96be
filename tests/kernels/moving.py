"""Slices that go from lane to lane while a kernel runs, which nobody may notice.

The same epochs run twice: in one lane that keeps everything, and in several between which slices
move before any epoch, and of which any part may lie in files. Rows, late counts and letters must be
the same, whatever moved and how.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from unittest import mock

import polars as pl
from polars.testing import assert_frame_equal

import anabranch as ab
from anabranch.kernels import layers
from anabranch.kernels.bundle import SLICE, in_order, visible
from anabranch.kernels.failures import Failed
from anabranch.kernels.kernel import Taken
from anabranch.kernels.keyed.parts import PartStore
from anabranch.kernels.keyed.rows import NEVER
from anabranch.kernels.lane_task import LaneState
from anabranch.kernels.letters import Origins
from anabranch.kernels.state import Adding
from anabranch.kernels.windows import state as panes
from anabranch.program.log import Cut
from anabranch.runtime import resident_state
from anabranch.runtime.aside import AtOnce
from anabranch.runtime.resident_files import StateFiles
from anabranch.runtime.resident_shared import Sharing
from anabranch.runtime.resident_state import Residence
from tests.kernels.alone import Lower, Ways, _Run

SLICES = 8
ALL = frozenset(range(SLICES))


class _Recorded(_Run):
    """Takes the epochs of a log without running them."""

    def __init__(self, program: ab.Program, lower: Lower) -> None:
        super().__init__(program.freeze(), lower, Ways(width=1, slices=SLICES))
        self.epochs: list[Taken] = []

    def _epoch(
        self, origins: Origins, inputs: list[pl.DataFrame], before: int | None, after: int | None
    ) -> None:
        rows = [self._mine(each, 0) for each in inputs]
        self.epochs.append(Taken(origins.epoch, rows, before, after))


@dataclass(frozen=True)
class Moving:
    """A kernel and the epochs it takes."""

    kernel: Any
    epochs: Sequence[Taken]
    forgets: bool = False
    """Whether state goes with its time to live: then a lane may know less than all deltas tell."""

    @classmethod
    def of(
        cls, program: ab.Program, log: Sequence[Cut], lower: Lower, *, forgets: bool = False
    ) -> Moving:
        """The only operator with state of a program, over a log."""
        recorded = _Recorded(program, lower)
        recorded.all(log)
        return cls(recorded.kernel, recorded.epochs, forgets)

    def check(self, draw: random.Random) -> None:
        """Look at all that `only`, `joined` and `whole` promise."""
        # A program that fails has nothing to compare: sums overflow at times.
        with _impatient(draw), suppress(Failed):
            self._part_is_what_its_deltas_give(draw)
            self._moving_is_not_noticed(draw)

    # One part, and what its deltas alone give

    def _part_is_what_its_deltas_give(self, draw: random.Random) -> None:
        first = draw.randint(0, len(self.epochs))
        part = frozenset(draw.sample(range(SLICES), draw.randint(1, SLICES - 1)))
        state, deltas = self.kernel.restore(()), list[pl.DataFrame]()
        for taken in self.epochs[:first]:
            given = self.kernel.run(taken, state)
            deltas.append(given.delta.filter(pl.col("slice").is_in(list(part))))
            state = _folded(given.state, draw)
        whole = state.whole()
        divided = state.only(part)
        expected = self.kernel.restore([_of(whole, part)] if self.forgets else deltas, first)
        assert divided.version == state.version
        assert divided.oldest == state.oldest
        assert_same(whole, state.whole())
        assert_same(_of(whole, part), state.whole(part), told=False)
        assert_same(_of(whole, part), divided.whole(), told=False)
        assert state.whole(frozenset()).is_empty()
        for taken in self.epochs[first:]:
            mine = _taken(taken, part)
            one, two = self.kernel.run(mine, divided), self.kernel.run(mine, expected)
            assert one.rows.keys() == two.rows.keys()
            for output, rows in two.rows.items():
                assert_frame_equal(rows, one.rows[output])
            assert (two.late, two.letters) == (one.late, one.letters)
            assert_same(one.state.whole(), one.state.whole(part))
            assert_same(divided.whole(), one.state.at(divided.version).whole())
            if not self.forgets:
                assert_same(two.delta, one.delta)
                assert_same(two.state.whole(), one.state.whole())
            divided, expected = _folded(one.state, draw), two.state.fold(two.state.version)
            divided = divided.shelved(InFiles(draw))
            assert_same(one.state.whole(), divided.whole())

    # Many lanes

    def _moving_is_not_noticed(self, draw: random.Random) -> None:
        alone, width = self.kernel.restore(()), draw.randint(2, 3)
        lanes = [self.kernel.restore(()) for _ in range(width)]
        owner = [draw.randrange(width) for _ in range(SLICES)]
        deltas = list[pl.DataFrame]()
        for taken in self.epochs:
            for _ in range(draw.choice([0, 1, 1, 3])):
                self._move(draw, lanes, owner, deltas)
            expected = self.kernel.run(taken, alone)
            alone = expected.state.fold(expected.state.version)
            found, late, letters = dict[str, list[pl.DataFrame]](), 0, 0
            for lane, state in enumerate(lanes):
                mine = frozenset(at for at in ALL if owner[at] == lane)
                given = self.kernel.run(_taken(taken, mine), state)
                if draw.random() < 0.3:
                    # The attempt is lost.
                    given = self.kernel.run(_taken(taken, mine), given.state.at(state.version))
                assert given.delta["slice"].is_in(list(mine)).all()
                for output, rows in given.rows.items():
                    assert not rows.height or rows[SLICE].is_in(list(mine)).all()
                    found.setdefault(output, []).append(rows)
                late, letters = late + given.late, letters + given.letters
                made, delta = given.state, given.delta
                if isinstance(made, Adding) and draw.random() < 0.5:
                    made, delta = made.together(state.version)
                deltas.append(delta)
                lanes[lane] = made.fold(made.version).shelved(InFiles(draw))
                assert len(_layers(lanes[lane])) <= max(layers.MOST, 8)
            assert (expected.late, expected.letters) == (late, letters)
            for output, rows in expected.rows.items():
                assert_frame_equal(visible(in_order([rows])), visible(in_order(found[output])))
        for lane, state in enumerate(lanes):
            mine = frozenset(at for at in ALL if owner[at] == lane)
            assert_same(state.whole(mine), state.whole())
        assert Counter(alone.whole()["slice"]).keys() == {
            at for state in lanes for at in state.whole()["slice"]
        }

    def restore(self, _: Any) -> LaneState:
        """What a lane begins with."""
        return LaneState({"one": self.kernel.restore(())})

    def _shared(self, state: Any) -> Any:
        """The same state, made up of files that another process has."""
        files = StateFiles(None)
        one, two = (Sharing(AtOnce(), files, Residence(AtOnce(), files, 0)) for _ in range(2))
        with mock.patch.object(resident_state, "SHARED", 0):
            (shared,) = one.follow((3,), {3: ("v", LaneState({"one": state}))})
        return two.mapped(self, shared).views["one"]

    def _move(
        self, draw: random.Random, lanes: list[Any], owner: list[int], deltas: list[pl.DataFrame]
    ) -> None:
        """Some slices leave a lane and come into another one."""
        here, there = draw.sample(range(len(lanes)), 2)
        known = [at for at in ALL if owner[at] == here]
        leaving = frozenset(draw.sample(known, draw.choice([len(known), len(known) // 2])))
        before = lanes[here].whole()
        way = draw.choice(["view", "shared", "whole", "deltas", "followed"])
        if way == "view":
            moved = lanes[here].only(leaving)
        elif way == "shared":
            moved = self._shared(lanes[here]).only(leaving)
        elif way == "whole":
            moved = self.kernel.restore([lanes[here].whole(leaving)], draw.choice([0, 7]))
        else:
            mine = [_of(each, leaving) for each in deltas]
            first = draw.randint(0, len(mine)) if way == "followed" else len(mine)
            moved = self.kernel.restore(mine[:first])
            while mine := mine[first:]:
                # A replica follows the lane that has its slices, some deltas at a time.
                first = draw.randint(1, len(mine))
                moved = self.kernel.after(moved, mine[:first])
        stays = lanes[here].only(frozenset(known) - leaving)
        joined = lanes[there].joined(moved)
        assert joined.version == joined.oldest == lanes[there].version
        assert_same(before, lanes[here].whole())
        lanes[here], lanes[there] = stays, joined
        for at in leaving:
            owner[at] = there


class InFiles:
    """Puts some of what a state has into files, and lets go of some that can be made again."""

    def __init__(self, draw: random.Random) -> None:
        self._draw, self._files = draw, StateFiles(None)

    def frame(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self._files.frame(rows) if self._draw.random() < 0.15 else rows

    def array(self, numbers: Any) -> Any:
        return self._files.array(numbers) if self._draw.random() < 0.1 else numbers

    def decoded(self, size: int) -> bool:
        return self._draw.random() < 0.8


@contextmanager
def _impatient(draw: random.Random) -> Iterator[None]:
    """Layers that are put off for few rows or many, and that are frames when they have few."""
    defaults = PartStore.from_frames.__func__.__kwdefaults__  # type: ignore[attr-defined]
    with (
        mock.patch.object(layers, "STEP", draw.choice([0, 3, 2**14])),
        mock.patch.object(layers, "LARGE", draw.choice([2, 2**18])),
        mock.patch.object(layers, "FEW", draw.choice([2, 8])),
        mock.patch.object(layers, "MOST", draw.choice([2, 6, 24])),
        mock.patch.dict(defaults, large=draw.choice([0, 3, 4_096])),
        mock.patch.object(panes, "SMALL", draw.choice([0, 4, 2**15])),
        mock.patch.object(panes, "SHARD", draw.choice([1, 3, 2**13])),
        mock.patch.object(panes, "PACE", draw.choice([1, 4])),
        mock.patch.object(panes, "PATIENCE", draw.choice([0, 2, 50])),
    ):
        yield


def _folded(state: Any, draw: random.Random) -> Any:
    """The same state, folded up to any version or not."""
    return state.fold(draw.randint(state.oldest, state.version)) if draw.random() < 0.7 else state


def _taken(taken: Taken, slices: frozenset[int]) -> Taken:
    rows = [each.filter(pl.col(SLICE).is_in(list(slices))) for each in taken.rows]
    return Taken(taken.epoch, rows, taken.before, taken.after)


def _of(delta: pl.DataFrame, slices: frozenset[int]) -> pl.DataFrame:
    return delta.filter(pl.col("slice").is_in(list(slices)))


def _layers(state: Any) -> Sequence[Any]:
    """The layers of a state, or of the greatest of its stores."""
    if hasattr(state, "entries"):
        stores = (state.cells, state.elements, state.timers, state.entries)
        return list(max(stores, key=_depth).layers)
    return list(getattr(state, "piles", None) or getattr(state, "layers", ()))


def _depth(store: PartStore) -> int:
    return len(store.layers)


def assert_same(one: pl.DataFrame, other: pl.DataFrame, *, told: bool = True) -> None:
    """The same rows in any order; `told`: also those that tell of the watermark."""
    __tracebackhide__ = True
    expected, found = (Counter(_content(each, told=told)) for each in (one, other))
    assert expected == found, f"missing {expected - found}, too much {found - expected}"


def _content(delta: pl.DataFrame, *, told: bool) -> list[str]:
    """Each row as text, without those that only say that something is gone: it may not be there."""
    names = {*delta.columns}
    if {"kind", "part"} <= names:
        # Elements of maps and lists have numbers that depend on what is decoded already.
        part = pl.when(~pl.col("kind").is_in([1, 3])).then("part").alias("part")
        delta = delta.with_columns(part).drop_nulls("value")
    elif "until" in names:
        delta = delta.filter(pl.col("until") > NEVER)
    elif "time" in names:
        # A row that had several partners may be marked more than once.
        marks = pl.col("kind") >= 2 if "kind" in names else pl.lit(value=False)
        delta = pl.concat([delta.filter(~marks), delta.filter(marks).unique()])
        watermark = pl.col("kind") == 4 if "kind" in names else pl.col("side") == 255
        delta = delta if told else delta.filter(~watermark)
    return [
        repr(sorted((name, _told(x)) for name, x in row.items() if x is not None))
        for row in delta.iter_rows(named=True)
    ]


def _told(value: Any) -> str:
    """A value as text; lists of counts and of distinct values are in no order."""
    return repr(sorted(map(repr, value)) if isinstance(value, list) else value)
