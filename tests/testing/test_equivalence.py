"""The check that users run on their programs: what it lets pass, and what it cannot be deceived by."""

import re
from contextlib import nullcontext
from itertools import count

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.errors import ProgramError, RunError
from anabranch.runtime import assembly
from anabranch.runtime.intake import Intake
from anabranch.runtime.loop import Loop
from anabranch.scheduling.query_policies import QUERY_POLICIES
from anabranch.state.commits import Commits
from anabranch.testing import assert_same_as_sequential, programs
from anabranch.testing import equivalence as kit
from anabranch.testing.faults import STEPS, Fuse
from anabranch.testing.lives import Lives, Shelf, ShelfSink
from tests.runtime.programs import PROGRAMS

POINTS = [f"{when} {step}" for step in STEPS for when in ("before", "after")]


def made(name, *, rows=60, partitions=1, ordered=True, sink=None):
    make, records, schema = PROGRAMS[name]
    source = ab.sources.Records(records(rows), schema=schema, partitions=partitions)
    return make(source, sink or ab.sinks.Memory("out"), ordered=ordered)


def numbers(n=20, *, sink=None, ordered=True, partitions=1):
    program = ab.Program("numbers")
    source = ab.sources.Records([{"n": i} for i in range(n)], {"n": pl.Int64}, partitions)
    rows = program.read(source, name="in")
    rows.filter(pl.col("n") >= 0).write(sink or ab.sinks.Memory("out"), name="out", ordered=ordered)
    return program


def two_sources():
    program = ab.Program("two")
    left = ab.sources.Records([{"k": i % 3, "t": i * 10, "a": i} for i in range(20)])
    right = ab.sources.Records([{"k": i % 4, "t": i * 7, "b": i} for i in range(25)], None, 2)
    one = program.read(left, name="left", event_time="t")
    two = program.read(right, name="right", event_time="t").drop("t")
    one.join(two, on="k", within="30 ms", how="full").write(ab.sinks.Memory("pairs"), name="pairs")
    one.window(ab.tumbling("50 ms"), by="k").agg(n=ab.count()).write(
        ab.sinks.Memory("counts"), name="counts", ordered=False
    )
    return program


def lives_of(monkeypatch):
    """All lives that the kit runs, as they are when they are over."""
    found, run = [], Lives.run

    def noting(self):
        run(self)
        found.append(self)

    monkeypatch.setattr(Lives, "run", noting)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_passes_through_every_fault_point_and_width(name, ordered, monkeypatch):
    found = lives_of(monkeypatch)

    assert_same_as_sequential(
        made(name, partitions=2, ordered=ordered),
        widths=(1, 3),
        crash_at=[2, *POINTS],
        rescale_at={1: 2, 4: 4},
    )

    several, one = found[0], found[1]
    assert [] == several.unreached
    assert several.history.epochs >= 6
    assert 1 == one.history.epochs
    assert 4 == len(found)


@pytest.mark.slow
@pytest.mark.parametrize("point", [*POINTS, 3, "commit 2", "after publish 4", "before plan 3"])
def test_a_crash_comes_where_it_was_asked_for(point, monkeypatch):
    found = lives_of(monkeypatch)

    assert_same_as_sequential(made("fraud"), widths=(2,), crash_at=[point])

    assert [] == found[0].unreached
    assert found[0].shelves["out"].rows


@pytest.mark.slow
def test_an_epoch_that_is_crashed_at_is_planned_and_not_committed(monkeypatch):
    committed, planned = [], []
    live = Lives._live

    def noting(self, number):
        ended = live(self, number)
        committed.append(self.history.epochs)
        planned.append(len(list((self._checkpoint / "epochs").glob("*.plan"))))
        return ended

    monkeypatch.setattr(Lives, "_live", noting)
    assert_same_as_sequential(
        numbers(), widths=(1,), crash_at=[3, 5], trigger=ab.available_now(max_rows=2)
    )

    assert [True, True] == [at <= epoch for at, epoch in zip(committed, (3, 5), strict=False)]
    assert [True, True] == [at > epoch for at, epoch in zip(planned, (3, 5), strict=False)]
    assert committed[0] > 0
    assert 10 == committed[-1]
    assert 3 == len(committed)


@pytest.mark.slow
def test_an_epoch_is_the_first_at_its_new_width(monkeypatch, tmp_path):
    widths = []
    commit = Commits.commit

    def noting(self, proposed):
        widths.append((proposed.first, proposed.lanes))
        return commit(self, proposed)

    monkeypatch.setattr(Commits, "commit", noting)
    assert_same_as_sequential(
        made("fraud"), widths=(1,), rescale_at={2: 3, 4: 2}, trigger=ab.available_now(max_rows=10)
    )

    assert [(0, 1), (1, 1), (2, 3), (3, 3), (4, 2), (5, 2)] == widths


@pytest.mark.slow
@pytest.mark.parametrize("crash_at", [(), (3, "publish", "after delta"), ("before plan 4",)])
def test_several_sources_and_sinks(crash_at):
    assert_same_as_sequential(two_sources(), crash_at=list(crash_at))
    assert_same_as_sequential(two_sources(), crash_at=list(crash_at), rescale_at={1: 3, 3: 1})


@pytest.mark.slow
def test_epochs_that_are_committed_together_are_in_nobodys_way(monkeypatch):
    """Epoch 2 may be done when the run goes on that died behind epoch 0: then another one is meant."""
    found = lives_of(monkeypatch)
    points = ["before acknowledge 3", "after acknowledge 0", "before delta 2", "before publish 0"]

    assert_same_as_sequential(two_sources(), widths=(2,), crash_at=points, seed=43)

    assert [] == found[0].unreached


@pytest.mark.slow
@settings(max_examples=25)
@given(data=st.data())
def test_any_program_passes(data):
    program = data.draw(programs(partitions=data.draw(st.integers(1, 3))))
    assert_same_as_sequential(
        program,
        widths=(data.draw(st.integers(1, 4)),),
        crash_at=[data.draw(st.sampled_from([0, "commit", "after job", "before acknowledge"]))],
        seed=data.draw(st.integers(0, 99)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("trigger", [ab.epochs("1 s", max_rows=6), ab.available_now()])
def test_a_trigger_that_is_given_is_used(trigger, monkeypatch):
    found = lives_of(monkeypatch)

    assert_same_as_sequential(numbers(), widths=(2,), trigger=trigger, crash_at=["after commit"])

    assert [trigger] == [each._schedule.trigger for each in found]
    assert (4 if trigger.max_rows else 1) == found[0].history.epochs


@pytest.mark.slow
def test_real_sinks_are_not_touched(tmp_path):
    called = []
    sink = ab.sinks.Callback(lambda rows, epoch: called.append(epoch))
    assert_same_as_sequential(numbers(sink=sink), crash_at=["after publish"])
    assert_same_as_sequential(numbers(sink=ab.sinks.Files(tmp_path / "out", format="parquet")))

    assert [] == called
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert_same_as_sequential(numbers(), crash_at=[1])
    with pytest.raises(AssertionError):
        assert_same_as_sequential(counting())

    assert [] == [each.name for each in tmp_path.iterdir() if "same" in each.name]


# ---- Inputs ---------------------------------------------------------------------------------


ROWS = [{"n": 7}, {"n": -1}, {"n": 8}]


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows",
    [ROWS, pl.DataFrame(ROWS), ab.sources.Records(ROWS, None, 2)],
    ids=lambda x: type(x).__name__,
)
def test_inputs_replace_sources_by_name(rows, monkeypatch):
    found = lives_of(monkeypatch)

    assert_same_as_sequential(numbers(), {"in": rows}, widths=(1,))

    for each in found:
        assert [7, 8] == sorted(row["n"] for row in each.shelves["out"].rows)


def test_an_unknown_source_is_told_with_those_there_are():
    with pytest.raises(ProgramError, match=r"has no source 'inn'") as refused:
        assert_same_as_sequential(two_sources(), {"inn": ROWS})

    assert "left, right" == refused.value.have


def test_rows_of_other_columns_are_refused():
    with pytest.raises(ProgramError, match=r"row 1 does not fit the schema"):
        assert_same_as_sequential(numbers(), {"in": [{"n": 1}, {"n": "x"}]})
    with pytest.raises(ProgramError, match=r"for 'in' does not have its columns") as refused:
        assert_same_as_sequential(numbers(), {"in": pl.DataFrame({"n": ["x"]})})

    assert "column 'n' is String, expected Int64" == refused.value.why


@pytest.mark.slow
def test_a_source_without_an_end_is_refused_and_can_be_replaced():
    program = ab.Program("endless")
    source = ab.sources.Generator(lambda i: {"n": i}, schema={"n": pl.Int64})
    program.read(source, name="in").write(ab.sinks.Memory("out"))

    with pytest.raises(ProgramError, match=r"^in never ends"):
        assert_same_as_sequential(program)
    assert_same_as_sequential(program, {"in": ROWS})


@pytest.mark.slow
def test_files_are_read_anew_by_every_life(tmp_path):
    for number in range(4):
        pl.DataFrame({"n": [number, -number, 10]}).write_parquet(tmp_path / f"{number}.parquet")
    program = ab.Program("files")
    source = ab.sources.Files(tmp_path)
    program.read(source, name="in").filter(pl.col("n") > 0).write(ab.sinks.Memory("out"))

    assert_same_as_sequential(program, crash_at=[2, "after commit"], rescale_at={1: 2})
    assert [] == source._names


@pytest.mark.parametrize("policy", QUERY_POLICIES)
def test_a_policy_changes_no_output(policy):
    assert_same_as_sequential(numbers(), policies=[policy], crash_at=[2, "after commit"])
    assert_same_as_sequential(numbers(), policies=[policy], rescale_at={2: 3})


# ---- What is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policies": ["klnk"]}, r"policies must be names of a session's policies, got 'klnk'"),
        ({"policies": "klink"}, r"policies must be names of a session's policies, got 'klink'"),
        ({"policies": []}, r"policies must be names of a session's policies, got \[\]"),
        ({"widths": ()}, r"widths must be whole numbers of at least 1"),
        ({"widths": (0,)}, r"widths must be whole numbers of at least 1"),
        ({"widths": 2}, r"widths must be whole numbers of at least 1"),
        ({"rescale_at": {-1: 2}}, r"rescale_at must map epochs to numbers of lanes"),
        ({"rescale_at": [2]}, r"rescale_at must map epochs to numbers of lanes"),
        ({"trigger": "1 s"}, r"not a trigger: '1 s'"),
        ({"crash_at": "commit"}, r"crash_at must be a list"),
        ({"crash_at": 3}, r"crash_at must be a list"),
        ({"crash_at": [True]}, r"no fault point True"),
        ({"crash_at": [-1]}, r"no fault point -1"),
    ],
)
def test_nonsense_is_refused(options, message):
    with pytest.raises(ProgramError, match=message):
        assert_same_as_sequential(numbers(), **options)


@pytest.mark.slow
def test_an_epoch_that_is_not_there_is_taken_for_the_last(monkeypatch):
    found = lives_of(monkeypatch)
    trigger = ab.available_now(max_rows=5)

    assert_same_as_sequential(
        numbers(), widths=(1,), trigger=trigger, crash_at=["after commit 99", 1], rescale_at={98: 2}
    )

    wanted, had = found
    assert ["crash_at: after commit 99", "rescale_at: epoch 98"] == wanted.unreached
    assert [] == had.unreached
    assert ["before commit 1", "after commit 3"] == list(map(str, had._schedule.crashes))
    assert {3: 2} == had._schedule.rescale


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 1, 2])
def test_little_or_no_input_is_no_error(rows):
    for crash_at in ([2], POINTS, ["publish 1", "acknowledge", 0]):
        assert_same_as_sequential(numbers(rows), widths=(2,), crash_at=crash_at, rescale_at={1: 3})


@pytest.mark.slow
def test_an_epoch_without_rows_is_not_published_and_the_next_is(monkeypatch):
    found = lives_of(monkeypatch)
    rows = [{"n": n} for n in (1, -1, -1, 2, -1, -1)]
    options = {"widths": (1,), "trigger": ab.available_now(max_rows=1)}

    assert_same_as_sequential(numbers(), {"in": rows}, crash_at=["after publish 1"], **options)
    assert_same_as_sequential(numbers(), {"in": rows}, crash_at=["after publish 4"], **options)

    assert [[], ["crash_at: after publish 4"]] == [each.unreached for each in found]
    assert [0, 3] == sorted(found[0].shelves["out"].epochs)


@pytest.mark.slow
def test_a_moment_that_never_comes_is_told(monkeypatch):
    monkeypatch.setattr(Fuse, "around", lambda self, step, epochs: nullcontext())
    with pytest.raises(ProgramError, match=r"it never came to crash_at: after publish\n"):
        assert_same_as_sequential(numbers(), crash_at=["after publish"])
    with pytest.raises(ProgramError, match=r"it never came to crash_at: before commit 2\n"):
        assert_same_as_sequential(numbers(), crash_at=[2])


def test_an_unknown_fault_point_is_told_with_all_there_are():
    with pytest.raises(ProgramError, match=r"^crash_at: no fault point 'comit'") as refused:
        assert_same_as_sequential(numbers(), crash_at=["comit"])

    assert ", ".join(f"'{point}'" for point in POINTS) == refused.value.have
    for step in STEPS:
        assert step in assert_same_as_sequential.__doc__


def test_what_the_runtime_refuses_is_refused_alike():
    program = ab.Program("hidden")
    rows = program.read(ab.sources.Records([{"n": 1}]))
    rows.rename({"n": "__ab_time"}).write(ab.sinks.Memory("out"))

    with pytest.raises(ProgramError) as expected:
        plan_of(program.freeze())
    with pytest.raises(ProgramError) as refused:
        assert_same_as_sequential(program)
    assert str(expected.value) == str(refused.value)


def test_an_error_of_a_function_is_the_runs_error():
    program = ab.Program("failing")
    stream = program.read(ab.sources.Records(ROWS))
    stream.map(lambda r: {"n": 1 // (r["n"] + 1)}, out={"n": pl.Int64}).write(ab.sinks.Memory("o"))

    with pytest.raises(RunError, match="ZeroDivisionError"):
        assert_same_as_sequential(program)


# ---- What fails -----------------------------------------------------------------------------


_calls = count()


@ab.operator(out={"n": pl.Int64, "call": pl.Int64}, state="stateless", selectivity="one", pure=True)
def counted(record):
    return {"n": record["n"], "call": next(_calls)}


def counting():
    """A function that says it is pure and is not."""
    program = ab.Program("counting")
    rows = [{"n": n} for n in range(9)]
    program.read(ab.sources.Records(rows), name="in").map(counted).write(
        ab.sinks.Memory("out"), name="out"
    )
    return program


def test_a_function_that_is_not_what_it_says_is_found_and_told():
    with pytest.raises(AssertionError) as failed:
        assert_same_as_sequential(counting(), {"in": ROWS}, widths=(2,), crash_at=[1], seed=5)

    text = str(failed.value)
    assert re.match(
        r"sink 'out' differs from the sequential run at row 0 \(3 rows expected, 3 came\)\n"
        r"> row 0: expected {'n': 7, 'call': \d+}\n"
        r">        actual   {'n': 7, 'call': \d+}\n"
        r"  row 1: expected {'n': -1, 'call': \d+}\n",
        text,
    )
    assert "\n  run   width 2, in this process, 3 epochs, seed 5\n  crash before commit 1\n" in text
    assert (
        "\n  again assert_same_as_sequential(program, inputs, widths=(2,), "
        "trigger=ab.available_now(max_rows=1), crash_at=['before commit 1'], seed=5)\n" in text
    )
    log = text.rpartition("  log   ")[2]
    cuts = eval(log, {"ab": ab})
    assert [{0: (0, 1)}, {0: (1, 2)}, {0: (2, 3)}] == [cut.offsets for cut in cuts]


def losing(monkeypatch, keep):
    """A runtime that gives the kit's sinks something else."""
    show = Shelf.show
    monkeypatch.setattr(Shelf, "show", lambda self, epoch, rows: show(self, epoch, keep(rows)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keep", "told"),
    [
        (lambda rows: rows[1:], r"at row 0 \(20 rows expected, \d+ came\)"),
        (lambda rows: rows * 2, r"at row \d+ \(20 rows expected, 40 came\)"),
        (lambda rows: rows[::-1], r"at row 0 \(20 rows expected, 20 came\)"),
        (lambda rows: [{"n": float(row["n"])} for row in rows], r"at row 0 "),
    ],
    ids=["lost", "twice", "turned", "other type"],
)
def test_rows_that_are_not_those_are_found(keep, told, monkeypatch):
    losing(monkeypatch, keep)
    with pytest.raises(AssertionError, match=told):
        assert_same_as_sequential(numbers())


@pytest.mark.slow
def test_an_unordered_sink_may_have_another_order_and_no_other_rows(monkeypatch):
    with monkeypatch.context() as patched:
        losing(patched, lambda rows: rows[::-1])
        assert_same_as_sequential(numbers(ordered=False))
    losing(monkeypatch, lambda rows: rows[1:])
    with pytest.raises(AssertionError, match="20 rows expected"):
        assert_same_as_sequential(numbers(ordered=False))


@pytest.mark.slow
def test_a_runtime_that_publishes_twice_is_found(monkeypatch):
    publish = ShelfSink.publish

    def twice(self, messages, epoch):
        publish(self, messages, epoch)
        publish(self, messages, epoch)

    monkeypatch.setattr(ShelfSink, "publish", twice)
    with pytest.raises(
        AssertionError, match=r"^sink 'out': epoch 0 was published twice in one run\n"
    ):
        assert_same_as_sequential(numbers())


def test_what_a_shelf_cannot_be_told():
    from anabranch.testing.faults import History

    history = History()
    shelf = Shelf(history)
    shelf.show(1, [{"n": 1}])
    shelf.show(0, [])
    shelf.begin_life()
    shelf.show(1, [{"n": 1}])
    assert ["epoch 0 was published after epoch 1"] == shelf.faults
    shelf.begin_life()
    shelf.show(1, [{"n": 2}])
    history.acknowledged = 1
    shelf.begin_life()
    shelf.show(1, [{"n": 1}])

    assert [
        "epoch 1 was published again with other rows",
        "epoch 1 was published again, though that it was is noted",
    ] == shelf.faults[1:]


@pytest.mark.slow
def test_a_runtime_that_leaves_rows_out_is_found(monkeypatch):
    """The log leaves them out as well, so that the oracle on it gives the same."""
    take = Intake.take

    def skipping(self, offer):
        take(self, offer)
        if self._positions[0] == 8:
            self._positions[0] = 9

    monkeypatch.setattr(Intake, "take", skipping)
    with pytest.raises(
        AssertionError, match=r"^epoch 4 begins at 9 of partition 0 of 'in', not at 8\n"
    ):
        assert_same_as_sequential(numbers(), trigger=ab.available_now(max_rows=2))


@pytest.mark.slow
def test_a_runtime_that_stops_too_soon_is_found(monkeypatch):
    def soon(self):
        self._end = {0: 15}

    monkeypatch.setattr(Intake, "freeze_end", soon)
    with pytest.raises(
        AssertionError, match=r"^partition 0 of 'in' was read up to 15, and ends at 20\n"
    ):
        assert_same_as_sequential(numbers())


@pytest.mark.slow
def test_a_runtime_that_loses_its_state_in_a_crash_is_found(monkeypatch):
    resume = Loop.resume
    monkeypatch.setattr(
        Loop, "resume", lambda self, plans, _, *more: resume(self, plans, {}, *more)
    )

    assert_same_as_sequential(made("fraud"), widths=(2,))
    with pytest.raises(AssertionError, match=r"^sink 'out' differs"):
        assert_same_as_sequential(made("fraud"), widths=(2,), crash_at=[3])


@pytest.mark.slow
def test_a_runtime_that_loses_its_place_in_a_crash_is_found(monkeypatch):
    positions = assembly._Past.positions

    def one_on(self, read):
        return {p: at + 1 for p, at in (positions(self, read) or {}).items()}

    monkeypatch.setattr(assembly._Past, "positions", one_on)

    assert_same_as_sequential(numbers(), widths=(2,))
    with pytest.raises(AssertionError, match=r"^epoch \d begins at \d+ of partition 0 of 'in'"):
        assert_same_as_sequential(numbers(), widths=(2,), crash_at=[3])


@pytest.mark.slow
def test_a_sketch_may_be_as_wrong_as_it_says(monkeypatch):
    program = ab.Program("sketch")
    rows = program.read(
        ab.sources.Records([{"t": i, "v": i * 7919 % 5000} for i in range(3000)]), event_time="t"
    )
    window = rows.window(ab.tumbling("1 h"))
    window.agg(n=ab.approx_distinct("v"), q=ab.approx_quantile("v", 0.5)).write(
        ab.sinks.Memory("o")
    )

    assert_same_as_sequential(program, widths=(2,))
    monkeypatch.setattr(kit, "_sketches", lambda graph: {})
    with pytest.raises(AssertionError, match="differs from the sequential run"):
        assert_same_as_sequential(program, widths=(2,))
    assert_same_as_sequential(program, widths=(2,), within={"n": 0.02, "q": 0.01})
