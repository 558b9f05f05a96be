"""Functions that only read; what they read is changed by a neighbour in the same module.

By the definition of `proved` (reads nothing that can change) they are unsafe: in another process the
neighbour's writes are not seen. A check at the start of a task does not see a write in its middle.
"""

from __future__ import annotations

from tests.compiler.independent.labels import between, unsafe

limit = 0
LATEST: dict = {}
HISTORY: list = []


def raise_the_limit(r):
    global limit
    limit += r["x"]
    return r


unsafe(raise_the_limit, lambda call: call({"x": 1}) and limit > 0)


def reads_the_limit(r):
    return {**r, "limit": limit}


unsafe(reads_the_limit, between(lambda: raise_the_limit({"x": 1})))


def remember(r):
    LATEST[r["name"]] = r["id"]
    HISTORY.append(r["id"])
    return r


unsafe(remember, lambda call: call({"name": "n", "id": 1}) and bool(LATEST))


def reads_the_latest(r):
    return {**r, "latest": LATEST.get("Eve", 0)}


unsafe(reads_the_latest, between(lambda: remember({"name": "Eve", "id": 5})))


def reads_the_length(r):
    return {**r, "n": len(HISTORY)}


unsafe(reads_the_length, between(lambda: remember({"name": "Bob", "id": 5})))


def make_pair():
    total = 0

    def add(r):
        nonlocal total
        total += r["x"]
        return r

    def read(r):
        return {**r, "total": total}

    return add, read


add_to_total, read_total = make_pair()
unsafe(read_total, between(lambda: add_to_total({"x": 2})), name="reads_a_cell_another_writes")


class Rates:
    def __init__(self):
        self.rate = 1.0

    def learn(self, r):
        self.rate *= 2
        return r

    def apply(self, r):
        return {**r, "x": r["x"] * self.rate}


RATES = Rates()
unsafe(RATES.apply, between(lambda: RATES.learn({})), name="reads_an_attribute_another_writes")
