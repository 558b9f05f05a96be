"""Chained backup: where copies are, and who takes over when an executor is lost."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.state.placement import backups, recovery


@st.composite
def clusters(draw, fewest=1):
    """Executors with slices, in any order; some have none."""
    names = draw(st.lists(st.text("abcxyz", min_size=1), min_size=fewest, max_size=6, unique=True))
    sizes = [draw(st.integers(0, 9)) for _ in names]
    numbers = iter(draw(st.permutations(range(sum(sizes)))))
    return {
        name: [next(numbers) for _ in range(size)] for name, size in zip(names, sizes, strict=True)
    }


factors = st.integers(0, 4)


def spread(counts, over):
    found = [counts[name] for name in over]
    return max(found) - min(found)


def test_the_paper_s_rule_by_hand():
    """Three peers: peers of a are b, c, d. Slice m (from 1), copy l: peer (m + l) mod 3, the third being 0.

    m = 1: 2, 3 -> c, d; m = 2: 3, 1 -> d, b; m = 3: 1, 2 -> b, c; m = 4: as m = 1.
    """
    found = backups({"a": [10, 11, 12, 13], "b": [], "c": [], "d": []}, factor=2)

    assert {10: ("c", "d"), 11: ("d", "b"), 12: ("b", "c"), 13: ("c", "d")} == found


@given(clusters(), factors)
def test_a_backup_is_never_where_its_slice_is_and_no_two_are_together(cluster, factor):
    found = backups(cluster, factor)

    for name, slices in cluster.items():
        for slice_ in slices:
            assert name not in found[slice_]
            assert min(factor, len(cluster) - 1) == len(set(found[slice_])) == len(found[slice_])
    assert sorted(slice_ for slices in cluster.values() for slice_ in slices) == list(found)


@given(clusters(fewest=2), factors)
def test_an_executor_s_backups_are_spread_over_its_peers(cluster, factor):
    found = backups(cluster, factor)

    for name, slices in cluster.items():
        peers = set(cluster) - {name}
        for copy in range(min(factor, len(peers))):
            assert spread(Counter(found[slice_][copy] for slice_ in slices), peers) <= 1
        assert spread(Counter(each for s in slices for each in found[s]), peers) <= max(1, factor)


@given(st.integers(2, 6), st.integers(0, 9), st.integers(1, 4))
def test_like_executors_hold_equally_many_backups(executors, slices, factor):
    cluster = {f"e{e}": range(e * slices, (e + 1) * slices) for e in range(executors)}

    held = Counter(name for names in backups(cluster, factor).values() for name in names)

    assert 0 == spread(held, cluster)


@given(clusters(), factors)
def test_the_order_in_which_executors_are_named_does_not_matter(cluster, factor):
    assert backups(cluster, factor) == backups(dict(reversed(cluster.items())), factor)


@given(clusters(fewest=2), st.integers(1, 4), st.data())
def test_after_the_loss_of_one_every_slice_is_taken_over_from_a_backup_and_evenly(
    cluster, factor, data
):
    gone = data.draw(st.sampled_from(sorted(cluster)))
    placed = backups(cluster, factor)

    found = recovery(cluster[gone], placed, set(cluster) - {gone})

    assert all(name in placed[slice_] for name, slices in found.items() for slice_ in slices)
    assert sorted(cluster[gone]) == sorted(slice_ for part in found.values() for slice_ in part)
    assert spread({name: len(part) for name, part in found.items()}, found) <= 1


@st.composite
def losses(draw):
    """A few slices, each with holders among three survivors or somewhere lost."""
    holders = st.lists(st.sampled_from(["a", "b", "c", "gone"]), unique=True, max_size=3)
    return dict(enumerate(draw(st.lists(holders, max_size=5))))


@given(losses())
def test_no_other_choice_of_survivors_has_a_smaller_greatest_part(placed):
    """Every choice, one by one."""
    having = {s: [n for n in names if n != "gone"] for s, names in placed.items()}
    having = {slice_: names for slice_, names in having.items() if names}

    found = recovery(having, placed, ["a", "b", "c"])

    best = min(max(Counter(choice).values(), default=0) for choice in product(*having.values()))
    assert best == max(len(part) for part in found.values())
    assert all(name in having[slice_] for name, part in found.items() for slice_ in part)


@given(losses())
def test_slices_without_a_backup_go_where_least_is(placed):
    found = recovery(placed, placed, ["a", "b", "c"])

    assert sorted(placed) == sorted(slice_ for part in found.values() for slice_ in part)
    bare = [slice_ for slice_, names in placed.items() if not set(names) - {"gone"}]
    if len(bare) == len(placed):
        assert spread({name: len(part) for name, part in found.items()}, found) <= 1


def test_nobody_left_is_an_error():
    with pytest.raises(ValueError, match=r"^nobody is left to take over slices$"):
        recovery([1], {1: ("a",)}, [])


@settings(max_examples=50)
@given(clusters(fewest=2), st.integers(1, 3), st.data())
def test_after_a_loss_and_its_recovery_there_are_backups_again(cluster, factor, data):
    gone = data.draw(st.sampled_from(sorted(cluster)))
    left = {name: list(slices) for name, slices in cluster.items() if name != gone}
    placed = backups(cluster, factor)
    for name, slices in recovery(cluster[gone], placed, left).items():
        left[name] += slices

    again = backups(left, factor)

    assert set(placed) == set(again)
    assert all(min(factor, len(left) - 1) == len(names) for names in again.values())
    assert all(gone not in names for names in again.values())


def test_a_slice_in_two_places_is_refused():
    with pytest.raises(ValueError, match=r"^slice 1 is on two executors$"):
        backups({"a": [1], "b": [1]})


def test_fewer_backups_than_none_are_refused():
    with pytest.raises(ValueError, match=r"^backups of a slice are 0 or more, got -1$"):
        backups({"a": [1]}, factor=-1)
