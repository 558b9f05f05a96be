"""The standard library: callbacks, hooks of types, and objects with a position or a memory."""

from __future__ import annotations

import abc
import asyncio
import codecs
import collections
import copy
import csv
import email.utils
import enum
import functools
import hashlib
import io
import itertools
import json
import math
import os
import pathlib
import queue
import sqlite3
import statistics
import string
import time
import zlib

import numpy as np

from tests.compiler.independent.corpus.surroundings import other_zone
from tests.compiler.independent.labels import between, marks, touches, twice, unsafe

SEEN: list = []
HASH = hashlib.sha256()
COMPRESSED = zlib.compressobj()
DECODER = codecs.getincrementaldecoder("utf-8")()
LINES = io.StringIO("\n".join(map(str, range(1000))))
OUT = io.StringIO()
WRITER = csv.writer(OUT)
READER = csv.reader(iter([f"{i},x" for i in range(1000)]))
ORDERED = collections.OrderedDict(a=1, b=2)
QUEUE: queue.Queue = queue.Queue()
TURNS = itertools.cycle([1, 2])
BASE = sqlite3.connect(":memory:")
RNG = np.random.default_rng(1)
HERE = pathlib.Path("independent-nowhere")


def mark(value=None, *_):
    SEEN.append(repr(value))
    return len(SEEN)


def hook_of_json_loads(r):
    return {**r, "v": json.loads('{"a": 1}', object_hook=SEEN.append)}


def hook_of_json_dumps(r):
    return {**r, "v": json.dumps(object(), default=lambda o: mark())}


def hook_of_cmp_to_key(r):
    r["tags"].sort(key=functools.cmp_to_key(lambda a, b: mark(a)))
    return r


def hook_of_groupby(r):
    return [{"n": key} for key, _ in itertools.groupby(r["tags"], key=mark)]


def hook_of_accumulate(r):
    return {**r, "n": list(itertools.accumulate([1, 2, 3], mark))}


def hook_of_starmap(r):
    return {**r, "n": list(itertools.starmap(mark, [(1,), (2,)]))}


def hook_of_iter(r):
    return {**r, "n": next(iter(mark, -1))}


def hook_of_takewhile(r):
    return {**r, "n": list(itertools.takewhile(mark, r["tags"]))}


def hook_of_defaultdict(r):
    counts = collections.defaultdict(mark)
    return {**r, "n": counts[r["name"]]}


def hook_of_min(r):
    return {**r, "n": min(r["tags"], key=mark)}


def hook_of_mean(r):
    return {**r, "n": statistics.mean(mark(t) for t in r["tags"])}


def hook_of_fsum(r):
    return {**r, "n": math.fsum(map(mark, r["tags"]))}


class Table:
    def __getitem__(self, key):
        mark(key)
        return key

    def keys(self):
        mark("keys")
        return ["name"]


def hook_of_translate(r):
    return {**r, "name": r["name"].translate(Table())}


def hook_of_format_map(r):
    return {**r, "name": "{name}".format_map(Table())}


def hook_of_template(r):
    return {**r, "name": string.Template("$name").substitute(Table())}


def hook_of_dict_from_keys(r):
    return {**r, **dict(Table())}


class Odd:
    def __deepcopy__(self, memo):
        mark("deep")
        return self

    def __copy__(self):
        mark("copy")
        return self

    def __floor__(self):
        return mark("floor")

    def __rsub__(self, other):
        return mark(other)

    def __divmod__(self, other):
        return mark(other)

    def __reversed__(self):
        return iter([mark("reversed")])

    def __bytes__(self):
        return bytes([mark("bytes") % 256])

    def __dir__(self):
        return [str(mark("dir"))]

    def __length_hint__(self):
        return mark("hint")

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration

    def __class_getitem__(cls, key):
        return mark(key)


ODD = Odd()


def hook_of_deepcopy(r):
    copy.deepcopy({"a": [ODD]})
    return r


def hook_of_copy(r):
    copy.copy(ODD)
    return r


def hook_of_floor(r):
    return {**r, "n": math.floor(ODD)}


def hook_of_subtraction(r):
    return {**r, "n": r["x"] - ODD}


def hook_of_divmod(r):
    return {**r, "n": divmod(ODD, 2)}


def hook_of_reversed(r):
    return {**r, "n": list(reversed(ODD))}


def hook_of_bytes(r):
    return {**r, "n": bytes(ODD)}


def hook_of_dir(r):
    return {**r, "n": dir(ODD)}


def hook_of_length(r):
    return {**r, "n": list(ODD)}


def hook_of_class_getitem(r):
    return {**r, "n": Odd[r["x"]]}


class Checked(abc.ABCMeta):
    def __instancecheck__(cls, instance):
        return bool(mark(instance))


class Shape(metaclass=Checked):
    pass


def hook_of_isinstance(r):
    return {**r, "n": isinstance(r["x"], Shape)}


def hook_of_class_pattern(r):
    match r["x"]:
        case Shape():
            return r


def hook_of_an_except_clause(r):
    try:
        r["missing"]
    except (mark("except"), KeyError)[1]:
        return r


def hook_of_an_assertion_message(r):
    try:
        assert r["x"] > 100, mark("message")
    except AssertionError:
        return r


def hook_of_raise_from(r):
    try:
        raise KeyError from [None, mark("from")][0]
    except KeyError:
        return r


class Level(enum.Enum):
    LOW = 1

    @classmethod
    def _missing_(cls, value):
        mark(value)
        return cls.LOW


def hook_of_a_missing_member(r):
    return {**r, "level": Level(r["x"]).value}


class Sized(tuple):
    def __len__(self):
        return mark("len")


def hook_of_a_tuple_subclass(r, pair=Sized((1, 2))):
    return {**r, "n": len(pair)}


def memoised(n, memo={}):
    if n not in memo:
        memo[n] = n * n + len(memo)
    return memo[n]


def hook_of_a_memo(r):
    return {**r, "n": memoised(r["x"] + len(SEEN)), "m": mark()}


for each in [each for name, each in list(globals().items()) if name.startswith("hook_")]:
    unsafe(each, touches(lambda: len(SEEN)))


def memo_alone(r):
    return {**r, "n": memoised(r["at"])}


unsafe(memo_alone, touches(lambda: len(memoised.__defaults__[0])))


def kept_by_a_hash(r):
    HASH.update(r["name"].encode())
    return {**r, "hash": HASH.hexdigest()}


def kept_by_a_compressor(r):
    return {
        **r,
        "n": len(COMPRESSED.compress(os.fsencode(r["name"]))),
        "m": len(COMPRESSED.copy().flush()),
    }


def kept_by_a_stream(r):
    return {**r, "line": LINES.readline()}


def kept_by_a_reader(r):
    return {**r, "row": next(READER)}


def kept_by_a_reader_unpacked(r):
    for row in READER:
        return {**r, "row": row}


def kept_by_a_queue(r):
    QUEUE.put_nowait(r["id"])
    return {**r, "n": QUEUE.qsize()}


def kept_by_a_cycle(r):
    return {**r, "turn": next(TURNS)}


def kept_by_a_cycle_zipped(r):
    return [{"tag": tag, "turn": turn} for tag, turn in zip(["a"], TURNS, strict=False)]


def kept_by_an_order(r):
    ORDERED.move_to_end(next(iter(ORDERED)))
    return {**r, "order": list(ORDERED)}


def kept_by_a_database(r):
    BASE.execute("create table if not exists t (id int)")
    BASE.execute("insert into t values (?)", (r["id"],))
    return {**r, "n": BASE.execute("select count(*) from t").fetchone()[0]}


def kept_by_a_numpy_generator(r):
    return {**r, "n": float(RNG.random())}


def kept_by_numpy(r):
    return {**r, "n": float(np.random.rand())}


def kept_by_a_message_id(r):
    return {**r, "id": email.utils.make_msgid()}


for each in [each for name, each in list(globals().items()) if name.startswith("kept_by_")]:
    unsafe(each, twice())


def kept_by_a_decoder(r):
    return {**r, "text": DECODER.decode(b"\xc3" if r["x"] else b"\xa9")}


def split_character(call):
    fresh = codecs.getincrementaldecoder("utf-8")().decode(b"")
    return [call({"x": 1})["text"], call({"x": 0})["text"]] != [fresh, fresh]


unsafe(kept_by_a_decoder, split_character)


def written_by_csv(r):
    WRITER.writerow([r["id"], r["name"]])
    return r


unsafe(written_by_csv, touches(OUT.getvalue))


def by_absolute_path(r):
    return {**r, "path": os.path.abspath("x")}


unsafe(by_absolute_path, "follows the working directory")


def by_resolved_path(r):
    return {**r, "path": str(HERE.resolve())}


unsafe(by_resolved_path, "follows the working directory and the links in it")


def by_home(r):
    return {**r, "path": os.path.expanduser("~/x")}


def other_home():
    os.environ["HOME"] = os.environ.get("HOME", "") + "/x"


unsafe(by_home, between(other_home))


def by_mktime(r):
    return {**r, "at": time.mktime((2024, 1, 1, 0, 0, 0, 0, 1, 0))}


unsafe(by_mktime, between(other_zone))


def by_ctime(r):
    return {**r, "at": time.ctime(r["at"])}


unsafe(by_ctime, between(other_zone))


def by_locale_number(r):
    return {**r, "n": f"{r['at']:n}"}


unsafe(by_locale_number, "`n` groups digits as the process's locale does; only C need be installed")


async def push(r):
    SEEN.append(r["id"])
    return r


def by_an_event_loop(r):
    return asyncio.run(push(r))


unsafe(by_an_event_loop, marks(SEEN))
