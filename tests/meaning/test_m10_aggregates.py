"""M10: what each aggregate gives of a window's values.

All cases have one tumbling window [0, 10) ms that leaves at the end of time, unless they say so.
"""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pytest

import anabranch as ab

NAN, INF = float("nan"), float("inf")
LARGEST = 2**63 - 1


def aggregated(values, dtype, *, by=None, partitions=1, epoch_rows=None, **aggregates):
    """The rows that these values of column x give in the one window, without its bounds."""
    rows = [{"t": 1, "x": value} for value in values]
    return aggregated_rows(
        rows, {"t": pl.Int64, "x": dtype}, by, partitions, epoch_rows, aggregates
    )


def aggregated_rows(rows, schema, by, partitions, epoch_rows, aggregates):
    """The same of rows with any columns."""
    program = ab.Program("m10")
    source = ab.sources.Records(rows, schema=schema, partitions=partitions)
    stream = program.read(source, name="events", event_time="t")
    windowed = stream.window(ab.tumbling("10 ms"), by=by).agg(**aggregates)
    windowed.drop("window_start", "window_end").write(ab.sinks.Memory("out"))
    return ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]


def exact(rows):
    """Rows by type and text, so that NaN equals itself, 1 is not 1.0, and True is not 1."""
    return [{name: (type(value).__name__, repr(value)) for name, value in r.items()} for r in rows]


def test_count_counts_rows_and_count_of_a_column_its_values():
    """count() is the number of rows; count("x") of values that are not null, NaN among them.

    Five rows: 1.0, null, NaN, null, 2.0. Rows: 5. Values: 3, since NaN is a value.
    """
    out = aggregated([1.0, None, NAN, None, 2.0], pl.Float64, n=ab.count(), x=ab.count("x"))
    assert out == [{"n": 5, "x": 3}]


def test_a_sum_of_integers_is_a_wide_integer_whatever_their_width():
    """Int8 values 100, 100, 100 sum to 300 in Int64, though 300 is no Int8; nulls are passed over."""
    out = aggregated([100, None, 100, 100], pl.Int8, s=ab.sum("x"))
    assert exact(out) == exact([{"s": 300}])


def test_a_sum_of_floats_is_a_float_and_a_sum_of_truths_counts_them():
    """0.5 + 0.25 is the float 0.75, exactly (both are powers of two); true, false, true sum to 2."""
    assert exact(aggregated([0.5, 0.25], pl.Float64, s=ab.sum("x"))) == exact([{"s": 0.75}])
    assert exact(aggregated([0.5, 0.25], pl.Float32, s=ab.sum("x"))) == exact([{"s": 0.75}])
    assert exact(aggregated([True, False, True], pl.Boolean, s=ab.sum("x"))) == exact([{"s": 2}])


def test_a_sum_of_nothing_is_zero_of_its_type():
    """A window with rows but no value: the sum is 0 of integers, 0.0 of floats."""
    assert exact(aggregated([None, None], pl.Int64, s=ab.sum("x"))) == exact([{"s": 0}])
    assert exact(aggregated([None], pl.Float64, s=ab.sum("x"))) == exact([{"s": 0.0}])
    assert exact(aggregated([None], pl.Boolean, s=ab.sum("x"))) == exact([{"s": 0}])


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([LARGEST, 1], pl.Int64),
        ([-(2**63), -1], pl.Int64),
        ([2**63], pl.UInt64),
        ([LARGEST] * 3, pl.UInt64),
    ],
)
def test_an_integer_sum_beyond_int64_is_an_error(values, dtype):
    """Int64 ends at 2^63 - 1 and begins at -2^63; one more on either side fails the run."""
    with pytest.raises(ab.RunError):
        aggregated(values, dtype, s=ab.sum("x"))


def test_an_integer_sum_at_the_very_edges_of_int64_is_none():
    """2^63 - 2 + 1 is the greatest Int64, -2^63 + 1 - 1 the least: no overflow."""
    assert aggregated([LARGEST - 1, 1], pl.Int64, s=ab.sum("x")) == [{"s": LARGEST}]
    assert aggregated([-(2**63) + 1, -1], pl.Int64, s=ab.sum("x")) == [{"s": -(2**63)}]


def test_an_integer_sum_overflows_by_its_result_not_by_the_way_there():
    """2^63 - 1, 1, -1: after two values the sum is too large, of all three it is 2^63 - 1.

    The sum of the window's values is an Int64, so there is nothing wrong with it: were a value on
    the way judged, the grouping into (epoch, partition) would decide whether a program fails.
    """
    assert aggregated([LARGEST, 1, -1], pl.Int64, s=ab.sum("x")) == [{"s": LARGEST}]


def test_sums_of_decimals_are_exact_to_their_last_digit():
    """Decimal(38, 2): 30 digits before the point and 0.01: no digit is lost, no float is made."""
    values = [Decimal("123456789012345678901234567890.00"), None, Decimal("0.01")]
    out = aggregated(values, pl.Decimal(38, 2), s=ab.sum("x"))
    assert out == [{"s": Decimal("123456789012345678901234567890.01")}]
    assert aggregated([None], pl.Decimal(38, 2), s=ab.sum("x")) == [{"s": Decimal("0.00")}]


def test_float_sums_are_compared_within_a_billionth():
    """0.1 ten times, in four epochs of two partitions: 1.0 up to the order of additions.

    Floats are summed per (epoch, partition) and merged in log order; the oracle sums plainly, so
    the last bits may differ and the comparison has relative tolerance 1e-9.
    """
    out = aggregated([0.1] * 10, pl.Float64, partitions=2, epoch_rows=2, s=ab.sum("x"))
    assert len(out) == 1
    assert math.isclose(out[0]["s"], 1.0, rel_tol=1e-9)


def test_float_sums_obey_infinity_and_nan():
    """inf + 1 is inf; inf - inf is NaN; NaN and anything is NaN."""
    assert exact(aggregated([INF, 1.0], pl.Float64, s=ab.sum("x"))) == exact([{"s": INF}])
    assert exact(aggregated([INF, -INF], pl.Float64, s=ab.sum("x"))) == exact([{"s": NAN}])
    assert exact(aggregated([1.0, NAN], pl.Float64, s=ab.sum("x"))) == exact([{"s": NAN}])


def test_mean_is_a_float_of_values_that_are_not_null():
    """1, null, 2, 6: three values, 9 / 3 = 3.0, a Float64 of integers too; of true, false: 0.5."""
    assert exact(aggregated([1, None, 2, 6], pl.Int64, m=ab.mean("x"))) == exact([{"m": 3.0}])
    assert exact(aggregated([True, False], pl.Boolean, m=ab.mean("x"))) == exact([{"m": 0.5}])
    assert exact(aggregated([None], pl.Int64, m=ab.mean("x"))) == exact([{"m": None}])


def test_mean_of_large_integers_does_not_overflow():
    """The mean of 2^63 - 1 twice is 2^63 - 1; the nearest Float64 is 2^63. Int64 cannot hold the sum."""
    assert aggregated([LARGEST, LARGEST], pl.Int64, m=ab.mean("x")) == [{"m": 2.0**63}]


def test_variance_is_of_a_sample_unless_ddof_says_otherwise():
    """2, 4, 4, 4, 5, 5, 7, 9: mean 5; squares of the differences 9, 1, 1, 1, 0, 0, 4, 16: 32.

    Sample: 32 / 7. ddof 0: 32 / 8 = 4. ddof 2: 32 / 6. The null does not count.
    """
    values = [2, 4, 4, None, 4, 5, 5, 7, 9]
    out = aggregated(
        values, pl.Int64, sample=ab.var("x"), all=ab.var("x", ddof=0), two=ab.var("x", ddof=2)
    )
    assert len(out) == 1
    assert out[0] == pytest.approx({"sample": 32 / 7, "all": 4.0, "two": 32 / 6}, rel=1e-9)


def test_variance_of_too_few_values_is_null():
    """One value has no sample variance (0 / 0), but the variance 0 with ddof 0; no value has none.

    With ddof 2 two values are too few as well.
    """
    one = aggregated([5.0, None], pl.Float64, v=ab.var("x"), v0=ab.var("x", ddof=0))
    assert exact(one) == exact([{"v": None, "v0": 0.0}])
    two = aggregated([5.0, 7.0], pl.Float64, v=ab.var("x"), v2=ab.var("x", ddof=2))
    assert exact(two) == exact([{"v": 2.0, "v2": None}])
    none = aggregated([None], pl.Float64, v=ab.var("x"), v0=ab.var("x", ddof=0))
    assert exact(none) == exact([{"v": None, "v0": None}])


def test_quantiles_are_linear_between_neighbours():
    """Of 4, 1, 3, 2 in order 1, 2, 3, 4: the place of q is q x 3, counted from 0.

    q = 0: 1. q = 0.25: place 0.75: 1 + 0.75 x 1 = 1.75. q = 0.5: place 1.5: 2.5. q = 1: 4. Always
    Float64. The null has no place.
    """
    out = aggregated(
        [4, 1, None, 3, 2],
        pl.Int64,
        q0=ab.quantile("x", 0),
        q25=ab.quantile("x", 0.25),
        q50=ab.quantile("x", 0.5),
        q100=ab.quantile("x", 1),
    )
    assert exact(out) == exact([{"q0": 1.0, "q25": 1.75, "q50": 2.5, "q100": 4.0}])


def test_quantiles_of_one_value_and_of_none():
    """Every quantile of one value is that value; of none there is null."""
    one = aggregated([7.5], pl.Float64, a=ab.quantile("x", 0.1), b=ab.quantile("x", 0.9))
    assert exact(one) == exact([{"a": 7.5, "b": 7.5}])
    assert exact(aggregated([None], pl.Float64, a=ab.quantile("x", 0.5))) == exact([{"a": None}])


def test_quantiles_have_nan_last():
    """M6: NaN is behind all numbers. Of NaN, 1, 2: q = 0.5 is place 1: 2.0; q = 1 is NaN."""
    out = aggregated([NAN, 1.0, 2.0], pl.Float64, a=ab.quantile("x", 0.5), b=ab.quantile("x", 1.0))
    assert exact(out) == exact([{"a": 2.0, "b": NAN}])


def test_min_and_max_have_nan_last():
    """By M6 NaN is greater than every number: it is the maximum if it is there, the minimum alone.

    2.0, NaN, -inf: min -inf, max NaN. NaN alone: both. Null never.
    """
    both = {"low": ab.min("x"), "high": ab.max("x")}
    out = aggregated([2.0, NAN, None, -INF], pl.Float64, **both)
    assert exact(out) == exact([{"low": -INF, "high": NAN}])
    assert exact(aggregated([NAN], pl.Float64, **both)) == exact([{"low": NAN, "high": NAN}])
    assert exact(aggregated([NAN, INF], pl.Float64, **both)) == exact([{"low": INF, "high": NAN}])
    assert exact(aggregated([None], pl.Float64, **both)) == exact([{"low": None, "high": None}])


def test_min_and_max_of_the_two_zeros_are_zero():
    """-0.0 = 0.0 (M6): whichever spelling is given, it equals 0."""
    out = aggregated([0.0, -0.0], pl.Float64, low=ab.min("x"), high=ab.max("x"))
    assert out == [{"low": 0.0, "high": 0.0}]


def test_min_and_max_of_strings_go_by_bytes_and_of_truths_false_first():
    """In UTF-8: B is 42, a is 61, é is c3 a9, € is e2 82 ac, the smile is f0 9f 98 80.

    So min B, max the smile. In UTF-16 the smile (d83d...) would be less than U+FF5E (ff5e), here
    it is more (ef bd 9e < f0). false < true. Bytes by their bytes, a prefix first.
    """
    strings = ["a", "\uff5e", "é", "\U0001f600", "B"]
    both = {"low": ab.min("x"), "high": ab.max("x")}
    assert aggregated(strings, pl.String, **both) == [{"low": "B", "high": "\U0001f600"}]
    assert aggregated([True, False], pl.Boolean, **both) == [{"low": False, "high": True}]
    assert aggregated([b"a\x00", b"a", b"\xff"], pl.Binary, **both) == [
        {"low": b"a", "high": b"\xff"}
    ]


def test_min_and_max_of_dates_and_decimals():
    """Dates by day; decimals by value: -1.50 < 2.25."""
    both = {"low": ab.min("x"), "high": ab.max("x")}
    days = [date(2024, 2, 29), date(1969, 7, 20)]
    assert aggregated(days, pl.Date, **both) == [{"low": days[1], "high": days[0]}]
    amounts = [Decimal("2.25"), Decimal("-1.50")]
    assert aggregated(amounts, pl.Decimal(10, 2), **both) == [
        {"low": Decimal("-1.50"), "high": Decimal("2.25")}
    ]


def test_instants_of_equal_clock_time_are_different_values():
    """Berlin, 2024-10-27: 00:30 UTC and 01:30 UTC are both shown as 02:30, 00:45 UTC as 02:45.

    By instant (M6) there are three values; the least is 00:30 UTC, the greatest 01:30 UTC, though
    02:45 is a greater clock time than 02:30.
    """
    times = [datetime(2024, 10, 27, h, m) for h, m in ((1, 30), (0, 45), (0, 30))]
    frame = pl.DataFrame({"t": [1, 1, 1], "x": times}).with_columns(
        pl.col("x").dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin")
    )
    program = ab.Program("m10")
    stream = program.read(ab.sources.Records(frame), name="events", event_time="t")
    stream.window(ab.tumbling("10 ms")).agg(
        n=ab.count_distinct("x"), low=ab.min("x"), high=ab.max("x")
    ).write(ab.sinks.Memory("out"))
    (row,) = ab.testing.run_sequential(program)["out"]
    shown = (row["n"], row["low"].astimezone(UTC), row["high"].astimezone(UTC))
    assert shown == (3, times[2].replace(tzinfo=UTC), times[0].replace(tzinfo=UTC))


def test_first_and_last_are_by_order_key_not_by_time_or_partition_number_alone():
    """Epoch first, then partition, then offset; two partitions, epochs of two rows from each.

    Rows 0..6 are in partitions 0, 1, 0, 1, 0, 1, 0. Epoch 0: partition 0 gives rows 0 and 2, then
    partition 1 gives 1 and 3. Epoch 1: partition 0 gives 4 and 6, partition 1 gives 5. So the
    order is 0, 2, 1, 3, 4, 6, 5: first 0, last 5, collect as said. Event times fall from 9 to 3,
    and play no part. No watermark passes 10 before the end of time, so all are in [0, 10).
    """
    rows = [{"t": 9 - i, "x": i} for i in range(7)]
    aggregates = {"first": ab.first("x"), "last": ab.last("x"), "all": ab.collect("x")}
    out = aggregated_rows(rows, None, None, 2, 2, aggregates)
    assert out == [{"first": 0, "last": 5, "all": [0, 2, 1, 3, 4, 6, 5]}]


def test_first_last_and_collect_pass_over_nulls():
    """Aggregates of a column look at its values that are not null: null, 1, null, 2, null.

    first 1, last 2, collect [1, 2]; of nulls alone: null, also for collect and top_k.
    """
    aggregates = {
        "first": ab.first("x"),
        "last": ab.last("x"),
        "all": ab.collect("x"),
        "top": ab.top_k("x", 1),
    }
    out = aggregated([None, 1, None, 2, None], pl.Int64, **aggregates)
    assert out == [{"first": 1, "last": 2, "all": [1, 2], "top": [{"value": 1, "count": 1}]}]
    nothing = aggregated([None, None], pl.Int64, **aggregates)
    assert nothing == [{"first": None, "last": None, "all": None, "top": None}]


def test_count_distinct_has_one_nan_one_zero_and_no_null():
    """0.0 and -0.0 are one, NaN and NaN are one, 1.5 is one, null is none: 3. Of nothing: 0."""
    values = [0.0, -0.0, NAN, -NAN, None, 1.5, 1.5]
    assert aggregated(values, pl.Float64, n=ab.count_distinct("x")) == [{"n": 3}]
    assert aggregated([None], pl.Float64, n=ab.count_distinct("x")) == [{"n": 0}]


def test_count_distinct_tells_strings_apart_by_their_bytes():
    """e with an accent as one character or as two, and an empty string: 3 different values."""
    values = ["\u00e9", "e\u0301", "", "\u00e9"]
    assert aggregated(values, pl.String, n=ab.count_distinct("x")) == [{"n": 3}]


def test_approximations_are_within_their_error():
    """1..100, each twice: 100 different values, the median of 200 values is 50.5.

    approx_distinct within 2 %: 98 to 102. approx_quantile within 1 % of the value: 49.995 to
    51.005. Of nothing: 0 and null.
    """
    out = aggregated(
        [*range(1, 101)] * 2,
        pl.Int64,
        n=ab.approx_distinct("x", error=0.02),
        q=ab.approx_quantile("x", 0.5, error=0.01),
    )
    assert len(out) == 1
    assert 98 <= out[0]["n"] <= 102
    assert 49.995 <= out[0]["q"] <= 51.005
    nothing = aggregated(
        [None], pl.Int64, n=ab.approx_distinct("x"), q=ab.approx_quantile("x", 0.5)
    )
    assert nothing == [{"n": 0, "q": None}]


def test_top_k_gives_the_most_frequent_values_and_ties_by_value():
    """c twice, a twice, B twice, d three times, e once, null often.

    k = 3: d (3), then of those with 2 the smaller by bytes: B, a. k above the number of values:
    all of them.
    """
    values = ["c", "a", "d", "B", None, "d", "c", None, "a", None, "B", "d", "e", None]
    out = aggregated(values, pl.String, top=ab.top_k("x", 3))
    assert out == [
        {
            "top": [
                {"value": "d", "count": 3},
                {"value": "B", "count": 2},
                {"value": "a", "count": 2},
            ]
        }
    ]
    few = aggregated(["b", "a"], pl.String, top=ab.top_k("x", 5))
    assert few == [{"top": [{"value": "a", "count": 1}, {"value": "b", "count": 1}]}]


def test_top_k_counts_nan_as_one_value_and_both_zeros_as_one():
    """NaN twice, 0.0 and -0.0 together twice, 7.0 once: tie of two: the number before NaN."""
    out = aggregated([NAN, -0.0, 7.0, 0.0, NAN], pl.Float64, top=ab.top_k("x", 2))
    (row,) = out
    assert [(entry["value"] + 0.0, entry["count"]) for entry in row["top"][:1]] == [(0.0, 2)]
    assert math.isnan(row["top"][1]["value"])
    assert row["top"][1]["count"] == 2


def test_top_k_by_another_column_gives_the_rows_with_the_greatest():
    """Rows (value, by): (a, 3), (b, 5), (c, 3), (d, null), (null, 9), (e, NaN), (a, 5).

    Rows with a null in either are passed over. By the second column, greatest first: NaN (e), then
    5: a before b by value, then 3: a before c. k = 4: e, a, b, a.
    """
    pairs = [("a", 3.0), ("b", 5.0), ("c", 3.0), ("d", None), (None, 9.0), ("e", NAN), ("a", 5.0)]
    rows = [{"t": 1, "x": x, "y": y} for x, y in pairs]
    out = aggregated_rows(rows, None, None, 1, None, {"top": ab.top_k("x", 4, by="y")})
    shown = [(entry["value"], str(entry["by"])) for entry in out[0]["top"]]
    assert shown == [("e", "nan"), ("a", "5.0"), ("b", "5.0"), ("a", "3.0")]


def test_collect_is_a_list_by_order_key_with_repetitions():
    """3, 1, 3, 2: as they came."""
    assert aggregated([3, 1, 3, 2], pl.Int64, xs=ab.collect("x")) == [{"xs": [3, 1, 3, 2]}]


def test_a_scalar_polars_aggregation_sees_the_whole_group():
    """The range of a group, a filtered sum, a length, and a list.

    Group a: 5, 1, 9; group b: 4. Range: 8 and 0. Sum of those above 4: 14 and 0 (of nothing).
    """
    rows = [{"t": 1, "k": k, "x": x} for k, x in (("a", 5), ("b", 4), ("a", 1), ("a", 9))]
    aggregates = {
        "range": pl.col("x").max() - pl.col("x").min(),
        "big": pl.col("x").filter(pl.col("x") > 4).sum(),
        "n": pl.len(),
        "xs": pl.col("x").sort().implode(),
    }
    out = aggregated_rows(rows, None, "k", 1, None, aggregates)
    assert out == [
        {"k": "a", "range": 8, "big": 14, "n": 3, "xs": [1, 5, 9]},
        {"k": "b", "range": 0, "big": 0, "n": 1, "xs": [4]},
    ]


def test_a_polars_aggregation_that_is_not_one_value_is_refused():
    """pl.col("x") is as long as the window: it is refused where it is written."""
    with pytest.raises(ab.ProgramError):
        aggregated([1, 2], pl.Int64, x=pl.col("x") * 2)


def test_aggregates_take_row_wise_expressions():
    """price x amount summed: 2 x 3 + 5 x 1 = 11; of 2, 5, 100 two are even.

    A row-wise null (amount is null) is passed over like any: the third row adds nothing.
    """
    rows = [
        {"t": 1, "price": 2, "amount": 3},
        {"t": 1, "price": 5, "amount": 1},
        {"t": 1, "price": 100, "amount": None},
    ]
    aggregates = {
        "total": ab.sum(pl.col("price") * pl.col("amount")),
        "even": ab.sum((pl.col("price") % 2 == 0).cast(pl.Int64)),
        "n": ab.count(pl.col("amount") + 1),
        "last": ab.last(pl.col("amount") * 10),
    }
    out = aggregated_rows(rows, None, None, 1, None, aggregates)
    assert out == [{"total": 11, "even": 2, "n": 2, "last": 10}]


def test_an_expression_that_looks_at_other_rows_is_refused():
    """ab.sum(x - x.mean()) is not row by row (M8): refused where it is written."""
    with pytest.raises(ab.ProgramError):
        aggregated([1, 2], pl.Int64, s=ab.sum(pl.col("x") - pl.col("x").mean()))


def test_an_expression_may_give_lists_and_they_are_values_like_any():
    """ "a,b".split and "c".split: the first is [a, b], all are [[a, b], [c], [a, b]]."""
    out = aggregated(
        ["a,b", "c", "a,b"],
        pl.String,
        first=ab.first(pl.col("x").str.split(",")),
        all=ab.collect(pl.col("x").str.split(",")),
        n=ab.count(pl.col("x").str.split(",")),
    )
    assert len(out) == 1
    assert type(out[0]["first"]) is list
    assert out == [{"first": ["a", "b"], "all": [["a", "b"], ["c"], ["a", "b"]], "n": 3}]


def test_a_column_of_lists_can_be_collected():
    """Lists [1], [], null, [2, null]: the null list is no value, an empty list is one."""
    out = aggregated(
        [[1], [], None, [2, None]],
        pl.List(pl.Int64),
        first=ab.first("x"),
        all=ab.collect("x"),
        n=ab.count("x"),
    )
    assert out == [{"first": [1], "all": [[1], [], [2, None]], "n": 3}]


def test_counts_and_sums_of_a_group_of_nulls_are_zero_and_all_else_is_null():
    """Of no non-null value: null; counts and sums 0; count() still counts the rows."""
    out = aggregated(
        [None, None],
        pl.Float64,
        n=ab.count(),
        there=ab.count("x"),
        sum=ab.sum("x"),
        distinct=ab.count_distinct("x"),
        min=ab.min("x"),
        max=ab.max("x"),
        mean=ab.mean("x"),
        var=ab.var("x"),
        first=ab.first("x"),
        last=ab.last("x"),
        median=ab.quantile("x", 0.5),
        top=ab.top_k("x", 2),
        all=ab.collect("x"),
    )
    nulls = dict.fromkeys(["min", "max", "mean", "var", "first", "last", "median", "top", "all"])
    assert out == [{"n": 2, "there": 0, "sum": 0.0, "distinct": 0, **nulls}]


def test_an_aggregation_that_fails_while_it_runs_is_an_error_of_the_run():
    """ "no number" cannot be cast to Int64: the run fails with a RunError, its cause chained."""
    with pytest.raises(ab.RunError):
        aggregated(["1", "no number"], pl.String, s=ab.sum(pl.col("x").cast(pl.Int64)))


def test_a_polars_aggregation_that_fails_while_it_runs_is_an_error_of_the_run():
    """The same inside a scalar Polars aggregation: a RunError, whatever Polars raises."""
    with pytest.raises(ab.RunError):
        aggregated(["1", "no number"], pl.String, s=pl.col("x").cast(pl.Int64).sum())
