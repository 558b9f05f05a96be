from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest

from bench.harness.machine import commit, header
from bench.harness.report import Header, Report, Row, Series
from bench.harness.results import as_json_text, save, series_from
from bench.harness.table import text

HEADER = Header(
    cores=2,
    memory_gib=23.4,
    cpu="a CPU",
    os="Linux 6.1",
    python="3.11.2",
    polars="2.1.0",
    pyarrow="26.0.1",
    pyspark=None,
    anabranch="0.1.0",
    commit="1234567-dirty",
    date="2024-02-29",
)
ALONE = Row("views", "throughput", "rows/s", "polars", 200.0, 190.0, 210.0, 5)
BESIDE = Row("views", "throughput", "rows/s", "oracle", 50.0, 40.0, 60.0, 5, "polars", 0.25)
REPORT = Report("ysb", HEADER, (BESIDE, ALONE), ("the oracle is the meaning",))


def test_the_json_is_the_contract():
    found = json.loads(as_json_text(REPORT))

    assert ["bench", "header", "rows"] == list(found)
    assert "ysb" == found["bench"]
    assert [
        {
            "case": "views",
            "metric": "throughput",
            "unit": "rows/s",
            "system": "oracle",
            "value": 50.0,
            "low": 40.0,
            "high": 60.0,
            "runs": 5,
            "against": "polars",
            "ratio": 0.25,
        },
        {
            "case": "views",
            "metric": "throughput",
            "unit": "rows/s",
            "system": "polars",
            "value": 200.0,
            "low": 190.0,
            "high": 210.0,
            "runs": 5,
            "against": None,
            "ratio": None,
        },
    ] == found["rows"]


def test_the_header_says_machine_versions_commit_and_date():
    names = "cores memory_gib cpu os python polars pyarrow pyspark anabranch commit date"

    assert names.split() == list(json.loads(as_json_text(REPORT))["header"])


def test_this_machine_has_a_header_without_paths():
    found = header()

    assert found.cores >= 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.date)
    for name in ("cpu", "os", "python", "polars"):
        assert getattr(found, name)
        assert "/home" not in getattr(found, name)


def test_a_folder_without_commits_has_no_commit(tmp_path):
    assert commit(tmp_path) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"value": float("nan")}, "a value is not finite"),
        ({"high": float("inf")}, "a value is not finite"),
        ({"low": 201.0}, "200.0 is not between 201.0 and 210.0"),
        ({"runs": 0}, "no runs"),
        ({"ratio": 1.0}, "a ratio to nothing"),
        ({"against": "polars", "ratio": 1.0}, "compared with itself"),
        ({"against": "flink", "ratio": float("inf")}, "the ratio is not finite"),
    ],
)
def test_a_row_that_says_nonsense_is_refused(change, why):
    with pytest.raises(ValueError, match=rf"^views/throughput/polars: {re.escape(why)}$"):
        replace(ALONE, **change)


def test_a_comparison_with_what_was_not_measured_is_refused():
    with pytest.raises(ValueError, match=r"'polars' was not measured there$"):
        Report("ysb", HEADER, (BESIDE,))


def test_two_rows_of_the_same_are_refused():
    with pytest.raises(ValueError, match=r"measured twice$"):
        Report("ysb", HEADER, (ALONE, ALONE))


def test_the_text_has_header_rows_and_notes():
    found = text(REPORT)

    assert found.startswith("bench ysb\n")
    assert "cpu         a CPU\n" in found
    assert "pyspark" not in found
    assert re.search(r"oracle +50 +40 +60 +rows/s +5 +0.25 x polars", found)
    assert found.endswith("Note: the oracle is the meaning\n")


def test_a_line_of_the_table_is_whole_and_notes_are_broken():
    long = replace(BESIDE, case="c" * 20, system="s" * 24, against="p" * 24)
    other = replace(ALONE, case="c" * 20, system="p" * 24)
    found = text(Report("ysb", HEADER, (long, other), ("word " * 40,)))

    assert re.search(r"s{24} +50 +40 +60 +rows/s +5 +0.25 x p{24}\n", found)
    assert len(found.splitlines()[-2]) <= 120


def test_both_results_files_are_written_and_nothing_else(tmp_path):
    folder = tmp_path / "results"

    save(REPORT, folder)

    assert ["ysb.json", "ysb.txt"] == sorted(file.name for file in folder.iterdir())
    assert as_json_text(REPORT) == (folder / "ysb.json").read_text()
    assert text(REPORT) == (folder / "ysb.txt").read_text()


def test_saving_replaces_what_was_there(tmp_path):
    (tmp_path / "ysb.json").write_text("old")

    save(REPORT, tmp_path)

    assert as_json_text(REPORT) == (tmp_path / "ysb.json").read_text()


def test_a_failed_write_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch):
    save(REPORT, tmp_path)
    before = (tmp_path / "ysb.json").read_text()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save(replace(REPORT, rows=(ALONE,)), tmp_path)

    assert ["ysb.json", "ysb.txt"] == sorted(file.name for file in tmp_path.iterdir())
    assert before == (tmp_path / "ysb.json").read_text()


def test_series_are_in_a_file_of_their_own_and_not_in_the_contracts(tmp_path):
    series = (
        Series("load", "within", "one", ((0.5, 0.0), (1.0, 1.0))),
        Series("load", "within", "two", ((2.0, 1.0),)),
    )

    written = save(replace(REPORT, series=series), tmp_path, "named")

    assert ["named.json", "named.txt", "named.series.json"] == [file.name for file in written]
    assert list(series) == series_from(tmp_path / "named.series.json")
    assert as_json_text(REPORT) == (tmp_path / "named.json").read_text()


@pytest.mark.parametrize("points", [(), ((1.0, math.nan),), ((math.inf, 1.0),)])
def test_what_cannot_be_drawn_is_refused(points):
    with pytest.raises(ValueError, match="no points"):
        Series("load", "within", "one", points)
