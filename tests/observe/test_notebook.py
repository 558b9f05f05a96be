"""What notebooks show: plain HTML, small, and whatever things are called it stays text."""

import re
from html.parser import HTMLParser
from itertools import combinations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.starting import start
from anabranch.compiler.explain.layout import drawing
from anabranch.epoch.machine import Stage
from anabranch.epoch.triggers import available_now
from anabranch.epoch.watermarks import SourceTime
from anabranch.markup import element, lines, page, table
from anabranch.observe.facts import EpochFacts, Facts, SourceFacts
from anabranch.observe.notebook import as_html
from anabranch.observe.why import why
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from tests.compiler import programs

PATIENCE_S = 60
EVIL = """<script>alert("1")<b title='&lt;'>"""
"""Names of programs and operators may not hold a slash; anything else they may."""
TAGS = {"div", "p", "b", "small", "span", "pre", "table", "thead", "tbody", "tr", "th", "td"}
SHAPES = {"svg", "g", "rect", "path", "text", "title"}
NAMES = {"style", "border", "class", "role", "width", "height", "viewbox", "x", "y", "rx", "d"} | {
    *("fill", "fill-opacity", "stroke", "stroke-dasharray"),
    *("font-family", "font-size", "font-weight"),
}
COLOURS = {"none", "currentColor"}
"""Or six digits."""


class Seen(HTMLParser):
    """Reads HTML, refuses what may not be in it, and keeps its text."""

    def __init__(self, html, also=frozenset()):
        super().__init__()
        self.open, self.text, self.allowed = [], "", TAGS | SHAPES | also
        self.feed(html)
        self.close()
        assert [] == self.open

    def handle_starttag(self, tag, attributes):
        assert tag in self.allowed
        assert {name for name, _ in attributes} <= NAMES
        assert all("url" not in value for _, value in attributes)
        for name, value in attributes:
            assert name != "style" or "color" not in value
            if name in {"fill", "stroke"}:
                assert value in COLOURS or re.fullmatch(r"#[0-9a-f]{6}", value)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_a_plan(golden):
    html = clicks().compile()._repr_html_()

    golden("notebook_plan.html", html + "\n")
    assert "clicks: 4 operators in 3 regions, 2 parallel" in Seen(html).text


def clicks(name="clicks", operator="views", key="user"):
    program = ab.Program(name)
    schema = {"t": pl.Int64, key: pl.String}
    read = program.read(ab.sources.Records([], schema=schema), name="in", event_time="t")
    kept = read.filter(pl.col(key) != "", name=operator)
    out = kept.window(ab.tumbling("10 s"), by=key).agg(n=ab.count())
    out.write(ab.sinks.Memory("out"), name="out")
    return program


@pytest.mark.parametrize("name", programs.ALL)
def test_every_plan_is_plain_and_small(name):
    plan = programs.ALL[name]().compile()

    html = plan._repr_html_()

    text = Seen(html).text
    assert all(op.name in text for op in plan.graph.operators)
    assert len(html) < 1000 + 2500 * len(plan.graph.operators)


@pytest.mark.parametrize("name", programs.ALL)
def test_in_a_drawing_nothing_overlaps_and_each_operator_is_in_its_region(name):
    plan = programs.ALL[name]().compile()

    drawn = drawing(plan)

    groups = {group.id: group for group in drawn.groups}
    boxes = {box.operator: box.at for box in drawn.boxes}
    assert [region.id for region in plan.regions] == list(groups)
    assert [region.parallel for region in plan.regions] == [each.parallel for each in drawn.groups]
    for one, other in combinations([group.at for group in drawn.groups], 2):
        assert not one.meets(other)
    for one, other in combinations(boxes.values(), 2):
        assert not one.meets(other)
    for number, region in plan.homes().items():
        assert inside(boxes[number], groups[region.id].at)
    for group in drawn.groups:
        assert 0 < group.at.x < group.at.x + group.at.width < drawn.width
        assert 0 < group.at.y < group.at.y + group.at.height < drawn.height


def inside(box, group):
    return (
        group.x < box.x
        and group.y < box.y
        and box.x + box.width < group.x + group.width
        and box.y + box.height < group.y + group.height
    )


@pytest.mark.parametrize("name", programs.ALL)
def test_in_a_drawing_every_stream_is_an_arrow_to_the_right_that_no_box_hides(name):
    plan = programs.ALL[name]().compile()

    drawn = drawing(plan)

    boxes = {box.operator: box.at for box in drawn.boxes}
    expected = [
        (boxes[port.operator].middle, boxes[op.id].middle)
        for op in plan.graph.operators
        for port in op.inputs
    ]
    ahead = [arrow for arrow in drawn.arrows if not arrow.back]
    assert sorted(expected) == sorted((arrow.begin[1], arrow.end[1]) for arrow in ahead)
    assert len(plan.graph.feedback) == len(drawn.arrows) - len(ahead)
    for arrow in ahead:
        (x, y), (to_x, to_y) = arrow.begin, arrow.end
        assert x < to_x
        between = [box for box in boxes.values() if x < box.x + box.width and box.x < to_x]
        if arrow.below is None:
            low, high = sorted((y, to_y))
            assert not [box for box in between if low < box.y + box.height and box.y < high]
    lines = [arrow.below for arrow in drawn.arrows if arrow.below is not None]
    assert all(line < drawn.height for line in lines)
    assert len(lines) == len(set(lines))


def test_a_plan_with_a_feedback_and_a_split_that_is_read_again(golden):
    html = programs.ALL["PageRank"]().compile()._repr_html_()

    golden("notebook_feedback.html", html + "\n")
    assert "next epoch" in Seen(html).text


def test_of_a_large_plan_the_first_regions_are_shown():
    program = ab.Program("large")
    for at in range(60):
        read = program.read(ab.sources.Records([{"n": at}]), name=f"in-{at}")
        for number in range(30):
            read = read.filter(pl.col("n") > number)
        read.write(ab.sinks.Memory(f"out-{at}"), name=f"out-{at}")

    html = program.compile()._repr_html_()

    text = Seen(html).text
    assert "70 regions more: print(program.explain())" in text
    assert " and 11 more" in text
    assert "<svg" not in html
    assert len(html) < 200_000


def test_long_names_are_cut_in_a_drawing_and_whole_for_who_points_at_them():
    name = "a name that is longer than any box should ever be"

    html = clicks(operator=name).compile()._repr_html_()

    assert f"<title>{name}</title>" in html
    assert ">a name that is longer t…</text>" in html


PROGRESS = {
    "batchId": 41,
    "numInputRows": 5000,
    "processedRowsPerSecond": 61_234.5,
    "stateOperators": [{"operatorName": "window-1", "customMetrics": {"stateBytes": 123_456}}],
    "anabranch": {"latencyMs": [61.0, 82.5]},
}
TOTALS = {"epochs": 42, "epochsUnderWay": 1, "rows": 210_000, "lateRows": 12, "failedRows": 0}


def facts(program="views", **given):
    time = SourceTime((0, 1), lateness=0, watermark=None, greatest={0: 25_000_000})
    return Facts(program, (SourceFacts("clicks", time),), committed=41, **given)


def test_a_query(golden):
    html = as_html(facts(), TOTALS, PROGRESS, why(facts()))

    golden("notebook_query.html", html + "\n")
    Seen(html)


def test_a_query_before_its_first_commit_and_behind_its_end():
    none = {**TOTALS, "epochs": 0, "rows": 0}

    begun = Seen(as_html(facts(), none, None, "it begins")).text
    ended = Seen(as_html(facts(ended=True), none, None, "it is over")).text
    failed = Seen(as_html(facts(ended=True, error="full"), none, None, "it is over")).text

    assert "views: running" in begun
    assert "last commit" not in begun
    assert "views: stopped" in ended
    assert "views: failed" in failed


def test_a_query_shows_itself_while_it_runs_and_when_it_has_ended(tmp_path):
    shown = []
    program = ab.Program("shown")
    rows = [{"t": t} for t in range(10)]
    read = program.read(ab.sources.Records(rows), name="in", event_time="t")
    out = read.window(ab.tumbling("2 ms")).agg(n=ab.count())
    out.write(ab.sinks.Callback(lambda rows, epoch: shown.append(query._repr_html_())))
    settings = Settings(available_now(5), tmp_path / "ckpt", 2, slices=8)
    query = start(program.freeze(), settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)

    assert all("shown: running" in Seen(each).text for each in shown)
    assert "shown: stopped" in Seen(query._repr_html_()).text


def test_memory_shows_its_frame_as_polars_does(golden):
    sink = filled(pl.DataFrame({"user": ["ann", None], "n": [1, 2]}))

    golden("notebook_memory.html", sink._repr_html_() + "\n")
    assert sink.frame()._repr_html_() in sink._repr_html_()
    assert "shape: (2, 2)" in Seen(sink._repr_html_(), also={"style"}).text


def filled(frame, name="results"):
    sink = ab.sinks.Memory(name)
    sink.publish([sink.write(frame.to_arrow().to_batches(), 0, "a")], 0)
    return sink


def test_memory_without_rows_shows_that():
    assert "shape: (0, 0)" in Seen(ab.sinks.Memory("none")._repr_html_(), also={"style"}).text


# Names that are no names


def test_names_in_a_plan_are_text():
    html = clicks(EVIL, f"{EVIL}-filter", f"{EVIL}-key").compile()._repr_html_()

    text = Seen(html).text
    assert "<script" not in html
    for part in (f"{EVIL}: 4 operators", f"{EVIL}-filter (", f"parallel by {EVIL}-key"):
        assert part in text


def test_names_and_errors_in_a_query_are_text():
    operator = {"operatorName": EVIL, "customMetrics": {"stateBytes": 1}}
    told = facts(EVIL, ended=True, error=EVIL)

    html = as_html(told, TOTALS, {**PROGRESS, "stateOperators": [operator]}, why(told))

    assert "<script" not in html
    text = Seen(html).text
    assert f"{EVIL}: failed" in text
    assert f"state of {EVIL}" in text
    assert f"has failed: {EVIL}" in text


def test_names_and_values_in_memory_are_text():
    frame = pl.DataFrame({EVIL: [EVIL], "s": [{EVIL: [EVIL]}], "b": [EVIL.encode()]})

    html = filled(frame, EVIL)._repr_html_()

    assert "<script" not in html
    assert EVIL in Seen(html, also={"style"}).text


@given(st.text())
def test_whatever_is_put_into_it_comes_out_as_text(text):
    """But for what readers of HTML make of line ends and of what is no character."""
    html = page(element("b", text), table([(text, element("i", text))], (text,)), lines(text))

    assert (
        html.count("<")
        == html.count(">")
        == 2 * len(["div", "b", "table", "tr", "th", "tr", "td", "td", "i", "pre"])
    )


def test_epochs_under_way_are_told():
    """In the words of `why`."""
    epoch = EpochFacts(42, placed=True, source="clicks", stage=Stage.OPEN)
    told = facts(epochs=(epoch,))

    assert "epoch 42 is " in Seen(as_html(told, TOTALS, None, why(told))).text
