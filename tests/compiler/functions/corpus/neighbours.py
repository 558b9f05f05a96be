# ruff: noqa: E731, PLW0603
# mypy: ignore-errors
"""Functions that read what others of their file write, next to some that read what nobody does."""

import bisect
import functools
import heapq
from dataclasses import dataclass

from tests.compiler.functions.corpus.case import all_but, case, hostile, pure

limit = 0
fixed = 10
names = ("a", "b")
HEAP = []
ORDER = [1, 2]
NESTED = {"inner": [1]}
TABLE = {"x": 1}
BUILT = {}
BUILT["at import"] = 1
COUNTS = {"x": 0}
FAST = False


def helper(x):
    return x + 1


def switch(fast):
    global FAST, helper
    FAST = fast
    helper = lambda x: x - 1 if fast else x


def push(n):
    heapq.heappush(HEAP, n)
    bisect.insort(ORDER, n)
    NESTED["inner"].append(n)


def set_default(key):
    COUNTS.setdefault(key, 0)


def shadows(names, fixed):
    names.append(fixed)
    fixed += 1
    TABLE = {}
    TABLE["y"] = 1
    return TABLE, fixed


@hostile()
def reads_a_flag_others_set(r):
    return r if FAST else None


@hostile()
def calls_what_others_rebind(r):
    return {**r, "n": helper(r["count"])}


@hostile()
def reads_a_heap_others_push_to(r):
    return {**r, "n": len(HEAP)}


@hostile()
def reads_a_list_others_insert_into(r):
    return {**r, "n": ORDER[0]}


@hostile()
def reads_what_others_change_below(r):
    return {**r, "n": len(NESTED["inner"])}


@hostile()
def reads_what_others_fill_by_default(r):
    return {**r, "n": COUNTS.get("x")}


@hostile()
def reads_it_through_a_default(r, table=COUNTS):
    return {**r, "n": table.get("x")}


def _reader_of(table):
    return lambda r: {**r, "n": table.get("x")}


case("reads_it_through_a_closure", _reader_of(COUNTS), False)
case(
    "reads_it_through_a_partial",
    functools.partial(lambda table, r: {**r, "n": table.get("x")}, COUNTS),
    False,
)


@pure("one", all_but("n"))
def reads_what_is_built_at_import(r):
    return {**r, "n": BUILT.get("x", fixed)}


@pure("one", all_but("n"))
def reads_what_others_only_shadow(r):
    return {**r, "n": TABLE["x"] + len(names)}


def _two_around_one_list():
    seen, kept = [], []

    def keep(r):
        seen.append(r["id"])
        return r

    def count(r):
        return {**r, "n": len(seen)}

    def other(r):
        return {**r, "n": len(kept)}

    return keep, count, other


def _two_around_one_number():
    total, rate = 0, 2

    def learn(r):
        def inner():
            nonlocal total
            total = r["count"]

        inner()
        return r

    def apply(r):
        return {**r, "n": total}

    def scale(r):
        return {**r, "n": r["count"] * rate}

    return learn, apply, scale


_, _counted, _uncounted = _two_around_one_list()
_, _applied, _scaled = _two_around_one_number()
case("list_of_the_function_around_changed_by_another", _counted, False)
case("list_of_the_function_around_changed_by_nobody", _uncounted, True, "one", all_but("n"))
case("number_of_the_function_around_set_two_functions_deep", _applied, False)
case("number_of_the_function_around_set_by_nobody", _scaled, True, "one", all_but("n"))


class Model:
    unit = "eur"
    scale = 1

    def __init__(self, rate):
        self.rate = rate
        self.table = {}
        self.table["x"] = 1
        self.weights = [1.0]
        self.bias = 0.0
        self.__hidden = 0

    @classmethod
    def configure(cls, scale):
        cls.scale = scale

    def fit(self, r):
        self.weights[0] += r["price"]
        setattr(self, "bias", 1.0)  # noqa: B010
        self.__hidden += 1
        return r

    def fixed(self, r):
        return {**r, "n": self.rate * self.table["x"], "unit": self.unit}

    def weighted(self, r):
        return {**r, "n": self.weights[0]}

    def biased(self, r):
        return {**r, "n": self.bias}

    def hidden(self, r):
        return {**r, "n": self.__hidden}

    def scaled(self, r):
        return {**r, "n": self.scale}


case("attributes_set_by_the_constructor", Model(2).fixed, True, "one", all_but("n", "unit"))
case("attribute_another_method_changes_within", Model(2).weighted, False)
case("attribute_another_method_sets_by_name", Model(2).biased, False)
case("private_attribute_another_method_sets", Model(2).hidden, False)
case("attribute_a_classmethod_sets", Model(2).scaled, False)


@dataclass
class Tally:
    n: int = 0
    most = 9


def raise_the_most():
    Tally.most += 1


@pure("one", all_but("n"))
def sets_attributes_of_its_own_object(r):
    tally = Tally()
    tally.n += r["count"]
    return {**r, "n": tally.n}


@hostile()
def reads_what_others_set_on_the_class(r):
    return {**r, "n": Tally().most}
