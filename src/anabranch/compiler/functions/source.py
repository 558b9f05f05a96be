"""The syntax tree of a function, if it is certain that the function was made of it.

Files change on disk, decorators put other functions in place, lambdas share lines. So the file is
compiled again and searched for a code object that equals the function's in every instruction,
constant, name and position: whatever the tree says, the function does.
"""

from __future__ import annotations
import __future__

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeAlias

Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names) & ~(
    0x0010
)  # nested_scopes has the flag of CO_NESTED
_LARGEST = 64
"""Files kept; one more throws all away."""


@dataclass(frozen=True, slots=True)
class Written:
    """A function as it is written, and the class it is written in (for private names)."""

    node: Scope
    within: str | None
    around: tuple[Scope, ...] = ()
    """The functions it is written in, from the outermost."""


@dataclass(frozen=True, slots=True)
class _File:
    text: str
    codes: dict[tuple[int, str], list[CodeType]]
    nodes: dict[tuple[int, str], list[Written]]


_files: dict[tuple[str, int], _File | None] = {}


def written(code: CodeType) -> Written | None:
    """The tree that a code object was compiled from; None where that is not certain."""
    text = text_of(code.co_filename)
    file = _file(code, text) if text else None
    if file is None:
        return None
    place = (code.co_firstlineno, code.co_name)
    if not any(same(code, other) for other in file.codes.get(place, ())):
        return None
    fitting = [each for each in file.nodes.get(place, ()) if _spans(each.node, code)]
    return fitting[0] if len(fitting) == 1 else None


def text_of(file: str) -> str:
    """What is written in a file now; nothing if it cannot be had."""
    linecache.checkcache(file)
    return "".join(linecache.getlines(file))


def same(one: CodeType, other: CodeType) -> bool:
    """Whether two code objects are equal in all that matters, positions included."""
    if one is other:
        return True
    return _facts(one) == _facts(other) and _same_constants(one.co_consts, other.co_consts)


def _facts(code: CodeType) -> tuple[Any, ...]:
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return (*counts, *names, code.co_code, code.co_linetable, code.co_exceptiontable)


def _same_constants(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, CodeType):
        return same(one, other)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same_constants, one, other))
    if isinstance(one, frozenset):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    return repr(one) == repr(other)


def _file(code: CodeType, text: str) -> _File | None:
    flags = code.co_flags & _FUTURE
    place = (code.co_filename, flags)
    if place not in _files or _files[place] is None or _files[place].text != text:  # type: ignore[union-attr]
        if len(_files) >= _LARGEST:
            _files.clear()
        _files[place] = _read(text, code.co_filename, flags)
    return _files[place]


def _read(text: str, name: str, flags: int) -> _File | None:
    try:
        tree = ast.parse(text)
        module = compile(tree, name, "exec", flags=flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None
    codes: dict[tuple[int, str], list[CodeType]] = {}
    for code in _codes(module):
        codes.setdefault((code.co_firstlineno, code.co_name), []).append(code)
    nodes: dict[tuple[int, str], list[Written]] = {}
    for each in _scopes(tree, None, ()):
        nodes.setdefault(_place(each.node), []).append(each)
    return _File(text, codes, nodes)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _scopes(node: ast.AST, within: str | None, around: tuple[Scope, ...]) -> Iterator[Written]:
    for child in ast.iter_child_nodes(node):
        inner = child.name if isinstance(child, ast.ClassDef) else within
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield Written(child, within, around)
            yield from _scopes(child, inner, (*around, child))
        else:
            yield from _scopes(child, inner, around)


def _place(node: Scope) -> tuple[int, str]:
    if isinstance(node, ast.Lambda):
        return node.lineno, "<lambda>"
    first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
    return first, node.name


def _spans(node: Scope, code: CodeType) -> bool:
    """Whether a lambda's code covers exactly this lambda's body; a def is alone on its line."""
    if not isinstance(node, ast.Lambda):
        return True
    body = node.body
    span = (body.lineno, body.end_lineno, body.col_offset, body.end_col_offset)
    return any(position == span for position in code.co_positions())
