# ruff: noqa: B023, C416, DTZ005, DTZ006, DTZ011, F841, FURB171, ICN001, PLW0603, PTH123, RUF015, SIM102, T201, UP030, UP031
# mypy: ignore-errors
"""Functions that keep something, read what changes, or have effects elsewhere."""

import builtins
import collections
import datetime
import functools
import itertools
import json
import locale
import logging
import math
import os
import random
import sys
import time
import uuid
from dataclasses import dataclass, field

from tests.compiler.functions.corpus.case import case, hostile

SEEN = []
COUNTS = {}
TOTAL = 0
NAMES = {"ann", "bob"}
ITERATOR = iter(range(100))
GROUPS = collections.defaultdict(list)
LARGE = dict.fromkeys(range(100_000))
CONFIG = type("Config", (), {"rate": 1})()
MARK = object()
NESTED = {"inner": []}
HOLDER = ([],)
GENERATED = (n for n in range(10))
LOG = logging.getLogger(__name__)


@hostile()
def appends_to_global(r):
    SEEN.append(r["id"])
    return r


@hostile()
def writes_global_dict(r):
    COUNTS[r["user"]] = COUNTS.get(r["user"], 0) + 1
    return r


@hostile()
def counts_in_global(r):
    global TOTAL
    TOTAL += 1
    return {**r, "n": TOTAL}


@hostile()
def appends_through_alias(r):
    mine = SEEN
    mine.append(1)
    return r


@hostile()
def appends_through_bound_method(r):
    add = SEEN.append
    add(r["id"])
    return r


@hostile()
def appends_through_tuple(r):
    HOLDER[0].append(r["id"])
    return r


@hostile()
def appends_through_nested(r):
    NESTED["inner"].append(r["id"])
    return r


@hostile()
def appends_through_get(r):
    NESTED.get("inner").append(r["id"])
    return r


@hostile()
def appends_through_local_list(r):
    box = [SEEN]
    box[0].append(1)
    return r


@hostile()
def appends_through_later_store(r):
    box = []
    other = box
    other.append(SEEN)
    for each in box:
        each.append(1)
    return r


@hostile()
def appends_through_record(r):
    r["x"] = SEEN
    r["x"].append(1)
    return r


@hostile()
def appends_through_nested_record(r):
    r["meta"]["x"] = SEEN
    r["meta"]["x"].append(1)
    return r


@hostile()
def appends_through_default_of_get(r):
    r.get("nothing", SEEN).append(1)
    return r


@hostile()
def appends_through_star(r):
    first, *rest = [1, SEEN]
    rest[0].append(1)
    return r


@hostile()
def extends_in_place(r):
    mine = SEEN
    mine += [r["id"]]
    return r


@hostile()
def unbound_append(r):
    list.append(SEEN, r["id"])
    return r


@hostile()
def sorts_global(r):
    SEEN.sort()
    return r


@hostile()
def deletes_from_global(r):
    COUNTS.pop("x", None)
    return r


@hostile()
def reads_defaultdict(r):
    return {**r, "n": len(GROUPS[r["user"]])}


@hostile()
def mutable_default(r, seen=[]):  # noqa: B006
    seen.append(r["id"])
    return {**r, "n": len(seen)}


@hostile()
def mutable_keyword_default(r, *, seen={}):  # noqa: B006
    seen[r["id"]] = 1
    return r


def _helper(row, seen=[]):  # noqa: B006
    seen.append(row["id"])
    return len(seen)


@hostile()
def helper_keeps(r):
    return {**r, "n": _helper(r)}


@hostile()
def helper_in_comprehension(r):
    return {**r, "n": [_helper(r) for _ in r["tags"]]}


@hostile()
def helper_as_key(r):
    return {**r, "tags": sorted([r, r], key=_helper)}


@hostile()
def helper_in_map(r):
    return {**r, "n": list(map(_helper, [r]))}


def _closure_list():
    seen = []

    def keep(r):
        seen.append(r["id"])
        return r

    return keep


def _closure_counter():
    n = 0

    def count(r):
        nonlocal n
        n += 1
        return {**r, "n": n}

    return count


case("closure_over_list", _closure_list(), False)
case("nonlocal_counter", _closure_counter(), False)
case("lambda_appends", lambda r: SEEN.append(r) or r, False)
case("lambda_default", lambda r, seen=[]: seen.append(1) or r, False)
case("lambdas_in_loop_over_lists", [lambda r: s.append(1) or r for s in ([], [])][0], False)


@hostile()
def sets_function_attribute(r):
    sets_function_attribute.count = 1
    return r


@hostile()
def reads_function_attribute(r):
    return {**r, "n": reads_function_attribute.count}


reads_function_attribute.count = 3


class Counter:
    total = 0
    seen = []

    def __init__(self):
        self.n = 0
        self.items = []

    def __call__(self, r):
        self.n += 1
        return {**r, "n": self.n}

    def class_attribute(self, r):
        Counter.total += 1
        return r

    def class_list(self, r):
        self.seen.append(1)
        return r

    def own_list(self, r):
        self.items.append(1)
        return r

    def type_attribute(self, r):
        type(self).total = 5
        return r

    @classmethod
    def counted(cls, r):
        cls.total += 1
        return r


case("object_counts", Counter(), False)
case("method_sets_class_attribute", Counter().class_attribute, False)
case("method_appends_to_class_list", Counter().class_list, False)
case("method_appends_to_own_list", Counter().own_list, False)
case("method_sets_attribute_of_type", Counter().type_attribute, False)
case("classmethod_counts", Counter.counted, False)
case("partial_over_list", functools.partial(lambda seen, r: seen.append(1) or r, []), False)


class Descriptor:
    def __get__(self, owner, kind=None):
        SEEN.append(1)
        return 1


class WithDescriptor:
    value = Descriptor()

    def __call__(self, r):
        return {**r, "n": self.value}


class WithGetattr:
    def __getattr__(self, name):
        SEEN.append(name)
        return 1

    def __call__(self, r):
        return {**r, "n": self.anything}


class WithGetattribute:
    rate = 1

    def __getattribute__(self, name):
        SEEN.append(name)
        return object.__getattribute__(self, name)

    def __call__(self, r):
        return {**r, "n": self.rate}


class WithProperty:
    @property
    def value(self):
        SEEN.append(1)
        return 1

    def __call__(self, r):
        return {**r, "n": self.value}


class Meta(type):
    def __call__(cls, *given):
        SEEN.append(1)
        return super().__call__(*given)


class WithMeta(metaclass=Meta):
    def __init__(self, x):
        self.x = x


class WithNew:
    def __new__(cls):
        SEEN.append(1)
        return object.__new__(cls)


class WithSetattr:
    def __setattr__(self, name, value):
        SEEN.append(name)


class WithAdd:
    def __add__(self, other):
        SEEN.append(other)
        return 1


class WithEq:
    def __eq__(self, other):
        SEEN.append(other)
        return True

    __hash__ = None


class WithStr:
    def __str__(self):
        SEEN.append(1)
        return ""


class WithLen:
    def __len__(self):
        SEEN.append(1)
        return 1


class WithIter:
    def __iter__(self):
        SEEN.append(1)
        return iter([])


class WithDel:
    def __del__(self):
        SEEN.append(1)


class WithInit:
    def __init__(self):
        SEEN.append(1)


class Cached:
    @functools.cached_property
    def value(self):
        return len(SEEN)

    def __call__(self, r):
        return {**r, "n": self.value}


class MyDict(dict):
    def __setitem__(self, key, value):
        SEEN.append(key)
        super().__setitem__(key, value)


@dataclass
class WithFactory:
    items: list = field(default_factory=lambda: SEEN)


@dataclass
class WithPost:
    x: int

    def __post_init__(self):
        SEEN.append(self.x)


case("descriptor", WithDescriptor(), False)
case("getattr", WithGetattr(), False)
case("getattribute", WithGetattribute(), False)
case("property", WithProperty(), False)
case("cached_property", Cached(), False)


@hostile()
def metaclass(r):
    return {**r, "n": WithMeta(1).x}


@hostile()
def own_new(r):
    WithNew()
    return r


@hostile()
def own_setattr(r):
    it = WithSetattr()
    it.x = 1
    return r


@hostile()
def own_add(r):
    return {**r, "n": WithAdd() + 1}


@hostile()
def own_eq(r):
    return {**r, "n": WithEq() == 1}


@hostile()
def own_eq_in_list(r):
    return {**r, "n": 1 in [WithEq()]}


@hostile()
def own_str(r):
    return {**r, "n": f"{WithStr()}"}


@hostile()
def own_str_by_print_format(r):
    return {**r, "n": "%s" % WithStr()}


@hostile()
def own_len(r):
    return {**r, "n": len(WithLen())}


@hostile()
def own_truth(r):
    return r if WithLen() else None


@hostile()
def own_iter(r):
    return {**r, "n": list(WithIter())}


@hostile()
def own_del(r):
    WithDel()
    return r


@hostile()
def own_init(r):
    WithInit()
    return r


@hostile()
def dict_subclass(r):
    mine = MyDict()
    mine["x"] = 1
    return {**r}


@hostile()
def factory_gives_global(r):
    WithFactory().items.append(1)
    return r


@hostile()
def post_init_appends(r):
    WithPost(r["count"])
    return r


@hostile()
def sets_attribute_of_global(r):
    CONFIG.rate = 2
    return r


@hostile()
def prints(r):
    print(r)
    return r


@hostile()
def logs(r):
    LOG.info("x")
    return r


@hostile()
def logs_by_module(r):
    logging.info("x")
    return r


@hostile()
def reads_clock(r):
    return {**r, "now": time.time()}


@hostile()
def reads_clock_by_alias(r, clock=time.monotonic):
    return {**r, "now": clock()}


@hostile()
def reads_date(r):
    return {**r, "now": datetime.datetime.now()}


@hostile()
def reads_today(r):
    return {**r, "today": datetime.date.today()}


@hostile()
def local_time_zone(r):
    return {**r, "at": r["at"].timestamp()}


@hostile()
def local_time_of_number(r):
    return {**r, "at": datetime.datetime.fromtimestamp(r["count"])}


@hostile()
def locale_month(r):
    return {**r, "month": r["at"].strftime("%B")}


@hostile()
def locale_number(r):
    return {**r, "n": f"{r['price']:n}"}


@hostile()
def locale_number_by_format(r):
    return {**r, "n": "{:n}".format(r["price"])}


@hostile()
def locale_call(r):
    return {**r, "n": locale.format_string("%d", 1)}


@hostile()
def draws(r):
    return {**r, "n": random.random()}


@hostile()
def draws_uuid(r):
    return {**r, "n": str(uuid.uuid4())}


@hostile()
def shuffles(r):
    random.shuffle(r["tags"])
    return r


@hostile()
def reads_environment(r):
    return {**r, "n": os.environ.get("HOME")}


@hostile()
def reads_environment_by_call(r):
    return {**r, "n": os.getenv("HOME")}


@hostile()
def reads_sys(r):
    return {**r, "n": len(sys.argv)}


@hostile()
def opens_file(r):
    with open(__file__) as file:
        return {**r, "n": file.read()}


@hostile()
def hashes(r):
    return {**r, "n": hash(r["user"])}


@hostile()
def addresses(r):
    return {**r, "n": id(r)}


@hostile()
def text_of_function(r):
    return {**r, "n": str(lambda: 0)}


@hostile()
def iterates_set(r):
    return {**r, "n": [x for x in set(r["tags"])]}


@hostile()
def list_of_set(r):
    return {**r, "n": list({"a", "b"})}


@hostile()
def joins_set(r):
    return {**r, "n": ",".join(set(r["tags"]))}


@hostile()
def pops_set(r):
    return {**r, "n": set(r["tags"]).pop()}


@hostile()
def iterates_global_set(r):
    return {**r, "n": [name for name in NAMES]}


@hostile()
def set_in_row(r):
    return {**r, "n": set(r["tags"])}


@hostile()
def text_of_set(r):
    return {**r, "n": str(set(r["tags"]))}


@hostile()
def sorts_set_by_key(r):
    return {**r, "n": sorted(set(r["tags"]), key=len)}


@hostile()
def set_of_views(r):
    return {**r, "n": list(r.keys() & {"id", "user"})}


@hostile()
def set_through_star(r):
    return {**r, "n": [*{"a", "b"}]}


@hostile()
def dict_from_set(r):
    return {**r, "n": dict.fromkeys({"a", "b"}, 1)}


@hostile(state=True)
def set_kept_in_state(r, state):
    state.value = (state.value or set()) | {r["user"]}
    return {**r, "n": list(state.value)}


@hostile()
def next_of_global(r):
    return {**r, "n": next(ITERATOR)}


@hostile()
def generator_outside(r):
    return {**r, "n": list(GENERATED)}


@hostile()
def large_table(r):
    return {**r, "n": LARGE.get(r["id"])}


@hostile()
def evaluates(r):
    return {**r, "n": eval("1")}


@hostile()
def executes(r):
    exec("SEEN.append(1)")
    return r


@hostile()
def reads_globals(r):
    globals()["SEEN"].append(1)
    return r


@hostile()
def reads_locals(r):
    return {**r, "n": len(locals())}


@hostile()
def reads_vars(r):
    vars(CONFIG)["x"] = 1
    return r


@hostile()
def sets_by_name(r):
    CONFIG.x = 1
    return r


@hostile()
def gets_by_name(r):
    return {**r, "n": getattr(r["user"], r["text"])()}


@hostile()
def imports_by_name(r):
    __import__("os").getcwd()
    return r


@hostile()
def imports_inside(r):
    import antigravity_that_is_not_there  # noqa: F401

    return r


@hostile()
def reaches_globals_through_function(r):
    (lambda: 0).__globals__["SEEN"].append(1)
    return r


@hostile()
def reaches_classes(r):
    return {**r, "n": len(().__class__.__base__.__subclasses__())}


@hostile()
def formats_attributes(r):
    return {**r, "n": "{0.__class__}".format(r["user"])}


@hostile()
def identity_of_values(r):
    return {**r, "n": r["user"] is r["text"]}


@hostile()
def identity_of_marker(r):
    return r if r.get("x", MARK) is MARK else None


@functools.cache
def _cached(x):
    return x + len(SEEN)


@hostile()
def cached(r):
    return {**r, "n": _cached(r["count"])}


@hostile()
async def waits(r):
    return r


async def _later(x):
    return x


@hostile()
def makes_coroutine(r):
    return {**r, "n": _later(1)}


@hostile()
def makes_class(r):
    class Local:
        n = 0

    Local.n += 1
    return r


@hostile()
def c_function_with_effect(r):
    sys.setrecursionlimit(1000)
    return r


@hostile()
def json_with_hook(r):
    return {**r, "n": json.loads("{}", object_hook=SEEN.append)}


@hostile()
def effect_in_branch(r):
    if r["flag"]:
        if r["count"] > 1000:
            SEEN.append(1)
    return r


@hostile()
def effect_in_except(r):
    try:
        int(r["text"])
    except ValueError:
        SEEN.append(1)
    return r


@hostile()
def effect_in_finally(r):
    try:
        return r
    finally:
        SEEN.append(1)


@hostile()
def effect_in_default_expression(r):
    def inner(x=SEEN):
        x.append(1)

    inner()
    return r


@hostile()
def effect_in_nested_generator(r):
    def inner():
        SEEN.append(1)
        yield 1

    return {**r, "n": sum(inner())}


@hostile()
def effect_in_walrus(r):
    if (mine := SEEN) is not None:
        mine.append(1)
    return r


@hostile()
def effect_in_match(r):
    match NESTED:
        case {"inner": inner}:
            inner.append(1)
    return r


@hostile()
def effect_in_loop_later(r):
    target = []
    for tag in r["tags"]:
        target.append(tag)
        target = SEEN
    return r


@hostile()
def effect_after_try(r):
    target = []
    try:
        target = SEEN
        int(r["text"])
        target = []
    except ValueError:
        target.append(1)
    return r


@hostile()
def effect_through_itertools(r):
    for each in itertools.chain([SEEN], []):
        each.append(1)
    return r


@hostile()
def effect_through_max(r):
    max([SEEN, []], key=len).append(1)
    return r


@hostile()
def effect_through_slice(r):
    [SEEN][:][0].append(1)
    return r


@hostile()
def effect_through_returned(r):
    def pick():
        return SEEN

    pick().append(1)
    return r


@hostile(state=True)
def state_escapes(r, state):
    SEEN.append(state)
    return r


@hostile(state=True)
def state_in_row(r, state):
    return {**r, "n": state}


@hostile(state=True)
def state_private(r, state):
    state.kept.value = 1
    return r


@hostile(state=True)
def state_keeps_global(r, state):
    state.value = SEEN
    state.value.append(1)
    return r


def len(values):  # noqa: A001 - on purpose
    SEEN.append(1)
    return builtins.sum(1 for _ in values)


@hostile()
def shadowed_builtin(r):
    return {**r, "n": len(r["tags"])}


_real_floor = math.floor


def _wrapped_sqrt(x):
    SEEN.append(x)
    return x


case("decorated_by_keeper", functools.wraps(shadowed_builtin)(lambda r: SEEN.append(1) or r), False)
case("made_by_exec", eval("lambda r: SEEN.append(1) or r"), False)
case("c_function", sys.getrefcount, False)
case("class_as_function", Counter, False)
