"""Methods of the builtin types: what they change and what they give."""

from __future__ import annotations

import ast
import string

from anabranch.compiler.functions import methods, outside
from anabranch.compiler.functions.calls import Arguments, call
from anabranch.compiler.functions.containers import (
    SET_ORDER,
    changed,
    column,
    holding,
    iterated,
    new,
    refuse,
    tame,
    textual,
    write_column,
)
from anabranch.compiler.functions.frame import Frame
from anabranch.compiler.functions.heap import EVERY, MANY, Item
from anabranch.compiler.functions.methods import words
from anabranch.compiler.functions.operators import keyable
from anabranch.compiler.functions.values import (
    NONE,
    NOTHING,
    PLAIN,
    SCALAR,
    UNKNOWN,
    Atom,
    Bound,
    Const,
    Field,
    Known,
    Obj,
    Out,
    Part,
    Plain,
    Record,
    Scalar,
    State,
    Value,
    constant,
)

_TAKE_ONE = frozenset({"append", "appendleft", "add", "insert"})
_TAKE_ALL = frozenset(
    {"extend", "extendleft", "update", "symmetric_difference_update", "subtract"}
)  # fmt: skip
_GIVE_ONE = frozenset({"pop", "popleft", "get", "setdefault"})
_SET_RESULTS = frozenset({"union", "intersection", "difference", "symmetric_difference"})
_UNORDERED = words(
    "union intersection difference symmetric_difference issubset issuperset isdisjoint update"
    " difference_update intersection_update symmetric_difference_update"
)
_COMPARE = frozenset({"index", "count", "remove"})
"""Methods that compare what they are given with what the container holds."""
_LOOK_FOR = _COMPARE | words("get pop setdefault move_to_end discard add")
"""Methods that hash or compare what they are given first."""
_DATE_FORMATS = frozenset({"strftime", "strptime"})


def call_bound(frame: Frame, node: ast.AST, method: Bound, given: Arguments) -> Value:  # noqa: C901, PLR0911, PLR0912
    """What `receiver.name(...)` gives, for a receiver of a builtin type."""
    receiver, name = method.receiver, method.name
    for atom in given.every():
        if isinstance(atom, Out) and outside.own_special(type(atom.real)):
            return refuse(
                frame, node, f"`{name}`", f"`{atom.label}`, with special methods of its own"
            )
    if not isinstance(receiver, State) and not _looks_plainly(frame, node, method, given):
        return UNKNOWN
    match receiver:
        case State():
            return _on_state(frame, node, name, given)
        case Known() if isinstance(receiver.real, type):
            return _on_class(frame, node, receiver, name, given)
        case Known() if type(receiver.real) in outside.IMMUTABLES:
            return _on_scalar(frame, node, receiver, name, given)
        case Const() | Scalar():
            return _on_scalar(frame, node, receiver, name, given)
        case Record():
            return _on_record(frame, node, name, given)
        case Plain() | Field() | Part():
            return _on_plain(frame, node, receiver, name, given)
        case Obj():
            return _on_new(frame, node, receiver, name, given)
        case Known() | Out():
            return _on_outside(frame, node, receiver, name, given)
        case _:
            return frame.report(node, f"calls `{name}` of something that is not understood")


def _looks_plainly(frame: Frame, node: ast.AST, method: Bound, given: Arguments) -> bool:
    """Whether what a method looks for, and what it compares that with, is plain."""
    receiver, wanted = method.receiver, given.first(0) or NOTHING
    if isinstance(receiver, Known) and isinstance(receiver.real, type):
        return True  # judged with the object that is passed
    if method.name in _LOOK_FOR and not keyable(frame, node, wanted):
        return False
    if method.name not in _COMPARE:
        return True
    if isinstance(receiver, Known | Out):
        held = holding(receiver.real, "it")
        return keyable(frame, node, held[0] if held is not None else NOTHING)
    return keyable(frame, node, frame.heap.elements(receiver))


def _on_state(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    why = tame(frame, given.every())
    return refuse(frame, node, f"`state.{name}`", why) if why is not None else NONE


def _on_class(  # noqa: PLR0911
    frame: Frame, node: ast.AST, kind: Known, name: str, given: Arguments
) -> Value:
    if name == "from_iterable":
        inner = iterated(frame, node, iterated(frame, node, given.every()))
        return new(frame, node, "iterator", inner)
    if name == "fromkeys":
        keys = iterated(frame, node, given.first(0) or NOTHING)
        if not keyable(frame, node, keys):
            return UNKNOWN
        return new(frame, node, "dict", given.first(1) or NONE, keys, tag=name)
    if name == "strptime":
        return _formatted_date(frame, node, given.first(1, "format"), given)
    if name in methods.CLASS_METHODS:
        why = tame(frame, given.every())
        return refuse(frame, node, f"`{name}`", why) if why is not None else SCALAR
    if not given.positional:
        return frame.report(node, f"calls `{kind.real.__name__}.{name}` without an object")
    rest = Arguments(given.positional[1:], given.named, given.more, given.more_named)
    found: Value = NOTHING
    for atom in given.positional[0]:
        found |= call_bound(frame, node, Bound(atom, name), rest)
    return found


def _on_scalar(frame: Frame, node: ast.AST, receiver: Atom, name: str, given: Arguments) -> Value:
    if name in ("format", "format_map"):
        return _formatted(frame, node, receiver, given)
    if name in _DATE_FORMATS:
        return _formatted_date(frame, node, given.first(0, "format"), given)
    if name in ("sub", "subn", "finditer"):
        from anabranch.compiler.functions.library import SPECIAL

        return SPECIAL[f"re.{name}"](frame, node, name, given.behind(SCALAR))
    why = tame(frame, given.every())
    if why is not None:
        return refuse(frame, node, f"`{name}`", why)
    if name in methods.PLAIN_METHODS:
        # A default for groups that did not match is among what `groups` gives.
        frame.heap.pour(frozenset(a for a in given.every() if not isinstance(a, Const | Scalar)))
        return PLAIN | frame.heap.soup
    return SCALAR if name in methods.SCALAR_METHODS or name == "copy" else NOTHING


def _formatted(frame: Frame, node: ast.AST, receiver: Atom, given: Arguments) -> Value:
    """`str.format` reads attributes and follows formats that its text names: it must be known."""
    why = textual(frame, given.every())
    if why is not None:
        return refuse(frame, node, "`format`", why)
    if not isinstance(receiver, Const) or not isinstance(receiver.value, str):
        return frame.report(node, "formats by a text that is not written in the code")
    if not _safe_text(receiver.value):
        return frame.report(
            node, "formats as the machine's locale says, or in a way not understood"
        )
    return SCALAR


def _safe_text(text: str) -> bool:
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError:
        return False
    fields = [(name, spec or "") for _, name, spec, _ in parts if name is not None]
    return all(
        "." not in name and "{" not in spec and methods.safe_spec(spec) for name, spec in fields
    )


def _formatted_date(frame: Frame, node: ast.AST, form: Value | None, given: Arguments) -> Value:
    if (why := tame(frame, given.every())) is not None:
        return refuse(frame, node, "a date's format", why)
    texts = [atom.value for atom in form or () if isinstance(atom, Const)]
    if form is None or len(texts) != len(form) or not all(isinstance(each, str) for each in texts):
        return frame.report(node, "formats a date by a text that is not written in the code")
    if not all(methods.safe_time_format(each) for each in texts):
        return frame.report(
            node, "formats a date in the machine's language: use numbers, or isoformat()"
        )
    return SCALAR


def _default(given: Arguments) -> Value:
    """The second argument, if it is more than an immutable plain object."""
    second = given.first(1, "default") or NOTHING
    return frozenset(atom for atom in second if not isinstance(atom, Const | Scalar))


def _on_record(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:  # noqa: PLR0911, PLR0912
    key = given.first(0) or NOTHING
    match name:
        case "get":
            return column(frame, key) | _default(given)
        case "pop" | "setdefault":
            found = column(frame, key) | _default(given) | (given.first(1) or NOTHING)
            write_column(frame, key, NONE if name == "pop" else given.first(1) or NONE)
            return found
        case "update":
            from anabranch.compiler.functions.dicts import update_record

            update_record(frame, node, given)
            return NONE
        case "clear" | "popitem":
            write_column(frame, NOTHING, NONE)
            return NONE if name == "clear" else _pair(frame, node, SCALAR, column(frame, NOTHING))
        case "keys":
            return new(frame, node, "iterator", SCALAR | frame.heap.record.keys, tag=name)
        case "values":
            return new(frame, node, "iterator", column(frame, NOTHING), tag=name)
        case "items":
            pair = _pair(frame, node, SCALAR | frame.heap.record.keys, column(frame, NOTHING))
            return new(frame, node, "iterator", pair, tag=name)
        case "copy":
            from anabranch.compiler.functions.dicts import made_dict

            return made_dict(frame, node, ((None, frozenset({Record()})),))
        case _:
            return SCALAR if name.startswith("__") else NOTHING


def _pair(frame: Frame, node: ast.AST, keys: Value, values: Value) -> Value:
    return new(frame, node, "tuple", keys | values, tag="pair")


def _on_plain(frame: Frame, node: ast.AST, receiver: Atom, name: str, given: Arguments) -> Value:
    inside = frame.heap.elements(receiver)
    if name in methods.MUTATORS:
        if name in _TAKE_ALL:
            frame.heap.pour(_all_of(frame, node, given))
        else:
            frame.heap.pour(_passed(frame, node, name, given))
        if isinstance(receiver, Field | Part):
            frame.heap.touch(receiver.column)
        return inside | _passed(frame, node, name, given) | NONE
    if name in ("keys", "values", "items", "elements"):
        return new(frame, node, "iterator", inside, tag=name)
    if name in ("get", "copy", "union", "most_common"):
        return inside | _passed(frame, node, name, given)
    return _on_scalar(frame, node, Scalar(), name, given)


def _passed(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    if name == "sort":
        _call_key(frame, node, given, PLAIN)
        return NOTHING
    return given.every()


def _all_of(frame: Frame, node: ast.AST, given: Arguments) -> Value:
    found = given.every()
    for each in given.positional:
        found |= iterated(frame, node, frozenset(a for a in each if not _is_set(frame, a)))
    return found


def _is_set(frame: Frame, atom: Atom) -> bool:
    if isinstance(atom, Obj):
        return frame.heap.item(atom).kind == "set"
    return isinstance(atom, Out) and type(atom.real) in outside.SETS


def _call_key(frame: Frame, node: ast.AST, given: Arguments, elements: Value) -> None:
    key = given.named.get("key", NONE)
    found = call(frame, node, key - NONE, Arguments([elements])) if key != NONE else elements
    if (why := tame(frame, found)) is not None:
        refuse(frame, node, "`sort`", why)


def _on_new(frame: Frame, node: ast.AST, receiver: Obj, name: str, given: Arguments) -> Value:
    item = frame.heap.item(receiver)
    if item.kind == "instance" or item.kind not in ("list", "tuple", "dict", "set", "deque"):
        return frame.report(node, f"calls `{name}` of something that is not understood")
    if name in methods.MUTATORS:
        return _mutate(frame, node, receiver, item, name, given)
    return _inspect(frame, node, receiver, name, given)


def _mutate(
    frame: Frame, node: ast.AST, receiver: Obj, item: Item, name: str, given: Arguments
) -> Value:
    heap, inside = frame.heap, frame.heap.elements(receiver)
    if item.kind == "dict":
        return _mutate_dict(frame, node, receiver, item, name, given)
    heap.count(item, 0, MANY)
    if name == "sort":
        _call_key(frame, node, given, inside)
        return NONE
    if item.kind == "set" and name == "pop":
        return frame.report(node, f"takes any element of a set; {SET_ORDER}")
    if item.kind == "set" and (why := tame(frame, given.every(), ordered=False)) is not None:
        return refuse(frame, node, f"`{name}`", why)
    if name in _TAKE_ONE:
        heap.add(item, NOTHING.union(*given.positional[-1:]) | (given.more or NOTHING))
    elif name in _TAKE_ALL:
        heap.add(item, _taken(frame, node, item, given))
    return inside if name in ("pop", "popleft") else NONE


def _taken(frame: Frame, node: ast.AST, item: Item, given: Arguments) -> Value:
    """The elements of the arguments; sets may go into sets."""
    found: Value = NOTHING
    for each in (*given.positional, given.more or NOTHING):
        sets = frozenset(a for a in each if item.kind == "set" and _is_set(frame, a))
        for atom in sets:
            found |= _set_elements(frame, atom)
        found |= iterated(frame, node, each - sets)
    return found


def _set_elements(frame: Frame, atom: Atom) -> Value:
    if isinstance(atom, Obj):
        return frame.heap.elements(atom)
    held = holding(atom.real, atom.label) if isinstance(atom, Out) else None
    return held[0] if held is not None else NOTHING


def _mutate_dict(
    frame: Frame, node: ast.AST, receiver: Obj, item: Item, name: str, given: Arguments
) -> Value:
    heap, inside = frame.heap, frame.heap.elements(receiver)
    key = constant(given.first(0) or NOTHING)
    known = key is not None and isinstance(key.value, str)
    written = {key.value} if known and key is not None else {EVERY}
    if name in ("update", "subtract"):
        from anabranch.compiler.functions.dicts import update_new

        update_new(frame, node, item, given)
        return NONE
    heap.write(item, written if name in ("pop", "setdefault", "move_to_end") else {EVERY})
    if name == "setdefault":
        heap.add(item, given.first(1) or NONE, given.first(0) or NOTHING)
        heap.set_attribute(item, next(iter(written)), given.first(1) or NONE)
        return inside | (given.first(1) or NONE)
    if name == "pop":
        heap.set_attribute(item, next(iter(written)), NONE)
        return inside | (given.first(1) or NOTHING)
    heap.set_attribute(item, EVERY, NONE)
    return _pair(frame, node, item.keys, inside) if name == "popitem" else NONE


def _inspect(frame: Frame, node: ast.AST, receiver: Obj, name: str, given: Arguments) -> Value:
    item, inside = frame.heap.item(receiver), frame.heap.elements(receiver)
    if name == "copy" and item.kind == "dict":
        from anabranch.compiler.functions.dicts import made_dict

        return made_dict(frame, node, ((None, frozenset({receiver})),))
    return _reading(frame, node, item.kind, (inside, item.keys), name, given)


def _on_outside(
    frame: Frame, node: ast.AST, receiver: Known | Out, name: str, given: Arguments
) -> Value:
    if name in methods.MUTATORS:
        verb = "appends to" if name == "append" else f"changes (`{name}`)"
        return changed(frame, node, receiver, verb)
    real = receiver.real
    held = holding(real, receiver.label if isinstance(receiver, Out) else "it")
    if held is None:
        return frame.report(node, f"calls `{name}` of `{type(real).__name__}`, which is not known")
    kind = "set" if type(real) in outside.SETS else "list"
    kind = "dict" if type(real) in outside.MAPPINGS else kind
    return _reading(frame, node, kind, held, name, given)


def _reading(  # noqa: PLR0911
    frame: Frame, node: ast.AST, kind: str, inside: tuple[Value, Value], name: str, given: Arguments
) -> Value:
    """A method that changes nothing, of a container that holds `inside` (elements and keys)."""
    elements, keys = inside
    match name:
        case "get":
            return elements | (given.first(1, "default") or NONE)
        case "keys":
            return new(frame, node, "iterator", keys, tag=name)
        case "values":
            return new(frame, node, "iterator", elements, tag=name)
        case "items" | "most_common":
            pair = _pair(frame, node, keys, elements | SCALAR)
            return new(frame, node, "iterator" if name == "items" else "list", pair, tag=name)
        case "elements":
            return new(frame, node, "iterator", keys, tag=name)
        case "copy":
            return new(frame, node, kind, elements, keys, tag=name)  # type: ignore[arg-type]
        case _ if name in _SET_RESULTS:
            return _united(frame, node, elements, given)
    why = tame(frame, given.every(), ordered=name not in _UNORDERED)
    return refuse(frame, node, f"`{name}`", why) if why is not None else SCALAR


def _united(frame: Frame, node: ast.AST, elements: Value, given: Arguments) -> Value:
    for each in given.positional:
        sets = frozenset(a for a in each if _is_set(frame, a))
        for atom in sets:
            elements |= _set_elements(frame, atom)
        elements |= iterated(frame, node, each - sets)
    if (why := tame(frame, elements, ordered=False)) is not None:
        return refuse(frame, node, "a set", why)
    return new(frame, node, "set", elements, tag="united")
