"""The files that a state is made of: slices change lanes, are written anew, and are read as they were."""

import random
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import CheckpointError
from anabranch.state import chain
from anabranch.state.chain import Part, due, needed, taken
from anabranch.state.delta import Delta, pack
from anabranch.state.recovery import read_state
from anabranch.state.store import LocalStore

SLICES = 6


class Kept:
    """A state of sums by slice, and every file that was ever written of it."""

    def __init__(self, root):
        self.store, self.parts, self.sums = LocalStore(root), [], dict.fromkeys(range(SLICES), 0)
        self.versions = {}

    def write(self, epoch, lane, slices, rows, *, whole=False):
        frame = pl.DataFrame(
            {"slice": [each for each, _ in rows], "n": [n for _, n in rows]},
            schema={"slice": pl.UInt16, "n": pl.Int64},
        )
        unique = f"{epoch}-{lane}-{'s' if whole else 'd'}-{len(self.parts)}"
        parent = None if whole else self.versions.get((lane, frozenset(slices), epoch - 1))
        kind = "snapshot" if whole else "delta"
        delta = Delta(
            "sum", lane, 1, epoch, epoch, unique, frame, parent=parent, kind=kind,
            slices=tuple(sorted(slices)) if whole else None,
        )  # fmt: skip
        self.store.create(delta.path, pack(delta))
        self.parts.append(Part(delta.path, frozenset(slices), whole))
        if not whole:
            self.versions[lane, frozenset(slices), epoch] = unique

    def read(self, slices=None, parts=None):
        frames = list(read_state(self.store, parts or self.parts, slices))
        found = pl.concat(frames).group_by("slice").agg(pl.col("n").sum())
        return {each: n for each, n in found.iter_rows() if n}


@pytest.mark.parametrize("seed", range(60))
def test_a_slice_is_its_newest_snapshot_and_what_changed_since_whoever_had_it(seed, tmp_path):
    rng = random.Random(seed)
    kept, owners = Kept(tmp_path), [rng.randrange(3) for _ in range(SLICES)]
    for epoch in range(20):
        if rng.random() < 0.3:
            owners = [rng.randrange(3) for _ in range(SLICES)]
        for lane in set(owners):
            mine = [each for each, owner in enumerate(owners) if owner == lane]
            rows = [(rng.choice(mine), rng.randint(1, 9)) for _ in range(rng.randrange(4))]
            kept.write(epoch, lane, mine, rows)
            for each, n in rows:
                kept.sums[each] += n
        if rng.random() < 0.5:
            some = rng.sample(range(SLICES), rng.randint(1, 3))
            kept.write(epoch, 9, some, [(each, kept.sums[each]) for each in some], whole=True)

    there = {each: n for each, n in kept.sums.items() if n}
    assert there == kept.read()
    assert there == kept.read(parts=needed(kept.parts)), "what is needed is enough"
    one = frozenset(rng.sample(range(SLICES), 2))
    assert {each: n for each, n in there.items() if each in one} == kept.read(one)
    assert len(needed(kept.parts, one)) <= len(needed(kept.parts)) <= len(kept.parts)


def test_a_file_that_only_tells_what_snapshots_tell_is_not_needed():
    old = Part("state/n/0000000001_1_0_a.delta", frozenset({0, 1}))
    both = [
        Part("state/n/0000000002_1_0_b.snap", frozenset({0}), whole=True),
        Part("state/n/0000000003_1_0_c.snap", frozenset({1}), whole=True),
    ]

    assert [old, both[0]] == list(needed([old, both[0]]))
    assert both == list(needed([old, *both]))
    # Read for slice 1 alone, it does not tell of slice 0 again.
    assert [frozenset({1}), frozenset({0})] == [
        each.slices for each in taken([old, both[0]], frozenset({0, 1}))
    ]


def test_a_delta_that_does_not_follow_the_one_before_it_is_refused(tmp_path):
    kept = Kept(tmp_path)
    kept.write(0, 0, [0], [(0, 1)])
    kept.versions[0, frozenset([0]), 0] = "a-loser"
    kept.write(1, 0, [0], [(0, 1)])

    with pytest.raises(CheckpointError, match="it follows 'a-loser'"):
        kept.read()


@pytest.mark.parametrize("count", [1, 3, 32, 33, 64, 1000])
def test_every_slice_has_its_turn_once_in_a_round_and_turns_are_even(count):
    turns = [due(range(count), at % 32 / 32, 32) for at in range(96)]

    for begin in (0, 32, 64):
        assert list(range(count)) == [each for turn in turns[begin : begin + 32] for each in turn]
    assert max(map(len, turns)) - min(map(len, turns)) <= 1
    assert all(one != two or not one for one, two in pairwise(turns) if count > 1)


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.frozensets(st.integers(0, 3), min_size=1), st.booleans()),
        max_size=12,
    )
)
def test_files_that_are_kept_one_by_one_are_those_that_are_needed(drawn):
    kept, came, gone = chain.Kept(), [], []
    for at, (epoch, slices, whole) in enumerate(drawn):
        suffix = "snap" if whole else "delta"
        part = Part(f"state/n/{epoch:010}_1_0_{at:x}.{suffix}", slices, whole)
        came.append(part)
        left = kept.add(part)

        assert {*needed(came)} == {*kept}
        assert not {*left} & {*kept}
        gone += left
        places = [part.place for part in kept]
        assert places == sorted(places)
    assert {*came} == {*gone, *kept}
    assert len(gone) + len(list(kept)) == len(came), "each goes once"


@given(st.lists(st.sampled_from([32, 64, 128]), min_size=300, max_size=300), st.integers(1, 100))
def test_each_slice_is_written_anew_once_a_round_however_rounds_change(rounds, count):
    slices, turn, written = range(count), 0.0, []
    for round_ in rounds:
        written += due(slices, turn, round_)
        turn = (turn + 1 / round_) % 1

    expected = [at % count for at in range(len(written))]
    assert expected == written, "in turns, none left out and none twice"
    assert len(written) >= count * (300 // 128)
