"""Many rows are grouped by another engine, and bags counted before there are lists: all the same."""

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels.bundle import TIME
from anabranch.kernels.windows import tally, windows
from tests.kernels.test_aggregates import lowered

AGGREGATES = {
    "count": lambda: {"n": ab.count()},
    "sum": lambda: {"s": ab.sum("x")},
    "top": lambda: {"top": ab.top_k("w", 2)},
    "quantile": lambda: {"q": ab.approx_quantile("x", 0.5)},
    "both": lambda: {"top": ab.top_k("w", 2), "n": ab.count()},
    "greatest": lambda: {"top": ab.top_k("w", 2, by="x")},
}
SCHEMA = {"k": pl.String, "w": pl.String, "x": pl.Int64}
TEXTS = st.sampled_from(["", "a", "b", "a longer text than is kept in a view", None])
ROWS = st.lists(
    st.tuples(TEXTS, TEXTS, st.none() | st.integers(-3, 3), st.integers(0, 2_999_999)),
    min_size=1,
    max_size=40,
)


def results(made, bundles):
    """What windows give for bundles of rows, each of one epoch; and the slices of partials."""
    partials = [made.partials(bundle, 8) for bundle in bundles]
    whole = made.merged(partials)
    found = whole.select(windows.START, *made.names).with_columns(**made.finished(whole))
    sliced = pl.concat(partials).select(windows.SLICE, windows.START, *made.names, windows.ROWS)
    return tuple(sorted(map(repr, frame.rows())) for frame in (found, sliced))


@pytest.mark.parametrize("by", [None, "k"])
@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("window", [ab.tumbling("1 s"), ab.sliding("1 s", "2 s")], ids=str)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(ROWS, st.integers(0, 40))
def test_many_rows_give_what_few_do(monkeypatch, window, name, by, rows, cut):
    made = lowered(SCHEMA, window, by, **AGGREGATES[name]())
    frame = pl.DataFrame(rows, schema={**SCHEMA, TIME: pl.Int64}, orient="row")
    bundles = [part for part in (frame.head(cut), frame.slice(cut)) if part.height]
    few = results(made, bundles)

    with monkeypatch.context() as patched:
        patched.setattr(tally, "MANY", 1)
        many = results(made, bundles)

    assert few == many


@pytest.mark.parametrize("name", ["n", "start", "slice", "k0", "value"])
def test_a_column_may_be_called_as_those_of_partials_are(monkeypatch, name):
    frame = pl.DataFrame({name: ["a", "b", "a"], TIME: [0, 1, 2_000_000]})
    each = lowered({name: pl.String}, ab.tumbling("1 s"), name, x=ab.count())
    most = lowered({name: pl.String}, ab.tumbling("1 s"), None, x=ab.top_k(name, 1))
    few = [results(made, [frame]) for made in (each, most)]

    monkeypatch.setattr(tally, "MANY", 1)

    assert few == [results(made, [frame]) for made in (each, most)]
