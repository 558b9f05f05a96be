from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from bench.cli import main
from bench.harness import registry
from bench.harness.statistics import Metric, bare


@pytest.fixture
def tiny(monkeypatch):
    """A benchmark called tiny that gives its number of runs, and fails without any."""

    def measure(stand):
        samples = stand.race("case", {"system": lambda: float(stand.settings.runs)})
        return [bare(Metric("case", "runs", "runs"), "system", samples["system"])]

    def fail(stand):
        raise RuntimeError("no luck")

    benches = {"tiny": measure, "broken": fail}
    monkeypatch.setattr(registry, "descriptions", lambda: dict.fromkeys(benches, "Tiny."))
    for name, function in benches.items():
        module = SimpleNamespace(measure=function, NOTES=("small",))
        monkeypatch.setitem(sys.modules, f"bench.benches.{name}", module)


def test_an_unknown_name_is_a_usage_error_that_says_what_exists(capsys):
    assert 2 == main(["nope"])

    out, err = capsys.readouterr()
    assert "" == out
    assert (
        "bench: no benchmark 'nope'; there are bundles, claims, compile, continuous, elastic, epochs, kernels, lrb, nyt, ordering, recovery, scale, sessions, shapes, soak, start, streambox, tpcxbb, ysb\n"
        == err
    )


@pytest.mark.parametrize("arguments", [[], ["--list"]])
def test_without_a_name_it_says_which_there_are(arguments, capsys):
    assert 0 == main(arguments)

    lines = capsys.readouterr().out.splitlines()
    assert [
        "bundles",
        "claims",
        "compile",
        "continuous",
        "elastic",
        "epochs",
        "kernels",
        "lrb",
        "nyt",
        "ordering",
        "recovery",
        "scale",
        "sessions",
        "shapes",
        "soak",
        "start",
        "streambox",
        "tpcxbb",
        "ysb",
    ] == [line.split()[0] for line in lines]
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("arguments", [["tiny", "--runs", "0"], ["--json"], ["tiny", "--what"]])
def test_a_wrong_call_is_a_usage_error(arguments, tiny, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)

    assert 2 == stopped.value.code
    assert "" == capsys.readouterr().out


def test_help_is_no_error_and_lists_benchmarks(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])

    assert 0 == stopped.value.code
    assert "ysb" in capsys.readouterr().out


def test_json_is_alone_on_standard_output(tiny, tmp_path, capsys):
    assert 0 == main(["tiny", "--json"], tmp_path)

    out, err = capsys.readouterr()
    assert "tiny" == json.loads(out)["bench"]
    assert "Note: small" in err


def test_without_json_a_table_is_on_standard_output(tiny, tmp_path, capsys):
    assert 0 == main(["tiny"], tmp_path)

    assert "Note: small" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "runs"), [([], 5), (["--quick"], 3), (["--runs", "7"], 7)])
def test_runs(arguments, runs, tiny, tmp_path, capsys):
    main(["tiny", "--json", *arguments], tmp_path)

    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (runs, float(runs)) == (row["runs"], row["value"])


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        ([], ["tiny.json", "tiny.txt"]),
        (["--quick"], []),
        (["--quick", "--save"], ["tiny.json", "tiny.txt"]),
    ],
)
def test_results_are_written_unless_it_was_quick(arguments, files, tiny, tmp_path, capsys):
    main(["tiny", *arguments], tmp_path)

    assert files == sorted(file.name for file in tmp_path.iterdir())


def test_the_results_file_is_what_was_printed(tiny, tmp_path, capsys):
    main(["tiny", "--json"], tmp_path)

    assert capsys.readouterr().out == (tmp_path / "tiny.json").read_text()


def test_a_benchmark_that_fails_leaves_no_result(tiny, tmp_path, capsys):
    assert 1 == main(["broken", "--json"], tmp_path)

    out, err = capsys.readouterr()
    assert "" == out
    assert "no luck" in err
    assert [] == list(tmp_path.iterdir())


def test_a_case_that_a_benchmark_does_not_have_is_a_usage_error(capsys):
    assert 2 == main(["elastic", "--quick", "rescale-64mb", "nope"])
    assert 2 == main(["compile", "nope"])

    out, err = capsys.readouterr()
    assert "" == out
    assert "bench: no case 'nope'; elastic has rescale-*, structured-*, checkpoint-*," in err
    assert "bench: no case 'nope'; compile has none to choose" in err
