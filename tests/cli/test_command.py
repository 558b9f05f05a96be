"""The command line: results on standard output, everything else on standard error."""

import json

import pytest

from anabranch.cli import main

PROGRAM = """
import polars as pl
import anabranch as ab

print("imported as", __name__)
program = ab.Program("doubles")
numbers = program.read(ab.sources.Records([{"n": n} for n in range(5)]))
numbers.select(n=pl.col("n") * 2).write(ab.sinks.Files("%s", format="parquet"))
"""


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "doubles.py"
    file.write_text(PROGRAM % (tmp_path / "out"))
    return file


def test_run_writes_to_the_sinks_and_says_so(program, tmp_path, capsys):
    import polars as pl

    assert 0 == main(["run", "--sequential", str(program)])

    assert "doubles: 1 epoch in" in capsys.readouterr().out
    assert [0, 2, 4, 6, 8] == pl.read_parquet(tmp_path / "out" / "*.parquet")["n"].to_list()


def test_run_says_that_the_oracle_ran(program, capsys):
    main(["run", "--sequential", str(program)])

    assert "sequential run by the oracle" in capsys.readouterr().err


def test_json_is_one_object_on_standard_output(program, capsys):
    assert 0 == main(["run", "--sequential", str(program), "--json"])

    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert (True, "oracle") == (facts["ok"], facts["runtime"])
    assert [("doubles", {"write-1": 5})] == [(p["program"], p["rows"]) for p in facts["programs"]]
    assert "imported as anabranch_program_doubles" in said.err


def test_a_second_run_into_the_same_files_is_refused_and_changes_nothing(program, tmp_path, capsys):
    main(["run", "--sequential", str(program)])
    before = sorted(file.read_bytes() for file in (tmp_path / "out").glob("*.parquet"))
    program.write_text(program.read_text().replace("* 2", "* 3"))
    capsys.readouterr()

    assert 1 == main(["run", "--sequential", str(program)])

    assert "RunError" in capsys.readouterr().err
    assert before == sorted(file.read_bytes() for file in (tmp_path / "out").glob("*.parquet"))


def test_explain_tells_the_program(program, capsys):
    assert 0 == main(["explain", str(program)])

    out = capsys.readouterr().out
    assert "doubles: 3 operators in 2 regions, 1 parallel" in out
    assert "select-1  <- read-1" in out


def test_explain_as_json_has_every_operator_in_one_region(program, capsys):
    assert 0 == main(["explain", str(program), "--json"])

    facts = json.loads(capsys.readouterr().out)
    names = [op["name"] for op in facts["operators"]]
    regions = [name for region in facts["regions"] for name in region["operators"]]
    assert ["read-1", "select-1", "write-1"] == names == regions


@pytest.mark.parametrize(
    ("form", "first"), [("text", "doubles: 3"), ("mermaid", "flowchart LR"), ("json", "{")]
)
def test_explain_takes_a_format(program, capsys, form, first):
    assert 0 == main(["explain", str(program), "--format", form])

    assert f"\n{first}" in capsys.readouterr().out


def test_a_failure_is_an_object_too(tmp_path, capsys):
    file = tmp_path / "bad.py"
    file.write_text("import anabranch as ab\nprogram = ab.Program('p')\nprogram.read(7)\n")

    assert 1 == main(["run", str(file), "--json"])

    error = json.loads(capsys.readouterr().out)["error"]
    assert ("ProgramError", str(file), 3) == (error["type"], error["file"], error["line"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import nothing_like_it\n", "could not be imported: ModuleNotFoundError"),
        ("def (\n", "could not be imported: SyntaxError"),
        ("x = 1\n", "has 0 programs, and one is needed"),
        ("import anabranch as ab\na = ab.Program('a')\nb = ab.Program('b')\n", "has 2 programs"),
    ],
)
def test_a_file_that_has_no_program_says_why(tmp_path, capsys, text, expected):
    file = tmp_path / "some.py"
    file.write_text(text)

    assert 1 == main(["run", str(file)])

    assert expected in capsys.readouterr().err


def test_a_program_is_found_by_name(tmp_path, capsys):
    file = tmp_path / "two.py"
    file.write_text(
        "import anabranch as ab\n"
        "first, second = ab.Program('one'), ab.Program('two')\n"
        "for each in (first, second):\n"
        "    each.read(ab.sources.Records([{'n': 1}])).write(ab.sinks.Memory('out'))\n"
    )

    assert 0 == main(["run", "--sequential", f"{file}:second"])
    assert "two: 1 epoch" in capsys.readouterr().out
    assert 1 == main(["run", f"{file}:secnd"])
    assert "did you mean 'second'?" in capsys.readouterr().err


def test_usage_errors_are_two():
    with pytest.raises(SystemExit) as left:
        main(["walk"])
    assert 2 == left.value.code


@pytest.mark.spark
@pytest.mark.slow
def test_run_on_spark_writes_the_same(program, tmp_path, capsys):
    import polars as pl

    assert 0 == main(["run", str(program), "--master", "local[2]", "--json"])

    facts = json.loads(capsys.readouterr().out)
    assert ("spark", 5) == (facts["runtime"], facts["programs"][0]["rows"])
    assert [0, 2, 4, 6, 8] == pl.read_parquet(tmp_path / "out" / "*.parquet")["n"].to_list()


def test_what_the_runtime_refuses_is_run_by_the_oracle_and_the_reason_told(tmp_path, capsys):
    file = tmp_path / "hidden.py"
    file.write_text(
        "import anabranch as ab\n"
        "program = ab.Program('hidden')\n"
        "clicks = program.read(ab.sources.Records([{'t': 1}]), event_time='t')\n"
        "clicks.rename({'t': '__ab_time'}).write(ab.sinks.Memory('out'))\n"
    )

    assert 0 == main(["run", str(file)])

    said = capsys.readouterr()
    assert "a column is called '__ab_time': names that begin with __ab_ are taken" in said.err
    assert "hidden: 1 epoch in" in said.out


@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_shows_a_program_and_its_results(capsys):
    assert 0 == main(["demo", "--master", "local[2]"])

    out = capsys.readouterr().out
    assert "results: 100 rows" in out
    assert "the same rows, same order" in out
