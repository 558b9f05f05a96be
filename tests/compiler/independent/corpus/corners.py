"""Effects in corners of the language: caches, dispatch, C calls, definitions within a function."""

from __future__ import annotations

import ctypes
import functools

from tests.compiler.independent.labels import marks, touches, twice, unsafe

SEEN: list = []


def impure(r):
    SEEN.append(r["id"])
    return {**r, "n": len(SEEN)}


# Caches and dispatch


@functools.lru_cache
def next_number(name):
    SEEN.append(name)
    return len(SEEN)


def cached_helper(r):
    return {**r, "n": next_number(f"{r['name']}{len(SEEN)}")}


unsafe(cached_helper, twice())


@functools.cache
def shared_list(name):
    return []


def cached_helper_returns_a_list(r):
    shared_list(r["name"]).append(r["id"])
    return {**r, "n": len(shared_list(r["name"]))}


unsafe(cached_helper_returns_a_list, twice())


@functools.singledispatch
def clean(value):
    return value


@clean.register
def _(value: str):
    SEEN.append(value)
    return f"{value}{len(SEEN)}"


def dispatched_by_type(r):
    return {k: clean(v) for k, v in r.items()}


unsafe(dispatched_by_type, twice())


class Strict:
    @functools.singledispatchmethod
    def read(self, value):
        return value

    @read.register
    def _(self, value: int):
        SEEN.append(value)
        return len(SEEN)


def dispatched_method(r, strict=Strict()):
    return {"x": strict.read(r["x"])}


unsafe(dispatched_method, twice())

strlen = ctypes.pythonapi.PyList_Append
strlen.argtypes = [ctypes.py_object, ctypes.py_object]


def c_function(r):
    strlen(SEEN, r["id"])
    return r


unsafe(c_function, marks(SEEN))

unsafe(
    functools.partial(map, SEEN.append),
    touches(lambda: len(SEEN), {"a": 1}),
    name="partial_of_a_c_type",
)
unsafe(SEEN.append, touches(lambda: len(SEEN)), name="bound_c_method_as_the_function")


class Quiet:
    """`__call__` of the instance is not what a call calls."""

    def __init__(self):
        self.__call__ = lambda r: r

    def __call__(self, r):
        SEEN.append(r["id"])
        return r


unsafe(Quiet(), marks(SEEN), name="instance_attribute_named_call")


def rebinds_a_helper(r):
    global step
    step = impure
    return step(r)


def step(r):
    return r


unsafe(rebinds_a_helper, twice())


def attribute_of_a_function(r):
    attribute_of_a_function.seen.append(r["id"])
    return {**r, "n": len(attribute_of_a_function.seen)}


attribute_of_a_function.seen = []
unsafe(attribute_of_a_function, twice())


def inner_default_has_an_effect(r):
    def inner(x=SEEN.append(2)):
        return x

    return r


unsafe(inner_default_has_an_effect, marks(SEEN))


def inner_decorator_has_an_effect(r):
    @SEEN.append
    def inner(x):
        return x

    return r


unsafe(inner_decorator_has_an_effect, touches(lambda: len(SEEN)))


def inner_class_body(r):
    class Row:
        SEEN.append(r["id"])

    return r


unsafe(inner_class_body, touches(lambda: len(SEEN)))


def assertion_with_an_effect(r):
    assert SEEN.append(r["id"]) is None
    return r


unsafe(assertion_with_an_effect, touches(lambda: len(SEEN)))


def finally_with_an_effect(r):
    try:
        return r
    finally:
        SEEN.append(r["id"])


unsafe(finally_with_an_effect, touches(lambda: len(SEEN)))


def effect_after_the_last_yield(r):
    yield r
    SEEN.append(r["id"])


unsafe(effect_after_the_last_yield, touches(lambda: len(SEEN)))


def effect_in_a_generator_expression_kept(r):
    kept = (SEEN.append(t) for t in r["tags"])
    return {"n": len(list(kept))}


unsafe(effect_in_a_generator_expression_kept, touches(lambda: len(SEEN)))
