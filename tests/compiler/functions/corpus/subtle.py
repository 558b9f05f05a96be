# ruff: noqa: B007, B023, C416, UP031
# mypy: ignore-errors
"""Second thoughts: ways around the rules that are easily missed, and harmless look-alikes."""

import collections
import copy
import enum
import itertools
import operator
import re
from typing import NamedTuple

from tests.compiler.functions.corpus.case import all_but, case, exactly, hostile, pure

SEEN = []
HOLDER = ([],)
TABLE = {"x": []}
NUMBERS = [1]
TEXT = "a-b"


@hostile()
def multiplies_in_place(r):
    mine = SEEN
    mine *= 2
    return r


@hostile()
def copy_of_tuple_shares(r):
    copy.copy(HOLDER)[0].append(1)
    return r


@hostile()
def copy_of_dict_shares(r):
    dict(TABLE)["x"].append(1)
    return r


@hostile()
def special_method_by_name(r):
    HOLDER.__getitem__(0).append(1)
    return r


@hostile()
def operator_shares(r):
    operator.add([SEEN], [])[0].append(1)
    return r


@hostile()
def accumulate_shares(r):
    for each in itertools.accumulate([SEEN]):
        each.append(1)
    return r


@hostile()
def fill_value_shares(r):
    for _, each in itertools.zip_longest([1], [], fillvalue=SEEN):
        each.append(1)
    return r


@hostile()
def groups_default_shares(r):
    for each in re.match("(a)|(b)", "a").groups(SEEN):
        each.append(1)
    return r


@hostile()
def counter_shares(r):
    collections.Counter({"x": SEEN})["x"].append(1)
    return r


@hostile()
def default_factory_shares(r):
    collections.defaultdict(lambda: SEEN)["x"].append(1)
    return r


@hostile()
def dict_values_share(r):
    for each in {"x": SEEN}.values():
        each.append(1)
    return r


@hostile()
def popped_shares(r):
    mine = {"x": SEEN}
    mine.pop("x").append(1)
    return r


@hostile()
def text_of_set_by_percent(r):
    return {**r, "n": "%s" % (set(r["tags"]),)}


@hostile()
def text_of_generator(r):
    return {**r, "n": str(x for x in r["tags"])}


@hostile()
def text_of_nested_iterator(r):
    return {**r, "n": f"{[iter(r['tags'])]}"}


@hostile()
def text_of_method(r):
    return {**r, "n": str(r.get)}


@hostile()
def views_of_nested_give_sets(r):
    return {**r, "n": list(r["meta"].keys() & {"k", "deep"})}


@hostile()
def views_subtracted(r):
    return {**r, "n": [*(r.keys() - {"id"})]}


@hostile()
def unpacks_set(r):
    a, *_ = {"a", "b"}
    return {**r, "n": a}


@hostile()
def set_out_of_helper(r):
    def words():
        return {word for word in r["text"].split()}

    return {**r, "n": "".join(words())}


@hostile()
def set_in_dict(r):
    groups = {}
    for tag in r["tags"]:
        groups.setdefault(len(tag), set()).add(tag)
    return {**r, "n": [list(group) for group in groups.values()]}


@pure("one", all_but("n"))
def set_in_dict_sorted(r):
    groups = {}
    for tag in r["tags"]:
        groups.setdefault(len(tag), set()).add(tag)
    return {**r, "n": [sorted(group) for group in groups.values()]}


@hostile()
def slice_stored_shares(r):
    mine = [0]
    mine[0:1] = [SEEN]
    mine[0].append(1)
    return r


@hostile()
def annotation_runs(r):
    def inner(x: SEEN.append(1) = 0):
        return x

    return {**r, "n": inner()}


@pure("one", all_but("n"))
def annotation_names_classes(r):
    def inner(x: int | None, *rest: list[str]) -> dict[str, int]:
        return {"a": x or 0}

    return {**r, "n": inner(1)["a"]}


class Loud(Exception):
    def __str__(self):
        SEEN.append(1)
        return ""


class Quiet(Exception):
    """Nothing of its own."""


@hostile()
def exception_speaks(r):
    try:
        raise Loud
    except Exception as error:
        return {**r, "n": str(error)}


@pure("one", all_but("n"))
def exception_is_quiet(r):
    try:
        raise Quiet(r["id"])
    except Quiet as error:
        return {**r, "n": str(error)}


class Mood(enum.Enum):
    GOOD = 1

    def __eq__(self, other):
        SEEN.append(other)
        return True

    __hash__ = enum.Enum.__hash__


class Tuple(NamedTuple):
    x: int

    def __iter__(self):
        SEEN.append(1)
        return iter(())


FIXED = Tuple(1)


class Hashed:
    def __hash__(self):
        SEEN.append(1)
        return 1


HASHED = Hashed()


class Generic:
    def __class_getitem__(cls, item):
        SEEN.append(item)
        return cls


class Meta(type):
    def __bool__(cls):
        SEEN.append(1)
        return True

    def __instancecheck__(cls, other):
        SEEN.append(1)
        return True


class Odd(metaclass=Meta):
    pass


@hostile()
def enum_compares(r):
    return {**r, "n": Mood.GOOD == 1}


@hostile()
def named_tuple_iterates(r):
    return {**r, "n": list(FIXED)}


@hostile()
def new_named_tuple_iterates(r):
    return {**r, "n": list(Tuple(1))}


@hostile()
def key_hashes(r):
    return {**r, "n": {1: 2}.get(Hashed())}


@hostile()
def outer_key_hashes(r):
    return {**r, "n": {1: 2}.get(HASHED)}


@hostile()
def stored_key_hashes(r):
    mine = {}
    mine[HASHED] = 1
    return r


@hostile()
def class_is_indexed(r):
    Generic[1]
    return r


@hostile()
def class_is_true(r):
    return r if Odd else None


@hostile()
def class_checks_instances(r):
    return {**r, "n": isinstance(r, Odd)}


@hostile()
def class_in_tuple_checks_instances(r):
    return {**r, "n": isinstance(r, (int, Odd))}


@hostile()
def format_text_is_not_known(r):
    return {**r, "n": r["text"].format(r["id"])}


@hostile()
def global_through_loop_variable(r):
    for mine in (SEEN, []):
        pass
    mine.append(1)
    return r


@hostile()
def global_through_with_else(r):
    mine = SEEN if r["flag"] else []
    mine.append(1)
    return r


@hostile()
def global_through_or(r):
    mine = [] or SEEN
    mine.append(1)
    return r


@hostile()
def global_through_closure_cell(r):
    box = []

    def put(x):
        box.append(x)

    put(SEEN)
    box[0].append(1)
    return r


@hostile()
def global_through_nonlocal(r):
    mine = []

    def swap():
        nonlocal mine
        mine = SEEN

    swap()
    mine.append(1)
    return r


@hostile()
def global_through_generator_value(r):
    def inner():
        yield 1
        return SEEN

    def outer():
        found = yield from inner()
        found.append(1)

    return {**r, "n": len(list(outer()))}


@hostile()
def global_through_key_function(r):
    return {**r, "n": sorted(r["tags"], key=lambda tag: SEEN.append(tag) or tag)}


@hostile()
def global_through_recursion(r):
    def deep(n, items):
        if n == 0:
            items.append(1)
        else:
            deep(n - 1, SEEN)

    deep(3, [])
    return r


@hostile()
def global_through_star_star(r):
    def inner(**named):
        named["x"].append(1)

    inner(x=SEEN)
    return r


@hostile()
def global_through_star(r):
    def inner(*items):
        items[0].append(1)

    inner(*HOLDER)
    return r


@hostile()
def global_through_comprehension_lambda(r):
    [f() for f in [lambda: s.append(1) for s in (SEEN,)]]
    return r


@hostile()
def global_through_partial_match(r):
    match HOLDER:
        case (items,):
            items.append(1)
    return r


@hostile()
def global_through_instance(r):
    class_ = Box(SEEN)
    class_.items.append(1)
    return r


@hostile()
def global_through_setter(r):
    box = Box([])
    box.items = SEEN
    box.items.append(1)
    return r


class Box:
    def __init__(self, items):
        self.items = items


@pure("one", all_but("n"))
def box_of_its_own(r):
    box = Box([])
    box.items.append(r["id"])
    return {**r, "n": box.items}


@pure("one", all_but("n"))
def numbers_only_read(r):
    total = 0
    for n in NUMBERS:
        total += n
    return {**r, "n": total, "id": r["id"]}


@pure("one", exactly("id"))
def empty_then_filled(r):
    out = {}
    out["id"] = r["id"]
    out["n"] = 1
    return out


@pure("one", exactly())
def filled_on_one_way(r):
    out = {}
    if r["flag"]:
        out["id"] = r["id"]
    return out


@pure("any", exactly())
def filled_in_loop(r):
    out = {}
    for tag in r["tags"]:
        yield out
        out["id"] = r["id"]


@pure("one", exactly())
def filled_then_replaced(r):
    out = {}
    out["id"] = r["id"]
    out["id"] = 0
    return out


@pure("one", exactly("user"))
def filled_then_removed(r):
    out = {}
    out["id"] = r["id"]
    out["user"] = r["user"]
    out.pop("id")
    return out


@pure("one", exactly())
def removed_through_alias(r):
    out = {}
    other = out
    out["id"] = r["id"]
    del other["id"]
    return out


@pure("one", all_but("price"))
def total_leaves_columns(r):
    total = r["price"]
    total += r["count"]
    return {**r, "price": total}


@pure("any", exactly())
def list_doubled_in_place(r):
    out = [r]
    out *= 2
    r["x"] = 1
    for key in list(r):
        r[key] = None
    return out


@pure("at-most-one", exactly("id"))
def first_of_nested(r):
    return next(({"id": r["id"], "tag": tag} for tag in r["tags"] if tag), None)


@pure("one", all_but("n"))
def dict_fromkeys(r):
    return {**r, "n": list(dict.fromkeys(r["tags"]))}


case("lambda_with_walrus", lambda r: {**r, "n": (y := r["count"]) + y}, True, "one", all_but("n"))
