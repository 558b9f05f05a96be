"""Texts counted by their codes are counted as texts."""

from __future__ import annotations

import io

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from anabranch.kernels.windows.codes import CodedTexts
from anabranch.kernels.windows.panes import Run

short = st.text(max_size=7).filter(lambda text: len(text.encode()) <= 7)
long = st.text(min_size=13, max_size=20)
pools = st.lists(short, min_size=1, max_size=5) | st.lists(long, min_size=1, max_size=5)
places = st.lists(st.integers(0, 4), min_size=1, max_size=60)


def by_group(texts: pl.Series, runs: list[Run]) -> pl.DataFrame:
    parts = [
        texts.slice(begin, end - begin).to_frame("value").with_columns(pl.lit(start).alias("start"))
        for start, begin, end in runs
    ]
    found = pl.concat(parts).group_by("start", "value").agg(pl.len().cast(pl.Int64).alias("n"))
    return found.cast({"start": pl.Int64})


def require_same(texts: pl.Series, coded: CodedTexts) -> None:
    middle = len(texts) // 2
    for runs in ([(7, 0, len(texts))], [(0, 0, middle), (10, middle, len(texts))]):
        filled = [run for run in runs if run[1] < run[2]]
        found = coded.counted(filled)
        expected = by_group(texts, filled)
        assert_frame_equal(expected, found, check_row_order=False, check_column_order=False)


@given(pools, places, st.integers(0, 60), st.booleans())
def test_counts_are_those_of_texts(
    pool: list[str], picked: list[int], cut: int, in_chunks: bool
) -> None:
    known = pl.Series("text", pool)
    texts = known.gather([at % len(pool) for at in picked])
    if in_chunks:
        # Each chunk has buffers of its own: what is equal is kept twice.
        texts = pl.concat([texts.head(cut), pl.Series("text", texts.slice(cut).to_list())])
    for some in (texts, texts[1:]):
        coded = CodedTexts.of(some)
        if coded is not None:
            require_same(some, coded)
        elif len(some):
            assert len(pool[0].encode()) > 12  # kept more often than once


def test_texts_of_a_dictionary_have_codes() -> None:
    ids = [f"{number:036}" for number in range(20)] * 50
    file = io.BytesIO()
    pl.DataFrame({"text": ids}).write_parquet(file, row_group_size=300)
    file.seek(0)
    texts = pl.read_parquet(file)["text"].filter(pl.Series([True, False, True, True] * 250))

    coded = CodedTexts.of(texts)

    assert coded is not None
    require_same(texts, coded)


def test_others_have_none() -> None:
    assert CodedTexts.of(pl.Series([], dtype=pl.String)) is None
    assert CodedTexts.of(pl.Series(["a", None])) is None
    assert CodedTexts.of(pl.Series(["a", "of eight"])) is None
    assert CodedTexts.of(pl.Series(["of thirteen..", "a"])) is None
    assert CodedTexts.of(pl.Series(["x" * 2**16] * 3)) is None
    assert CodedTexts.of(pl.Series([f"{number:036}" for number in range(9)])) is None
