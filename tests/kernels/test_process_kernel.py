"""Functions with state and timers give what they give in the sequential run, and keep little."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import CheckpointError
from anabranch.kernels.bundle import OFFSET, PARTITION, SLICE, TIME
from anabranch.kernels.failures import Failed
from anabranch.kernels.kernel import Taken
from anabranch.kernels.keyed.cell import Cell, Now
from anabranch.kernels.keyed.parts import PartStore
from anabranch.kernels.keyed.process import ProcessKernel
from anabranch.kernels.keyed.timers import ENDLESS
from anabranch.state import classes
from anabranch.state.codec import encode
from tests.kernels.keyed_cases import assert_as_sequential, by, logs, sources

OUT = {"what": pl.String, "n": pl.Int64, "told": pl.String}


@dataclass
class Pair:
    left: int
    right: list


def later(t, ms):
    return t + timedelta(milliseconds=ms) if isinstance(t, datetime) else t + ms


def told(state):
    return repr((str(state.key), str(state.watermark), state.value, state.list, dict(state.map)))


def remember(record, state):
    """Change every kind of state, in place and by assignment."""
    n = record["n"]
    state.value = (state.value or 0) + (n or 1)
    if n is None:
        state.map[record["s"]] = state.value
    elif n % 4 == 0:
        state.list.append(n)
    elif n % 4 == 1:
        state.map.setdefault(n, []).append(record["s"])
    elif n % 4 == 2:
        state.map.pop(None, None)
        state.map.pop("x", None)
    elif n == 7:
        state.clear()
    elif n == 3:
        state.map = {"new": n, **state.map}
    yield {"what": "record", "n": n, "told": told(state)}
    if n == 5:
        yield {"what": "again", "n": len(state.list)}


class Alarms(ab.KeyedOperator):
    """Set timers before and behind, in the past, again and again; clear some."""

    out = OUT

    def on_record(self, record, state):
        yield from remember(record, state)
        n = record["n"]
        if n is not None and n != 9:
            state.timer_at(later(record["t"], 5 * n))
        if n == 9:
            state.clear()

    def on_timer(self, at, state):
        yield {"what": "timer", "told": f"{at} {told(state)}"}
        fired = state.value = (state.value or 0) + 1
        if fired % 5 == 1:
            state.timer_at(at)
        elif fired % 5 == 2:
            state.timer_at(later(at, -3))
        elif fired % 5 == 3:
            state.timer_at(later(at, 4))
        elif fired % 7 == 4:
            state.clear()
        yield {"what": "timer again", "n": fired}


class Fails(Alarms):
    """The same, and now and then it goes wrong behind everything it wrote."""

    def on_record(self, record, state):
        rows = list(super().on_record(record, state))
        if record["s"] == "y" and record["n"] in (3, 9):
            raise ValueError(record["n"])
        if record["n"] == 4:
            return [{"n": "no number"}]
        if record["n"] == 8:
            return [*rows, {"unknown": 1}]
        return rows

    def on_timer(self, at, state):
        rows = list(super().on_timer(at, state))
        if (state.value or 0) % 3 == 0:
            raise KeyError(at)
        return rows


def written(stream, keys, function, **options):
    keyed = stream if keys is None else stream.key_by(*keys)
    made = keyed.process(function, **options)
    made.write(ab.sinks.Memory("out"))
    return made


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_function_with_state_gives_what_it_gives_in_the_sequential_run(data):
    program, stream = data.draw(sources())
    ttl = data.draw(st.sampled_from([{}, {"ttl": "3 ms"}, {"ttl": "12 ms"}]))
    written(stream, data.draw(by), remember, out=OUT, **ttl)

    assert_as_sequential(program, data.draw(logs(program)), ProcessKernel.of)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_timers_fire_as_they_do_in_the_sequential_run(data):
    program, stream = data.draw(sources())
    keys = data.draw(by | st.none())
    ttl = (
        {} if keys is None else data.draw(st.sampled_from([{}, {"ttl": "4 ms"}, {"ttl": "20 ms"}]))
    )
    written(stream, keys, Alarms, **ttl)

    assert_as_sequential(program, data.draw(logs(program)), ProcessKernel.of)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_fails_is_undone_with_its_timers(data):
    program, stream = data.draw(sources())
    ttl = data.draw(st.sampled_from([{}, {"ttl": "8 ms"}]))
    made = written(stream, data.draw(by), Fails, on_error="dead_letter", **ttl)
    made.dead_letters.write(ab.sinks.Memory("letters"), name="letters")

    assert_as_sequential(program, data.draw(logs(program)), ProcessKernel.of)


# One kernel by hand


def lowered(function, **options):
    program = ab.Program("p")
    schema = {"t": pl.Int64, "k": pl.String, "n": pl.Int64}
    stream = program.read(ab.sources.Records([], schema=schema), event_time="t").key_by("k")
    stream.process(function, name="op", **options).write(ab.sinks.Memory("out"))
    graph = program.freeze()
    (op,) = [op for op in graph.operators if op.kind == "process"]
    return ProcessKernel.of(graph, op)


def taken(rows, before=None, after=None):
    """An epoch of rows (key, milliseconds, n)."""
    frame = pl.DataFrame(
        {
            "t": [t for _, t, _ in rows],
            "k": [k for k, _, _ in rows],
            "n": [n for _, _, n in rows],
            TIME: [t * 1000 for _, t, _ in rows],
            PARTITION: [0] * len(rows),
            OFFSET: range(len(rows)),
            SLICE: [0] * len(rows),
        },
        schema={"t": pl.Int64, "k": pl.String, "n": pl.Int64, TIME: pl.Int64, PARTITION: pl.Int32,
                OFFSET: pl.Int64, SLICE: pl.UInt16},
    )  # fmt: skip
    scaled = [None if each is None else each * 1000 for each in (before, after)]
    return Taken(0, [frame], *scaled)


def kinds(delta):
    """How many cells, elements and timers a delta has."""
    return [delta.filter(pl.col("kind") == kind).height for kind in range(3)]


def counts_by_element(record, state):
    state.map[record["n"]] = state.map.get(record["n"], 0) + 1


def test_one_element_of_a_large_map_is_all_that_is_written():
    kernel = lowered(counts_by_element, out=OUT)
    first = kernel.run(taken([("a", 0, n) for n in range(5000)]), kernel.restore(()))
    assert kinds(first.delta) == [1, 5000, 0]

    for state in (first.state, kernel.restore([first.delta])):
        second = kernel.run(taken([("a", 1, 4321)]), state)
        assert kinds(second.delta) == [0, 1, 0]
        assert second.delta["value"][0].hex().endswith("0200000000000000")


def test_a_map_that_is_read_is_not_written():
    kernel = lowered(reads_its_map, out=OUT)
    first = kernel.run(taken([("a", 0, 1), ("a", 0, 2)]), kernel.restore(()))
    second = kernel.run(taken([("a", 1, 1)]), first.state)
    assert kinds(first.delta) == [1, 2, 0]
    assert kinds(second.delta) == [0, 0, 0]


def reads_its_map(record, state):
    state.map.setdefault(record["n"], [])
    sorted(state.map.items())


def test_elements_keep_their_order_wherever_they_come_from():
    kernel = lowered(moves_to_the_end, out=OUT)
    state, expected = kernel.restore(()), {}
    deltas = []
    for n in (1, 2, 3, 1, 2, 2, 1):
        given = kernel.run(taken([("a", 0, n)]), kernel.restore(deltas))
        deltas.append(given.delta)
        expected.pop(n, None)
        expected[n] = True
        assert given.rows["out"]["told"].to_list() == [repr(list(expected))]
    assert state.version == 0


def moves_to_the_end(record, state):
    state.map.pop(record["n"], None)
    state.map[record["n"]] = True
    return {"told": repr(list(state.map))}


class Later(ab.KeyedOperator):
    out = OUT

    def on_record(self, record, state):
        if record["n"] is None:
            state.clear()
        else:
            state.timer_at(record["n"])

    def on_timer(self, at, state):
        return {"what": state.key, "n": at}


def test_a_timer_that_fired_or_was_cancelled_at_its_epoch_s_end_needs_no_word():
    kernel = lowered(Later)
    first = kernel.run(
        taken([("a", 0, 5), ("a", 0, 50), ("b", 0, 60)], None, 10), kernel.restore(())
    )
    assert kinds(first.delta) == [0, 0, 2]
    assert first.rows["out"]["n"].to_list() == [5]

    second = kernel.run(taken([("b", 20, None)], 10, 55), first.state)
    assert second.rows["out"].select("what", "n").rows() == [("a", 50)]
    assert second.delta.select("kind", "part", "value").rows() == [(2, 60_000, None)]
    assert second.state.fold(2).whole().height == 0


def test_the_timers_of_other_keys_are_not_looked_at():
    kernel = lowered(Later)
    many = [(f"k{n}", 0, 1_000 + n) for n in range(2000)]
    state = kernel.run(taken(many, None, 1), kernel.restore(())).state.fold(1)
    state.take_cache()
    due = kernel.run(taken([], 1, 1_002), state)
    assert due.rows["out"].select("what", "n").rows() == [("k0", 1000), ("k1", 1001), ("k2", 1002)]
    assert len(due.state.take_cache()._live) == 3


class Forever(Later):
    def on_timer(self, at, state):
        state.timer_at(at + 1)


def test_timers_that_set_each_other_for_ever_are_an_error():
    kernel = lowered(Forever)
    with pytest.raises(Failed) as failed:
        kernel.run(taken([("a", 0, 1)], None, ENDLESS + 10), kernel.restore(()))
    assert failed.value.error.operator == "op"
    assert failed.value.error.text == "RunError: the timers of key 'a' set each other for ever"


class Breaks(Later):
    def on_timer(self, at, state):
        message = "no"
        raise ValueError(message)


def test_the_error_of_a_timer_tells_its_key_and_time():
    kernel = lowered(Breaks)
    with pytest.raises(Failed) as failed:
        kernel.run(taken([("a", 0, 7)], None, 8), kernel.restore(()))
    assert failed.value.error.text == "ValueError: no"
    assert failed.value.error.record == '{"k": "a", "timer": 7}'
    assert failed.value.error.traceback


def keeps_what_it_cannot(record, state):
    state.map["n"] = record["n"]
    if record["n"] == 2:
        state.map["bad"] = object()
    return {"n": len(state.map)}


def test_a_value_that_cannot_be_kept_is_an_error_of_its_record():
    kernel = lowered(keeps_what_it_cannot, out=OUT, on_error="skip")
    given = kernel.run(taken([("a", 0, 1), ("a", 0, 2), ("a", 0, 3)]), kernel.restore(()))
    assert given.rows["out"]["n"].to_list() == [1, 1]
    assert given.letters == 1

    kernel = lowered(keeps_what_it_cannot, out=OUT)
    with pytest.raises(Failed, match=r"^TypeError: state.map: a object cannot be kept$"):
        kernel.run(taken([("a", 0, 2)]), kernel.restore(()))


def adds_to_its_map(record, state):
    state.map[record["n"]] = True
    return {"told": str(sorted(state.map))}


def adds_to_its_list(record, state):
    state.list.append(record["n"])
    return {"told": str(state.list)}


def test_cells_that_outlived_their_time_are_freed_with_all_they_had():
    kernel = lowered(counts_by_element, out=OUT, ttl="10 ms")
    first = kernel.run(taken([("a", 0, 1), ("b", 30, 1)], None, 20), kernel.restore(()))
    state = first.state.fold(1)
    assert kinds(state.whole()) == [1, 1, 0]
    assert kinds(kernel.restore([first.delta]).whole()) == [2, 2, 0]


@pytest.mark.parametrize("elements", [adds_to_its_map, adds_to_its_list])
@pytest.mark.parametrize("together", [False, True])
def test_what_a_key_had_before_it_was_forgotten_does_not_come_back(elements, together, monkeypatch):
    """A key's elements go with its cell when state is folded; the deltas still have them."""
    # As if there were many: of few nothing is dropped.
    defaults = PartStore.from_frames.__func__.__kwdefaults__
    monkeypatch.setitem(defaults, "large", 0)
    kernel = lowered(elements, out=OUT, ttl="10 ms")
    state, deltas = kernel.restore(()), []
    epochs = [
        ([("a", 0, 11), ("a", 1, 12), ("a", 1, 13), ("a", 1, 14), ("a", 1, 15)], 5),
        ([("b", 40, n) for n in range(4)], 40),
        ([("a", 50, 3)], 50),
        ([("a", 51, 4)], 51),
    ]
    before = None
    for number, (rows, after) in enumerate(epochs, 1):
        given = kernel.run(taken(rows, before, after), state)
        deltas.append(given.delta)
        state, before = given.state.fold(number), after
        state.take_cache()

    given = [pl.concat(deltas, how="diagonal")] if together else deltas
    last = taken([("a", 52, 5)], before, 52)
    here = kernel.run(last, state).rows["out"].rows()
    assert here == kernel.run(last, kernel.restore(given)).rows["out"].rows()
    assert here == kernel.run(last, kernel.restore([state.whole()])).rows["out"].rows()
    assert "[3, 4, 5]" in str(here)


def pairs(record, state):
    state.value = state.value or Pair(0, [])
    state.value.left += 1
    state.value.right.append(record["n"])
    return {"told": repr(state.value)}


def test_dataclasses_that_the_function_names_come_back(monkeypatch):
    kernel = lowered(pairs, out=OUT)
    first = kernel.run(taken([("a", 0, 1)]), kernel.restore(()))
    monkeypatch.setattr(classes, "_KNOWN", {})

    second = kernel.run(taken([("a", 0, 2)]), kernel.restore([first.delta]))
    assert second.rows["out"]["told"].to_list() == ["Pair(left=2, right=[1, 2])"]

    other = lowered(remember, out=OUT)
    monkeypatch.setattr(classes, "_KNOWN", {})
    with pytest.raises(CheckpointError, match=r"is a tests.kernels.test_process_kernel.Pair"):
        other.run(taken([("a", 0, 2)]), other.restore([first.delta]))


@given(st.integers() | st.sampled_from([2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 0, True, 1.0]))
def test_a_cell_of_one_number_is_encoded_as_any_other_value(value):
    """There is a shorter way for whole numbers of 64 bits: what is kept does not show it."""
    cell = Cell(1, 1, 0, encode(1), Now())
    cell.value = value

    assert (encode((value,)),) == cell.cell_change(ttl=False)
