"""Chains become plans that can be run; every other shape is refused by name, line and reason."""

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
    return [[op.name for op in plan.operators(region)] for region in plan.regions]


def test_without_state_there_is_one_region():
    plan = planned(lambda s: s.filter(pl.col("n") > 0).map(lambda r: r, out=OUT))

    assert [["read-1", "filter-1", "map-1", "out"]] == names(plan)
    assert plan.head.parallel
    assert plan.keyed is plan.stateful is None


def test_an_operator_with_state_begins_a_region_of_its_key():
    plan = planned(lambda s: s.drop("n").key_by("k").process(keeps, out=OUT).select("n"))

    assert [["read-1", "drop-1"], ["process-1", "select-1", "out"]] == names(plan)
    keyed = plan.keyed
    assert (True, ("k",)) == (keyed.parallel, keyed.key)
    assert "process-1" == plan.stateful.name


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.window(ab.tumbling("1 s")).agg(n=ab.count()),
        lambda s: s.process(keeps, out=OUT),
    ],
)
def test_what_is_over_the_whole_stream_is_in_one_slice(build):
    keyed = planned(build).keyed
    assert (False, None) == (keyed.parallel, keyed.key)


def test_a_window_by_a_key_is_parallel_by_it():
    plan = planned(lambda s: s.window(ab.tumbling("1 s"), by=["k", "n"]).agg(m=ab.max("n")))
    assert ("k", "n") == plan.keyed.key


class Timed(ab.KeyedOperator):
    out = OUT

    def on_record(self, record, state): ...

    def on_timer(self, at, state): ...


def count(stream):
    return stream.window(ab.tumbling("1 s")).agg(n=ab.count())


@ab.operator(out=OUT, state="whole")
def declared(record):
    return record


REFUSED = {
    "two states": (
        lambda s: count(s.key_by("k").process(keeps, out=EVENTS)),
        "window-1",
        "process-1 is one already",
    ),
    "timers": (lambda s: s.key_by("k").process(Timed), "process-1", "Timed has on_timer"),
    "ttl": (
        lambda s: s.key_by("k").process(keeps, out=OUT, ttl="1 s"),
        "process-1",
        "it has ttl",
    ),
    "sliding": (
        lambda s: s.window(ab.sliding("2 s", "1 s")).agg(n=ab.count()),
        "window-1",
        "it is over sliding",
    ),
    "allow_late": (
        lambda s: s.window(ab.tumbling("1 s")).allow_late("1 s").agg(n=ab.count()),
        "window-1",
        "it has allow_late",
    ),
    "aggregate": (
        lambda s: s.window(ab.tumbling("1 s")).agg(n=ab.mean("n")),
        "window-1",
        'n is mean(col("n"))',
    ),
    "decimals": (
        lambda s: s.window(ab.tumbling("1 s")).agg(n=ab.sum("d")),
        "window-1",
        "n is a sum of Decimal",
    ),
    "apply": (
        lambda s: s.window(ab.tumbling("1 s")).apply(lambda key, frame: [], out=OUT),
        "window-1",
        "there is no kernel for window yet",
    ),
    "no kernel": (lambda s: s.in_time_order(), "in_time_order-1", "no kernel for in_time_order"),
    "refresh": (
        lambda s: s.lookup(lambda: pl.DataFrame({"k": ["a"]}), on="k", refresh="1 h"),
        "lookup-1",
        "it has refresh",
    ),
    "union": (lambda s: s.union(s.filter(pl.col("n") > 0)), "read-1", "2 operators read it"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_run_yet_is_refused_at_its_line(kind):
    build, name, why = REFUSED[kind]
    with pytest.raises(ProgramError) as refused:
        planned(build)

    assert f"{name} cannot run in parallel yet" == refused.value.what
    assert why in str(refused.value.why)
    assert str(refused.value.have).startswith("supported so far: ")
    assert "run it with ab.testing.run_sequential meanwhile" == refused.value.so
    assert __file__ == refused.value.file


@pytest.mark.parametrize("port", ["dead_letters", "late"])
def test_other_ports_that_are_read_are_refused(port):
    program, stream = started()
    if port == "late":
        windows = stream.window(ab.tumbling("1 s"))
        windows.agg(n=ab.count()).write(ab.sinks.Memory("out"))
        other = windows.late
    else:
        mapped = stream.map(lambda r: r, out=OUT, on_error="dead_letter")
        mapped.write(ab.sinks.Memory("out"))
        other = mapped.dead_letters
    other.write(ab.sinks.Memory("other"))
    with pytest.raises(ProgramError, match="cannot run in parallel yet"):
        plan_of(program.freeze())


def test_one_source_and_one_sink():
    program, stream = started()
    with pytest.raises(ProgramError, match="the program has 0"):
        plan_of(program.freeze())
    stream.write(ab.sinks.Memory("a"))
    stream.write(ab.sinks.Memory("b"))
    with pytest.raises(ProgramError, match=r"(?s)^b cannot run.*the program has 2"):
        plan_of(program.freeze())


def test_a_stream_that_leads_nowhere_is_refused():
    program, stream = started()
    stream.filter(pl.col("n") > 0)
    stream.write(ab.sinks.Memory("out"))
    with pytest.raises(ProgramError, match="2 operators read it"):
        plan_of(program.freeze())


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
            [["read-1"], ["window-1", "filter-1", "out"]],
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
    assert (False, None) == (plan.keyed.parallel, plan.keyed.key)
    assert ["unknown"] == [traits_in(plan, op) for op in plan.unproved]


def traits_in(plan, op):
    return compile_graph(plan.graph).traits[op.id].state


@pytest.mark.usefixtures("nothing_proved")
def test_what_is_declared_runs_in_many_places():
    plan = planned(lambda s: s.map(ab.operator(out=OUT, pure=True)(lambda r: r)))
    assert plan.keyed is None


def test_what_is_declared_to_be_over_the_whole_stream_runs_in_one_place():
    keyed = planned(lambda s: s.map(declared)).keyed
    assert (False, None) == (keyed.parallel, keyed.key)
