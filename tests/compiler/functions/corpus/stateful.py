# mypy: ignore-errors
"""Functions with keyed state, and operators with timers."""

from dataclasses import dataclass
from datetime import timedelta

from anabranch.program.functions import KeyedOperator
from tests.compiler.functions.corpus.case import all_but, case, exactly, pure


@pure("one", all_but("n"), state=True)
def running_count(r, state):
    state.value = (state.value or 0) + 1
    return {**r, "n": state.value}


@pure("at-most-one", exactly("id"), state=True)
def difference(r, state):
    previous, state.value = state.value, r
    if previous is not None:
        yield {"id": r["id"], "change": r["price"] - previous["price"]}


@pure("at-most-one", exactly(), state=True)
def previous_row(r, state):
    previous, state.value = state.value, r
    if previous is not None:
        yield previous


@pure("at-most-one", exactly(), state=True)
def previous_column(r, state):
    previous = state.value
    state.value = {"id": r["id"]}
    if previous:
        yield {"id": previous["id"]}


@pure("one", exactly(), state=True)
def state_changes_record(r, state):
    state.value = r
    state.value["id"] = 0
    return {"id": r["id"]}


@pure("one", all_but("seen"), state=True)
def state_list(r, state):
    state.list.append(r["user"])
    if len(state.list) > 3:
        state.list.pop(0)
    return {**r, "seen": len(state.list)}


@pure("one", all_but("seen"), state=True)
def state_map(r, state):
    state.map[r["user"]] = state.map.get(r["user"], 0) + 1
    return {**r, "seen": sum(state.map.values())}


@pure("one", all_but("n"), state=True)
def state_in_place(r, state):
    if state.value is None:
        state.value = {"n": 0, "tags": []}
    state.value["n"] += 1
    state.value["tags"].append(r["user"])
    return {**r, "n": state.value["n"]}


@pure("one", all_but("n"), state=True)
def state_set(r, state):
    seen = state.value or set()
    seen.add(r["user"])
    state.value = seen
    return {**r, "n": len(seen)}


@pure("one", all_but("key"), state=True)
def state_key(r, state):
    if r["flag"]:
        state.clear()
    return {**r, "key": state.key}


def _remember(state, value):
    before, state.value = state.value, value
    return before


@pure("one", all_but("before"), state=True)
def state_in_helper(r, state):
    return {**r, "before": _remember(state, r["count"])}


@dataclass
class Stats:
    n: int = 0
    total: float = 0.0


@pure("one", all_but("mean"), state=True)
def state_dataclass(r, state):
    stats = state.value or Stats()
    stats.n += 1
    stats.total += r["price"]
    state.value = stats
    return {**r, "mean": stats.total / stats.n}


@pure("one", exactly(), state=True)
def state_dataclass_of_last_call(r, state):
    stats = state.value or Stats(n=r["count"])
    state.value = Stats(n=r["count"])
    return {"count": stats.n}


class Timeout(KeyedOperator):
    out = {}

    def __init__(self, wait=5):
        self.wait = timedelta(seconds=wait)

    def on_record(self, record, state):
        state.value = record["count"]
        state.timer_at(record["at"] + self.wait)

    def on_timer(self, at, state):
        yield {"key": state.key, "last": state.value}


class Quiet(KeyedOperator):
    out = {}

    def on_record(self, record, state):
        yield {**record, "n": 1}

    def on_timer(self, at, state):
        state.clear()


case("operator_with_timer", Timeout(), True, "any", exactly(), state=True)
case("operator_with_quiet_timer", Quiet(), True, "one", all_but("n"), state=True)
