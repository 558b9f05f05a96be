"""Runs the proved functions of the corpus on records, so that their labels are tested, too."""

from __future__ import annotations

import copy
import json
import random
import sys
from datetime import datetime, timedelta
from typing import Any

from tests.compiler.functions.corpus import (
    called,
    counted,
    hostile,
    neighbours,
    reaching,
    rebuilt,
    stateful,
    subtle,
)
from tests.compiler.functions.corpus.case import CASES, Case

MODULES = (called, counted, hostile, neighbours, reaching, rebuilt, stateful, subtle)
USERS = ("ann", "bob", "", "Zoé ")


def records(seed: int, count: int = 24) -> list[dict[str, Any]]:
    """Records of every type of column that the corpus uses."""
    draw = random.Random(seed)
    return [
        {
            "id": n,
            "user": draw.choice(USERS),
            "text": draw.choice(("12", "the cat 7 sat", "", "a b a", "-3")),
            "price": draw.choice((0.0, 1.5, -2.25, 1e9)),
            "count": draw.randrange(-1, 9),
            "tags": draw.sample(["x", "y", "stop", "long one", "é"], draw.randrange(4)),
            "at": datetime(2024, 1, 1) + timedelta(seconds=draw.randrange(10**6)),
            "meta": {"k": draw.randrange(3), "deep": {"list": [1, 2]}},
            "flag": draw.random() < 0.5,
        }
        for n in range(count)
    ]


class TestingState:
    """A key's state as the operators see it."""

    __test__ = False

    def __init__(self, key: str) -> None:
        self.key, self.watermark = key, None
        self.clear()

    def clear(self) -> None:
        self.value, self.list, self.map, self.timers = None, [], {}, []

    def timer_at(self, at: Any) -> None:
        self.timers.append(at)


def given(call: Any, *passed: Any) -> list[Any] | str:
    """The rows of one record, or the exception."""
    try:
        rows = call(*passed)
        if rows is None:
            return []
        if isinstance(rows, dict | bool | str | float | int):
            return [copy.deepcopy(rows)]
        return [copy.deepcopy(row) for row in rows]
    except Exception as error:
        return type(error).__name__


def outputs(case: Case, rows: list[dict[str, Any]]) -> dict[int, Any]:
    """What a function gives for each record, by id; a key's records in the order given."""
    call = case.call.on_record if hasattr(case.call, "on_record") else case.call
    states: dict[str, TestingState] = {}
    found = {}
    for row in rows:
        mine = copy.deepcopy(row)
        key = row["user"]
        passed = (mine, states.setdefault(key, TestingState(key))) if case.state else (mine,)
        found[row["id"]] = given(call, *passed)
    return found


def proved() -> list[Case]:
    return [case for case in CASES if case.proved]


def told(seed: int) -> dict[str, str]:
    """The outputs of all proved functions, as text."""
    return {case.name: repr(outputs(case, records(seed))) for case in proved()}


if __name__ == "__main__":
    json.dump(told(int(sys.argv[1])), sys.stdout)
