"""Programs become stages that can be run; what cannot is refused by name, line and reason."""

import polars as pl
import pytest

import anabranch as ab
from anabranch.compiler import traits
from anabranch.compiler.compile import compile_graph, plan_of
from anabranch.compiler.functions.verdict import Forwards, Verdict
from anabranch.compiler.reason import Reason
from anabranch.errors import ProgramError

EVENTS = {"t": pl.Int64, "k": pl.String, "n": pl.Int64, "d": pl.Decimal(10, 2)}
OUT = {"n": pl.Int64}


def started():
    program = ab.Program("plan")
    return program, program.read(ab.sources.Records([], schema=EVENTS), event_time="t")


def planned(build):
    program, stream = started()
    build(stream).write(ab.sinks.Memory("out"))
    return plan_of(program.freeze())


def keeps(record, state):
    state.value = 1


def names(plan):
    places = [*plan.heads, *plan.stages]
    return [[plan.graph[number].name for number in place.operators] for place in places]


def lanes(plan):
    """The only stage."""
    (stage,) = plan.stages
    return stage


def test_without_state_there_is_one_region():
    plan = planned(lambda s: s.filter(pl.col("n") > 0).map(lambda r: r, out=OUT))

    assert [["read-1", "filter-1", "map-1", "out"]] == names(plan)
    assert () == plan.stages


def test_an_operator_with_state_begins_a_region_of_its_key():
    plan = planned(lambda s: s.drop("n").key_by("k").process(keeps, out=OUT).select("n"))

    assert [["read-1", "drop-1"], ["process-1", "select-1", "out"]] == names(plan)
    assert (True, ("k",)) == (lanes(plan).parallel, lanes(plan).key)


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.window(ab.tumbling("1 s")).agg(n=ab.count()),
        lambda s: s.process(keeps, out=OUT),
    ],
)
def test_what_is_over_the_whole_stream_is_in_one_slice(build):
    stage = lanes(planned(build))
    assert (False, None) == (stage.parallel, stage.key)


def test_a_window_by_a_key_is_parallel_by_it():
    plan = planned(lambda s: s.window(ab.tumbling("1 s"), by=["k", "n"]).agg(m=ab.max("n")))
    assert ("k", "n") == lanes(plan).key


def count(stream):
    return stream.window(ab.tumbling("1 s")).agg(n=ab.count())


@ab.operator(out=OUT, state="whole")
def declared(record):
    return record


def counted(stream):
    return stream.window(ab.tumbling("1 s"), by="k").agg(n=ab.count())


@pytest.mark.parametrize(
    ("build", "stages"),
    [
        (
            lambda s: s.key_by("k", "n").deduplicate().window(ab.rows(2), by="k").agg(m=ab.count()),
            [(1, ("k",), ["deduplicate-1", "window-1", "out"])],
        ),
        (
            lambda s: counted(s.key_by("n").deduplicate().filter(pl.col("n") > 0)),
            [(1, ("n",), ["deduplicate-1", "filter-1"]), (2, ("k",), ["window-1", "out"])],
        ),
        (lambda s: s.in_time_order(), [(1, None, ["in_time_order-1", "out"])]),
        (
            lambda s: counted(s.in_time_order()),
            [(1, None, ["in_time_order-1"]), (2, ("k",), ["window-1", "out"])],
        ),
        (
            lambda s: count(counted(s)).filter(pl.col("n") > 0),
            [(1, ("k",), ["window-1"]), (2, None, ["window-2", "filter-1", "out"])],
        ),
        (lambda s: s.union(s.filter(pl.col("n") > 0)), [(1, None, ["union-1", "out"])]),
        (
            lambda s: s.join(s, on="k", within="1 s").filter(pl.col("n") > 0),
            [(1, ("k",), ["join-1", "filter-1", "out"])],
        ),
        (
            lambda s: counted(s).select("k", m="n").join(s.select("k", "n"), on="k", within="1 s"),
            [(1, ("k",), ["window-1", "select-1"]), (2, ("k",), ["join-1", "out"])],
        ),
    ],
)
def test_stages_are_divided_as_the_regions_are(build, stages):
    plan = planned(build)

    assert stages == [(s.level, s.key, _names(plan, s)) for s in plan.stages]


def _names(plan, place):
    return [plan.graph[number].name for number in place.operators]


def test_a_source_that_is_read_twice_has_one_head():
    program, stream = started()
    positive = stream.filter(pl.col("n") > 0)
    positive.write(ab.sinks.Memory("rows"))
    counted(positive).write(ab.sinks.Memory("counts"))
    split = stream.split(a=pl.col("n") == 1)
    split.rest.write(ab.sinks.Memory("rest"))
    split.a.key_by("k").deduplicate().write(ab.sinks.Memory("once"))

    plan = plan_of(program.freeze())

    assert [
        ["read-1", "filter-1", "rows", "split-1", "rest"],
        ["window-1", "counts"],
        ["deduplicate-1", "once"],
    ] == names(plan)
    assert [1, 1] == [stage.level for stage in plan.stages]


def test_several_sources_have_heads_of_their_own():
    program, stream = started()
    other = program.read(ab.sources.Records([], schema=EVENTS), event_time="t").drop("d")
    stream.drop("d").union(other).write(ab.sinks.Memory("all"))
    stream.write(ab.sinks.Memory("some"))

    plan = plan_of(program.freeze())

    # A sink is told the epoch: rows come to it by a stage.
    assert [["read-1", "drop-2"], ["read-2", "drop-1"], ["union-1", "all", "some"]] == names(plan)


def test_dead_letters_of_a_head_are_read_in_a_stage():
    program, stream = started()
    mapped = stream.map(lambda r: {"n": 1 // r["n"]}, out=OUT, on_error="dead_letter")
    mapped.write(ab.sinks.Memory("out"))
    mapped.dead_letters.write(ab.sinks.Memory("letters"))

    assert [["read-1", "map-1", "out"], ["letters"]] == names(plan_of(program.freeze()))


def test_a_loop_is_in_one_lane_of_one_stage():
    program, stream = started()
    again = program.feedback(EVENTS, event_time="t")
    both = stream.union(again)
    kept = both.key_by("k").reduce(lambda a, b: b)
    again.close(kept.filter(pl.col("n") > 5))
    kept.key_by("k").deduplicate().write(ab.sinks.Memory("out"))

    plan = plan_of(program.freeze())

    loop = ["feedback-1", "union-1", "reduce-1", "filter-1"]
    assert [["read-1"], loop, ["deduplicate-1", "out"]] == names(plan)
    assert [(1, None), (2, ("k",))] == [(each.level, each.key) for each in plan.stages]


def test_a_feedback_that_a_head_closes_takes_its_rows_from_there():
    program, stream = started()
    again = program.feedback(EVENTS)
    again.close(stream.filter(pl.col("n") > 5))
    again.write(ab.sinks.Memory("out"))

    plan = plan_of(program.freeze())

    assert [["read-1", "filter-1"], ["feedback-1", "out"]] == names(plan)
    assert ["filter-1"] == [plan.graph[port.operator].name for port in plan.entries(plan.stages[0])]


def test_a_feedback_that_a_later_stage_closes_is_behind_it():
    program, stream = started()
    again = program.feedback(EVENTS)
    again.write(ab.sinks.Memory("out"))
    again.close(stream.key_by("k").reduce(lambda a, b: b))

    plan = plan_of(program.freeze())

    assert [["read-1"], ["reduce-1"], ["feedback-1", "out"]] == names(plan)
    assert [(1, ("k",)), (2, None)] == [(each.level, each.key) for each in plan.stages]


def test_a_program_has_a_sink():
    program, _ = started()
    with pytest.raises(ProgramError, match="writes nothing"):
        plan_of(program.freeze())


def test_a_stream_that_leads_nowhere_runs_all_the_same():
    program, stream = started()
    stream.filter(pl.col("n") > 0)
    stream.write(ab.sinks.Memory("out"))
    assert [["read-1", "filter-1", "out"]] == names(plan_of(program.freeze()))


def test_names_of_hidden_columns_are_refused():
    with pytest.raises(ProgramError, match="__ab_time"):
        planned(lambda s: s.rename({"n": "__ab_time"}))


# The proof is kept


@pytest.fixture
def nothing_proved(monkeypatch):
    """An analysis that proves nothing of anyone."""
    verdict = Verdict(False, "unknown", Forwards.exactly(), (Reason("it is too clever"),))
    monkeypatch.setattr(traits, "_analyser", lambda: lambda call, *, takes_state: verdict)


@pytest.mark.usefixtures("nothing_proved")
@pytest.mark.parametrize(
    ("build", "stages"),
    [
        (lambda s: s.map(lambda r: r, out=EVENTS), [["read-1"], ["map-1", "out"]]),
        (lambda s: s.filter(lambda r: True), [["read-1"], ["filter-1", "out"]]),
        (
            lambda s: count(s.drop("d").filter(lambda r: True).drop("k")),
            [["read-1", "drop-1"], ["filter-1", "drop-2", "window-1", "out"]],
        ),
        (
            lambda s: s.window(ab.tumbling("1 s"), by="k").agg(n=ab.count()).filter(lambda r: True),
            [["read-1"], ["window-1"], ["filter-1", "out"]],
        ),
        (
            lambda s: s.key_by("k").process(keeps, out=OUT),
            [["read-1"], ["process-1", "out"]],
        ),
    ],
)
def test_what_is_not_proved_runs_in_one_place(build, stages):
    plan = planned(build)

    assert stages == names(plan)
    assert (False, None) == (plan.stages[-1].parallel, plan.stages[-1].key)
    assert ["unknown"] == [traits_in(plan, number) for number in plan.unproved]


def traits_in(plan, number):
    return compile_graph(plan.graph).traits[number].state


@pytest.mark.usefixtures("nothing_proved")
def test_what_is_declared_runs_in_many_places():
    plan = planned(lambda s: s.map(ab.operator(out=OUT, pure=True)(lambda r: r)))
    assert () == plan.stages


def test_what_is_declared_to_be_over_the_whole_stream_runs_in_one_place():
    stage = lanes(planned(lambda s: s.map(declared)))
    assert (False, None) == (stage.parallel, stage.key)
