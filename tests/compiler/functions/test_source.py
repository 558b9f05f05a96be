"""Whose source is looked at, and what is proved without one."""

import functools
import importlib.util
import linecache

import pytest

from anabranch.compiler.functions.analyse import analyse
from anabranch.compiler.functions.source import written

OUTSIDE = """
import datetime, math, random
from datetime import datetime as clock
SEEN, TABLE, RATE, NAMES = [], {"x": 1}, 2, frozenset({"a"})
class Loud(Exception):
    def __str__(self):
        SEEN.append(1)
        return ""
def helper(row):
    row.append(1)
"""


def without_source(text):
    """A function that was made of a text nobody has kept."""
    home = {}
    exec(OUTSIDE, home)
    exec(text, home)
    return home["f"]


PURE = (
    "f = lambda r: {**r, 'n': r['a'] * RATE}",
    "f = lambda r: r['a'] > 3",
    "def f(r):\n    r['n'] = math.sqrt(abs(r['a']))\n    return r",
    "def f(r):\n    for w in r['text'].split():\n        yield {'w': w.upper(), 'n': len(w)}",
    "def f(r, k=3):\n    out = [x for x in r['l'] if x is not None]\n    return {'n': sum(out) + k}",
    "def f(r):\n    try:\n        return {'n': int(r['a'])}\n    except ValueError:\n        return None",
)
IMPURE = (
    "f = lambda r: SEEN.append(1) or r",
    "f = lambda r: {**r, 'n': TABLE['x']}",
    "f = lambda r: {**r, 'n': clock.now()}",
    "f = lambda r: {**r, 'n': datetime.datetime.now()}",
    "f = lambda r: {**r, 'n': random.random()}",
    "f = lambda r: {**r, 'n': r['at'].timestamp()}",
    "f = lambda r: {**r, 'n': list({1, 2})}",
    "f = lambda r: {**r, 'n': [x for x in NAMES]}",
    "f = lambda r: {**r, 'n': list(r.keys() & r['a'].keys())}",
    "f = lambda r, seen=[]: seen.append(1) or r",
    "f = lambda r: {**r, 'n': str(r.get)}",
    "f = lambda r: {**r, 'n': f\"{r['a']:n}\"}",
    "f = lambda r: {**r, 'n': r['a'] is r['b']}",
    "f = lambda r: {**r, 'n': (lambda: 0).__globals__}",
    "f = lambda r: {**r, 'n': hash(r['a'])}",
    "f = lambda r: {**r, 'n': eval('1')}",
    "def f(r):\n    global N\n    N = 1\n    return r",
    "def f(r):\n    import os\n    return r",
    "def f(r):\n    helper(SEEN)\n    return r",
    "def f(r):\n    f.x = 1\n    return r",
    "def f(r):\n    print(r)\n    return r",
    "def f(r):\n    try:\n        raise Loud\n    except Loud as e:\n        return {'n': str(e)}",
    "async def f(r):\n    return r",
    "def g():\n    n = 0\n    def f(r):\n        nonlocal n\n        n += 1\n        return r\n    return f\nf = g()",
    "def g():\n    l = []\n    def f(r):\n        l.append(1)\n        return r\n    return f\nf = g()",
)


@pytest.mark.parametrize("text", PURE)
def test_proved_by_instructions_alone(text):
    function = without_source(text)

    verdict = analyse(function)

    assert written(function.__code__) is None
    assert verdict.proved, verdict.reasons
    assert "unknown" == verdict.selectivity
    assert () == verdict.forwards.among(["a", "n"])


@pytest.mark.parametrize("text", IMPURE)
def test_not_proved_by_instructions_alone(text):
    assert not analyse(without_source(text)).proved


def called(text, name="f"):
    """What is proved of a function with a source that calls one without."""
    home = {"hidden": without_source(text), "SEEN": []}
    lines = "def f(r):\n    hidden(r)\n    return r\ndef g(r):\n    hidden(SEEN)\n    return r\n"
    file = f"<caller of {abs(hash(text))}>"
    linecache.cache[file] = (len(lines), None, lines.splitlines(keepends=True), file)
    exec(compile(lines, file, "exec", dont_inherit=True), home)
    return analyse(home[name])


def test_helper_without_source_may_change_what_it_is_given_if_that_is_new():
    text = "def f(row):\n    row.clear()"

    verdict = called(text)

    assert verdict.proved, verdict.reasons
    assert () == verdict.forwards.among(["a"])
    assert not called(text, "g").proved


def test_source_that_has_changed_on_disk_is_not_looked_at(tmp_path):
    file = tmp_path / "changed.py"
    file.write_text("def f(r):\n    SEEN.append(1)\n    return r\nSEEN = []\n")
    spec = importlib.util.spec_from_file_location("changed", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    file.write_text("def f(r):\n    return r\n# the same name, the same line, other code\n")

    assert written(module.f.__code__) is None
    assert not analyse(module.f).proved


def test_decorated_function_is_what_the_decorator_left():
    seen = []

    def keeps(fn):
        @functools.wraps(fn)
        def wrapper(r):
            seen.append(1)
            return fn(r)

        return wrapper

    @keeps
    def harmless(r):
        return r

    assert not analyse(harmless).proved
    assert analyse(harmless.__wrapped__).proved


def test_replaced_code_is_what_counts():
    def one(r):
        return r

    def other(r):
        print(r)  # noqa: T201
        return r

    assert analyse(one).proved
    one.__code__ = other.__code__
    assert not analyse(one).proved


def test_reason_names_the_line_and_what_to_do():
    seen = []

    def keeps(r):
        seen.append(r["id"])
        return r

    (reason,) = analyse(keeps).reasons

    assert reason.text == (
        "appends to `seen`, a list that exists outside the function: keep it in `state.value` of "
        ".key_by(...).process(...), or declare @ab.operator(state=...)"
    )
    assert reason.site.file == __file__
    assert reason.site.text == 'seen.append(r["id"])'
