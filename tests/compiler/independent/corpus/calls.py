"""Effects that hide in a call: bound methods, callbacks, helpers, tables of functions, eval."""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import operator
import re

from tests.compiler.independent.labels import marks, twice, unsafe

SEEN: list = []
TOTALS: dict = {}
LINES: list = []
STEPS: list = []
TICKS = itertools.count()
NAMES = iter(lambda: f"n{len(LINES)}-{next(TICKS)}", None)

add = SEEN.append
note = functools.partial(SEEN.append)
put = functools.partial(operator.setitem, TOTALS)
show = LINES.append
n_calls = 0


def unbound_method(r):
    list.append(SEEN, r["id"])
    return r


unsafe(unbound_method, marks(SEEN))


def operator_setitem(r):
    operator.setitem(TOTALS, len(TOTALS), r["id"])
    return r


unsafe(operator_setitem, marks(TOTALS))


def operator_iadd(r):
    operator.iadd(SEEN, [r["id"]])
    return r


unsafe(operator_iadd, marks(SEEN))


def method_caller(r):
    operator.methodcaller("append", r["id"])(SEEN)
    return r


unsafe(method_caller, marks(SEEN))


def attribute_getter(r):
    operator.attrgetter("append")(SEEN)(r["id"])
    return r


unsafe(attribute_getter, marks(SEEN))


def bound_method_of_the_module(r):
    add(r["id"])
    return r


unsafe(bound_method_of_the_module, marks(SEEN))


def bound_method_in_a_local(r):
    push = SEEN.append
    push(r["id"])
    return r


unsafe(bound_method_in_a_local, marks(SEEN))


def partial_of_a_bound_method(r):
    note(r["id"])
    return r


unsafe(partial_of_a_bound_method, marks(SEEN))


def partial_with_a_mutable_argument(r):
    put(len(TOTALS), r["id"])
    return r


unsafe(partial_with_a_mutable_argument, marks(TOTALS))


def with_total(total, r):
    total[0] += r["x"]
    return {**r, "total": total[0]}


unsafe(functools.partial(with_total, [0]), twice(), name="partial_as_the_function")


def with_keyword_total(r, total):
    total["x"] = total.get("x", 0) + r["x"]
    return {**r, "total": total["x"]}


unsafe(functools.partial(with_keyword_total, total={}), twice(), name="partial_by_keyword")


def mapped_append(r):
    list(map(SEEN.append, r["tags"]))
    return r


unsafe(mapped_append, marks(SEEN))


def sorted_by_an_impure_key(r):
    r["tags"] = sorted(r["tags"], key=lambda tag: SEEN.append(tag) or len(SEEN))
    return r


unsafe(sorted_by_an_impure_key, marks(SEEN))


def sort_in_place_by_an_impure_key(r):
    r["tags"].sort(key=TOTALS.setdefault)
    return r


# Every tag maps to None, which does not compare: one tag only.
unsafe(sort_in_place_by_an_impure_key, marks(TOTALS, record={"tags": ["only"]}))


def max_by_a_bound_method(r):
    max(r["tags"], key=lambda t: SEEN.insert(0, t) or 0)
    return r


unsafe(max_by_a_bound_method, marks(SEEN))


def reduced_into_a_global(r):
    functools.reduce(lambda acc, tag: acc.append(tag) or acc, r["tags"], SEEN)
    return r


unsafe(reduced_into_a_global, marks(SEEN))


def reduced_by_an_operator(r):
    functools.reduce(operator.iadd, [[r["id"]]], SEEN)
    return r


unsafe(reduced_by_an_operator, marks(SEEN))


def joined_over_an_impure_generator(r):
    r["name"] = ",".join(tag for tag in r["tags"] if not SEEN.append(tag))
    return r


unsafe(joined_over_an_impure_generator, marks(SEEN))


def any_stops_at_an_effect(r):
    r["ok"] = any(SEEN.append(t) for t in r["tags"])
    return r


unsafe(any_stops_at_an_effect, marks(SEEN))


def substituted_by_an_impure_callback(r):
    r["name"] = re.sub("n", lambda m: SEEN.append(m.group()) or str(len(SEEN)), r["name"])
    return r


unsafe(substituted_by_an_impure_callback, twice())


def filtered_by_a_set_method(r, known=set()):
    r["tags"] = list(filter(lambda t: t not in known and not known.add(t), r["tags"]))
    return r


unsafe(filtered_by_a_set_method, twice())


def heap_push(r, heap=[]):
    heapq.heappush(heap, r["x"])
    return {"n": len(heap)}


unsafe(heap_push, twice())


def bisect_insort(r, ordered=[]):
    bisect.insort(ordered, r["x"])
    return {"rank": len(ordered)}


unsafe(bisect_insort, twice())


def extended_iterator(r):
    SEEN.extend(r["tags"])
    return r


unsafe(extended_iterator, marks(SEEN))


def next_of_a_counter(r):
    return {**r, "row": next(TICKS)}


unsafe(next_of_a_counter, twice())


def zip_with_a_counter(r):
    return [{"tag": tag, "row": i} for tag, i in zip(r["tags"], TICKS, strict=False)]


unsafe(zip_with_a_counter, twice())


def islice_of_an_iterator(r):
    return {"names": list(itertools.islice(NAMES, 1))}


unsafe(islice_of_an_iterator, twice())


def in_consumes_an_iterator(r, left=iter(range(10_000))):
    return {"found": r["x"] in left}


unsafe(in_consumes_an_iterator, twice())


def unpacking_consumes(r, left=iter([1, 2])):
    return {"left": [*left]}


unsafe(unpacking_consumes, twice())


def yield_from_captured(r, left=iter([{"a": 1}, {"a": 2}])):
    yield from left


unsafe(yield_from_captured, twice())


def suspended():
    n = 0
    while True:
        n += 1
        yield n


RUNNING = suspended()


def generator_between_calls(r):
    return {**r, "n": RUNNING.__next__()}


unsafe(generator_between_calls, twice())


def averager():
    total, n, mean = 0, 0, None
    while True:
        total, n = total + (yield mean), n + 1
        mean = total / (n * n)


MEAN = averager()
next(MEAN)


def sent_between_calls(r):
    return {"mean": MEAN.send(r["x"])}


unsafe(sent_between_calls, twice())


def helper_with_an_effect(tag):
    SEEN.append(tag)
    return tag


def helper_two_levels_down(tag):
    return helper_with_an_effect(tag).upper()


def effect_two_calls_away(r):
    return {**r, "name": helper_two_levels_down(r["name"])}


unsafe(effect_two_calls_away, marks(SEEN))


def helper_that_changes_its_argument(rows, row):
    rows.append(row)


def global_passed_to_a_helper(r):
    helper_that_changes_its_argument(SEEN, r["id"])
    return r


unsafe(global_passed_to_a_helper, marks(SEEN))


def global_passed_by_star(r):
    arguments = [SEEN, r["id"]]
    helper_that_changes_its_argument(*arguments)
    return r


unsafe(global_passed_by_star, marks(SEEN))


def global_passed_by_keywords(r):
    helper_that_changes_its_argument(**{"row": r["id"], "rows": SEEN})
    return r


unsafe(global_passed_by_keywords, marks(SEEN))


def pick(which):
    return SEEN if which else []


def helper_returns_the_global(r):
    pick(r["x"]).append(r["id"])
    return r


unsafe(helper_returns_the_global, marks(SEEN))


def identity(value):
    return value


def through_identity(r):
    identity(SEEN).append(r["id"])
    return r


unsafe(through_identity, marks(SEEN))


def keeper(value):
    return lambda x: value.append(x)


KEEP = keeper(SEEN)


def closure_made_elsewhere(r):
    KEEP(r["id"])
    return r


unsafe(closure_made_elsewhere, marks(SEEN))


def closure_made_here(r):
    keeper(SEEN)(r["id"])
    return r


unsafe(closure_made_here, marks(SEEN))

DISPATCH = {"Ann": SEEN.append, "Bob": len}


def dispatched(r):
    DISPATCH[r["name"]](r["tags"])
    return r


unsafe(dispatched, marks(SEEN))


def dispatched_by_get(r):
    DISPATCH.get(r["name"], str)(r["tags"])
    return r


unsafe(dispatched_by_get, marks(SEEN))


def registers_itself(r):
    STEPS.append(len)
    return {"n": sum(step(r["tags"]) for step in STEPS)}


unsafe(registers_itself, twice())


def recursive(depth):
    return TABLE[depth > 0](depth - 1)


def bottom(depth):
    global n_calls
    n_calls += 1
    return n_calls


TABLE = {True: recursive, False: bottom}


def recursion_through_a_table(r):
    return {"n": recursive(r["x"])}


unsafe(recursion_through_a_table, twice())

LATE = [lambda r: {**r, "n": len(SEEN.append(i) or SEEN)} for i in range(3)]
unsafe(LATE[0], twice(), name="late_bound_lambda")
