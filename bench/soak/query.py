"""A query that never ends, with windows and with state by key, whose results have a closed form."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

import anabranch as ab
from bench.workloads import ysb

RATE = 30_000
"""Events a second of event time: ten seconds, a window, are 300,000."""
EVERY = 100
"""How many purchases of a user make a row."""
OUT = {"user_id": pl.String(), "purchases": pl.Int64()}


def milestones(event: Any, state: Any) -> Iterator[Any]:
    """Every hundredth purchase of a user."""
    state.value = (state.value or 0) + 1
    if state.value % EVERY == 0:
        yield {"user_id": event["user_id"], "purchases": state.value}


def program(output: Path) -> ab.Program:
    """Views by campaign and window; users' purchases by mail, counted in Python."""
    made = ab.Program("soak")
    events = made.read(
        ab.sources.Generator(
            partial(ysb.events, rate=RATE, variant="deterministic"),
            schema=ysb.SCHEMA,
            vectorized=True,
        ),
        event_time="event_time",
    )
    views = events.filter(pl.col("event_type") == "view").select("ad_id", "event_time")
    by_campaign = views.lookup(ysb.ads(), on="ad_id").window(
        ab.tumbling(ysb.WINDOW), by="campaign_id"
    )
    by_campaign.agg(views=ab.count()).write(
        ab.sinks.Files(output / "views", format="parquet"), name="views"
    )
    by_mail = (pl.col("event_type") == "purchase") & (pl.col("ad_type") == "mail")
    events.filter(by_mail).key_by("user_id").process(milestones, out=OUT).write(
        ab.sinks.Files(output / "milestones", format="parquet"), name="milestones"
    )
    return made


def require_right(output: Path, rows: int) -> None:
    """Each window whole, none missing, none twice; of each user every milestone, in order."""
    _require_windows(_read(output / "views"), rows)
    _require_milestones(_read(output / "milestones"), rows)


def _require_windows(found: pl.DataFrame, rows: int) -> None:
    window_rows = int(RATE * ysb.WINDOW.total_seconds())
    # The last watermark is the time of the last event, so a window that ends there is still open.
    windows = (rows - 1) // window_rows
    assert found.height == windows * ysb.CAMPAIGNS, (found.height, windows)
    assert (found["views"] == ysb.views_per_window(RATE)).all()
    starts = pl.Series([number * ysb.WINDOW for number in range(windows)]).dt.total_microseconds()
    expected = starts.repeat_by(ysb.CAMPAIGNS).explode()
    assert (found["window_start"].dt.epoch("us") == expected).all()


def _require_milestones(found: pl.DataFrame, rows: int) -> None:
    # An event is the purchase of a user by mail once in 3 * 5 * 20 = 300 events.
    most = rows // 300
    for (user,), each in found.group_by("user_id"):
        expected = [EVERY * (at + 1) for at in range(each.height)]
        assert expected == each["purchases"].to_list(), user
        assert abs(each.height * EVERY - most) <= EVERY, (user, each.height, most)
    assert found["user_id"].n_unique() == 20


def _read(folder: Path) -> pl.DataFrame:
    return pl.concat(map(pl.read_parquet, sorted(folder.glob("*.parquet"))))
