from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from bench.workloads import ysb

FEW = settings(max_examples=25)  # every event is a frame of its own there
VARIANTS = st.sampled_from(["deterministic", "random"])


def numbers(start, end):
    return pl.int_range(start, end, dtype=pl.UInt64, eager=True)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=30), st.integers(0, 2**32), VARIANTS)
@FEW
def test_an_event_is_a_function_of_its_number_alone(chosen, seed, variant):
    together = ysb.events(pl.Series(chosen), rate=1000, seed=seed, variant=variant)
    apart = [ysb.events(pl.Series([i]), rate=1000, seed=seed, variant=variant) for i in chosen]

    assert_frame_equal(pl.concat(apart), together)


def test_the_schema_is_as_said():
    assert ysb.SCHEMA == ysb.events(numbers(0, 1), rate=1).schema
    assert ysb.SCHEMA == ysb.events(numbers(0, 0), rate=1).schema


def test_seeds_make_different_streams():
    first, second = (ysb.events(numbers(0, 100), rate=1000, seed=seed) for seed in (1, 2))

    assert not first.equals(second)


@given(st.integers(1, 10**6), st.integers(0, 10**9))
def test_the_event_time_is_the_due_time(rate, i):
    found = ysb.events(pl.Series([i]), rate=rate)["event_time"].dt.epoch("ms")

    assert [i * 1000 // rate] == found.to_list()


def test_the_start_moves_event_times_only():
    here = ysb.events(numbers(0, 10), rate=7)
    there = ysb.events(numbers(0, 10), rate=7, start_ms=5000)

    moved = here.with_columns(pl.col("event_time") + timedelta(seconds=5))
    assert_frame_equal(moved, there)


def test_there_are_a_thousand_ads_in_a_hundred_campaigns_of_ten():
    ads = ysb.ads()

    assert 1000 == ads["ad_id"].n_unique()
    assert [10] * 100 == ads["campaign_id"].value_counts()["count"].to_list()


def test_ids_look_like_uuids_and_no_two_are_equal():
    kinds = [ysb.ads()["ad_id"], ysb.campaigns()]
    events = ysb.events(numbers(0, 5000), rate=1)
    kinds += [events["user_id"].unique(), events["page_id"].unique()]
    ids = pl.concat([kind.alias("id") for kind in kinds])

    assert 1000 + 100 + 100 + 100 == ids.n_unique()
    assert ids.str.contains(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$").all()


@given(st.integers(0, 10**12))
def test_any_3000_deterministic_events_hold_each_ad_and_type_once(start):
    found = ysb.events(numbers(start, start + 3000), rate=1, variant="deterministic")

    assert 3000 == found.select("ad_id", "event_type").n_unique()


def test_random_events_are_views_in_a_third_of_all_cases():
    found = ysb.events(numbers(0, 90_000), rate=1)["event_type"].value_counts()

    assert all(abs(count - 30_000) < 700 for count in found["count"])  # 5 standard deviations


def test_the_closed_form_is_what_polars_counts():
    events = ysb.events(numbers(0, 9000), rate=300, variant="deterministic")

    found = ysb.expected(events)

    assert 300 == found.height
    assert {ysb.views_per_window(300)} == set(found["views"])


def test_the_closed_form_is_refused_where_there_is_none():
    with pytest.raises(ValueError, match=r"^a window at rate 301"):
        ysb.views_per_window(301)
