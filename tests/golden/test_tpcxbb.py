"""TPCx-BB's queries on cases small enough to be worked out by hand."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pytest

import anabranch as ab
from bench.workloads import mixer, tpcxbb

EPOCHS = pytest.mark.parametrize("epoch_rows", [None, 1, 3])
A, B, C, D, E, F = range(1, 7)


def run(program, epoch_rows=None):
    return ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]


def clicks(*rows):
    """Clicks from (second, item) or a dict with more columns; user 1, page 1, no purchase."""
    defaults = dict.fromkeys(tpcxbb.CLICKS) | {
        "wcs_user_sk": 1,
        "wcs_web_page_sk": 1,
        "wcs_item_sk": 1,
    }
    full = []
    for second, given in rows:
        day, time = divmod(second, tpcxbb.DAY)
        more = given if isinstance(given, dict) else {"wcs_item_sk": given}
        full.append(defaults | {"wcs_click_date_sk": day, "wcs_click_time_sk": time} | more)
    return ab.sources.Records(tpcxbb.with_tstamp(pl.DataFrame(full, schema=tpcxbb.CLICKS)))


def sales(*rows):
    """Sales from (second, ticket, item), in store 10."""
    full = [
        {
            "ss_sold_date_sk": second // tpcxbb.DAY,
            "ss_sold_time_sk": second % tpcxbb.DAY,
            "ss_item_sk": item,
            "ss_store_sk": 10,
            "ss_ticket_number": ticket,
            "ss_net_paid": Decimal("1.00"),
        }
        for second, ticket, item in rows
    ]
    return ab.sources.Records(tpcxbb.with_tstamp(pl.DataFrame(full, schema=tpcxbb.SALES)))


def items(category=2, *, more=()):
    numbers = [*range(1, 10), tpcxbb.ITEM]
    rows = [(number, category) for number in numbers]
    return pl.DataFrame([*rows, *more], schema=tpcxbb.ITEMS, orient="row")


def ranking(rows, *things):
    return [
        (row["period_end"], row["rank"], *(row[t] for t in things), row["count"]) for row in rows
    ]


# Query 1

TICKETS = [(0, 100, 3), (1, 100, 1), (2, 100, 3), (3, 200, 1), (4, 200, 2), (5, 200, 3)]


@EPOCHS
@pytest.mark.parametrize("running", [True, False])
def test_q1_counts_a_pair_once_a_ticket(running, epoch_rows):
    program = tpcxbb.q1(sales(*TICKETS[:3]), items(), running=running, above=0)

    assert [(3600, 1, 1, 3, 1)] == ranking(run(program, epoch_rows), "item_1", "item_2")


@EPOCHS
@pytest.mark.parametrize("running", [True, False])
def test_q1_ranks_pairs_by_count_and_items(running, epoch_rows):
    program = tpcxbb.q1(sales(*TICKETS), items(), running=running, above=0)

    expected = [(3600, 1, 1, 3, 2), (3600, 2, 1, 2, 1), (3600, 3, 2, 3, 1)]
    assert expected == ranking(run(program, epoch_rows), "item_1", "item_2")


@EPOCHS
@pytest.mark.parametrize(("running", "count"), [(True, 3), (False, 1)])
def test_q1_counts_from_the_beginning_or_every_hour_anew(running, count, epoch_rows):
    later = [(3600, 300, 1), (3601, 300, 3)]
    program = tpcxbb.q1(sales(*TICKETS, *later), items(), running=running, above=0, limit=1)

    expected = [(3600, 1, 1, 3, 2), (7200, 1, 1, 3, count)]
    assert expected == ranking(run(program, epoch_rows), "item_1", "item_2")


@pytest.mark.parametrize("running", [True, False])
def test_q1_keeps_counts_above_the_bound_of_its_stores_and_categories(running):
    program = tpcxbb.q1(sales(*TICKETS), items(), running=running, above=1)
    assert [(3600, 1, 1, 3, 2)] == ranking(run(program), "item_1", "item_2")

    assert [] == run(tpcxbb.q1(sales(*TICKETS), items(category=4), running=running, above=0))


def test_q1_running_ends_with_the_batch_answer():
    """300 sales on 60 tickets against a self join of all distinct (ticket, item)."""
    drawn = [mixer.below(n, range(300), seed=8, field=n).tolist() for n in (60, 9)]
    rows = [(40 * k, ticket, 1 + item) for k, (ticket, item) in enumerate(zip(*drawn, strict=True))]
    sold = pl.DataFrame([row[1:] for row in rows], schema=["ticket", "i"], orient="row").unique()
    batch = (
        sold.join(sold.rename({"i": "j"}), on="ticket")
        .filter(pl.col("i") < pl.col("j"))
        .group_by("i", "j")
        .agg(count=pl.len())
        .filter(pl.col("count") > 2)
        .sort("count", "i", "j", descending=[True, False, False])
        .head(10)
    )

    found = run(tpcxbb.q1(sales(*rows), items(), running=True, above=2, limit=10), epoch_rows=50)

    last = [row for row in found if row["period_end"] == 4 * tpcxbb.HOUR]
    assert batch.rows() == [(row["item_1"], row["item_2"], row["count"]) for row in last]


# Query 2

SESSIONS = [(0, 5), (100, tpcxbb.ITEM), (3700, 7), (7301, 8)]


@EPOCHS
def test_q2_a_gap_of_exactly_the_timeout_continues_the_session(epoch_rows):
    """Sessions {5, 10001, 7} and {8}: the first ends at 3700 + 3601 = 7301, in the third hour."""
    found = run(tpcxbb.q2(clicks(*SESSIONS)), epoch_rows)

    assert [(10_800, 1, 5, 1), (10_800, 2, 7, 1)] == ranking(found, "item")


def test_q2_counts_an_item_once_a_session_and_ranks_by_count():
    first = [(0, tpcxbb.ITEM), (1, 7), (2, 7), (3, 5)]
    second = [(t, {"wcs_user_sk": 2, "wcs_item_sk": i}) for t, i in [(4, 7), (5, tpcxbb.ITEM)]]

    found = run(tpcxbb.q2(clicks(*first, *second)))

    assert [(7200, 1, 7, 2), (7200, 2, 5, 1)] == ranking(found, "item")


def test_q2_ignores_clicks_without_user_or_item():
    unknown = [{"wcs_user_sk": None, "wcs_item_sk": 5}, {"wcs_item_sk": None}]
    given = clicks((0, tpcxbb.ITEM), (1, unknown[0]), (2, unknown[1]), (3, 6))

    assert [(7200, 1, 6, 1)] == ranking(run(tpcxbb.q2(given)), "item")


# Query 3

VIEWS = [(second, item) for second, item in enumerate([A, B, C, D, E, F])]
PURCHASE = {"wcs_item_sk": tpcxbb.ITEM, "wcs_sales_sk": 77}


def counts(rows):
    return [(row["item"], row["count"]) for row in rows]


@EPOCHS
def test_q3_gives_the_five_views_before_a_purchase(epoch_rows):
    found = run(tpcxbb.q3(clicks(*VIEWS, (6, PURCHASE)), items()), epoch_rows)

    assert [(B, 1), (C, 1), (D, 1), (E, 1), (F, 1)] == counts(found)


@EPOCHS
def test_q3_a_second_purchase_sees_the_first(epoch_rows):
    given = clicks(*VIEWS, (6, PURCHASE), (7, PURCHASE))

    found = counts(run(tpcxbb.q3(given, items()), epoch_rows))

    first = [(B, 1), (C, 1), (D, 1), (E, 1), (F, 1)]
    assert [*first, (C, 2), (D, 2), (E, 2), (F, 2), (tpcxbb.ITEM, 1)] == found


def test_q3_the_list_has_the_last_counts_in_order():
    given = clicks(*VIEWS, (6, PURCHASE), (7, PURCHASE))

    found = tpcxbb.top_items(pl.DataFrame(run(tpcxbb.q3(given, items()))), limit=5)

    assert [(C, 2), (D, 2), (E, 2), (F, 2), (B, 1)] == found.rows()


def test_q3_repairs_the_order_of_clicks_in_one_epoch():
    given = clicks((6, PURCHASE), *reversed(VIEWS))

    assert [B, C, D, E, F] == [row["item"] for row in run(tpcxbb.q3(given, items()))]


@pytest.mark.parametrize(("age", "found"), [(864_000, [A]), (864_001, [])])
def test_q3_forgets_views_older_than_ten_days(age, found):
    given = clicks((0, A), (age, PURCHASE))

    assert found == [row["item"] for row in run(tpcxbb.q3(given, items()))]


def test_q3_keeps_items_of_its_categories():
    given = clicks((0, 50), (1, A), (2, PURCHASE))
    table = items(more=[(50, 9)])

    assert [(A, 1)] == counts(run(tpcxbb.q3(given, table)))


# Query 4

KINDS = ["general", "dynamic", "review", "order"]
PAGES = pl.DataFrame(list(enumerate(KINDS)), schema=tpcxbb.PAGES, orient="row")


def visits(*sessions, step=1):
    """One user a session, so that sessions of any number lie side by side."""
    rows = [
        (step * n, {"wcs_user_sk": user, "wcs_web_page_sk": KINDS.index(kind)})
        for user, kinds in enumerate(sessions)
        for n, kind in enumerate(kinds)
    ]
    return clicks(*rows)


@EPOCHS
def test_q4_averages_the_clicks_of_abandoned_sessions(epoch_rows):
    given = visits(["general", "dynamic", "review"], ["dynamic", "order"], ["order", "dynamic"])

    found = run(tpcxbb.q4(given, PAGES), epoch_rows)

    assert {"sessions": 2, "clicks": 5, "average": 2.5} == found[-1]
    assert 2 == len(found)


@pytest.mark.parametrize(
    ("kinds", "clicked"),
    [
        (["general", "dynamic", "review"], [3]),
        (["dynamic", "order"], []),
        (["order", "dynamic"], [2]),
        (["general", "review"], []),
    ],
)
def test_q4_a_session_is_abandoned_if_the_cart_comes_last(kinds, clicked):
    found = run(tpcxbb.q4(visits(kinds), PAGES))

    assert clicked == [row["clicks"] for row in found]


def test_q4_the_order_wins_at_the_same_time():
    assert [] == run(tpcxbb.q4(visits(["order", "dynamic"], step=0), PAGES))


def test_q4_ignores_purchases():
    bought = {"wcs_web_page_sk": KINDS.index("order"), "wcs_sales_sk": 9}
    given = clicks((0, {"wcs_web_page_sk": KINDS.index("dynamic")}), (1, bought))

    assert [{"sessions": 1, "clicks": 1, "average": 1.0}] == run(tpcxbb.q4(given, PAGES))


# Query 15

FIRST = 37_134


def paid(*rows):
    """Sales from (day, amount, item), in store 10."""
    full = [
        {
            "ss_sold_date_sk": FIRST + day,
            "ss_sold_time_sk": 0,
            "ss_item_sk": item,
            "ss_store_sk": 10,
            "ss_ticket_number": 1,
            "ss_net_paid": Decimal(amount),
        }
        for day, amount, item in rows
    ]
    return ab.sources.Records(tpcxbb.with_tstamp(pl.DataFrame(full, schema=tpcxbb.SALES)))


def lines(*rows, table=None):
    return pl.DataFrame(run(tpcxbb.q15(paid(*rows), items() if table is None else table)))


def test_q15_fits_a_line_to_the_sums_by_day():
    found = lines((1, "10.00", 1), (2, "8.00", 1), (3, "3.00", 1))

    category, slope, intercept = found.rows()[-1]
    assert (2, -3.5) == (category, slope)
    # At day 0 the line is at 14; day keys count from 1900, and the line goes back to there.
    assert pytest.approx(14 + 3.5 * FIRST, rel=1e-15) == intercept


def test_q15_on_days_1_2_3_is_the_line_of_the_textbook():
    """The golden case in its own days: slope -3.5, intercept 14."""
    given = pl.DataFrame(
        [(day, 0, 1, 10, 1, Decimal(y)) for day, y in [(1, 10), (2, 8), (3, 3)]],
        schema=tpcxbb.SALES,
        orient="row",
    )
    source = ab.sources.Records(tpcxbb.with_tstamp(given))

    found = run(tpcxbb.q15(source, items(), first=1, last=3))

    assert {"category": 2, "slope": -3.5, "intercept": 14.0} == found[-1]


def test_q15_sales_of_one_day_are_one_point():
    apart = lines((1, "4.00", 1), (1, "6.00", 2), (2, "8.00", 1), (3, "1.50", 1), (3, "1.50", 2))
    together = lines((1, "10.00", 1), (2, "8.00", 1), (3, "3.00", 1))

    assert together.rows()[-1] == apart.rows()[-1]


def test_q15_lists_what_does_not_rise_by_category():
    table = pl.DataFrame([(1, 7), (2, 3), (3, 5), (4, None)], schema=tpcxbb.ITEMS, orient="row")
    falling = [(1, "9.00", 1), (1, "5.00", 2), (1, "1.00", 3), (1, "9.00", 4)]
    then = [(2, "8.00", 1), (2, "5.00", 2), (2, "2.00", 3), (2, "8.00", 4)]

    found = tpcxbb.declining(lines(*falling, *then, table=table))

    assert [(3, 0.0), (7, -1.0)] == found.select("category", "slope").rows()


def test_q15_takes_its_year_alone():
    assert lines((-1, "9.00", 1), (0, "5.00", 1), (366, "1.00", 1)).is_empty()
