"""Impurities put into functions of the corpus, one at a time, where they are sure to run."""

from __future__ import annotations

import ast
import copy
import functools
import linecache
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anabranch.compiler.functions.source import written
from tests.compiler.functions.corpus.case import Case

OUTSIDE = """
import datetime as _datetime, logging as _logging, os as _os, random as _random, time as _time

_seen, _table, _names, _pairs = [], {}, {"x"}, ([],)
_total = 0
_numbers = iter(range(10**9))

class _Thing:
    n = 0
    items = []

_thing = _Thing()

def _keep(x, kept=[]):
    kept.append(x)
    return x

def _indirect(x):
    return _keep(x)
"""

EXPRESSIONS = {
    "append": "_seen.append(1)",
    "store": "_table.__setitem__('x', 1)",
    "update": "_table.update(x=1)",
    "print": "print('x')",
    "clock": "_time.time()",
    "now": "_datetime.datetime.now()",
    "random": "_random.random()",
    "environment": "_os.getenv('HOME')",
    "next": "next(_numbers)",
    "helper": "_keep(1)",
    "indirect": "[_indirect(x) for x in (1, 2)]",
    "through a tuple": "_pairs[0].append(1)",
    "through a lambda": "(lambda items: items.append(1))(_seen)",
    "class list": "_thing.items.append(1)",
    "setattr": "setattr(_thing, 'n', 1)",
    "log": "_logging.info('x')",
    "hash": "hash('x')",
    "set order": "list({'a', 'b', 'c'})",
}
STATEMENTS = {
    "global": "global _total; _total += 1",
    "item": "_table['x'] = 1",
    "attribute": "_thing.n = 1",
    "class attribute": "_Thing.n += 1",
    "in place": "_mine = _seen; _mine += [1]",
    "delete": "del _table['x']",
    "nonlocal": "nonlocal _count; _count += 1",
    "captured": "_captured.append(1)",
    "default": "_default.append(1)",
    "loop": "for _x in (1, 2): _seen.append(_x)",
    "except": "try:\n    raise ValueError\nexcept ValueError:\n    _seen.append(1)",
    "with": "with open('/dev/null') as _file: pass",
}


@dataclass(frozen=True)
class Mutant:
    """A function with one impurity."""

    name: str
    call: Any
    state: bool

    def __str__(self) -> str:
        return self.name


HARMLESS = {"harmless": "(lambda items: items.append(1))([])"}


def mutants(case: Case, expressions=EXPRESSIONS, statements=STATEMENTS) -> Iterator[Mutant]:
    """Every way to spoil one function of the corpus: each impurity, first and before the end."""
    function = _function(case.call)
    found = written(function.__code__)
    assert found is not None, case.name
    spoilt: dict[str, ast.Lambda | ast.FunctionDef] = {}
    if isinstance(found.node, ast.Lambda):
        for kind, text in expressions.items():
            node: Any = copy.deepcopy(found.node)
            node.body = _expression(f"({text}, 0)[1]", node.body)
            spoilt[kind] = node
    else:
        for kind, text in {**expressions, **statements}.items():
            for place in ("first", "last"):
                node = copy.deepcopy(found.node)
                _put(node, ast.parse(text).body, place)
                spoilt[f"{kind}, {place}"] = node
    wrap = _wrapper(case.call, function)
    for kind, made in zip(spoilt, _made([*spoilt.values()], function), strict=True):
        yield Mutant(f"{case.name}: {kind}", wrap(made), case.state)


def _function(call: Any) -> types.FunctionType:
    if isinstance(call, functools.partial):
        return _function(call.func)
    call = getattr(call, "__func__", call)
    if isinstance(call, types.FunctionType):
        return call
    name = "on_record" if hasattr(type(call), "on_record") else "__call__"
    found: types.FunctionType = getattr(type(call), name)
    return found


def _wrapper(call: Any, function: types.FunctionType):
    """How to put a changed function in the place of the one it is made of."""
    if call is function:
        return lambda made: made
    if isinstance(call, functools.partial):
        return lambda made: functools.partial(made, *call.args, **call.keywords)
    if isinstance(call, types.MethodType):
        return lambda made: types.MethodType(made, call.__self__)
    return functools.partial(_object, call, function.__name__)


def _object(call: Any, name: str, made: Any) -> Any:
    spoilt = type(type(call).__name__, (type(call),), {name: made, "__module__": __name__})
    found = copy.copy(call)
    found.__class__ = spoilt
    return found


def _expression(text: str, body: ast.expr) -> ast.expr:
    return ast.Subscript(
        ast.Tuple([ast.parse(text, mode="eval").body, body], ast.Load()),
        ast.Constant(1),
        ast.Load(),
    )


def _put(node: ast.FunctionDef, spoiling: list[ast.stmt], place: str) -> None:
    node.decorator_list = []
    given = node.args
    given.kwonlyargs.append(ast.arg("_default"))
    given.kw_defaults.append(ast.List([], ast.Load()))
    start = 1 if ast.get_docstring(node) is not None else 0
    at = start if place == "first" else max(start, len(node.body) - 1)
    # A declaration goes first, what it is for may go anywhere.
    declared = [each for each in spoiling if isinstance(each, ast.Global | ast.Nonlocal)]
    rest = [each for each in spoiling if each not in declared]
    node.body[at:at] = rest
    node.body[start:start] = declared


def _made(nodes: list[ast.AST], function: types.FunctionType) -> list[types.FunctionType]:
    """Compile changed functions where they find what the function found before."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    around = {name: cell.cell_contents for name, cell in cells.items() if name != "__class__"}
    text = "".join(_factory(at, node, [*around]) for at, node in enumerate(nodes))
    name = f"<mutants of {function.__qualname__}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    home = dict(function.__globals__)
    exec(OUTSIDE, home)
    exec(compile(text, name, "exec", dont_inherit=True), home)
    found = [home[f"_outer_{at}"](**around) for at in range(len(nodes))]
    for made in found:
        made.__defaults__ = function.__defaults__
    return found


def _factory(at: int, node: ast.AST, around: list[str]) -> str:
    """The text of a function that makes the changed one."""
    body = f"    return {ast.unparse(node)}"
    if isinstance(node, ast.FunctionDef):
        lines = ast.unparse(node).splitlines()
        body = "\n".join(["    " + line for line in lines] + [f"    return {node.name}"])
    return f"def _outer_{at}({', '.join(around)}):\n    _captured, _count = [], 0\n{body}\n"
