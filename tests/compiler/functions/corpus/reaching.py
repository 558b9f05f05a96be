# ruff: noqa: C406, F841, PLW0603, SIM105
# mypy: ignore-errors
"""Every way to bind a name or to run a user's special method that is not an assignment or a call."""

import collections
import copy

from tests.compiler.functions.corpus.case import case as add
from tests.compiler.functions.corpus.case import hostile, pure

SEEN = []
KEPT = None


@hostile()
def binds_a_global_in_a_pattern(r):
    global KEPT
    match r:
        case {"id": KEPT}:
            pass
    return r


@hostile()
def binds_a_global_as_the_rest_of_a_pattern(r):
    global KEPT
    match r["tags"]:
        case [_, *KEPT]:
            pass
    return r


@hostile()
def binds_a_global_by_from_import(r):
    global KEPT
    from math import floor as KEPT

    return r


@hostile()
def binds_a_global_in_a_test(r):
    global KEPT
    return r if (KEPT := r["id"]) else None


@hostile()
def binds_a_global_in_a_function_inside(r):
    def inner():
        global KEPT
        return [KEPT := tag for tag in r["tags"]]

    return {**r, "n": len(inner())}


@hostile()
def deletes_a_global(r):
    global KEPT
    del KEPT
    return r


def _around():
    kept = None

    def by_exception(r):
        nonlocal kept
        try:
            int(r["text"])
        except ValueError as kept:
            pass
        return r

    def by_walrus(r):
        nonlocal kept
        return [kept := tag for tag in r["tags"]] and r

    return by_exception, by_walrus


for each in _around():
    add(f"writes_the_function_around_{each.__name__}", each, False)


class Private:
    def write(self, r):
        global __kept
        __kept = r["id"]
        return r

    def walrus(self, r):
        global __kept
        return r if (__kept := r["id"]) else None


add("writes_a_private_global", Private().write, False)
add("writes_a_private_global_in_a_test", Private().walrus, False)


@pure("at-most-one")
def binds_its_own_names_in_every_way(r):
    import math as numbers

    match r:
        case {"count": count}:
            n = numbers.floor(count)
        case _:
            n = 0
    return r if (last := n) > 0 and last else None


class Loud:
    def __eq__(self, other):
        SEEN.append(1)
        return True

    def __hash__(self):
        SEEN.append(1)
        return 1

    def __radd__(self, other):
        SEEN.append(1)
        return 1

    def __rmatmul__(self, other):
        SEEN.append(1)
        return 1

    def __reduce_ex__(self, protocol):
        SEEN.append(1)
        return (Loud, ())


LOUD = Loud()
LOUDS = [LOUD]


@hostile()
def adds_in_a_loop(r):
    total = 0
    for _ in r["tags"]:
        total = total + LOUD
    return {**r, "n": total}


@hostile()
def adds_to_its_own_column(r):
    r["n"] = r["count"]
    r["n"] += LOUD
    return r


@hostile()
def multiplies_its_own_column(r):
    r["price"] = r["price"] @ LOUD
    return r


@hostile()
def removes_from_a_list_of_hooks(r):
    [LOUD].remove(r["id"])
    return r


@hostile()
def counts_in_a_tuple_of_hooks(r):
    return {**r, "n": (LOUD, 1).count(r["id"])}


@hostile()
def finds_in_an_outside_list_of_hooks(r):
    return {**r, "n": LOUDS.index(r["id"])}


@hostile()
def finds_in_a_deque_of_hooks(r):
    return {**r, "n": collections.deque([LOUD]).index(r["id"])}


@hostile()
def gets_by_a_key_with_a_hook_inside(r):
    return {**r, "n": {}.get((LOUD, 1))}


@hostile()
def makes_keys_of_hooks(r):
    return {**r, "n": len(dict.fromkeys([LOUD]))}


@hostile()
def makes_keys_of_hooks_in_pairs(r):
    return {**r, "n": len(dict([(LOUD, 1)]))}


@hostile()
def copies_hooks_in_a_list(r):
    copy.deepcopy([(1, [LOUD])])
    return r


@hostile()
def copies_hooks_in_the_record(r):
    r["meta"]["x"] = [LOUD]
    return copy.deepcopy(r)


@pure("one")
def copies_plain_values(r):
    return {**r, "meta": copy.deepcopy(r["meta"]), "n": copy.deepcopy({"a": [1]})}


@pure("one")
def finds_among_plain_values(r):
    return {**r, "n": [1, 2].count(r["count"]) + ("a", "b").index("b")}


def _constant(r):
    kept = "PLACE"
    return {**r, "n": len(kept)}


def _with_constant(value):
    constants = tuple(value if c == "PLACE" else c for c in _constant.__code__.co_consts)
    return type(_constant)(_constant.__code__.replace(co_consts=constants), globals(), "_constant")


add("constant_that_is_a_list", _with_constant(SEEN), False)
add("constant_that_is_an_object", _with_constant(LOUD), False)
add("constant_with_a_list_inside", _with_constant(("a", SEEN)), False)


@hostile()
def sets_an_item_by_its_special_method(r):
    r.__setitem__("x", 0)
    return r


@hostile()
def deletes_an_item_by_its_special_method(r):
    r["meta"].__delitem__("x")
    return r
