"""Five queries of TPCx-BB as stream programs: 1, 2, 3, 4 and 15.

The shapes are those of Prasaad et al., "Scaling Ordered Stream Processing on Shared-Memory
Multicores" (2018), table 1; logic and parameters are the benchmark's. Event time is in whole
seconds: `tstamp` = date key * 86400 + second of the day.

A session there goes on when the gap is *exactly* 3600 s, and ab.session(gap) ends at last + gap:
hence 3601 s.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import polars as pl

import anabranch as ab
from bench.workloads.running import Ranking, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.workloads.state import State

SALES = pl.Schema(
    {
        "ss_sold_date_sk": pl.Int64(),
        "ss_sold_time_sk": pl.Int64(),
        "ss_item_sk": pl.Int64(),
        "ss_store_sk": pl.Int64(),
        "ss_ticket_number": pl.Int64(),
        "ss_net_paid": pl.Decimal(7, 2),
    }
)
CLICKS = pl.Schema(
    {
        "wcs_click_date_sk": pl.Int64(),
        "wcs_click_time_sk": pl.Int64(),
        "wcs_sales_sk": pl.Int64(),
        "wcs_item_sk": pl.Int64(),
        "wcs_web_page_sk": pl.Int64(),
        "wcs_user_sk": pl.Int64(),
    }
)
ITEMS = pl.Schema({"i_item_sk": pl.Int64(), "i_category_id": pl.Int64()})
PAGES = pl.Schema({"wp_web_page_sk": pl.Int64(), "wp_type": pl.String()})

DAY, HOUR = 86_400, 3_600
SESSION = "3601 s"
STORES, CATEGORIES, ITEM = (10, 20, 33, 40, 50), (1, 2, 3), 10_001
VIEWS_BEFORE, VIEWED_WITHIN = 5, 10 * DAY


def day_key(day: date) -> int:
    """The date key: days since 1900-01-01.

    >>> day_key(date(2001, 9, 2))
    37134
    """
    return (day - date(1900, 1, 1)).days


def with_tstamp(frame: pl.DataFrame) -> pl.DataFrame:
    """Sales or clicks with their event time beside them, as the programs read them."""
    kind = "ss_sold" if "ss_sold_date_sk" in frame.columns else "wcs_click"
    tstamp = pl.col(f"{kind}_date_sk") * DAY + pl.col(f"{kind}_time_sk")
    return frame.with_columns(tstamp=tstamp)


def q1(
    sales: ab.sources.Source,
    items: pl.DataFrame,
    *,
    running: bool = False,
    above: int = 50,
    limit: int = 100,
) -> ab.Program:
    """The pairs of items sold together most often, every hour: period_end, rank, pair, count.

    `running=True` counts from the beginning, as the batch query does; else every hour from 0. Ties
    are ranked by item numbers.
    """
    program = ab.Program("tpcxbb-q1")
    pairs = (
        program.read(sales, event_time="tstamp", time_unit="s")
        .filter(pl.col("ss_store_sk").is_in(STORES))
        .lookup(items.rename({"i_item_sk": "ss_item_sk"}), on="ss_item_sk")
        .filter(pl.col("i_category_id").is_in(CATEGORIES))
        .key_by("ss_ticket_number")
        .process(sold_together)
    )
    things = {"item_1": pl.Int64, "item_2": pl.Int64}
    if running:
        top = Ranking(things, k=limit, period=HOUR, above=above)
        found = (
            pairs.in_time_order()
            .key_by("item_1", "item_2")
            .process(
                counted("item_1", "item_2", "at"), out={**things, "at": pl.Int64, "count": pl.Int64}
            )
            .process(top, out=top.out)
        )
    else:
        found = (
            pairs.window(ab.tumbling("1 h"), by=["item_1", "item_2"])
            .agg(count=ab.count())
            .filter(pl.col("count") > above)
            .drop("window_start", "window_end")
            .window(ab.tumbling("1 h"))
            .apply(
                ranked("item_1", "item_2", limit=limit),
                out={"rank": pl.Int64, **things, "count": pl.Int64},
            )
            .rename({"window_end": "period_end"})
            .drop("window_start")
        )
    found.write(ab.sinks.Memory("out"))
    return program


@ab.operator(out={"item_1": pl.Int64, "item_2": pl.Int64, "at": pl.Int64})
def sold_together(sale: dict[str, Any], state: State) -> Iterator[dict[str, Any]]:
    """Pair an item that is new on a ticket with each one before it, the smaller number first."""
    item, before = sale["ss_item_sk"], state.value or []
    if item in before:
        return
    for other in before:
        yield {"item_1": min(item, other), "item_2": max(item, other), "at": sale["tstamp"]}
    state.value = [*before, item]


def ranked(*things: str, limit: int) -> Callable[[tuple[Any, ...], pl.DataFrame], pl.DataFrame]:
    """A function for `apply`: the rows of a window with the greatest counts, ties by the things."""

    def rank(_: tuple[Any, ...], frame: pl.DataFrame) -> pl.DataFrame:
        found = frame.sort("count", *things, descending=[True, *(False for _ in things)])
        numbered = found.head(limit).with_row_index("rank", offset=1)
        return numbered.select(pl.col("rank").cast(pl.Int64), *things, "count")

    return rank


def q2(clicks: ab.sources.Source, *, item: int = ITEM, limit: int = 30) -> ab.Program:
    """What is viewed in the same session as an item, hourly: period_end, rank, item, count."""
    program = ab.Program("tpcxbb-q2")
    top = Ranking({"item": pl.Int64}, k=limit, period=HOUR)
    (
        program.read(clicks, event_time="tstamp", time_unit="s")
        .filter(pl.col("wcs_user_sk").is_not_null() & pl.col("wcs_item_sk").is_not_null())
        .window(ab.session(SESSION), by="wcs_user_sk")
        .agg(item=ab.collect("wcs_item_sk"))
        .filter(pl.col("item").list.contains(item))
        # The session's event time is just before its end, so `at` is the second before it.
        .select(pl.col("item").list.unique(maintain_order=True), at=pl.col("window_end") - 1)
        .explode("item")
        .filter(pl.col("item") != item)
        .in_time_order()
        .key_by("item")
        .process(counted("item", "at"), out={"item": pl.Int64, "at": pl.Int64, "count": pl.Int64})
        .process(top, out=top.out)
        .write(ab.sinks.Memory("out"))
    )
    return program


def q3(
    clicks: ab.sources.Source, items: pl.DataFrame, *, categories: Sequence[int] = (2, 3)
) -> ab.Program:
    """How often an item was among the last five views before a purchase, as a running count.

    Needs each user's clicks in time order, hence `in_time_order`; clicks of one second stay as they
    arrive. `top_items` makes the query's list of the running counts.
    """
    program = ab.Program("tpcxbb-q3")
    (
        program.read(clicks, event_time="tstamp", time_unit="s")
        .filter(pl.col("wcs_user_sk").is_not_null() & pl.col("wcs_item_sk").is_not_null())
        .in_time_order()
        .key_by("wcs_user_sk")
        .process(viewed_before)
        .lookup(items.rename({"i_item_sk": "item"}), on="item")
        .filter(pl.col("i_category_id").is_in(list(categories)))
        .key_by("item")
        .process(counted("item"), out={"item": pl.Int64, "count": pl.Int64})
        .write(ab.sinks.Memory("out"))
    )
    return program


@ab.operator(out={"item": pl.Int64})
def viewed_before(click: dict[str, Any], state: State) -> Iterator[dict[str, Any]]:
    """At a purchase of the item, give the five clicks before it that are at most ten days old."""
    before = state.value or []
    if click["wcs_sales_sk"] is not None and click["wcs_item_sk"] == ITEM:
        oldest = click["tstamp"] - VIEWED_WITHIN
        yield from ({"item": item} for at, item in before if at >= oldest)
    state.value = [*before, (click["tstamp"], click["wcs_item_sk"])][-VIEWS_BEFORE:]


def top_items(counts: pl.DataFrame, limit: int = 30) -> pl.DataFrame:
    """Query 3's list: the last count of each item, the greatest first, ties by item."""
    latest = counts.group_by("item").agg(pl.col("count").max())
    return latest.sort("count", "item", descending=[True, False]).head(limit)


def q4(clicks: ab.sources.Source, pages: pl.DataFrame) -> ab.Program:
    """The average number of clicks in abandoned sessions, after each of them.

    Abandoned: something went into the cart ("dynamic") after the last "order" page, if any. On
    equal times the order wins.
    """
    program = ab.Program("tpcxbb-q4")
    kind = pl.col("wp_type")
    (
        program.read(clicks, event_time="tstamp", time_unit="s")
        .filter(
            pl.col("wcs_user_sk").is_not_null()
            & pl.col("wcs_web_page_sk").is_not_null()
            & pl.col("wcs_sales_sk").is_null()
        )
        .lookup(pages.rename({"wp_web_page_sk": "wcs_web_page_sk"}), on="wcs_web_page_sk")
        .window(ab.session(SESSION), by="wcs_user_sk")
        .agg(
            clicks=ab.count(),
            carted=ab.max(pl.when(kind == "dynamic").then(pl.col("tstamp"))),
            ordered=ab.max(pl.when(kind == "order").then(pl.col("tstamp"))),
        )
        .filter(
            pl.col("carted").is_not_null()
            & (pl.col("ordered").is_null() | (pl.col("carted") > pl.col("ordered")))
        )
        .process(running_average)
        .write(ab.sinks.Memory("out"))
    )
    return program


@ab.operator(out={"sessions": pl.Int64, "clicks": pl.Int64, "average": pl.Float64})
def running_average(session: dict[str, Any], state: State) -> dict[str, Any]:
    """Sessions and clicks so far."""
    sessions, clicks = state.value or (0, 0)
    sessions, clicks = sessions + 1, clicks + session["clicks"]
    state.value = (sessions, clicks)
    return {"sessions": sessions, "clicks": clicks, "average": clicks / sessions}


def q15(
    sales: ab.sources.Source,
    items: pl.DataFrame,
    *,
    store: int = 10,
    first: int = day_key(date(2001, 9, 2)),
    last: int = day_key(date(2002, 9, 2)),
) -> ab.Program:
    """The line through each category's sales by day, after each sale from its second day on.

    `declining` makes the query's list of it.
    """
    program = ab.Program("tpcxbb-q15")
    (
        program.read(sales, event_time="tstamp", time_unit="s")
        .filter(
            (pl.col("ss_store_sk") == store) & pl.col("ss_sold_date_sk").is_between(first, last)
        )
        .lookup(items.rename({"i_item_sk": "ss_item_sk"}), on="ss_item_sk")
        .filter(pl.col("i_category_id").is_not_null())
        .key_by("i_category_id")
        .process(trend)
        .write(ab.sinks.Memory("out"))
    )
    return program


@ab.operator(out={"category": pl.Int64, "slope": pl.Float64, "intercept": pl.Float64})
def trend(sale: dict[str, Any], state: State) -> Iterator[dict[str, Any]]:
    """Fit y = slope * day + intercept to the sums by day.

    In whole cents and days Python's integers are exact: with days about 37,000, n * Sxx - Sx**2
    would lose most of its digits in floats.
    """
    day, cents = sale["ss_sold_date_sk"], int(sale["ss_net_paid"] * 100)
    n, sx, sxx, sy, sxy = state.value or (0, 0, 0, 0, 0)
    if day not in state.map:
        state.map[day] = True
        n, sx, sxx = n + 1, sx + day, sxx + day * day
    sy, sxy = sy + cents, sxy + day * cents
    state.value = (n, sx, sxx, sy, sxy)
    if n > 1:
        rise, run = n * sxy - sx * sy, n * sxx - sx * sx
        intercept = (sy * run - rise * sx) / (n * run * 100)
        yield {
            "category": sale["i_category_id"],
            "slope": rise / (run * 100),
            "intercept": intercept,
        }


def declining(trends: pl.DataFrame) -> pl.DataFrame:
    """Query 15's list: the categories whose last line does not rise."""
    latest = trends.group_by("category", maintain_order=True).last()
    return latest.filter(pl.col("slope") <= 0).sort("category")
