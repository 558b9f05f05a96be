"""Globals reached by a detour: exec, modules, frames, and statements that bind a global name."""

from __future__ import annotations

import importlib
import itertools
import sys

from tests.compiler.independent.labels import marks, touches, twice, unsafe

SEEN: list = []
LINES: list = []
TICKS = itertools.count()
show = LINES.append
n_calls = 0


def by_exec(r):
    exec("SEEN.append(r['id'])")
    return r


unsafe(by_exec, marks(SEEN))


def by_eval(r):
    return {"n": eval("next(TICKS)")}


unsafe(by_eval, twice())


def by_compiled_code(r, code=compile("SEEN.append(1) or len(SEEN)", "<n>", "eval")):
    return {"n": eval(code)}


unsafe(by_compiled_code, twice())


def by_globals(r):
    globals()["n_calls"] += 1
    return {"n": n_calls}


unsafe(by_globals, twice())


def by_function_globals(r):
    by_globals.__globals__["n_calls"] += 1
    return {"n": n_calls}


unsafe(by_function_globals, twice())


def by_vars_of_the_module(r):
    here = vars(sys.modules[__name__])
    here["n_calls"] = here["n_calls"] + 1
    return {"n": n_calls}


unsafe(by_vars_of_the_module, twice())


def by_module_attribute(r):
    module = sys.modules[__name__]
    module.n_calls += 1
    return {"n": n_calls}


unsafe(by_module_attribute, twice())


def by_importlib(r):
    importlib.import_module(__name__).SEEN.append(r["id"])
    return r


unsafe(by_importlib, marks(SEEN))


def by_import_within(r):
    from tests.compiler.independent.corpus.reaching import SEEN as found

    found.append(r["id"])
    return r


unsafe(by_import_within, marks(SEEN))


def by_getattr(r):
    getattr(SEEN, "app" + "end")(r["id"])
    return r


unsafe(by_getattr, marks(SEEN))


def by_setattr_on_itself(r):
    by_setattr_on_itself.n = getattr(by_setattr_on_itself, "n", 0) + 1
    return {"n": by_setattr_on_itself.n}


unsafe(by_setattr_on_itself, twice())


def by_its_own_defaults(r, n=0):
    by_its_own_defaults.__defaults__ = (n + 1,)
    return {"n": n}


unsafe(by_its_own_defaults, twice())


def through_a_frame(r):
    sys._getframe(0).f_globals["n_calls"] += 1
    return {"n": n_calls}


unsafe(through_a_frame, twice())


def print_by_another_name(r):
    show(f"saw {r['id']}")
    return r


unsafe(print_by_another_name, marks(LINES))


def global_in_a_class_body(r):
    class Step:
        global n_calls
        n_calls += 1

    return {"n": n_calls}


unsafe(global_in_a_class_body, twice())


def import_as_global(r):
    global TOTALS_NOW
    import math as TOTALS_NOW

    return r


unsafe(import_as_global, touches(lambda: globals().pop("TOTALS_NOW", None)))


def exception_name_as_global(r):
    global LAST
    try:
        r["missing"]
    except KeyError as LAST:  # deletes it at the end
        pass
    return r


unsafe(exception_name_as_global, touches(lambda: globals().setdefault("LAST", object())))


def walrus_in_a_comprehension(r):
    global LARGEST
    [LARGEST := t for t in r["tags"]]
    return r


LARGEST = "z"
unsafe(walrus_in_a_comprehension, touches(lambda: LARGEST))


def function_defined_as_global(r):
    global helper

    def helper():
        return r

    return {"id": helper()["id"]}


def helper():
    return None


unsafe(function_defined_as_global, touches(lambda: helper))


def kept_record(r):
    global latest
    before, latest = latest, r
    return {**r, "before": before and before["id"]}


latest = None
unsafe(kept_record, twice())
