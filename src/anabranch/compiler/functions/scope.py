"""Which names belong to a function, and which of them functions inside it share."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from anabranch.compiler.functions.source import Scope

_Inner: TypeAlias = ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef | ast.GeneratorExp
_INNER = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.GeneratorExp)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one function."""

    local: frozenset[str]
    shared: frozenset[str]
    """Locals that functions or generators inside read or write, whenever they run."""
    declared_global: frozenset[str]
    declared_nonlocal: frozenset[str]
    generator: bool


@lru_cache(maxsize=4096)
def names_of(node: Scope | ast.GeneratorExp) -> Names:
    """The names of a function or generator expression, as the language resolves them."""
    outside, inside = _declared(node, ast.Global), _declared(node, ast.Nonlocal)
    local = (frozenset(_bound(node)) | frozenset(parameters(node))) - outside - inside
    free = frozenset(name for inner in _inner(node) for name in _free(inner))
    yields = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in _own(node))
    return Names(local, local & free, outside, inside, generator=yields)


def parameters(node: Scope | ast.GeneratorExp) -> list[str]:
    """The parameters of a function, in the order of the language."""
    if isinstance(node, ast.GeneratorExp):
        return []
    given = node.args
    found = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return found + [each.arg for each in (given.vararg, given.kwarg) if each is not None]


def body(node: Scope | ast.GeneratorExp) -> list[ast.AST]:
    """What a function runs when it is called."""
    if isinstance(node, ast.Lambda):
        return [node.body]
    return [node] if isinstance(node, ast.GeneratorExp) else [*node.body]


def targets(node: ast.AST) -> Iterator[str]:
    """The names that an assignment's left side binds."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store | ast.Del):
            yield each.id


def _own(node: Scope | ast.GeneratorExp) -> Iterator[ast.AST]:
    """Every node of a function that is not of a function inside it; those themselves included."""
    waiting = body(node)
    if isinstance(node, ast.GeneratorExp):
        waiting = [*ast.iter_child_nodes(node)]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [*each.decorator_list, *each.args.defaults]
            waiting += [default for default in each.args.kw_defaults if default is not None]
        elif isinstance(each, ast.Lambda):
            waiting += [*each.args.defaults]
            waiting += [default for default in each.args.kw_defaults if default is not None]
        elif isinstance(each, ast.ClassDef):
            waiting += [*each.bases, *each.decorator_list]
        else:
            waiting += ast.iter_child_nodes(each)


def _inner(node: Scope | ast.GeneratorExp) -> Iterator[_Inner]:
    for each in _own(node):
        if isinstance(each, _INNER):
            yield each


def _declared(
    node: Scope | ast.GeneratorExp, kind: type[ast.Global] | type[ast.Nonlocal]
) -> frozenset[str]:
    return frozenset(n for each in _own(node) if isinstance(each, kind) for n in each.names)


def _bound(node: Scope | ast.GeneratorExp) -> Iterator[str]:
    hidden = _comprehension_targets(node)
    for each in _own(node):
        match each:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if id(each) not in hidden:
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.MatchAs(name=str(name)):
                yield name
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield name
            case ast.ExceptHandler(name=str(name)):
                yield name
            case ast.alias(name=name, asname=other):
                yield other or name.partition(".")[0]
            case _:
                pass


def _comprehension_targets(node: Scope | ast.GeneratorExp) -> set[int]:
    """Names bound by comprehensions inside: they belong to those alone."""
    return {
        id(name)
        for each in _own(node)
        if isinstance(each, _COMPREHENSIONS) or each is node
        for generator in getattr(each, "generators", ())
        for name in ast.walk(generator.target)
        if isinstance(name, ast.Name)
    }


def _free(inner: _Inner) -> Iterator[str]:
    """Names that a function inside may take from around it: more than it does is no harm."""
    # What `:=` binds in a generator expression belongs to the function around it.
    mine = None if isinstance(inner, ast.GeneratorExp) else names_of(inner)
    taken = mine.local | mine.declared_global if mine else frozenset()
    for each in ast.walk(inner):
        match each:
            case ast.Name(id=name) if name not in taken:
                yield name
            case ast.Nonlocal(names=names):
                yield from names
            case _:
                pass
