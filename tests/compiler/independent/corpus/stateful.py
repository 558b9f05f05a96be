"""Functions with state: `state` is the key's own, and may be kept nowhere else."""

from __future__ import annotations

import functools

from anabranch.program.functions import KeyedOperator
from tests.compiler.independent.labels import State, marks, rows, twice, unsafe

DEFAULTS = {"n": 0}
EMPTY: list = []
SEEN: list = []
KEPT: dict = {}
PROFILE = {"scores": []}


def shared_default(r, state):
    # What many write; all keys share the one dict.
    state.value = state.value or DEFAULTS
    state.value["n"] += 1
    yield {"n": state.value["n"]}


unsafe(shared_default, twice(state=State), state=True)


def shared_default_if_none(r, state):
    if state.value is None:
        state.value = DEFAULTS
    state.value["n"] += r["x"]
    return {"n": state.value["n"]}


unsafe(shared_default_if_none, twice(state=State), state=True)


def shallow_copy_of_a_default(r, state):
    if state.value is None:
        state.value = dict(PROFILE)
    state.value["scores"].append(r["x"])
    return {"n": len(state.value["scores"])}


unsafe(shallow_copy_of_a_default, twice(state=State), state=True)


def list_in_a_list(r, state):
    state.list.append(EMPTY)
    state.list[-1].append(r["id"])
    return {"n": len(state.list[0])}


unsafe(list_in_a_list, twice(state=State), state=True)


def list_replaced(r, state):
    state.list = EMPTY
    state.list.append(r["id"])
    return {"n": len(state.list)}


unsafe(list_replaced, twice(state=State), state=True)


def map_with_a_shared_default(r, state):
    state.map.setdefault(r["name"], EMPTY).append(r["id"])
    return {"n": len(state.map[r["name"]])}


unsafe(map_with_a_shared_default, twice(state=State), state=True)


def value_in_a_default(r, state, first=[]):
    if state.value is None:
        state.value = first
    state.value.append(r["id"])
    return {"n": len(state.value)}


unsafe(value_in_a_default, twice(state=State), state=True)


def keeps_the_state(r, state):
    SEEN.append(state)
    return {"n": len(SEEN)}


unsafe(keeps_the_state, twice(state=State), state=True)


def keeps_the_list(r, state):
    global last_list
    before, last_list = last_list, state.list
    if before is not None:
        before.append(r["id"])
    state.list.append(r["id"])
    return {"n": len(before or ())}


last_list = None
unsafe(keeps_the_list, twice(state=State), state=True)


def keeps_by_key(r, state):
    KEPT[state.key] = KEPT.get(state.key, 0) + 1
    return {"n": KEPT[state.key]}


unsafe(keeps_by_key, twice(state=State), state=True)


def keeps_a_bound_method(r, state):
    KEPT.setdefault("add", state.list.append)(r["id"])
    return {"n": len(state.list)}


unsafe(keeps_a_bound_method, twice(state=State), state=True)


def state_on_itself(r, state):
    state_on_itself.last, before = state.value, getattr(state_on_itself, "last", "none")
    state.value = r["id"]
    return {"before": before}


unsafe(state_on_itself, twice(state=State), state=True)


def class_of_the_state(r, state):
    type(state).seen = getattr(type(state), "seen", 0) + 1
    return {"n": type(state).seen}


unsafe(class_of_the_state, twice(state=State), state=True)


def keeps_in_a_generator_local(r, state, running=iter(range(1000))):
    state.value = next(running)
    yield {"n": state.value}


unsafe(keeps_in_a_generator_local, twice(state=State), state=True)


def swaps_with_a_global(r, state):
    global spare
    state.value, spare = spare, r["x"] + (spare or 0)
    return {"before": state.value}


spare = None
unsafe(swaps_with_a_global, twice(state=State), state=True)


def put_away(state, row):
    KEPT.setdefault("rows", []).append(row)
    state.value = len(KEPT["rows"])


def helper_keeps(r, state):
    put_away(state, r["id"])
    return {"n": state.value}


unsafe(helper_keeps, twice(state=State), state=True)

unsafe(
    functools.partial(
        lambda r, state, totals: totals.append(r["x"]) or {"n": len(totals)}, totals=[]
    ),
    twice(state=State),
    state=True,
    name="partial_with_state",
)


class OnRecordWrites(KeyedOperator):
    out = {"n": int}

    def __init__(self):
        self.n = 0

    def on_record(self, record, state):
        self.n += 1
        yield {"n": self.n}

    def on_timer(self, at, state):
        return None


unsafe(OnRecordWrites(), twice(state=State), state=True, name="on_record_writes_self")


class OnTimerWrites(KeyedOperator):
    out = {"n": int}
    fired = 0

    def on_record(self, record, state):
        state.timer_at(record["at"])
        return {"n": 0}

    def on_timer(self, at, state):
        self.fired += 1
        return {"n": self.fired}


def _timer_twice(operator):
    return operator.on_timer(1, State()) != operator.on_timer(1, State())


unsafe(OnTimerWrites(), _timer_twice, state=True, name="on_timer_writes_self")


class OnTimerTells(KeyedOperator):
    out = {"n": int}

    def on_record(self, record, state):
        state.timer_at(record["at"])
        return None

    def on_timer(self, at, state):
        SEEN.append(at)
        yield {"n": len(SEEN)}


unsafe(
    OnTimerTells(),
    lambda o: list(o.on_timer(1, State())) != list(o.on_timer(1, State())),
    state=True,
    name="on_timer_writes_a_global",
)


class ClassList(KeyedOperator):
    out = {"n": int}
    seen: list = []

    def on_record(self, record, state):
        self.seen.append(record["id"])
        return {"n": len(self.seen)}


unsafe(ClassList(), twice(state=State), state=True, name="operator_with_a_class_list")


class KeepsState(KeyedOperator):
    out = {"n": int}

    def on_record(self, record, state):
        previous, self.state = getattr(self, "state", None), state
        state.value = record["id"]
        return {"previous": previous and previous.value}


unsafe(KeepsState(), twice(state=State), state=True, name="operator_keeps_the_state")


class BaseCounts(KeyedOperator):
    out = {"n": int}
    n = 0

    def count(self):
        self.n += 1
        return self.n

    def on_record(self, record, state):
        return {"n": self.count()}


class InheritsCounting(BaseCounts):
    def on_record(self, record, state):
        yield super().on_record(record, state)


unsafe(InheritsCounting(), twice(state=State), state=True, name="operator_inherits_a_counter")


class ByDict(KeyedOperator):
    out = {"n": int}

    def __init__(self):
        self.totals = {}

    def on_record(self, record, state):
        totals = self.totals
        totals[state.key] = totals.get(state.key, 0) + record["x"]
        yield {"n": totals[state.key]}


unsafe(ByDict(), twice(state=State), state=True, name="operator_with_its_own_dict")


class HiddenHook(KeyedOperator):
    out = {"n": int}

    def __getattribute__(self, name):
        if name == "on_record":
            SEEN.append(name)
        return super().__getattribute__(name)

    def on_record(self, record, state):
        return {"n": 1}


unsafe(HiddenHook(), marks(SEEN, state=True), state=True, name="operator_with_a_hook")


class Replaced(KeyedOperator):
    """What is called is the instance's attribute, not the class's method."""

    out = {"n": int}

    def __init__(self):
        self.on_record = self._count

    def on_record(self, record, state):
        return {"n": 1}

    def _count(self, record, state):
        SEEN.append(record["id"])
        return {"n": len(SEEN)}


unsafe(
    Replaced(),
    lambda o: rows(o, state=State()) != rows(o, state=State()),
    state=True,
    name="operator_with_a_replaced_method",
)


def state_is_the_default(r, state=State()):
    state.value = (state.value or 0) + 1
    return {"n": state.value}


unsafe(state_is_the_default, twice())


def names_swapped(state, record):
    # The first argument is the record, whatever it is called.
    record.value = (record.value or 0) + 1
    SEEN.append(state["id"])
    return {"n": len(SEEN)}


unsafe(names_swapped, twice(state=State), state=True)


# What is shared goes into the state in one call and is changed in a later one.


def across_calls(call):
    state, before = State(), repr((SEEN, EMPTY))
    rows(call, state=state)
    rows(call, state=state)
    return repr((SEEN, EMPTY)) != before


def shared_value_changed_later(r, state):
    if state.value is not None:
        state.value.append(r["id"])
    else:
        state.value = EMPTY
    return {"id": r["id"]}


unsafe(shared_value_changed_later, across_calls, state=True)


def shared_entry_changed_later(r, state):
    for entry in state.map.values():
        entry.append(r["id"])
    state.map["all"] = EMPTY
    return {"id": r["id"]}


unsafe(shared_entry_changed_later, across_calls, state=True)


def shared_item_changed_later(r, state):
    for item in state.list:
        item += [r["id"]]
    state.list += [EMPTY]
    return {"id": r["id"]}


unsafe(shared_item_changed_later, across_calls, state=True)


class SharedAcrossMethods(KeyedOperator):
    out = {"id": int}

    def on_record(self, record, state):
        state.value = EMPTY
        return None

    def on_timer(self, at, state):
        state.value.append(at)
        return None


def record_then_timer(operator):
    state, before = State(), len(EMPTY)
    rows(operator, state=state)
    operator.on_timer(1, state)
    return len(EMPTY) > before


unsafe(SharedAcrossMethods(), record_then_timer, state=True, name="shared_value_changed_by_a_timer")


def closure_over_the_state_kept(r, state):
    before = KEPT.get("read")
    KEPT["read"] = lambda: state.key
    return {"known": before is not None, "n": len(KEPT)}


unsafe(closure_over_the_state_kept, marks(KEPT, state=True), state=True)
