"""Subclasses of builtin types, and arrays and frames that change in place."""

from __future__ import annotations

import array
import functools
from collections import UserDict

import numpy as np
import polars as pl

from tests.compiler.independent.labels import marks, twice, unsafe

SEEN: list = []


class Noisy(int):
    def __add__(self, other):
        SEEN.append(1)
        return len(SEEN) + other

    def __radd__(self, other):
        return self + other


FEE = Noisy(2)


def int_subclass(r):
    return {**r, "x": r["x"] + FEE}


unsafe(int_subclass, twice())


class Label(str):
    def upper(self):
        SEEN.append(1)
        return f"{len(SEEN)}"

    def join(self, parts):
        return self.upper()


PREFIX = Label("p")


def str_subclass(r):
    return {**r, "name": PREFIX.upper()}


unsafe(str_subclass, twice())


def str_subclass_join(r):
    return {**r, "name": PREFIX.join(r["tags"])}


unsafe(str_subclass_join, twice())


class Defaulting(dict):
    def __missing__(self, key):
        self[key] = len(self)
        return self[key]


CODES = Defaulting()


def missing_key_is_kept(r):
    return {**r, "code": CODES[r["name"]]}


unsafe(missing_key_is_kept, marks(CODES))


class Logged(dict):
    def get(self, key, default=None):
        SEEN.append(key)
        return len(SEEN)


PRICES = Logged(Ann=1)


def dict_subclass_get(r):
    return {**r, "price": PRICES.get(r["name"])}


unsafe(dict_subclass_get, twice())


class Unpacked(UserDict):
    def keys(self):
        SEEN.append("keys")
        return self.data.keys()

    def __getitem__(self, key):
        SEEN.append(key)
        return len(SEEN)


EXTRA = Unpacked(extra=1)


def mapping_unpacked(r):
    return {**r, **EXTRA}


unsafe(mapping_unpacked, twice())


class InPlace:
    def __init__(self):
        self.n = 0

    def __iadd__(self, other):
        self.n += other
        return self


ACCUMULATOR = InPlace()


def overloaded_iadd(r):
    total = ACCUMULATOR
    total += r["x"]
    return {**r, "total": total.n}


unsafe(overloaded_iadd, twice())

ARRAY = np.zeros(3)
BYTES = bytearray(b"a")
NUMBERS = array.array("l")
FRAME = pl.DataFrame({"a": [1]})
SERIES = pl.Series("a", [1])


def numpy_in_place(r):
    x = ARRAY
    x += 1
    return {"n": float(x[0])}


unsafe(numpy_in_place, twice())


def numpy_view(r):
    ARRAY[1:][0] = ARRAY[1] + r["x"]
    return {"n": float(ARRAY[1])}


unsafe(numpy_view, twice())


def numpy_view_in_a_local(r):
    tail = ARRAY.reshape(3, 1)
    tail[2, 0] += 1
    return {"n": float(ARRAY[2])}


unsafe(numpy_view_in_a_local, twice())


def numpy_out(r):
    np.add(ARRAY, 1, out=ARRAY)
    return {"n": float(ARRAY[0])}


unsafe(numpy_out, twice())


def bytes_in_place(r):
    b = BYTES
    b += b"x"
    return {"n": len(BYTES)}


unsafe(bytes_in_place, twice())


def memory_view(r):
    memoryview(BYTES)[0] = (BYTES[0] + 1) % 256
    return {"n": BYTES[0]}


unsafe(memory_view, twice())


def array_grows(r):
    NUMBERS.append(r["x"])
    return {"n": len(NUMBERS)}


unsafe(array_grows, twice())


def polars_in_place(r):
    FRAME.extend(FRAME[:1])
    return {"n": FRAME.height}


unsafe(polars_in_place, twice())


def polars_insert(r):
    FRAME.insert_column(0, pl.lit(1).alias(f"c{FRAME.width}"))
    return {"n": FRAME.width}


unsafe(polars_insert, twice())


def polars_series_append(r):
    SERIES.append(pl.Series("a", [r["x"]]))
    return {"n": SERIES.len()}


unsafe(polars_series_append, twice())


@functools.total_ordering
class Ranked:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        SEEN.append(1)
        return self.n < other.n

    def __hash__(self):
        return self.n


def fresh_objects_compared(r):
    return {**r, "ok": Ranked(r["x"]) >= Ranked(r["id"])}


unsafe(fresh_objects_compared, marks(SEEN))
