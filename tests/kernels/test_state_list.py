"""A key's list is what any list would be, and what an epoch writes of it is what it changed."""

import copy
import heapq
import json
import pickle
from dataclasses import dataclass

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import CheckpointError
from anabranch.kernels.bundle import OFFSET, PARTITION, SLICE, TIME
from anabranch.kernels.failures import Failed
from anabranch.kernels.kernel import Taken
from anabranch.kernels.keyed.list import APART, SHORT, StateList
from anabranch.kernels.keyed.process import ProcessKernel
from anabranch.state.codec import encode
from tests.kernels.keyed_cases import assert_as_sequential, logs

OUT = {"op": pl.String, "told": pl.String}


@dataclass(order=True)
class Job:
    at: int
    tries: int = 0


# What functions do with lists


def at(found, n):
    """A place in a list, from either end, maybe beyond it."""
    return n % (len(found) + 1) if n >= 0 else -(-n % (len(found) + 2))


def fill(found, n):
    found.extend({"n": each} for each in range(n, n + SHORT + 4))


def mutate(found, n):
    element = found[at(found, n)]
    if isinstance(element, dict):
        element["n"] = n
    elif isinstance(element, list):
        element.append(n)
    elif isinstance(element, Job):
        element.tries += 1
    elif isinstance(element, tuple) and isinstance(element[1], list):
        element[1].append(n)


def mutate_all(found, n):
    for element in found:
        if isinstance(element, dict):
            element[str(n)] = n


def mutate_some(found, n):
    for element in found[n:]:
        if isinstance(element, dict):
            element["some"] = n


def move(found, n):
    """Take one out, change it, put it back, maybe where it was."""
    element = found.pop(at(found, n))
    if isinstance(element, dict):
        element["moved"] = element.get("moved", 0) + 1
    found.insert(at(found, n), element)


def push(found, n):
    """Change a heap without a call of its methods."""
    if all(isinstance(each, Job) for each in found):
        heapq.heappush(found, Job(n))


def push_back(found, n):
    """Change an element while it is out of a heap."""
    if found and all(isinstance(each, Job) for each in found):
        job = heapq.heappop(found)
        job.tries += n
        heapq.heappush(found, job)


def sift(found, n):
    if all(type(each) is int for each in found):
        heapq.heapify(found)
        heapq.heappush(found, n)
        heapq.heapreplace(found, -n)


def pour(found, n):
    if found and all(type(each) is int for each in found):
        heapq.heappop(found)


def add(found, n):
    found += [n, n]


def multiply(found, n):
    if len(found) < 50 and all(isinstance(each, int | str) for each in found):
        found *= n % 3


def assign(found, n):
    found[at(found, n)] = n


def double(found, n):
    found[:] = [json.loads(json.dumps(each, default=repr)) for each in found[:20]] + [n]


CHANGES = {
    "append": lambda found, n: found.append(n),
    "append text": lambda found, n: found.append(str(n)),
    "append dict": lambda found, n: found.append({"n": n}),
    "append list": lambda found, n: found.append([n]),
    "append job": lambda found, n: found.append(Job(n)),
    "append pair": lambda found, n: found.append((n, [n])),
    "append fixed pair": lambda found, n: found.append((n, "a")),
    "extend": lambda found, n: found.extend(range(n)),
    "add": add,
    "fill": fill,
    "multiply": multiply,
    "insert": lambda found, n: found.insert(n, {"at": n}),
    "insert first": lambda found, n: found.insert(0, n),
    "insert in the middle": lambda found, n: found.insert(len(found) // 2, n),
    "pop": lambda found, n: found.pop() if n else found.pop(0),
    "pop at": lambda found, n: found.pop(n),
    "move": move,
    "remove": lambda found, n: found.remove(n),
    "delete": lambda found, n: found.__delitem__(n),
    "delete first": lambda found, n: found.__delitem__(slice(None, max(n, 0))),
    "delete some": lambda found, n: found.__delitem__(slice(None, None, n or 1)),
    "delete range": lambda found, n: found.__delitem__(slice(n, n + 3)),
    "assign": assign,
    "assign range": lambda found, n: found.__setitem__(slice(n, n + 2), [n] * abs(n)),
    "assign backwards": lambda found, n: found.__setitem__(slice(5, 2), [n, {"n": n}]),
    "assign some": lambda found, n: found.__setitem__(slice(None, None, 2), found[::2][::-1]),
    "double": double,
    "sort": lambda found, n: found.sort(key=repr, reverse=n > 2),
    "reverse": lambda found, n: found.reverse(),
    "clear": lambda found, n: found.clear(),
    "mutate": mutate,
    "mutate all": mutate_all,
    "mutate some": mutate_some,
    "push": push,
    "push back": push_back,
    "sift": sift,
    "pour": pour,
    "as it was": lambda found, n: found.append(n) or found.pop(),
    "swap kinds": lambda found, n: found.__setitem__(0, not n),
}
REPLACED = {
    "replace": lambda found, n: (n, {"n": n}),
    "keep the last": lambda found, n: found[-abs(n) - 1 :],
    "keep some": lambda found, n: [each for each in found if str(n) not in repr(each)],
    "more before": lambda found, n: [n, *found],
    "with others": lambda found, n: [n] + found + [n],  # noqa: RUF005 - both sides
    "reversed": lambda found, n: reversed(found),
    "itself": lambda found, n: found,
}


def change(record, state):
    op, n = record["op"], record["n"]
    if op == "forget":
        state.clear()
    elif op == "fail":
        mutate_all(state.list, n)
        state.list.insert(1, {"failed": n})
        raise ValueError(n)
    elif op == "value":
        state.value = n
    elif op in REPLACED:
        state.list = REPLACED[op](state.list, n)
    else:
        CHANGES[op](state.list, n)
    if op in ("append", "fill", "value"):
        return None  # and look at nothing
    return {"op": op, "told": f"{len(state.list)} {state.list} {copy.copy(state.list)}"}


OPS = [*CHANGES, *REPLACED, "forget", "fail", "value"]


@st.composite
def programs(draw, **options):
    rows, now = [], 0
    for op in draw(st.lists(st.sampled_from(OPS), max_size=30)):
        now += draw(st.sampled_from([0, 1, 1, 9]))
        key, n = draw(st.sampled_from("aaab")), draw(st.integers(-3, 6))
        rows.append({"t": now, "k": key, "op": op, "n": n})
    schema = {"t": pl.Int64, "k": pl.String, "op": pl.String, "n": pl.Int64}
    program = ab.Program("drawn")
    stream = program.read(ab.sources.Records(rows, schema=schema), event_time="t")
    ttl = draw(st.sampled_from([{}, {}, {"ttl": "6 ms"}]))
    made = stream.key_by("k").process(change, out=OUT, on_error="dead_letter", **ttl)
    made.write(ab.sinks.Memory("out"))
    made.dead_letters.write(ab.sinks.Memory("letters"), name="letters")
    return program


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_list_is_what_it_is_in_the_sequential_run(data):
    program = data.draw(programs())
    assert_as_sequential(program, data.draw(logs(program)), ProcessKernel.of)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_list_goes_back_to_its_marks_and_is_the_fold_of_its_changes(data):
    found, plain, kept = StateList(), [], {}
    for _ in range(data.draw(st.integers(1, 12))):
        mark = found.mark()
        before = copy.deepcopy(plain)
        for _ in range(data.draw(st.integers(0, 4))):
            op, n = data.draw(st.sampled_from([*CHANGES, *REPLACED])), data.draw(st.integers(-3, 6))
            found, plain = changed(found, op, n), changed(plain, op, n)
        assert plain == found
        end = data.draw(st.sampled_from(["back", "look", "keep"]))
        if end == "back":
            found, plain = found.back(mark), before
        found.look()
        if end == "keep":
            kept = folded(kept, found.changes())
            assert encode(plain) == encode(StateList(kept))
        assert encode(plain) == encode(found)
    assert encode(plain) == encode(StateList(folded(kept, found.changes())))


def changed(found, op, n):
    """A list behind an operation, which may fail."""
    if isinstance(found, StateList):
        found.used = True
    try:
        if op in CHANGES:
            CHANGES[op](found, n)
            return found
        new = [*REPLACED[op](found, n)]
    except (IndexError, ValueError):
        return found
    return found.replaced(new) if isinstance(found, StateList) else copy.deepcopy(new)


def folded(kept, changes):
    together = {**kept, **changes}
    return {number: code for number, code in together.items() if code is not None}


# What is written


def kept_of(elements):
    return {number * APART: encode(each) for number, each in enumerate(elements)}


def written(change, elements=tuple(range(1000))):
    """What a change of a list with these elements writes."""
    for found in (StateList(kept_of(elements)), StateList().replaced(elements)):
        found.changes()
        found.used = True
        change(found)
        changes = found.changes()
        assert encode(list(found)) == encode(StateList(folded(kept_of(elements), changes)))
    return changes


DICTS = [{"n": n} for n in range(1000)]


@pytest.mark.parametrize("elements", [range(1000), DICTS, [[n] for n in range(1000)]])
def test_what_is_appended_is_all_that_is_written(elements):
    assert written(lambda found: found.append(5), elements) == {1000 * APART: encode(5)}
    assert written(lambda found: found.extend([5, {}]), elements) == {
        1000 * APART: encode(5),
        1001 * APART: encode({}),
    }


def test_what_is_taken_out_or_put_between_is_all_that_is_written():
    assert written(lambda found: found.pop()) == {999 * APART: None}
    assert written(lambda found: found.pop(0)) == {0: None}
    assert written(lambda found: found.remove(7)) == {7 * APART: None}
    assert written(lambda found: found.insert(0, "a")) == {-APART: encode("a")}
    assert written(lambda found: found.insert(2, "a")) == {APART * 3 // 2: encode("a")}
    assert written(lambda found: found.__setitem__(3, "a")) == {3 * APART: encode("a")}
    assert len(written(lambda found: found.__delitem__(slice(10, 990, 10)))) == 98
    assert len(written(lambda found: found.__setitem__(slice(10, 12), "abcd"))) == 4
    assert len(written(lambda found: found.clear())) == 1000


def test_a_list_of_the_last_elements_is_written_like_one_that_lost_the_first():
    def slide(found):
        found.append(7)
        del found[0]

    assert written(slide) == {0: None, 1000 * APART: encode(7)}

    found = StateList(kept_of(range(1000)))
    found.append(7)
    assert found.replaced(found[-1000:]).changes() == {0: None, 1000 * APART: encode(7)}


def test_a_heap_writes_what_it_moved():
    assert len(written(lambda found: heapq.heappush(found, -1))) <= 11
    assert len(written(heapq.heappop)) <= 12


def test_one_element_that_changed_in_place_is_all_that_is_written():
    def change(found):
        found[7]["n"] = "a"

    assert written(change, DICTS) == {7 * APART: encode({"n": "a"})}
    assert written(lambda found: found[7], DICTS) == {}
    assert written(list, DICTS) == {}


def test_dicts_that_nobody_was_given_are_not_encoded(monkeypatch):
    found, encoded = StateList(kept_of(DICTS)), []

    def counted(value):
        encoded.append(value)
        return encode(value)

    monkeypatch.setattr("anabranch.kernels.keyed.list.encode", counted)
    for ask in (len, lambda found: found[3], len, len, list, len, len):
        encoded.clear()
        found.used = True
        ask(found)
        before = list.__getitem__(found, 3)
        assert found.changes() == {}
        if ask is len:
            # Who was given one may have it still, until a look at which it was not given.
            lent = encoded
            assert len(lent) in (0, 1, 1000)
            assert bool(lent) == (list.__getitem__(found, 3) is not before)
        else:
            assert len(encoded) == (1000 if ask is list else 1)


def test_a_list_without_room_between_two_elements_gets_new_numbers():
    found, kept, plain = StateList(kept_of("ab")), kept_of("ab"), ["a", "b"]
    counts = []
    for n in range(50):
        found.used = True
        found.insert(1, n)
        plain.insert(1, n)
        changes = found.changes()
        kept = folded(kept, changes)
        counts.append(len(changes))
        assert encode(plain) == encode(StateList(kept))
    assert max(counts[:20]) == 1
    assert counts[20] > 20
    assert sorted(counts)[-3] == 1


def test_it_is_in_every_way_a_list():
    found = StateList(kept_of([3, 1, 2]))
    assert isinstance(found, list)
    assert found == [3, 1, 2]
    assert [3, 1, 2] == found
    assert json.dumps(found) == "[3, 1, 2]"
    assert [0] + found == [0, 3, 1, 2]  # noqa: RUF005
    assert found + [0] == [3, 1, 2, 0]  # noqa: RUF005
    assert found * 2 == 2 * found == [3, 1, 2, 3, 1, 2]
    assert type(found[:]) is type(found.copy()) is type(copy.copy(found)) is list
    assert type(copy.deepcopy(found)) is type(pickle.loads(pickle.dumps(found))) is list
    assert sorted(found) == [1, 2, 3]
    for wrong in (lambda: found.remove(9), lambda: found.pop(9), lambda: found.insert("a", 1)):
        with pytest.raises((ValueError, IndexError, TypeError)) as ours:
            wrong()
        assert "list" in str(ours.value) or "index" in str(ours.value) or "int" in str(ours.value)


# In a kernel


def lowered(function, **options):
    program = ab.Program("p")
    schema = {"t": pl.Int64, "k": pl.String, "op": pl.String, "n": pl.Int64}
    stream = program.read(ab.sources.Records([], schema=schema), event_time="t").key_by("k")
    stream.process(function, out=OUT, name="op", **options).write(ab.sinks.Memory("out"))
    graph = program.freeze()
    (op,) = [op for op in graph.operators if op.kind == "process"]
    return ProcessKernel.of(graph, op)


def taken(rows):
    """An epoch of rows (key, op, n)."""
    frame = pl.DataFrame(
        {"t": [0] * len(rows), "k": [k for k, _, _ in rows], "op": [op for _, op, _ in rows],
         "n": [n for _, _, n in rows], TIME: [0] * len(rows), PARTITION: [0] * len(rows),
         OFFSET: range(len(rows)), SLICE: [0] * len(rows)},
        schema={"t": pl.Int64, "k": pl.String, "op": pl.String, "n": pl.Int64, TIME: pl.Int64,
                PARTITION: pl.Int32, OFFSET: pl.Int64, SLICE: pl.UInt16},
    )  # fmt: skip
    return Taken(0, [frame], None, None)


def kinds(delta):
    """How many cells, elements of maps, timers and elements of lists a delta has."""
    return [delta.filter(pl.col("kind") == kind).height for kind in range(4)]


def test_one_element_of_a_large_list_is_all_that_is_written():
    kernel = lowered(change)
    first = kernel.run(taken([("a", "fill", n) for n in range(0, 5000, 20)]), kernel.restore(()))
    assert kinds(first.delta) == [1, 0, 0, 5000]

    for state in (first.state, kernel.restore([first.delta])):
        second = kernel.run(taken([("a", "append", 4321)]), state)
        assert kinds(second.delta) == [0, 0, 0, 1]
        assert second.delta["value"].to_list() == [encode(4321)]


def test_a_list_that_is_not_used_is_neither_decoded_nor_written(monkeypatch):
    kernel = lowered(change)
    first = kernel.run(taken([("a", "append", 1)]), kernel.restore(()))
    monkeypatch.setattr("anabranch.kernels.keyed.list.decode", None)
    second = kernel.run(taken([("a", "value", 1)]), kernel.restore([first.delta]))
    assert kinds(second.delta) == [1, 0, 0, 0]


def cell(*parts, key="a"):
    """A delta of one cell."""
    row = {"slice": 0, "key": encode((key,)), "part": 0, "value": encode(parts), "kind": 0}
    kinds = {"slice": pl.UInt16, "key": pl.Binary, "part": pl.Int64, "value": pl.Binary}
    return pl.DataFrame([row], schema={**kinds, "kind": pl.UInt8})


def test_a_list_that_was_kept_as_a_whole_is_read_and_then_kept_by_element():
    kernel = lowered(change)
    old = cell(7, [1, {"n": 2}])
    first = kernel.run(taken([("a", "insert first", 0)]), kernel.restore([old]))
    assert first.rows["out"]["told"].to_list() == ["3 [0, 1, {'n': 2}] [0, 1, {'n': 2}]"]
    assert kinds(first.delta) == [1, 0, 0, 3]

    second = kernel.run(taken([("a", "pop", 1)]), kernel.restore([old, first.delta]))
    assert second.rows["out"]["told"].to_list() == ["2 [0, 1] [0, 1]"]
    assert kinds(second.delta) == [0, 0, 0, 1]

    third = kernel.run(taken([("a", "value", 7)]), kernel.restore([old]))
    again = kernel.run(taken([("a", "reverse", 7)]), kernel.restore([old, third.delta]))
    assert again.rows["out"]["told"].to_list() == ["2 [{'n': 2}, 1] [{'n': 2}, 1]"]


def test_what_a_later_version_may_have_kept_is_refused():
    kernel = lowered(change)
    with pytest.raises(CheckpointError, match="a state has parts of an unknown kind"):
        kernel.restore([cell(1).with_columns(pl.lit(4, pl.UInt8).alias("kind"))])
    later = kernel.restore([cell(1, [], False, True, "more")])
    with pytest.raises(CheckpointError, match="what is kept of a key has an unknown form"):
        kernel.run(taken([("a", "append", 1)]), later)


def holds_what_it_cannot(record, state):
    state.list.append(record["n"])
    if record["n"] == 2:
        state.list.insert(0, object())
    return {"told": repr(state.list)}


def test_an_element_that_cannot_be_kept_is_an_error_of_its_record():
    rows = [("a", "", 1), ("a", "", 2), ("a", "", 3)]
    kernel = lowered(holds_what_it_cannot, on_error="skip")
    given = kernel.run(taken(rows), kernel.restore(()))
    assert given.rows["out"]["told"].to_list() == ["[1]", "[1, 3]"]
    assert given.letters == 1

    kernel = lowered(holds_what_it_cannot)
    with pytest.raises(Failed, match=r"^TypeError: state.list: a object cannot be kept$"):
        kernel.run(taken(rows), kernel.restore(()))
