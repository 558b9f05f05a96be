"""Functions without a source: what their instructions alone can prove.

The argument is one of capabilities, not of flow. If everything a function can get hold of is its
arguments, constants, and pure library functions, then whatever it changes is its own: so changing
needs no following. Only what is listed here is let through; sets, functions made inside, iterators
and views are not, since their order or their text differs from process to process.
"""

from __future__ import annotations

import builtins
import dis
import types
from collections.abc import Iterator
from types import CodeType
from typing import Any

from anabranch.compiler.functions import methods, outside
from anabranch.compiler.functions.catalogue import find
from anabranch.compiler.functions.digest import code_digest
from anabranch.compiler.functions.frame import Analysis
from anabranch.compiler.functions.methods import words

_ALLOWED = words(
    "CACHE RESUME NOP POP_TOP PUSH_NULL COPY SWAP PRECALL CALL KW_NAMES CALL_KW"
    " CALL_FUNCTION_EX EXTENDED_ARG RETURN_VALUE RETURN_CONST RETURN_GENERATOR YIELD_VALUE"
    " GEN_START COPY_FREE_VARS MAKE_CELL LOAD_CLOSURE LOAD_CONST LOAD_FAST LOAD_FAST_CHECK"
    " LOAD_FAST_LOAD_FAST LOAD_FAST_AND_CLEAR STORE_FAST STORE_FAST_LOAD_FAST"
    " STORE_FAST_STORE_FAST DELETE_FAST LOAD_DEREF LOAD_GLOBAL LOAD_ATTR LOAD_METHOD"
    " BINARY_OP BINARY_SUBSCR BINARY_SLICE STORE_SUBSCR STORE_SLICE DELETE_SUBSCR"
    " UNARY_NEGATIVE UNARY_NOT UNARY_INVERT UNARY_POSITIVE COMPARE_OP CONTAINS_OP IS_OP"
    " BUILD_LIST BUILD_TUPLE BUILD_MAP BUILD_CONST_KEY_MAP BUILD_STRING BUILD_SLICE"
    " LIST_APPEND LIST_EXTEND LIST_TO_TUPLE MAP_ADD DICT_UPDATE DICT_MERGE FORMAT_VALUE"
    " FORMAT_SIMPLE CONVERT_VALUE GET_ITER FOR_ITER END_FOR UNPACK_SEQUENCE UNPACK_EX"
    " JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_IF_FALSE_OR_POP"
    " JUMP_IF_TRUE_OR_POP TO_BOOL POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_NONE"
    " POP_JUMP_IF_NOT_NONE POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE"
    " POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_FALSE"
    " POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE"
    " MAKE_FUNCTION RAISE_VARARGS RERAISE PUSH_EXC_INFO POP_EXCEPT CHECK_EXC_MATCH"
    " LOAD_ASSERTION_ERROR"
)
_SPECIAL = frozenset(
    f"builtins.{name}"
    for name in words("all any dict isinstance list max min range sorted sum tuple")
)
_UNSAFE_METHODS = words(
    "strftime strptime format format_map keys items values union intersection difference"
    " symmetric_difference sort finditer sub subn elements"
)
_NAMES = (
    methods.SCALAR_METHODS | methods.PLAIN_METHODS | methods.READERS | methods.MUTATORS
) - _UNSAFE_METHODS  # fmt: skip
_COMPREHENSIONS = frozenset({"<listcomp>", "<dictcomp>"})


def why_not(analysis: Analysis, function: types.FunctionType) -> str | None:
    """What stands in the way of a proof by instructions alone; None if it is proved."""
    code = function.__code__
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if not _is_fixed(default):
            return "has a default that may change"
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    for each in _codes(code):
        if each.co_flags & 0x380:
            return "is async"
        if not all(_is_written(one) for one in each.co_consts):
            return "has a constant that nobody can write"
        if each is not code and each.co_name not in _COMPREHENSIONS:
            return "makes a function or generator inside"
        for why in _obstacles(analysis, function, each, cells):
            return why
    return None


def _is_fixed(real: Any) -> bool:
    return type(real) in outside.CONSTANTS or type(real) in outside.IMMUTABLES


def _is_written(constant: Any) -> bool:
    """Whether a constant is of a kind that the compiler makes: code can be given any other."""
    if type(constant) in (tuple, frozenset):
        return all(_is_written(each) and type(each) is not CodeType for each in constant)
    return type(constant) is CodeType or type(constant) in outside.CONSTANTS


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _obstacles(  # noqa: PLR0912
    analysis: Analysis, function: types.FunctionType, code: CodeType, cells: dict[str, Any]
) -> Iterator[str]:
    steps = [each for each in dis.get_instructions(code) if each.opname != "CACHE"]
    for at, step in enumerate(steps):
        following = steps[at + 1] if at + 1 < len(steps) else step
        before = steps[at - 1] if at else step
        name = str(step.argval)
        if step.opname not in _ALLOWED:
            yield f"uses {step.opname}"
        elif step.opname == "LOAD_GLOBAL":
            if not _is_pure_global(analysis, function, name, following):
                yield f"reads the global `{name}`"
        elif step.opname == "LOAD_DEREF" and name in cells:
            if not _is_pure(_content(cells[name])):
                yield f"reads `{name}` of the function around it"
            analysis.reads(f"the variable `{name}`", cells[name])
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            if not _is_pure_attribute(function, step, before):
                yield f"reads the attribute `{name}`"
        elif not _is_harmless(step, before, following):
            yield f"uses {step.opname} in a way that is not understood"


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return cell


def _is_pure(real: Any) -> bool:
    listed = find(real) if callable(real) else None
    if listed is not None:
        return listed[0] != "special" or listed[1] in _SPECIAL
    error = isinstance(real, type) and issubclass(real, Exception)
    return _is_fixed(real) or (error and outside.in_c(real))


def _is_pure_global(
    analysis: Analysis, function: types.FunctionType, name: str, following: dis.Instruction
) -> bool:
    home = function.__globals__
    found = home[name] if name in home else getattr(builtins, name, home)
    analysis.rely(code_digest(function.__code__), name)
    file = function.__code__.co_filename
    if analysis.neighbours.of_global(home, file, name, inside=False) is not None:
        return False
    if not isinstance(found, outside.NAMED):
        analysis.reads(f"the global `{name}`", home)
    if not isinstance(found, types.ModuleType):
        return _is_pure(found)
    attribute = str(following.argval)
    if following.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
        return False
    analysis.rely_on_module(found.__name__, attribute)
    inner = vars(found).get(attribute, home)
    return _is_pure(inner) and not isinstance(inner, type)


def _is_pure_attribute(
    function: types.FunctionType, step: dis.Instruction, before: dis.Instruction
) -> bool:
    if before.opname == "LOAD_GLOBAL":
        holder = function.__globals__.get(str(before.argval))
        if isinstance(holder, types.ModuleType):
            return True  # judged with the module
    name = str(step.argval)
    called = step.opname == "LOAD_METHOD" or bool((step.arg or 0) & 1 and dis.opmap.get("END_FOR"))
    return name in _NAMES if called else name in methods.ATTRIBUTES


def _is_harmless(
    step: dis.Instruction, before: dis.Instruction, following: dis.Instruction
) -> bool:
    match step.opname:
        case "LOAD_CONST":
            return not isinstance(step.argval, frozenset) or following.opname == "CONTAINS_OP"
        case "IS_OP":
            fixed = (None, True, False, ...)
            return before.opname == "LOAD_CONST" and any(before.argval is each for each in fixed)
        case "FORMAT_VALUE":
            return not (step.arg or 0) & 4
        case _:
            return True
