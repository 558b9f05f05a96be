from __future__ import annotations

import itertools

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.workloads import disorder, mixer

FRAMES = st.lists(st.integers(0, 5000), max_size=200).map(
    lambda times: pl.DataFrame(
        {"i": range(len(times)), "event_time": sorted(times)},
        schema={"i": pl.Int64, "event_time": pl.Int64},
    )
)
SEEDS = st.integers(0, 2**64 - 1)
KINDS = st.sampled_from(["uniform", "zipf"])
BLOCKS = st.integers(1, 2000).filter(lambda n: n % 953)


def order(frame):
    return frame["i"].to_list()


def assert_permutation(before, after):
    assert before.equals(after.sort("i"))


@given(FRAMES, BLOCKS)
def test_a_block_shuffle_moves_no_row_by_a_block(frame, n):
    found = disorder.block_shuffle(frame, n)

    assert_permutation(frame, found)
    assert all(abs(k - i) < n for k, i in enumerate(order(found)))
    assert all(k // n == i // n for k, i in enumerate(order(found)))


@given(FRAMES, BLOCKS)
def test_a_block_shuffle_is_nexmarks(frame, n):
    whole = frame.height // n * n
    expected = [k // n * n + k * 953 % n for k in range(whole)]

    assert [*expected, *range(whole, frame.height)] == order(disorder.block_shuffle(frame, n))


@pytest.mark.parametrize("n", [0, -1, 953, 1906])
def test_a_block_that_is_not_permuted_is_refused(n):
    with pytest.raises(ValueError, match=r"is not permuted"):
        disorder.block_shuffle(pl.DataFrame({"i": [1]}), n)


@given(FRAMES, st.integers(1, 3000), SEEDS, KINDS)
def test_a_delayed_row_is_less_than_the_bound_behind(frame, bound, seed, kind):
    found = disorder.delayed(frame, bound_ms=bound, seed=seed, kind=kind)

    assert_permutation(frame, found)
    behind = found["event_time"].cum_max() - found["event_time"]
    assert all(lag < bound for lag in behind)


@given(FRAMES, SEEDS, KINDS)
def test_a_delay_of_one_bucket_is_none(frame, seed, kind):
    assert frame.equals(disorder.delayed(frame, bound_ms=1, seed=seed, kind=kind))


@given(FRAMES, st.integers(1, 3000), SEEDS, KINDS)
def test_datetimes_are_delayed_like_milliseconds(frame, bound, seed, kind):
    times = frame.with_columns(pl.from_epoch("event_time", "ms").cast(pl.Datetime("us")))

    expected = order(disorder.delayed(frame, bound_ms=bound, seed=seed, kind=kind))
    assert expected == order(disorder.delayed(times, bound_ms=bound, seed=seed, kind=kind))


@given(FRAMES, st.integers(1, 100), st.floats(0, 1), SEEDS)
def test_rows_held_back_come_last_in_their_epoch(frame, rows, share, seed):
    found = disorder.held_back(frame, epoch_rows=rows, share=share, seed=seed)

    assert_permutation(frame, found)
    for start in range(0, frame.height, rows):
        epoch = order(found)[start : start + rows]
        assert all(start <= i < start + rows for i in epoch)
        falls = sum(1 for a, b in itertools.pairwise(epoch) if a > b)
        assert falls <= 1  # those on time, then those held back, each in order


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_holding_back_none_or_all_changes_nothing(share):
    frame = pl.DataFrame({"i": range(100)})

    assert frame.equals(disorder.held_back(frame, epoch_rows=10, share=share, seed=1))


def test_about_the_share_is_held_back():
    """Of 10,000 rows in one epoch the first of those held back stands behind all others."""
    found = order(
        disorder.held_back(pl.DataFrame({"i": range(10_000)}), epoch_rows=10_000, share=0.4, seed=1)
    )

    on_time = next(k for k in range(1, 10_000) if found[k] < found[k - 1])
    assert abs(on_time - 6000) < 250  # 5 standard deviations


@given(FRAMES, st.integers(1, 300), st.floats(0, 1), SEEDS)
def test_early_rows_come_so_many_rows_before_their_place(frame, by, share, seed):
    found = disorder.early(frame, by=by, share=share, seed=seed)

    assert_permutation(frame, found)
    newest = found["i"].cum_max()
    assert all(newest - found["i"] <= by)
    on_time = [i for i in order(found) if i not in _ahead(frame.height, share, seed)]
    assert sorted(on_time) == on_time


def _ahead(count, share, seed):
    drawn = mixer.fractions(range(count), seed=seed, field=0)
    return {i for i in range(count) if drawn[i] < share}


def test_about_the_share_belongs_behind_the_watermark_of_the_epoch_in_which_it_comes():
    """A watermark follows the newest row at the distance that makes no row late."""
    found = order(disorder.early(pl.DataFrame({"i": range(50_000)}), by=10_000, share=0.4, seed=1))

    for end in (20_000, 30_000, 40_000):
        watermark = max(found[:end]) - 10_000
        assert min(found[end:]) >= watermark
        behind = sum(i >= watermark for i in found[end - 10_000 : end])
        assert abs(behind - 4000) < 250  # 5 standard deviations


@pytest.mark.parametrize(("by", "share"), [(0, 0.5), (10, 1.5), (10, -0.1)])
def test_a_share_that_cannot_be_early_is_refused(by, share):
    with pytest.raises(ValueError, match=r"rows early$"):
        disorder.early_order(10, by=by, share=share, seed=0)


@pytest.mark.parametrize(
    "shuffle",
    [
        lambda frame, seed: disorder.early(frame, by=100, share=0.4, seed=seed),
        lambda frame, seed: disorder.delayed(frame, bound_ms=500, seed=seed),
        lambda frame, seed: disorder.delayed(frame, bound_ms=500, seed=seed, kind="zipf"),
        lambda frame, seed: disorder.held_back(frame, epoch_rows=100, share=0.4, seed=seed),
    ],
)
def test_the_seed_decides(shuffle):
    frame = pl.DataFrame({"i": range(1000), "event_time": range(1000)})

    assert shuffle(frame, 1).equals(shuffle(frame, 1))
    assert not shuffle(frame, 1).equals(shuffle(frame, 2))
    assert not shuffle(frame, 1).equals(frame)


def test_a_zipf_delay_is_mostly_short():
    """With 1000 buckets rank 1 has 1 / sum(r ** -0.99) = 13 % of all rows, ranks 1 to 10 39 %."""
    frame = pl.DataFrame({"i": range(10_000), "event_time": [k * 10_000 for k in range(10_000)]})
    frame = pl.concat([frame, frame.select("i", pl.col("event_time") + 10)])

    found = disorder.delayed(frame, bound_ms=1000, seed=3, kind="zipf")

    overtaken = (found["event_time"].diff() < 0).sum()
    assert 0.1 < overtaken / 10_000 < 0.5


@pytest.mark.parametrize("bound", [0, -5])
def test_a_bound_below_one_is_refused(bound):
    with pytest.raises(ValueError, match=r"^bound_ms must be at least 1"):
        disorder.delayed(pl.DataFrame({"event_time": [1]}), bound_ms=bound, seed=0)


@pytest.mark.parametrize(("rows", "share"), [(0, 0.5), (10, 1.5), (10, -0.1)])
def test_epochs_that_make_no_sense_are_refused(rows, share):
    with pytest.raises(ValueError, match=r"held back$"):
        disorder.held_back(pl.DataFrame({"i": [1]}), epoch_rows=rows, share=share, seed=0)
