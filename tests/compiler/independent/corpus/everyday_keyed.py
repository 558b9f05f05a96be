"""What data engineers write with state: these should be proved too."""

from __future__ import annotations

from anabranch.program.functions import KeyedOperator
from tests.compiler.independent.corpus.everyday import PLACE, haversine
from tests.compiler.independent.labels import RECORD, safe


def speed(r, state):
    previous, state.value = state.value, r
    if previous is not None and r["at"] > previous["at"]:
        km = haversine(previous["lat"], previous["lon"], r["lat"], r["lon"])
        yield {"phone": r["phone"], "kmh": km / (r["at"] - previous["at"])}


safe(speed, PLACE, state=True)


def running_total(r, state):
    state.value = (state.value or 0) + r["x"]
    return {**r, "total": state.value}


safe(running_total, state=True)


def first_only(r, state):
    if state.value:
        return None
    state.value = True
    return r


safe(first_only, state=True)


def last_three(r, state):
    state.list.append(r["x"])
    if len(state.list) > 3:
        state.list.pop(0)
    return {"id": r["id"], "mean": sum(state.list) / len(state.list)}


safe(last_three, state=True)


def counted_by_name(r, state):
    state.map[r["name"]] = state.map.get(r["name"], 0) + 1
    yield {"name": r["name"], "n": state.map[r["name"]]}


safe(counted_by_name, state=True)


def statistics(r, state):
    if state.value is None:
        state.value = {"n": 0, "sum": 0.0}
    state.value["n"] += 1
    state.value["sum"] += r["x"]
    return {"id": r["id"], "mean": state.value["sum"] / state.value["n"]}


safe(statistics, state=True)


class Inactivity(KeyedOperator):
    out = {"id": int}

    def __init__(self, gap=10):
        self.gap = gap

    def on_record(self, record, state):
        state.value = record["at"]
        state.timer_at(record["at"] + self.gap)
        return None

    def on_timer(self, at, state):
        if state.value is not None and at - state.value >= self.gap:
            yield {"id": state.key}
            state.clear()


safe(Inactivity(), RECORD, state=True, name="inactivity")
