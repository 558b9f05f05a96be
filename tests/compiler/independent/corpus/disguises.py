"""Functions that are not what they look like: decorators, other code, other source, other builtins."""

from __future__ import annotations

import builtins
import functools
import inspect
import linecache
import types

from tests.compiler.independent.corpus import innocent
from tests.compiler.independent.labels import marks, twice, unsafe

SEEN: list = []
n_calls = 0


def counted(fn):
    calls = [0]

    @functools.wraps(fn)
    def wrapper(r):
        calls[0] += 1
        return {**fn(r), "n": calls[0]}

    return wrapper


@counted
def decorated_with_wraps(r):
    return {"name": r["name"].strip()}


unsafe(decorated_with_wraps, twice())


def remembering(fn):
    last = {}

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        result, last["row"] = last.get("row", {"id": None}), fn(*args, **kwargs)
        return result

    return wrapper


@remembering
def decorated_to_lag(r):
    return {"id": r["id"]}


unsafe(decorated_to_lag, twice())


class Counting:
    def __init__(self, fn):
        functools.update_wrapper(self, fn)
        self.fn, self.calls = fn, 0

    def __call__(self, r):
        self.calls += 1
        return {**self.fn(r), "n": self.calls}


@Counting
def decorated_by_a_class(r):
    return {"id": r["id"]}


unsafe(decorated_by_a_class, twice())


def impure(r):
    SEEN.append(r["id"])
    return {**r, "n": len(SEEN)}


def innocent_here(r):
    return {**r, "n": 1}


impure_with_wrapped = types.FunctionType(impure.__code__, globals(), "impure_with_wrapped")
impure_with_wrapped.__wrapped__ = innocent_here
unsafe(impure_with_wrapped, twice())


def code_replaced(r):
    return {**r, "n": 1}


code_replaced.__code__ = impure.__code__
unsafe(code_replaced, twice())


def defaults_replaced(r, seen=()):
    for each in seen:
        each.append(r["id"])
    return {**r, "n": len(SEEN)}


defaults_replaced.__defaults__ = ([SEEN],)
unsafe(defaults_replaced, twice())


def keyword_defaults_replaced(r, *, add=str):
    add(r["id"])
    return {**r, "n": len(SEEN)}


keyword_defaults_replaced.__kwdefaults__["add"] = SEEN.append
unsafe(keyword_defaults_replaced, twice())


def signature_lies(r, seen=[]):
    seen.append(r["id"])
    return {**r, "n": len(seen)}


signature_lies.__signature__ = inspect.Signature(
    [inspect.Parameter("r", inspect.Parameter.POSITIONAL_ONLY)]
)
unsafe(signature_lies, twice())

# Source that lies

_line = inspect.getsourcelines(innocent.tidy)[1]
_source = "\n" * (_line - 1) + "def tidy(r):\n    SEEN.append(r['id'])\n    return r\n"
_names: dict = {"SEEN": SEEN, "__name__": innocent.__name__}
exec(compile(_source, innocent.__file__, "exec"), _names)
unsafe(_names["tidy"], marks(SEEN), name="compiled_as_if_from_an_innocent_file")

moved = types.FunctionType(
    impure.__code__.replace(
        co_filename=innocent.tidy.__code__.co_filename,
        co_firstlineno=innocent.tidy.__code__.co_firstlineno,
        co_name="tidy",
        co_qualname="tidy",
    ),
    globals(),
    "tidy",
)
moved.__module__ = innocent.__name__
unsafe(moved, twice(), name="code_moved_to_innocent_lines")

_text = "def made(r):\n    return {**r, 'n': 1}\n"
linecache.cache["<made-1>"] = (len(_text), None, _text.splitlines(keepends=True), "<made-1>")
_names = {"SEEN": SEEN}
exec(
    compile("def made(r):\n    return {**r, 'n': SEEN.append(1) or len(SEEN)}", "<made-1>", "exec"),
    _names,
)
unsafe(_names["made"], twice(), name="linecache_tells_another_story")

_names = {"SEEN": SEEN}
exec("def made(r):\n    return {**r, 'n': SEEN.append(1) or len(SEEN)}", _names)
unsafe(_names["made"], twice(), name="no_source_at_all")

# Two functions on a line: a search of the source for "lambda" finds the first.
first, second = lambda r: {**r, "n": 1}, lambda r: {**r, "n": SEEN.append(1) or len(SEEN)}
unsafe(second, twice(), name="second_lambda_of_a_line")
third, fourth = lambda r: {**r, "n": SEEN.append(1) or len(SEEN)}, lambda r: {**r, "n": 1}
unsafe(third, twice(), name="first_lambda_of_a_line")
nested = (lambda: lambda r: {**r, "n": SEEN.append(1) or len(SEEN)})()
unsafe(nested, twice(), name="lambda_within_a_lambda")
twins = [lambda r, a=add: {**r, "n": a(1) or len(SEEN)} for add in (len, SEEN.append)]
unsafe(twins[1], twice(), name="same_code_other_default")


def maker(add):
    def same_code(r):
        add(r["tags"])
        return {**r, "n": len(SEEN)}

    return same_code


harmless = maker(len)
unsafe(maker(SEEN.append), twice(), name="same_code_other_closure")


def defined_twice(r):
    return {**r, "n": 1}


innocent_twin = defined_twice


def defined_twice(r):
    SEEN.append(r["id"])
    return {**r, "n": len(SEEN)}


unsafe(defined_twice, twice())

if len(SEEN) >= 0:

    def defined_in_a_branch(r):
        SEEN.append(r["id"])
        return r
else:

    def defined_in_a_branch(r):
        return r


unsafe(defined_in_a_branch, marks(SEEN))

# Names that mean something else


def _counting_len(value):
    SEEN.append(value)
    return len(SEEN)


shadowing = types.ModuleType("shadowing")
shadowing.__dict__.update(SEEN=SEEN, len=_counting_len)
exec("def shadowed_builtin(r):\n    return {**r, 'n': len(r['tags'])}\n", shadowing.__dict__)
unsafe(shadowing.shadowed_builtin, twice())


def shadowed_by_a_parameter(r, sum=SEEN.append):
    sum([r["x"], 1])
    return {**r, "n": len(SEEN)}


unsafe(shadowed_by_a_parameter, twice())


def make_shadowed(sorted):
    def shadowed_by_a_closure(r):
        return {**r, "tags": sorted(r["tags"]) or len(SEEN)}

    return shadowed_by_a_closure


unsafe(make_shadowed(SEEN.append), twice())


def own_builtins(r):
    return {**r, "n": abs(r["x"])}


own_builtins = types.FunctionType(
    own_builtins.__code__,
    {"__builtins__": {**vars(builtins), "abs": _counting_len}, "__name__": "elsewhere"},
    "own_builtins",
)
unsafe(own_builtins, twice())


class math:
    @staticmethod
    def sqrt(x):
        SEEN.append(x)
        return len(SEEN)


def module_that_is_a_class(r):
    return {**r, "root": math.sqrt(r["x"])}


unsafe(module_that_is_a_class, twice())


def shadowed_by_an_import(r):
    from tests.compiler.independent.corpus.disguises import _counting_len as len

    return {**r, "n": len(r["tags"])}


unsafe(shadowed_by_an_import, twice())


def conditional_builtin(r):
    if r["x"] > 0:
        from tests.compiler.independent.corpus.disguises import _counting_len as round
    else:
        from builtins import round
    return {**r, "n": round(r["x"])}


unsafe(conditional_builtin, twice())
