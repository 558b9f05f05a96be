"""Network monitoring, against DuckDB over the whole log at once."""

from __future__ import annotations

import json

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import anabranch as ab
from bench.workloads import disorder, network

slow = pytest.mark.slow

ENTRIES, RATE = 600, 40
AT_ONE, ABOVE = 1, 4

DISORDERS = {
    "none": lambda frame: frame,
    "block shuffle": lambda frame: disorder.block_shuffle(frame, 100),
    "uniform delay": lambda frame: disorder.delayed(frame, bound_ms=3000, seed=1, time="time"),
    "zipf delay": lambda frame: disorder.delayed(
        frame, bound_ms=3000, seed=1, kind="zipf", time="time"
    ),
    "held back": lambda frame: disorder.held_back(frame, epoch_rows=150, share=0.4, seed=1),
}
LEFT = pytest.mark.parametrize("left", ["server", "server and user"])


def entries(count=ENTRIES, rate=RATE):
    return network.entries(pl.int_range(count, dtype=pl.UInt64, eager=True), rate=rate, seed=5)


def by_duckdb(given, query):
    with duckdb.connect() as connection:
        connection.register("entries", given.to_arrow())
        return connection.sql(query).pl()


def suspects_by_duckdb(given, above=ABOVE):
    query = f"""
        SELECT time // 5000 * 5000 AS window_start, window_start + 5000 AS window_end,
               uid, count(*) AS total
        FROM entries GROUP BY ALL HAVING count(*) > {above} ORDER BY window_end, uid
        """
    return by_duckdb(given, query)


def monitored_by_duckdb(given, above):
    query = f"""
        WITH at_one AS (
            SELECT time // 5000 * 5000 AS window_start, server, uid, count(*) AS entries
            FROM entries GROUP BY ALL HAVING count(*) > {AT_ONE}
        )
        SELECT window_start, window_start + 5000 AS window_end, uid,
               CAST(sum(entries) AS BIGINT) AS total, count(*) AS servers
        FROM at_one GROUP BY window_start, uid HAVING sum(entries) > {above}
        ORDER BY window_end, uid
        """
    return by_duckdb(given, query)


def entry(time, server, uid):
    return {"time": time, "server": server, "uid": uid, "msg": ""}


def regions(program):
    """What the compiler says, and of it each operator's region."""
    facts = json.loads(program.explain("json"))
    return facts, {name: region for region in facts["regions"] for name in region["operators"]}


@slow
@pytest.mark.parametrize("kind", DISORDERS)
@pytest.mark.parametrize("epoch_rows", [None, 150])
def test_suspects_are_those_of_duckdb(kind, epoch_rows):
    given = DISORDERS[kind](entries())
    program = network.suspects(ab.sources.Records(given), above=ABOVE, lateness="3 s")

    found = ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]

    expected = suspects_by_duckdb(given)
    assert expected.height > 10
    assert_frame_equal(expected, pl.DataFrame(found, schema=expected.schema))


@slow
@LEFT
@pytest.mark.parametrize("kind", DISORDERS)
def test_who_is_monitored_is_as_duckdb_says(kind, left):
    """More entries a second than above, and few are suspicious: 64 servers share them."""
    given = DISORDERS[kind](entries(900, rate=150))
    source = ab.sources.Records(given)
    program = network.monitored(source, at_one=AT_ONE, above=3, left=left, lateness="3 s")

    found = ab.testing.run_sequential(program, epoch_rows=250)["out"]

    expected = monitored_by_duckdb(given, above=3)
    assert expected.height > 3
    in_order = pl.DataFrame(found, schema=expected.schema).sort("window_end", "uid")
    assert_frame_equal(expected, in_order)


@LEFT
def test_what_a_user_does_a_little_of_at_each_server_does_not_count(left):
    """User 1: three at a and two at b, once at c: five. User 2: once at six servers. User 3: four.

    User 1 goes on in the next window, from 5000 on, with too little.
    """
    given = [entry(t, "a", 1) for t in (0, 4_999, 10)] + [entry(20, "b", 1), entry(21, "b", 1)]
    given += [entry(30, "c", 1)] + [entry(40, server, 2) for server in "abcdef"]
    given += [entry(50, "a", 3)] * 4 + [entry(5_000, "a", 1)] * 4
    source = ab.sources.Records(pl.DataFrame(given, schema=network.SCHEMA))

    program = network.monitored(source, at_one=AT_ONE, above=ABOVE, left=left)

    expected = {"window_start": 0, "window_end": 5_000, "uid": 1, "total": 5, "servers": 2}
    assert [expected] == ab.testing.run_sequential(program)["out"]


@slow
def test_without_lateness_disorder_across_epochs_loses_entries():
    """The check on the checks: they would notice."""
    given = DISORDERS["uniform delay"](entries())
    program = network.suspects(ab.sources.Records(given), above=ABOVE)

    found = ab.testing.run_sequential(program, epoch_rows=30)["out"]

    assert sum(row["total"] for row in found) < suspects_by_duckdb(given)["total"].sum()


@slow
def test_any_width_gives_the_same_suspects():
    source = network.source(400, rate=RATE, seed=5)
    ab.testing.assert_same_as_sequential(network.suspects(source, above=ABOVE))


@slow
@LEFT
@pytest.mark.parametrize("partitions", [1, 3])
def test_any_width_monitors_the_same(left, partitions):
    source = network.source(400, rate=RATE, seed=5, partitions=partitions)
    program = network.monitored(source, at_one=0, above=ABOVE, left=left)

    ab.testing.assert_same_as_sequential(program, widths=(1, 3), crash_at=[1])


def test_figure_1_counts_and_filters_in_one_parallel_region():
    """The paper: all but the sink is parallel, and no exchange is between count and filter."""
    facts, region = regions(network.suspects(network.source(0, rate=RATE)))

    assert ["count", "filter"] == region["count"]["operators"]
    assert (True, ["uid"], "hash") == tuple(
        region["count"][fact] for fact in ("parallel", "key", "routing")
    )
    assert region["entries"]["parallel"]
    assert not region["out"]["parallel"]
    assert ["parallel-source", "shuffle", "merge"] == [each["kind"] for each in facts["joints"]]


def test_the_kernel_is_parallel_from_source_to_sink_and_nobody_asks_for_an_order():
    """The paper: left by the server, right by the user, and the runtime has only to route."""
    facts, region = regions(network.monitored(network.source(0, rate=RATE)))

    assert all(each["parallel"] for each in facts["regions"])
    assert {"none"} == {each["ordering"] for each in facts["regions"]}
    assert (["server"], ["uid"]) == (region["left"]["key"], region["right"]["key"])
    assert region["servers"] is region["left"]
    assert region["users"] is region["right"] is region["out"]
    assert ["parallel-source", "shuffle", "shuffle", "parallel-sink"] == [
        each["kind"] for each in facts["joints"]
    ]


def test_by_server_and_user_one_region_has_both_stages():
    """Keys are compatible if they have a column in common: the user's rows are in one place."""
    program = network.monitored(network.source(0, rate=RATE), left="server and user")
    facts, region = regions(program)

    assert region["servers"] is region["left"] is region["right"] is region["out"]
    assert ["uid"] == region["left"]["key"]
    assert ["parallel-source", "shuffle", "parallel-sink"] == [
        each["kind"] for each in facts["joints"]
    ]


def test_hot_users_exceed_a_hundred_in_a_window():
    """13 of a hundred entries are the first user's, of 5,000 in a window."""
    given = entries(10_000, rate=1_000)

    assert 0.134 == pytest.approx((given["uid"] == 0).mean(), abs=0.01)
    assert {64} == {given["server"].n_unique()}
    found = suspects_by_duckdb(given, above=network.SUSPICIOUS)
    assert [0, 5_000] == found.filter(pl.col("uid") == 0)["window_start"].to_list()


def test_any_part_of_the_log_is_made_alone():
    whole = entries(1_000)

    part = network.entries(pl.Series([990, 17, 500], dtype=pl.UInt64), rate=RATE, seed=5)

    assert_frame_equal(whole[[990, 17, 500]], part)
