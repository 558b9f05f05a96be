"""A directory that grows and shrinks under a query: files are read once, in the order they are seen."""

import pytest

import anabranch as ab
from anabranch.api.starting import start
from anabranch.errors import RunError
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import assert_same_rows, check_source, run_sequential
from tests.connectors.test_unread_runs import SCHEMA, WRITERS, give, good, torn
from tests.runtime.test_inline import written


def program(home, suffix, **options):
    made = ab.Program("growing")
    source = ab.sources.Files(home / "in", format=suffix, schema=SCHEMA)
    read = made.read(source, name="in", event_time="t", lateness="1 h", **options)
    read.write(ab.sinks.Files(home / "out", format="parquet"), name="out")
    return made


class Running:
    """A query in this process, which looks into its directory every millisecond."""

    def __init__(self, home, suffix, **options):
        settings = Settings(ab.epochs("1 ms", max_rows=3), home / "ckpt", 1, slices=4, keep=None)
        made = program(home, suffix, **options)
        self._home, self._query = home, start(made.freeze(), settings, InlineExecutor())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._query.stop()

    def numbers(self):
        """What was written once all that is there now has been read."""
        self._query.process_all_available()
        return [row["n"] for row in written(self._home / "out")]


@pytest.fixture(params=list(WRITERS))
def suffix(request):
    return request.param


def test_files_are_read_in_the_order_in_which_they_are_seen(suffix, tmp_path):
    give(tmp_path, f"m.{suffix}", good(0))
    with Running(tmp_path, suffix) as query:
        assert list(range(4)) == query.numbers()
        give(tmp_path, f"a.{suffix}", good(4))
        assert list(range(8)) == query.numbers()
        give(tmp_path, f"m0.{suffix}", good(8))
        assert list(range(12)) == query.numbers()
    give(tmp_path, f"Z.{suffix}", good(12))
    with Running(tmp_path, suffix) as query:
        assert list(range(16)) == query.numbers()

    expected = run_sequential(program(tmp_path, suffix), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


def test_a_file_whose_rows_are_committed_may_go_under_a_query_and_between_two(suffix, tmp_path):
    give(tmp_path, f"a.{suffix}", good(0, 5))
    with Running(tmp_path, suffix) as query:
        query.numbers()
        (tmp_path / "in" / f"a.{suffix}").unlink()
        give(tmp_path, f"b.{suffix}", good(5))
        assert list(range(9)) == query.numbers()
    (tmp_path / "in" / f"b.{suffix}").unlink()
    give(tmp_path, f"c.{suffix}", good(9))
    with Running(tmp_path, suffix) as query:
        assert list(range(13)) == query.numbers()


def test_a_file_that_goes_before_its_rows_are_committed_ends_the_run_until_it_is_back(
    suffix, tmp_path
):
    """What it held is not known, so that nobody can say how many rows are left out."""
    give(tmp_path, f"a.{suffix}", good(0))
    give(tmp_path, f"b.{suffix}", good(4))
    source = ab.sources.Files(tmp_path / "in", format=suffix, schema=SCHEMA)
    (split,) = source.plan({0: [1, 0]}, {0: source.latest()[0]})
    (tmp_path / "in" / f"b.{suffix}").unlink()
    with pytest.raises(RunError, match=rf"b\.{suffix} has vanished"):
        source.frame(split)

    give(tmp_path, f"b.{suffix}", good(4))
    assert 4 == source.frame(split).height


def test_bad_files_among_those_that_come_are_passed_over_while_the_query_runs(suffix, tmp_path):
    give(tmp_path, f"g.{suffix}", good(25, 2))
    with Running(tmp_path, suffix, on_error="skip") as query:
        assert [25, 26] == query.numbers()
        torn(tmp_path, suffix)
        read = query.numbers()

    # Of a text that lost its end the rows before it can be read.
    whole = range(17, 20) if suffix in ("csv", "jsonl") else ()
    assert [25, 26, *range(5), *range(13, 17), *whole, *range(21, 25)] == read
    expected = run_sequential(program(tmp_path, suffix, on_error="skip"), log=tmp_path / "ckpt")
    assert_same_rows(expected["out"], written(tmp_path / "out"))


def test_a_bad_file_that_is_mended_before_its_row_is_committed_is_read(suffix, tmp_path):
    """Nothing of it was in the log: the next run finds what it is then, whatever `on_error` is."""
    give(tmp_path, f"a.{suffix}", good(0))
    give(tmp_path, f"b.{suffix}", good(4).rename({"n": "m"}))
    with (
        pytest.raises(RunError, match=r"b\.\w+ cannot be read"),
        Running(tmp_path, suffix) as query,
    ):
        query.numbers()
    give(tmp_path, f"b.{suffix}", good(4))
    with Running(tmp_path, suffix, on_error="skip") as query:
        assert list(range(8)) == query.numbers()


@pytest.mark.slow
def test_a_directory_with_bad_files_keeps_the_contract_while_it_grows(suffix, tmp_path):
    torn(tmp_path, suffix)

    def make():
        return ab.sources.Files(tmp_path / "in", format=suffix, schema=SCHEMA)

    def grow():
        give(tmp_path, f"0.{suffix}", good(30).drop("n"))
        give(tmp_path, f"1.{suffix}", good(34))

    check_source(make(), advance=grow, again=make, event_time="t")
