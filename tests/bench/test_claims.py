"""The table of claims: what the papers say beside what results files say, and nothing else."""

import json

import pytest

from bench.benches import claims
from bench.claims.claim import Claim, Place, judged
from bench.harness import results
from bench.harness.report import Row
from bench.harness.stand import Settings, Stand

ROW = Row("case", "throughput", "rows/s", "ours", 300.0, 290.0, 310.0, 3, "theirs", 1.5)
CLAIM = Claim(
    "fast", "klink", "It is fast.", "2x", "section 1", "fast", "As there.",
    value=2.0, ours=Place("some", "case", "throughput", "ours", "theirs", "ratio"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "better", "verdict"),
    [
        (2.0, "more", "missed"),
        (1.5, "more", "reached"),
        (1.0, "less", "missed"),
        (None, "more", "told"),
    ],
)
def test_a_claim_is_judged_by_its_row(value, better, verdict):
    told = {"id": "a", "paper": "klink", "claim": "", "figure": "", "where": "", "quote": ""}
    place = {"bench": "some", "case": "case", "metric": "throughput", "system": "ours"}
    place |= {"against": "theirs", "take": "ratio"}
    claim = Claim.of({**told, "comparable": "", "value": value, "better": better, "ours": place})

    found = judged(claim, {"some": [ROW]})

    assert (1.5, verdict) == (found.ours, found.verdict)


def test_what_nobody_measured_is_not_reached_and_not_missed():
    found = judged(CLAIM, {"some": [], "other": [ROW]})

    assert "not measured" == found.verdict
    assert ["paper"] == [row.system for row in claims.rows_of(found)]
    assert claims.line(found).startswith("NOT MEASURED fast: It is fast. There: 2x (Farhat")


def test_a_line_says_both_figures_and_where_they_are_from():
    line = claims.line(judged(CLAIM, {"some": [ROW]}))

    expected = "MISSED fast: It is fast. There: 2x (Farhat, Daudjee, Querzoni 2021, section 1). "
    expected += "Here: 1.5 x theirs (some, case, throughput, ours). As there."
    assert expected == line


def test_every_claim_that_names_a_row_names_one_that_a_benchmark_can_give():
    """Of each paper several, each with its place there; a row that is named is in the results."""
    known = claims.known_rows(results.FOLDER)
    found = claims.claims()
    assert 30 <= len(found) == len({claim.id for claim in found})
    assert claims.PAPERS.keys() == {claim.paper for claim in found}
    lacking = {
        claim.id
        for claim in found
        if claim.ours is not None and judged(claim, known).ours is None and not claim.wanted
    }
    assert set() == lacking


def test_the_newest_results_count(tmp_path):
    for name, date, value in (("b-old", "2026-01-02", 1.0), ("a-new", "2026-01-03", 2.0)):
        row = {"case": "c", "metric": "m", "unit": "s", "system": "x", "value": value}
        row |= {"low": value, "high": value, "runs": 1, "against": None, "ratio": None}
        report = {"bench": "b", "header": {"date": date}, "rows": [row]}
        (tmp_path / f"{name}.json").write_text(json.dumps(report), encoding="utf-8")

    assert [2.0, 1.0] == [row.value for row in claims.known_rows(tmp_path)["b"]]


def test_the_bench_measures_nothing_and_tells_every_claim():
    stand = Stand(Settings(runs=1))

    rows = claims.measure(stand)

    assert {claim.id for claim in claims.claims()} == {
        line.split(":")[0].split()[-1] for line in stand.notes[1:]
    }
    assert {"figure", "reached"} == {row.metric for row in rows}
