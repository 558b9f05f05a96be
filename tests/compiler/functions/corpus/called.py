# ruff: noqa: B023, B905, DTZ007, ICN001, RUF015, UP031
# mypy: ignore-errors
"""Library functions, helpers, nested functions, constants, closures."""

import base64
import bisect
import collections
import datetime
import decimal
import enum
import functools
import hashlib
import heapq
import itertools
import json
import math
import operator
import re
import statistics
import types
import urllib.parse
import zlib
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from tests.compiler.functions.corpus.case import all_but, case, exactly, pure

LIMIT = 10
RATES = {"eur": 1.0, "usd": 1.1}
STOP = ("the", "a")
WORD = re.compile(r"\w+")
EPOCH = datetime.datetime(1970, 1, 1)
FROZEN = types.MappingProxyType({"x": 1})
KNOWN = frozenset({"ann", "bob"})


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


@pure("one", all_but("root"))
def uses_math(r):
    return {**r, "root": math.sqrt(abs(r["price"])) + math.pi}


@pure("one", all_but("hash"))
def uses_hashlib(r):
    digest = hashlib.sha256(r["user"].encode())
    digest.update(b"salt")
    return {**r, "hash": digest.hexdigest()}


@pure("one", all_but("json"))
def uses_json(r):
    return {**r, "json": json.dumps({"user": r["user"], "n": r["count"]}, sort_keys=True)}


@pure("one", all_but("first"))
def uses_regex(r):
    found = WORD.search(r["text"])
    return {**r, "first": found.group(0) if found else None}


@pure("any", exactly("id"))
def uses_finditer(r):
    for found in re.finditer(r"\d+", r["text"]):
        yield {"id": r["id"], "number": int(found.group())}


@pure("one", all_but("text"))
def uses_sub_with_function(r):
    return {**r, "text": re.sub(r"\d", lambda m: str(int(m.group()) + 1), r["text"])}


@pure("one", all_but("day", "age"))
def uses_dates(r):
    at = r["at"]
    age = (at - EPOCH).total_seconds()
    return {**r, "day": at.strftime("%Y-%m-%d"), "age": age}


@pure("one", all_but("hour"))
def truncates_time(r):
    return {**r, "hour": r["at"].replace(minute=0, second=0, microsecond=0)}


@pure("one", all_but("parsed"))
def parses_dates(r):
    parsed = datetime.datetime.strptime("2020-01-02", "%Y-%m-%d")
    return {**r, "parsed": parsed + datetime.timedelta(days=r["count"])}


@pure("one", all_but("amount"))
def uses_decimal(r):
    return {**r, "amount": decimal.Decimal(r["count"]) * decimal.Decimal("1.1")}


@pure("one", all_but("query"))
def uses_urllib(r):
    parts = urllib.parse.urlsplit("http://x/?" + urllib.parse.quote(r["user"]))
    return {**r, "query": parts.query}


@pure("one", all_but("crc", "b64"))
def uses_zlib(r):
    data = r["text"].encode("utf-8")
    return {**r, "crc": zlib.crc32(data), "b64": base64.b64encode(data).decode()}


@pure("one", all_but("mid"))
def uses_statistics(r):
    return {**r, "mid": statistics.median([r["price"], r["count"], 3])}


@pure("one", all_but("top"))
def uses_counter(r):
    counts = collections.Counter(r["text"].split())
    return {**r, "top": [word for word, _ in counts.most_common(2)]}


@pure("any", exactly())
def uses_defaultdict(r):
    groups = collections.defaultdict(list)
    for tag in r["tags"]:
        groups[len(tag)].append(tag)
    for size, tags in sorted(groups.items()):
        yield {"size": size, "tags": tags}


@pure("one", all_but("last"))
def uses_deque(r):
    window = collections.deque(maxlen=2)
    for tag in r["tags"]:
        window.append(tag)
    return {**r, "last": list(window)}


@pure("any", exactly())
def uses_itertools(r):
    for a, b in itertools.combinations(r["tags"], 2):
        yield {"a": a, "b": b}


@pure("any", exactly())
def uses_groupby(r):
    for size, group in itertools.groupby(sorted(r["tags"], key=len), key=len):
        yield {"size": size, "n": len(list(group))}


@pure("one", all_but("product"))
def uses_reduce(r):
    return {**r, "product": functools.reduce(lambda a, b: a * b, [r["count"], 2, 3], 1)}


@pure("one", all_but("smallest"))
def uses_heapq(r):
    heap = []
    for tag in r["tags"]:
        heapq.heappush(heap, tag)
    return {**r, "smallest": heap[0] if heap else None}


@pure("one", all_but("at_least"))
def uses_bisect(r):
    edges = [1, 5, 10]
    return {**r, "at_least": bisect.bisect_right(edges, r["count"])}


@pure("one", all_but("unique"))
def uses_sorted_set(r):
    return {**r, "unique": sorted(set(r["tags"]))}


@pure("one", all_but("both", "seen"))
def uses_set_algebra(r):
    mine = set(r["tags"]) & {"x", "y"}
    return {**r, "both": len(mine), "seen": "x" in mine}


@pure("one", all_but("pairs"))
def uses_zip_and_enumerate(r):
    pairs = [f"{n}{a}" for n, (a, b) in enumerate(zip(r["tags"], r["tags"][1:])) if a != b]
    return {**r, "pairs": pairs}


@pure("one", all_but("longest"))
def uses_max_with_key(r):
    return {**r, "longest": max(r["tags"], key=len, default="")}


@pure("one", all_but("names"))
def uses_map(r):
    return {**r, "names": list(map(str.upper, filter(None, r["tags"])))}


@pure("one", all_but("names"))
def uses_itemgetter(r):
    pairs = sorted([("b", 1), ("a", 2)], key=operator.itemgetter(0))
    return {**r, "names": [name for name, _ in pairs]}


@pure("one", all_but("line"))
def uses_formats(r):
    line = f"{r['user']!r} {r['price']:.2f} " + "{:>5}".format(r["count"]) + "%s" % r["id"]
    return {**r, "line": line}


@pure("unknown")
def reads_constants(r):
    return r["count"] > LIMIT and r["user"] in KNOWN and r["text"] not in STOP


@pure("one", all_but("rate"))
def reads_table(r):
    return {**r, "rate": RATES.get(r["user"], 1.0) + FROZEN["x"]}


@pure("one", all_but("rates"))
def copies_table(r):
    mine = dict(RATES)
    mine["own"] = r["price"]
    return {**r, "rates": sorted(mine)}


@pure("one", all_but("size"))
def uses_enum(r):
    size = Size.LARGE if r["count"] > 3 else Size.SMALL
    return {**r, "size": size.name if size is Size.LARGE else str(size.value)}


def _clean(text):
    return text.strip().lower()


def _tagged(row, tag):
    row["tags"].append(tag)


def _without(row, *names):
    return {k: v for k, v in row.items() if k not in names}


def _fact(n):
    return 1 if n <= 1 else n * _fact(n - 1)


def _depth(value):
    if isinstance(value, dict):
        return 1 + max((_depth(each) for each in value.values()), default=0)
    return 0


def _walk(value):
    if isinstance(value, list):
        for each in value:
            yield from _walk(each)
    else:
        yield value


def _add(total=0, *more, **named):
    return total + sum(more) + sum(named.values())


@pure("one", all_but("text"))
def calls_helper(r):
    return {**r, "text": _clean(r["text"])}


@pure("one", all_but("tags"))
def helper_changes_nested(r):
    _tagged(r, "x")
    return r


@pure("one", exactly())
def helper_with_star(r):
    return _without(r, "text")


@pure("one", all_but("n"))
def recursive_helper(r):
    return {**r, "n": _fact(min(r["count"], 5))}


@pure("one", all_but("depth"))
def recursive_over_values(r):
    return {**r, "depth": _depth(r["meta"])}


@pure("any", exactly("id"))
def recursive_generator(r):
    for each in _walk(r["tags"]):
        yield {"id": r["id"], "leaf": each}


@pure("one", all_but("sum"))
def stars_in_call(r):
    numbers = [r["count"], 2]
    return {**r, "sum": _add(*numbers, 3, x=4)}


@pure("one", all_but("n"))
def nested_function(r):
    def plus(a):
        return a + r["count"]

    return {**r, "n": plus(1)}


@pure("one", all_but("n"))
def nested_nonlocal(r):
    n = 0

    def bump():
        nonlocal n
        n += 1

    for _ in r["tags"]:
        bump()
    return {**r, "n": n}


@pure("one", all_but("n"))
def local_accumulator(r):
    seen = []
    add = seen.append
    for tag in r["tags"]:
        add(tag)
    return {**r, "n": len(seen)}


@pure("one", all_but("n"))
def default_constant(r, factor=3):
    return {**r, "n": r["count"] * factor}


@pure("one", all_but("n"))
def keyword_default(r, *, factor=3, names=("a", "b")):
    return {**r, "n": r["count"] * factor + len(names)}


def _scaled(factor):
    def scale(r):
        return {**r, "price": r["price"] * factor}

    return scale


case("closure_over_number", _scaled(3), True, "one", all_but("price"))
case("lambdas_in_loop", [lambda r: {**r, "n": n} for n in range(3)][0], True, "one", all_but("n"))
case("partial", functools.partial(default_constant, factor=5), True, "one", all_but("n"))


@dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0

    def length(self):
        return math.hypot(self.x, self.y)

    @property
    def double(self):
        return self.x * 2

    def __add__(self, other):
        return Point(self.x + other.x, self.y + other.y)


class Pair(NamedTuple):
    left: str
    right: int = 0


@dataclass
class Bag:
    items: list = field(default_factory=list)

    def add(self, item):
        self.items.append(item)


class Total:
    unit = "eur"

    def __init__(self, start):
        self.sum = start

    def add(self, n):
        self.sum += n
        return self


@pure("one", all_but("length"))
def makes_dataclass(r):
    point = Point(r["price"], r["count"]) + Point(1.0)
    return {**r, "length": point.length() + point.double}


@pure("one", all_but("pair"))
def makes_named_tuple(r):
    pair = Pair(r["user"])
    left, right = pair
    return {**r, "pair": pair.left + left + str(right)}


@pure("one", all_but("bag"))
def makes_bag(r):
    bag = Bag()
    for tag in r["tags"]:
        bag.add(tag)
    return {**r, "bag": bag.items}


@pure("one", all_but("bag"))
def makes_dict_of_dataclass(r):
    return {**r, "bag": asdict(Point(r["price"]))}


@pure("one", all_but("sum"))
def makes_object(r):
    total = Total(0)
    total.add(r["count"]).add(2)
    return {**r, "sum": f"{total.sum}{Total.unit}{total.unit}"}


class Scale:
    """An object that is called."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, r):
        return {**r, "price": r["price"] * self.factor}

    def shifted(self, r):
        return {**r, "price": self._shift(r["price"])}

    def _shift(self, x):
        return x + self.factor

    @staticmethod
    def still(r):
        return r

    @classmethod
    def made(cls, r):
        return {**r, "price": cls(2)._shift(r["price"])}


case("callable_object", Scale(3), True, "one", all_but("price"))
case("bound_method", Scale(3).shifted, True, "one", all_but("price"))
case("static_method", Scale.still, True, "one", all_but())
case("class_method", Scale.made, True, "one", all_but("price"))


def _twice(fn):
    @functools.wraps(fn)
    def wrapper(r):
        return fn(fn(r))

    return wrapper


@_twice
def _bumped(r):
    return {**r, "count": r["count"] + 1}


case("decorated_with_wraps", _bumped, True, "one", all_but("count"))
