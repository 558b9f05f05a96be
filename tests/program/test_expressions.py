"""What is row-wise is decided node by node (M8), and the decision is true."""

import datetime as dt

import polars as pl
import pytest

from anabranch.errors import ProgramError
from anabranch.program.expressions import Expression, projected, require_row_wise

FRAME = pl.DataFrame(
    {
        "a": [3, 1, None, 2, 2],
        "b": [1, 5, 2, None, 2],
        "x": [1.5, float("nan"), -0.0, None, 2.0],
        "s": ["ab cd", "z", None, "2024-01-02", ""],
        "l": [[1, 2], [], None, [3, None], [2]],
        "t": [dt.datetime(2024, 1, day) for day in (1, 2, 3, 4, 5)],
        "st": [{"z": 1}, {"z": 2}, {"z": None}, {"z": 4}, {"z": 5}],
    },
    schema_overrides={"l": pl.List(pl.Int64), "t": pl.Datetime("us")},
)

ROW_WISE = [
    pl.col("a") + 1,
    pl.col("a") % 2 == pl.col("b"),
    pl.all(),
    pl.selectors.numeric() * 2,
    pl.col("a").cast(pl.Float64).alias("f"),
    pl.when(pl.col("a") > 1).then(pl.lit("big")).otherwise(pl.col("s")),
    pl.col("a").is_in([1, 2]),
    pl.col("a").is_in(pl.col("l")),
    pl.col("a").is_between(1, 2),
    pl.col("a").fill_null(0).clip(0, 2),
    pl.col("a").replace({1: 10}),
    pl.coalesce("a", "b"),
    pl.max_horizontal("a", "b"),
    pl.sum_horizontal("a", "b"),
    pl.struct("a", "s"),
    pl.col("st").struct.field("z"),
    pl.col("st").struct.with_fields(pl.field("z") + 1),
    pl.col("s").str.to_uppercase(),
    pl.col("s").str.split(" "),
    pl.col("s").str.to_date("%Y-%m-%d", strict=False),
    pl.concat_str("s", pl.lit("!")),
    pl.format("{}-{}", "a", "b"),
    pl.col("l").list.sum(),
    pl.col("l").list.eval(pl.element() + 1),
    pl.col("l").list.eval(pl.element().rank()),
    pl.col("l").list.unique().list.len(),
    pl.col("t").dt.hour(),
    pl.col("t").dt.truncate("1d"),
    pl.col("t").dt.convert_time_zone("Europe/Berlin"),
    pl.datetime(2024, 1, pl.col("b").fill_null(1)),
    pl.col("x").is_nan(),
    pl.col("x").fill_nan(0.0).sqrt().round(1),
    pl.col("a").name.suffix("_x"),
]

OTHERS = [
    pl.col("x") > pl.col("x").mean(),
    pl.col("a").sum(),
    pl.len(),
    pl.col("a").shift(1),
    pl.col("a").diff(),
    pl.col("a").cum_sum(),
    pl.col("a").rank(),
    pl.col("a").over("b"),
    pl.col("a").first(),
    pl.col("a").sort(),
    pl.col("a").reverse(),
    pl.col("a").unique(),
    pl.col("a").is_first_distinct(),
    pl.col("a").is_in(pl.col("b")),
    pl.col("a").is_in(pl.col("b").implode()),
    pl.col("a").fill_null(strategy="forward"),
    pl.col("a").interpolate(),
    pl.col("a").filter(pl.col("b") > 1),
    pl.col("a").gather(0),
    pl.col("a").sample(fraction=1.0, shuffle=True),
    pl.col("l").explode(),
    pl.int_range(pl.len()),
    pl.lit(pl.Series([1, 2, 3, 4, 5])),
    pl.col("s").str.to_datetime(),
    pl.col("a").map_batches(lambda s: s),
    pl.col("a").map_elements(hash, return_dtype=pl.Int64),
    pl.when(pl.col("a") > 1).then(pl.col("a").max()).otherwise(0),
    pl.col("a").replace(pl.col("b"), pl.col("a")),
    pl.col("a").rolling_mean(2),
    pl.col("a").ewm_mean(alpha=0.5),
    pl.col("a").cumulative_eval(pl.element().sum()),
    (pl.col("a") + 1).alias("deep") * (pl.col("b") - pl.col("b").min()),
]


def _text(expr):
    return str(expr)[:60]


@pytest.mark.parametrize("expr", ROW_WISE, ids=_text)
def test_a_row_wise_expression_gives_each_row_what_it_gives_it_alone(expr):
    expression = Expression.of(expr)

    require_row_wise(expression, FRAME.schema, "select-1")
    projected(FRAME.schema, [expression], "select-1")

    whole = FRAME.select(expr)
    alone = pl.concat([FRAME[at].select(expr) for at in range(FRAME.height)])
    assert whole.equals(alone, null_equal=True)


@pytest.mark.parametrize("expr", OTHERS, ids=_text)
def test_an_expression_that_looks_beyond_its_row_is_refused(expr):
    with pytest.raises(ProgramError, match=r"^select-1: "):
        require_row_wise(Expression.of(expr), FRAME.schema, "select-1")


def test_expressions_are_equal_by_what_they_say():
    def parse(form):
        return Expression.of(pl.col("s").str.to_date(form))

    assert parse("%Y") == parse("%Y")
    assert parse("%Y") != parse("%d")
    assert hash(parse("%Y")) == hash(parse("%Y"))
