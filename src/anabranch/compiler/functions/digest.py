"""Digests of code and of values that are the same in every process."""

from __future__ import annotations

import hashlib
from types import CodeType
from typing import Any

_known: dict[int, tuple[CodeType, str]] = {}
_LARGEST = 4096


def code_digest(code: CodeType) -> str:
    """What a code object does, whatever file and line it is in.

    >>> code_digest((lambda x: x + 1).__code__) == code_digest((lambda x: x + 1).__code__)
    True
    >>> code_digest((lambda x: x + 1).__code__) == code_digest((lambda x: x + 2).__code__)
    False
    """
    found = _known.get(id(code))
    if found is not None and found[0] is code:
        return found[1]
    digest = digest_of(_facts(code))
    if len(_known) >= _LARGEST:
        _known.clear()
    _known[id(code)] = (code, digest)
    return digest


def digest_of(facts: Any) -> str:
    """A short digest of nested tuples of plain values."""
    return hashlib.blake2b(repr(facts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _facts(code: CodeType) -> tuple[Any, ...]:
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    constants = tuple(_constant(each) for each in code.co_consts)
    return (*counts, *names, code.co_code, code.co_exceptiontable, constants)


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return ("code", code_digest(value))
    if isinstance(value, tuple):
        return ("tuple", *(_constant(each) for each in value))
    if isinstance(value, frozenset):
        return ("frozenset", *sorted(repr(_constant(each)) for each in value))
    return (type(value).__name__, repr(value))
