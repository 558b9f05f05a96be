"""Values that keep: dataclasses, enums, cached properties, locals of threads, weak references, errors."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import itertools
import threading
import weakref
from typing import ClassVar

from tests.compiler.independent.labels import marks, touches, twice, unsafe

SEEN: list = []


@dataclasses.dataclass
class Event:
    name: str
    serial: int = dataclasses.field(default_factory=itertools.count().__next__)


def default_factory_counts(r):
    return dataclasses.asdict(Event(r["name"]))


unsafe(default_factory_counts, twice())


@dataclasses.dataclass
class Checked:
    name: str

    def __post_init__(self):
        SEEN.append(self.name)


def post_init_has_an_effect(r):
    return {"name": Checked(r["name"]).name}


unsafe(post_init_has_an_effect, marks(SEEN))


@dataclasses.dataclass(frozen=True)
class Frozen:
    seen: list = dataclasses.field(default_factory=list)

    def __call__(self, r):
        self.seen.append(r["id"])
        return {**r, "n": len(self.seen)}


unsafe(Frozen(), twice(), name="frozen_dataclass_with_a_list")


class Kind(enum.Enum):
    GOOD = []
    BAD = [0]


def enum_with_a_mutable_value(r):
    Kind.GOOD.value.append(r["id"])
    return {"n": len(Kind.GOOD.value)}


unsafe(enum_with_a_mutable_value, twice())


class Cached:
    @functools.cached_property
    def first(self):
        return len(SEEN)

    def __call__(self, r):
        SEEN.append(r["id"])
        return {"first": self.first, "n": len(SEEN)}


unsafe(Cached(), twice(), name="cached_property")


class FirstOnly:
    @functools.cached_property
    def reference(self):
        return []

    def __call__(self, r):
        self.reference.append(r["id"])
        return {**r, "n": len(self.reference)}


unsafe(FirstOnly(), twice(), name="cached_property_kept")


LOCAL = threading.local()


def thread_local(r):
    LOCAL.n = getattr(LOCAL, "n", 0) + 1
    return {**r, "n": LOCAL.n}


unsafe(thread_local, twice())


class Node:
    pass


NODE = Node()
NODES = weakref.WeakKeyDictionary({NODE: 0})
REFERENCE = weakref.ref(NODE)


def by_weak_reference(r):
    REFERENCE().n = getattr(NODE, "n", 0) + 1
    return {**r, "n": NODE.n}


unsafe(by_weak_reference, twice())


def by_weak_dictionary(r):
    NODES[NODE] += 1
    return {**r, "n": NODES[NODE]}


unsafe(by_weak_dictionary, twice())


@contextlib.contextmanager
def timed():
    SEEN.append("in")
    try:
        yield
    finally:
        SEEN.append("out")


def context_manager(r):
    with timed():
        return r


unsafe(context_manager, marks(SEEN))


class Entered:
    def __enter__(self):
        return SEEN

    def __exit__(self, *error):
        return None


def context_manager_gives_the_global(r):
    with Entered() as x:
        x.append(r["id"])
    return r


unsafe(context_manager_gives_the_global, marks(SEEN))


def as_target_is_an_item(r, last={}):
    with contextlib.nullcontext(last.get("n", 0) + 1) as last["n"]:
        return {"n": last["n"]}


unsafe(as_target_is_an_item, twice())


class Kept(Exception):
    seen: ClassVar[list] = []

    def __init__(self, name):
        super().__init__(name)
        self.seen.append(name)


def exception_keeps(r):
    try:
        raise Kept(r["name"])
    except Kept as error:
        return {**r, "n": len(error.seen)}


unsafe(exception_keeps, twice())

FAILURE = ValueError("bad")


def exception_instance_reused(r):
    try:
        raise FAILURE
    except ValueError as error:
        error.add_note(str(r["id"]))
        return {**r, "n": len(error.__notes__)}


unsafe(exception_instance_reused, twice())


class Slotted:
    __slots__ = ("n",)

    def __init__(self):
        self.n = 0

    def bump(self):
        self.n += 1
        return self.n


unsafe(lambda r, s=Slotted(): {**r, "n": s.bump()}, twice(), name="slots_in_a_default")


async def later(r):
    SEEN.append(r["id"])
    return r


def coroutine_by_hand(r):
    try:
        later(r).send(None)
    except StopIteration as done:
        return done.value


unsafe(coroutine_by_hand, marks(SEEN))


class Slots:
    n = 0


def attribute_of_a_class_deleted(r):
    class_attributes = Slots
    del class_attributes.n
    class_attributes.n = r["id"]
    return r


unsafe(attribute_of_a_class_deleted, touches(lambda: Slots.n, {"id": -1}))
