"""Rows for people to read: epoch by epoch, whole, and never in the way of a program's own output."""

import io
import json
import pickle
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal

import polars as pl
import pytest

import anabranch as ab
from anabranch.cli import main
from anabranch.cli.interrupts import Interrupts
from anabranch.cli.live import screen
from anabranch.cli.on_spark import _watch
from anabranch.epoch.triggers import available_now
from anabranch.errors import CheckpointError, ProgramError
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import InlineExecutor
from anabranch.state.commits import Commits
from anabranch.testing import MockClock, run_sequential
from tests.runtime.test_inline import run


class Crash(BaseException):
    """The end of a process; nothing catches it."""


def printed(capsys, frame, epoch=0, **options):
    console = ab.sinks.Console(**options)
    console.publish([console.write(frame.to_arrow().to_batches(), epoch, "a")], epoch)
    return capsys.readouterr().out


def views(sink, *, ordered=True):
    program = ab.Program("campaign-views")
    rows = [{"t": 400 * i, "campaign": f"c{i * i % 3}", "price": i / 4} for i in range(60)]
    (
        program.read(ab.sources.Records(rows), event_time="t")
        .window(ab.tumbling("4 s"), by="campaign")
        .agg(views=ab.count(), price=ab.sum("price"))
        .write(sink, name="views", ordered=ordered)
    )
    return program


def numbers(sink, count=6):
    program = ab.Program("numbers")
    program.read(ab.sources.Records([{"n": n} for n in range(count)])).write(sink)
    return program


def test_a_query_prints_its_epochs_in_order(tmp_path, capsys, golden):
    run(views(ab.sinks.Console(rows=4)), tmp_path / "ckpt", lanes=2, rows=20)

    golden("console_query.txt", capsys.readouterr().out)


def test_every_kind_of_value_is_on_one_line(capsys, golden):
    noon = datetime(2024, 6, 1, 12, 0, 0, 5000)
    frame = pl.DataFrame(
        {
            "text": ["plain", "[red]two\nlines[/]", "é 東京 :smile:", None],
            "n": [1, -20, 3, None],
            "x": [0.5, float("nan"), 1e300, None],
            "sure": [True, False, True, None],
            "at": [noon, noon + timedelta(days=1), noon, None],
            "day": [date(2024, 6, 1)] * 3 + [None],
            "money": [Decimal("1.20"), Decimal("-3.05"), Decimal("0.00"), None],
            "raw": [b"\x00a", b"", b"\xff", None],
            "tags": [["a", None], [], ["b\t"], None],
            "place": [{"x": 1, "y": None}, {"x": 2, "y": "z"}, {"x": None, "y": ""}, None],
        }
    )

    golden("console_values.txt", printed(capsys, frame, epoch=12))


def test_long_outputs_are_cut_and_say_how_much_there_is(capsys):
    long = pl.DataFrame({"n": range(1_000), "text": ["abcdefghij" * 5] * 1_000})

    lines = printed(capsys, long).splitlines()

    assert "epoch 0: 1,000 rows" == lines[0]
    assert "980 more rows" == lines[-2]
    assert "|  19 | 19 | abcdefghijabcdefghijabcdefghijabcdefg... |" == lines[-4]
    assert 20 + 7 == len(lines)


@pytest.mark.parametrize(
    ("truncate", "expected"),
    [(None, "abcdefghij"), (10, "abcdefghij"), (9, "abcdef..."), (2, "ab")],
)
def test_how_much_of_a_value_is_printed_may_be_chosen(truncate, expected, capsys):
    frame = pl.DataFrame({"t": ["abcdefghij"]})

    assert f"|   0 | {expected} |" in printed(capsys, frame, truncate=truncate)


def test_a_message_has_no_more_rows_than_are_printed():
    """A commit holds the message, and an epoch may have millions of rows."""
    console = ab.sinks.Console(rows=3)
    few, many = (pl.DataFrame({"n": range(n)}).to_arrow().to_batches() for n in (3, 100_000))
    few, many = console.write(few, 0, "a"), console.write(many, 0, "a")

    assert (3, 100_000) == (few["rows"], many["rows"])
    assert len(many["shown"]) == len(few["shown"])


def test_rows_of_several_tasks_are_one_table(capsys):
    console = ab.sinks.Console(rows=4)
    parts = [pl.DataFrame({"n": part}) for part in ([1, 2, 3], [4, 5], [6])]
    messages = [console.write(part.to_arrow().to_batches(), 0, "a") for part in parts]
    messages.insert(1, console.write([], 0, "a"))

    console.publish(messages, 3)

    out = capsys.readouterr().out
    assert out.startswith("epoch 3: 6 rows\n")
    assert out.endswith("|   3 | 4 |\n+-----+---+\n2 more rows\n\n")


@pytest.mark.parametrize("messages", [[], [{"rows": 0, "shown": ""}]])
def test_an_epoch_without_rows_is_not_printed(messages, capsys):
    ab.sinks.Console().publish(messages, 0)

    assert "" == capsys.readouterr().out


def test_without_order_all_rows_are_printed(tmp_path, capsys):
    run(views(ab.sinks.Console(), ordered=False), tmp_path / "ckpt", lanes=4, rows=60)

    out = capsys.readouterr().out
    expected = run_sequential(views(ab.sinks.Console()), log=tmp_path / "ckpt")["views"]
    assert f"campaign-views / views / epoch 0: {len(expected)} rows\n" in out
    for row in expected:
        cells = [str(value) for value in row.values()]
        assert any(
            [cell.strip() for cell in line.split("|")[2:-1]] == cells for line in out.split("\n")
        )


def test_the_sequential_run_and_explain_print_nothing(capsys):
    program = numbers(ab.sinks.Console())

    assert 6 == len(run_sequential(program)["write-1"])
    assert "write-1" in program.explain()
    program.compile()

    assert "" == capsys.readouterr().out


def test_it_travels():
    console = pickle.loads(pickle.dumps(ab.sinks.Console(rows=1)))

    assert 2 == console.write(pl.DataFrame({"n": [1, 2]}).to_arrow().to_batches(), 0, "a")["rows"]


# Crashes


def epochs_of(out):
    return [line for line in out.splitlines() if "epoch" in line]


@pytest.mark.parametrize("printed_before", [True, False])
def test_what_was_committed_and_not_acknowledged_is_printed_again(
    printed_before, tmp_path, monkeypatch, capsys
):
    """The driver dies with epoch 1, before or behind its printing; epoch 0 is not printed again."""
    publish = Commits.publish
    console = ab.sinks.Console

    def dies(self):
        if self.statistics().last_epoch == 1:
            raise Crash
        publish(self)

    def dies_behind(self, messages, epoch, show=console.publish):
        show(self, messages, epoch)
        if epoch == 1:
            raise Crash

    settings = Settings(available_now(2), tmp_path / "ckpt", 2, slices=8, keep=None, in_flight=1)
    with monkeypatch.context() as patched:
        if printed_before:
            patched.setattr(console, "publish", dies_behind)
        else:
            patched.setattr(Commits, "publish", dies)
        with pytest.raises(Crash):
            live(numbers(console()), settings)
    before = capsys.readouterr().out
    live(numbers(console()), settings)
    after = capsys.readouterr().out

    heads = [f"numbers / write-1 / epoch {epoch}: 2 rows" for epoch in range(3)]
    assert heads[: 2 if printed_before else 1] == epochs_of(before)
    assert heads[1:] == epochs_of(after)
    if printed_before:
        assert before.partition(heads[1])[2] == after.partition(heads[1])[2].partition(heads[2])[0]


def live(program, settings):
    loop = assemble(program.freeze(), settings, InlineExecutor(), MockClock()).loop
    try:
        while not loop.over:
            loop.step()
    finally:
        loop.close()


# Where it is printed


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "shown.py"
    made.write_text(
        "import anabranch as ab\n"
        "program = ab.Program('shown')\n"
        "program.read(ab.sources.Records([{'n': 7}])).write(ab.sinks.Console())\n"
    )
    return made


def test_the_command_line_prints_rows_on_standard_output(file, capsys):
    assert 0 == main(["run", "--sequential", str(file)])

    assert "shown / write-1 / epoch 0: 1 row\n" in capsys.readouterr().out


def test_with_json_rows_go_to_standard_error(file, capsys):
    assert 0 == main(["run", "--sequential", "--json", str(file)])

    said = capsys.readouterr()
    assert json.loads(said.out)["ok"]
    assert "shown / write-1 / epoch 0: 1 row\n" in said.err


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


class Printing:
    """A query that prints a row when it is waited for, and ends."""

    name, recent_progress, status = "q", [], {"message": "Processing new data"}
    is_active = True

    def statistics(self):
        return {"rows": 0, "epochs": 0}

    def exception(self):
        return None

    def await_termination(self, timeout):
        frame = pl.DataFrame({"n": [7]})
        console = ab.sinks.Console()
        console.publish([console.write(frame.to_arrow().to_batches(), 0, "a")], 0)
        self.is_active = False


def test_rows_that_are_led_elsewhere_stay_out_of_the_progress_lines(monkeypatch):
    """`anabranch run shown.py > rows.txt`, at a terminal."""
    out, err = io.StringIO(), Screen()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)

    with screen(MockClock()) as shown:
        _watch([Printing()], shown, Interrupts())

    assert "|   0 | 7 |" in out.getvalue()
    assert "|   0 | 7 |" not in err.getvalue()
    assert "processing new" in err.getvalue()


def test_what_the_output_cannot_hold_is_escaped(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    console = ab.sinks.Console()

    console.publish([console.write(pl.DataFrame({"é": ["ü"]}).to_arrow().to_batches(), 0, "a")], 0)

    assert b"\\xfc" in out.buffer.getvalue()


def test_without_a_standard_output_nothing_is_printed(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    console = ab.sinks.Console()

    console.publish([console.write(pl.DataFrame({"n": [1]}).to_arrow().to_batches(), 0, "a")], 0)


@pytest.mark.parametrize(
    "message", [None, "", {}, {"rows": -1, "shown": ""}, {"rows": 1, "shown": "no Arrow"}]
)
def test_a_message_that_is_none_is_refused(message):
    with pytest.raises(CheckpointError, match="a message of a Console sink cannot be read"):
        ab.sinks.Console().publish([message], 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": 0},
        {"rows": True},
        {"rows": None},
        {"rows": 1.5},
        {"truncate": 0},
        {"truncate": "x"},
    ],
)
def test_nonsense_is_refused_where_it_is_written(wrong):
    with pytest.raises(ProgramError, match=r"^Console: (rows|truncate) must be") as refused:
        ab.sinks.Console(**wrong)
    assert __file__ == refused.value.file
