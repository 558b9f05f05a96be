"""Views and users of each advertising campaign in every ten seconds, written to Parquet files.

    ./x python -m anabranch.cli run examples/campaign_views.py

The files are in `anabranch-examples/campaign-views` below the directory for temporary files. Run it
again and they are the same: publishing an epoch twice is publishing it once.
"""

import tempfile
from pathlib import Path

import polars as pl

import anabranch as ab

EVENTS_PER_SECOND = 100
OUT = Path(tempfile.gettempdir()) / "anabranch-examples" / "campaign-views"


def events(numbers: pl.Series) -> pl.DataFrame:
    """Make the events of these numbers; their times are up to nine events out of order."""
    shuffled = numbers // 10 * 10 + numbers * 7 % 10
    kinds = pl.Series(["view", "click", "purchase"])
    return pl.DataFrame(
        {
            "event_time": (shuffled * 1_000_000 // EVENTS_PER_SECOND).cast(pl.Datetime("us")),
            "ad": shuffled % 100,
            "event_type": kinds.gather(shuffled % 3),
            "user": shuffled * 31 % 97,
        }
    )


SCHEMA = {
    "event_time": pl.Datetime("us"),
    "ad": pl.Int64,
    "event_type": pl.String,
    "user": pl.Int64,
}
ADS = pl.DataFrame({"ad": range(100), "campaign": [f"campaign-{ad // 20}" for ad in range(100)]})

program = ab.Program("campaign-views")
source = ab.sources.Generator(events, schema=SCHEMA, rows=3_000, vectorized=True)
windows = (
    program.read(source, event_time="event_time", lateness="1 s")
    .filter(pl.col("event_type") == "view")
    .lookup(ADS, on="ad")
    .window(ab.tumbling("10 s"), by="campaign")
)
windows.agg(views=ab.count(), users=ab.count_distinct("user")).write(
    ab.sinks.Files(OUT, format="parquet"), name="results"
)
windows.late.write(ab.sinks.Memory("late"))
