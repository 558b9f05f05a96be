"""Impostors: functions, classes and modules that bear a trusted one's name, or whose code is another's."""

from __future__ import annotations

import functools
import types

from tests.compiler.independent.labels import touches, unsafe

SEEN: list = []


def mark(*values, **named):
    SEEN.append(len(SEEN))
    return len(SEEN)


def named_as(fn, module, name):
    fn.__module__, fn.__name__, fn.__qualname__ = module, name, name
    return fn


def copied(fn, **names):
    """The same code with other globals."""
    return types.FunctionType(fn.__code__, {**globals(), **names}, fn.__name__)


sqrt = named_as(lambda x: mark(x), "math", "sqrt")
loads = named_as(lambda text: {"n": mark(text)}, "json", "loads")
fake_len = named_as(lambda x: mark(x), "builtins", "len")


def impostor_of_a_library_function(r):
    return {**r, "root": sqrt(r["x"])}


def impostor_of_loads(r):
    return {**r, **loads(r["name"])}


def impostor_of_a_builtin(r):
    return {**r, "n": fake_len(r["tags"])}


class Decimal:
    def __init__(self, text):
        mark(text)


Decimal.__module__ = "decimal"


def impostor_of_a_class(r):
    Decimal(r["name"])
    return r


class Pattern:
    def match(self, text):
        return mark(text)


Pattern.__module__ = "re"
PATTERN = Pattern()


def impostor_of_a_pattern(r):
    return {**r, "ok": PATTERN.match(r["name"])}


class dict_like(dict):
    def __getitem__(self, key):
        return mark(key)


dict_like.__name__ = dict_like.__qualname__ = "dict"
dict_like.__module__ = "builtins"
LOOKUP = dict_like(Ann=1)


def impostor_of_dict(r):
    return {**r, "n": LOOKUP[r["name"]]}


class Pretends:
    """Its `__class__` says str."""

    @property
    def __class__(self):
        return str

    def upper(self):
        return str(mark())


TEXT = Pretends()


def impostor_by_class(r):
    return {**r, "name": TEXT.upper()}


fake = types.ModuleType("math")
fake.floor = mark
fake.__spec__ = functools.__spec__


def _by_module(r):
    return {**r, "n": math.floor(r["x"])}  # noqa: F821


impostor_of_a_module = copied(_by_module, math=fake)


class Lazy(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return mark(name)


def _by_lazy(r):
    return {**r, "n": settings.limit}  # noqa: F821


impostor_by_module_getattr = copied(_by_lazy, settings=Lazy("settings"))


def _one_constant(r):
    target = "PLACE"
    target.append(r["id"])
    return r


_constants = tuple(SEEN if c == "PLACE" else c for c in _one_constant.__code__.co_consts)
impostor_by_constant = types.FunctionType(
    _one_constant.__code__.replace(co_consts=_constants), globals(), "_one_constant"
)


def _other_name(r):
    return {**r, "tags": sorted(r["tags"])}


_names = tuple("mark" if n == "sorted" else n for n in _other_name.__code__.co_names)
impostor_by_name = types.FunctionType(
    _other_name.__code__.replace(co_names=_names), globals(), "_other_name"
)


def _inner(r):
    def step(x):
        return x + 1

    return {**r, "x": step(r["x"])}


def _outer(x):
    return mark(x)


_inner_constants = tuple(
    _outer.__code__.replace(co_name="step", co_qualname=c.co_qualname)
    if isinstance(c, types.CodeType)
    else c
    for c in _inner.__code__.co_consts
)
impostor_by_inner_code = types.FunctionType(
    _inner.__code__.replace(co_consts=_inner_constants), globals(), "_inner"
)


class Loud(functools.partial):
    def __call__(self, *args):
        mark()
        return super().__call__(*args)


impostor_of_partial = Loud(lambda r: {**r})
impostor_by_nested_partial = functools.partial(
    functools.partial(lambda f, g, r: f() and r, mark), 1
)
impostor_by_method = types.MethodType(lambda seen, r: seen.append(1) or r, SEEN)


class Aimed:
    __call__ = staticmethod(mark)


class Descended:
    @property
    def __call__(self):
        mark()
        return lambda r: r


class Partly:
    def run(self, how, r):
        how()
        return r

    __call__ = functools.partialmethod(run, mark)


class Looks:
    """It has a function's attributes, those of an innocent one."""

    def __init__(self, innocent):
        self.__code__, self.__globals__ = innocent.__code__, innocent.__globals__
        self.__defaults__ = self.__kwdefaults__ = self.__closure__ = None
        self.__name__ = self.__qualname__ = innocent.__name__
        self.__wrapped__ = innocent

    def __call__(self, r):
        mark()
        return r


class Hides(dict):
    def __call__(self, r):
        self[len(self)] = mark()
        return r


impostor_by_static_call = Aimed()
impostor_by_property_call = Descended()
impostor_by_partial_method = Partly()
impostor_by_attributes = Looks(_other_name)
impostor_by_subclass_of_dict = Hides()


class Method:
    """A function's `__get__` is not the only way to bind."""

    def __get__(self, instance, owner):
        mark()
        return lambda r: r


class Service:
    clean = Method()


SERVICE = Service()


def impostor_by_descriptor(r):
    return SERVICE.clean(r)


def declared_pure(r):
    mark()
    return r


declared_pure.__doc__ = "Pure."
declared_pure.__pure__ = True
impostor_by_a_claim = declared_pure


def impostor_by_instance_method(r):
    # An attribute of the instance goes before a function of its class.
    return {**r, "n": CLEANER.clean(r["x"])}


class Cleaner:
    def clean(self, x):
        return x


CLEANER = Cleaner()
CLEANER.clean = mark


def impostor_by_patched_class(r):
    return {**r, "n": Patched().clean(r["x"])}


class Patched:
    def clean(self, x):
        return x


Patched.clean = lambda self, x: mark(x)


def impostor_by_mutated_bases(r):
    return {**r, "n": Child().clean(r["x"])}


class Tame:
    def clean(self, x):
        return x


class Wild:
    def clean(self, x):
        return mark(x)


class Child(Tame):
    pass


Child.__bases__ = (Wild,)

for name, each in list(globals().items()):
    if name.startswith("impostor_"):
        unsafe(each, touches(lambda: len(SEEN)), name=name)
