"""Store sales and clicks for TPCx-BB's queries, of any number, the same for everyone.

After what is known of the benchmark's own generator, with three choices that make queries work at
small scale: one item of five is a planted one; half of the tickets are of the stores that query 1
asks for; and clicks of 40 users at a time come every 30 s, so that sessions are of about 20 clicks.
"""

from __future__ import annotations

from datetime import date

import polars as pl

from bench.workloads import mixer
from bench.workloads.tpcxbb import CLICKS, DAY, ITEMS, PAGES, SALES, STORES, day_key, with_tstamp

ITEM_COUNT, CATEGORY_COUNT, PAGE_COUNT = 18_000, 10, 60
PLANTED = (10_000, 10_001, 10_002, 10_003)
KINDS = ("general", "order", "welcome", "ad", "feedback", "protected", "dynamic", "review")
OTHER_STORES = (1, 2, 3, 4, 5)
TICKET_ROWS, TICKET_EVERY = 8, 180
CLICK_EVERY, USERS, USERS_FOR = 30, 40, 2_000
"""Seconds between clicks; users at a time, and for so many clicks."""
FIRST = day_key(date(2001, 9, 2)) * DAY


def items() -> pl.DataFrame:
    """All items with their categories."""
    numbers = pl.int_range(1, ITEM_COUNT + 1, dtype=pl.Int64, eager=True)
    return pl.DataFrame(
        {"i_item_sk": numbers, "i_category_id": numbers % CATEGORY_COUNT + 1}, schema=ITEMS
    )


def pages() -> pl.DataFrame:
    """All web pages with their kinds."""
    kinds = [KINDS[number % len(KINDS)] for number in range(1, PAGE_COUNT + 1)]
    return pl.DataFrame(
        {"wp_web_page_sk": range(1, PAGE_COUNT + 1), "wp_type": kinds}, schema=PAGES
    )


def sales(count: int, seed: int) -> pl.DataFrame:
    """So many rows of tickets, in time order.

    >>> sales(1000, seed=1)["ss_ticket_number"].n_unique()
    125
    """
    tickets = _numbers(count) // TICKET_ROWS
    at = FIRST + tickets * TICKET_EVERY
    stores = pl.Series([*STORES, *OTHER_STORES], dtype=pl.Int64)
    frame = pl.DataFrame(
        {
            "ss_sold_date_sk": at // DAY,
            "ss_sold_time_sk": at % DAY,
            "ss_item_sk": _items(count, seed),
            "ss_store_sk": stores.gather(_below(len(stores), tickets, seed, 2)),
            "ss_ticket_number": tickets,
            "ss_net_paid": (_below(100_000, _numbers(count), seed, 3) / 100).cast(pl.Decimal(7, 2)),
        },
        schema=SALES,
    )
    return with_tstamp(frame)


def clicks(count: int, seed: int) -> pl.DataFrame:
    """So many clicks, in time order; three of ten by nobody known, one of five a purchase."""
    numbers = _numbers(count)
    at = FIRST + numbers * CLICK_EVERY
    user = _below(USERS, numbers, seed, 4) + numbers // USERS_FOR * USERS
    known = _below(10, numbers, seed, 5) >= 3
    bought = _below(5, numbers, seed, 6) == 0
    frame = pl.DataFrame(
        {
            "wcs_click_date_sk": at // DAY,
            "wcs_click_time_sk": at % DAY,
            "wcs_sales_sk": numbers.zip_with(bought, _none(count)),
            "wcs_item_sk": _items(count, seed),
            "wcs_web_page_sk": _below(PAGE_COUNT, numbers, seed, 7) + 1,
            "wcs_user_sk": user.zip_with(known, _none(count)),
        },
        schema=CLICKS,
    )
    return with_tstamp(frame)


def _items(count: int, seed: int) -> pl.Series:
    numbers = _numbers(count)
    planted = pl.Series(PLANTED, dtype=pl.Int64).gather(_below(len(PLANTED), numbers, seed, 0))
    drawn = _below(ITEM_COUNT, numbers, seed, 1) + 1
    return planted.zip_with(_below(5, numbers, seed, 8) == 0, drawn)


def _numbers(count: int) -> pl.Series:
    return pl.int_range(count, dtype=pl.Int64, eager=True)


def _none(count: int) -> pl.Series:
    return pl.repeat(None, count, dtype=pl.Int64, eager=True)


def _below(limit: int, numbers: pl.Series, seed: int, field: int) -> pl.Series:
    drawn = mixer.below(limit, numbers.to_numpy(), seed=seed, field=field)
    return pl.Series(drawn.astype("int64"))
