"""Objects: instances that keep, class attributes, properties, descriptors, metaclasses."""

from __future__ import annotations

from typing import ClassVar

from tests.compiler.independent.labels import marks, twice, unsafe

SEEN: list = []


class CallCounter:
    def __init__(self):
        self.n = 0

    def __call__(self, r):
        self.n += 1
        return {**r, "n": self.n}


unsafe(CallCounter(), twice(), name="callable_that_counts")


class Numbered:
    n = 0

    def by_type(self, r):
        type(self).n += 1
        return {**r, "n": self.n}

    def by_class_attribute(self, r):
        self.__class__.n += 1
        return {**r, "n": self.n}

    def by_instance_dict(self, r):
        self.__dict__["n"] = self.n + 1
        return {**r, "n": self.n}

    def by_vars(self, r):
        vars(self).update(n=self.n + 1)
        return {**r, "n": self.n}

    def by_object_setattr(self, r):
        object.__setattr__(self, "n", self.n + 1)
        return {**r, "n": self.n}

    def by_setattr(self, r):
        setattr(self, "n", self.n + 1)
        return {**r, "n": self.n}

    @classmethod
    def by_classmethod(cls, r):
        cls.n += 1
        return {**r, "n": cls.n}

    @staticmethod
    def by_staticmethod(r):
        Numbered.n += 1
        return {**r, "n": Numbered.n}


for way in ("type", "class_attribute", "instance_dict", "vars", "object_setattr", "setattr"):
    unsafe(getattr(Numbered(), f"by_{way}"), twice(), name=f"counts_by_{way}")
unsafe(Numbered.by_classmethod, twice())
unsafe(Numbered.by_staticmethod, twice())


class SharedList:
    seen: ClassVar[list] = []

    def __call__(self, r):
        self.seen.append(r["id"])
        return {**r, "n": len(self.seen)}


unsafe(SharedList(), twice(), name="mutable_class_constant")


class Base:
    def clean(self, r):
        return r

    def __call__(self, r):
        return self.clean(r)


class Derived(Base):
    def clean(self, r):
        self.last = r["id"] + getattr(self, "last", 0)
        return {**super().clean(r), "last": self.last}


unsafe(Derived(), twice(), name="overridden_method_writes")


class Mixin:
    def clean(self, r):
        SEEN.append(r["id"])
        return super().clean(r)


class Mixed(Mixin, Base):
    pass


unsafe(Mixed(), marks(SEEN), name="super_through_a_mixin")


class Meter:
    def __init__(self):
        self.reads = 0

    @property
    def rate(self):
        self.reads += 1
        return self.reads


METER = Meter()


def property_counts(r):
    return {**r, "rate": METER.rate}


unsafe(property_counts, twice())


class Spy:
    def __init__(self):
        self._asked = []

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self._asked.append(name)
        return len(self._asked)


SPY = Spy()


def attribute_made_on_demand(r):
    return {**r, "rate": SPY.rate}


unsafe(attribute_made_on_demand, twice())


class Watching:
    limit = 10

    def __getattribute__(self, name):
        if name == "limit":
            SEEN.append(name)
        return object.__getattribute__(self, name)


WATCHING = Watching()


def attribute_watched(r):
    return {**r, "limit": WATCHING.limit}


unsafe(attribute_watched, marks(SEEN))


class Ticket:
    def __init__(self):
        self.n = 0

    def __get__(self, instance, owner):
        self.n += 1
        return self.n


class Office:
    ticket = Ticket()


OFFICE = Office()


def descriptor_counts(r):
    return {**r, "ticket": OFFICE.ticket}


unsafe(descriptor_counts, twice())


def descriptor_on_the_class(r):
    return {**r, "ticket": Office.ticket}


unsafe(descriptor_on_the_class, twice())


class Written:
    def __set__(self, instance, value):
        SEEN.append(value)


class Form:
    name = Written()


def descriptor_takes_a_write(r):
    form = Form()
    form.name = r["name"]
    return r


unsafe(descriptor_takes_a_write, marks(SEEN))


class Recorded:
    def __setattr__(self, name, value):
        SEEN.append(name)


def fresh_object_records_writes(r):
    Recorded().name = r["name"]
    return r


unsafe(fresh_object_records_writes, marks(SEEN))


class Meta(type):
    made = 0

    def __call__(cls, *args):
        Meta.made += 1
        return super().__call__(*args)

    def __getattr__(cls, name):
        if name.startswith("_"):
            raise AttributeError(name)
        Meta.made += 1
        return Meta.made


class Made(metaclass=Meta):
    pass


def metaclass_counts(r):
    Made()
    return {**r, "n": Meta.made}


unsafe(metaclass_counts, twice())


def metaclass_attribute(r):
    return {**r, "n": Made.anything}


unsafe(metaclass_attribute, twice())


class Plugin:
    def __init_subclass__(cls):
        SEEN.append(cls.__name__)


def subclass_registers(r):
    class Local(Plugin):
        pass

    return r


unsafe(subclass_registers, marks(SEEN))


class Singleton:
    _one = None
    n = 0

    def __new__(cls):
        if cls._one is None:
            cls._one = super().__new__(cls)
        return cls._one


def singleton_that_looks_fresh(r):
    counter = Singleton()
    counter.n += 1
    return {**r, "n": counter.n}


unsafe(singleton_that_looks_fresh, twice())


class Registered:
    every: ClassVar[list] = []

    def __init__(self, name):
        self.every.append(name)


def constructor_registers(r):
    Registered(r["name"])
    return r


unsafe(constructor_registers, marks(Registered.every))


class Shared:
    tags: ClassVar[list] = []

    def add(self, tag):
        self.tags.append(tag)
        return len(self.tags)


def fresh_object_with_a_shared_list(r):
    return {**r, "n": Shared().add(r["name"])}


unsafe(fresh_object_with_a_shared_list, twice())


class Dying:
    def __del__(self):
        SEEN.append("gone")


def finaliser(r):
    Dying()
    return r


unsafe(finaliser, marks(SEEN))
