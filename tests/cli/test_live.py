"""How a run shows its progress: a table on a terminal, lines now and then elsewhere."""

import io
from dataclasses import dataclass, field

from rich.console import Console

from anabranch.cli.live import LINE_S, Figures, screen
from anabranch.testing import MockClock


def progress(epoch, rows, *, lag=90_000.0, state=None):
    operators = [
        {"operatorName": name, "customMetrics": {"stateBytes": size}}
        for name, size in (state or {}).items()
    ]
    return {
        "processedRowsPerSecond": 5000.4,
        "stateOperators": operators,
        "rows": rows,
        "anabranch": {
            "latencyMs": [900.0, 250.0],
            "sources": {"a": {"lagMs": lag}, "b": {"lagMs": None}},
        },
    }


@dataclass
class Told:
    """A query that says what it is told to."""

    name: str
    status: dict = field(default_factory=lambda: {"message": "Initializing sources"})
    recent_progress: list = field(default_factory=list)

    def statistics(self):
        rows = sum(each["rows"] for each in self.recent_progress)
        return {"rows": rows, "epochs": len(self.recent_progress)}


def shown(queries, *, terminal, clock=None, notice=None):
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=terminal, color_system=None)
    with screen(clock or MockClock(), console) as on:
        if notice:
            on.say(notice)
        on.show(queries)
    return out.getvalue()


def test_a_terminal_shows_a_row_for_each_query_and_what_was_said():
    views = Told("views", {"message": "Processing new data"}, [progress(0, 2_000, state={"w": 1})])
    found = shown([views, Told("orders")], terminal=True, notice="finishing")

    for text in ("watermark lag", "views", "2,000", "5,000", "250 ms", "1 min 30 s", "1 byte"):
        assert text in found
    assert "initializing sources" in found
    assert "finishing" in found


def test_state_is_that_of_all_operators_whichever_commit_told_of_them():
    recent = [progress(0, 1, state={"a": 10, "b": 5}), progress(1, 1, state={"a": 20})]

    assert 25 == Figures.of(Told("views", recent_progress=recent)).state_bytes


def test_elsewhere_there_is_a_line_now_and_then_and_only_of_what_changed():
    clock, out = MockClock(), io.StringIO()
    query = Told("views", {"message": "Waiting for data to arrive"})
    with screen(clock, Console(file=out, force_terminal=False, width=20)) as on:
        on.show([query])
        query.recent_progress.append(progress(0, 7, lag=None))
        clock.advance(LINE_S)
        on.show([query])
        on.show([query])
        clock.advance(LINE_S)
        on.show([query])
        query.recent_progress.append(progress(1, 8, state={"w": 2048}))
        clock.advance(LINE_S)
        on.show([query])

    first, second = out.getvalue().splitlines()
    assert (
        "views: 7 rows, 5,000 rows/s, 1 epochs, latency 250 ms, state 0 bytes, "
        "waiting for data to arrive"
    ) == first
    assert second.startswith("views: 15 rows")
    assert "watermark lag 1 min 30 s" in second
    assert "state 2.0 kB" in second


def test_an_error_of_many_lines_is_one_cell():
    failed = Told("views", {"message": "Failed: it is\n  so  mend it"})

    assert "failed: it is" == Figures.of(failed).doing
