"""What an expression may be, and what evaluating it does: one function for each kind."""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Callable
from typing import Any

from anabranch.compiler.functions import attributes, closures, methods, operators, outside
from anabranch.compiler.functions.attributes import outer
from anabranch.compiler.functions.calls import arguments_of, call
from anabranch.compiler.functions.containers import (
    iterated,
    looked_up,
    refuse,
    tame,
    textual,
)
from anabranch.compiler.functions.dicts import made_dict
from anabranch.compiler.functions.evaluation import evaluate
from anabranch.compiler.functions.frame import Callee, Frame, mangled, root_of
from anabranch.compiler.functions.heap import EVERY, MANY, Layer
from anabranch.compiler.functions.operators import keyable
from anabranch.compiler.functions.values import (
    NONE,
    NOTHING,
    SCALAR,
    UNKNOWN,
    Const,
    Known,
    Obj,
    Value,
    const,
    constant,
)


def _constant(frame: Frame, node: ast.Constant) -> Value:
    del frame
    return const(node.value)


def _name(frame: Frame, node: ast.Name) -> Value:
    name = mangled(node.id, frame.callee.within)
    for overlay in reversed(frame.overlays):
        if name in overlay:
            return overlay[name]
    names = frame.callee.names
    if name in names.local:
        if name in names.shared:
            return frame.heap.elements(frame.cell(name))
        return frame.flow.variables.get(name, NOTHING) if frame.flow else NOTHING
    if name not in names.declared_global:
        found = _around(frame, name)
        if found is not None:
            return found
    return _from_outside(frame, node, name)


def _around(frame: Frame, name: str) -> Value | None:
    """A variable of a function around this one, as it may be whenever this one runs."""
    callee: Callee | None = frame.callee
    while callee is not None:
        if name in callee.around:
            return callee.around[name]
        parent = callee.parent
        if parent is None:
            return None
        if name in parent.callee.names.local:
            return parent.heap.elements(parent.cell(name))
        callee = parent.callee
    return None


def _from_outside(frame: Frame, node: ast.AST, name: str) -> Value:
    root = root_of(frame.callee)
    if name in root.cells and name not in frame.callee.names.declared_global:
        return _from_cell(frame, node, root, name)
    home = root.home
    frame.analysis.rely(root.key, name)
    if name in home:
        inside = not isinstance(home[name], outside.NAMED)
        write = frame.analysis.neighbours.of_global(home, root.file, name, inside=inside)
        if not frame.must_stay(node, name, write):
            return UNKNOWN
        if inside:
            frame.analysis.reads(f"the global `{name}`", home)
        return outer(frame, node, home[name], name)
    known = home.get("__builtins__", builtins)
    table = vars(known) if isinstance(known, types.ModuleType) else known
    if name in table:
        return outer(frame, node, table[name], name)
    return frame.report(node, f"reads the global `{name}`, which does not exist yet")


def _from_cell(frame: Frame, node: ast.AST, root: Callee, name: str) -> Value:
    try:
        real = root.cells[name].cell_contents
    except ValueError:
        return frame.report(node, f"reads `{name}` of the function around it, not set yet")
    if not isinstance(real, outside.NAMED):
        frame.analysis.reads(f"the variable `{name}`", root.cells[name])
    write = frame.analysis.neighbours.of_variable(root.file, root.scopes, name)
    return outer(frame, node, real, name) if frame.must_stay(node, name, write) else UNKNOWN


def _attribute(frame: Frame, node: ast.Attribute) -> Value:
    if _is_super(frame, node.value):
        return _from_super(frame, node)
    found: Value = NOTHING
    for atom in evaluate(frame, node.value):
        found |= attributes.read(frame, node, atom, mangled(node.attr, frame.callee.within))
    return found


def _is_super(frame: Frame, node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="super"), args=[], keywords=[]):
            return "super" not in root_of(frame.callee).home
    return False


def _from_super(frame: Frame, node: ast.Attribute) -> Value:
    """A method of the next class behind the one this method is written in."""
    cell = frame.callee.cells.get("__class__")
    parameters = frame.callee.node.args
    first = [each.arg for each in (*parameters.posonlyargs, *parameters.args)][:1]
    if cell is None or not first or frame.flow is None:
        return frame.report(node, "uses super() in a way that is not understood")
    kind, found = cell.cell_contents, NOTHING
    for atom in evaluate(frame, ast.copy_location(ast.Name(first[0], ast.Load()), node)):
        own = (
            frame.heap.item(atom).made_of
            if isinstance(atom, Obj)
            else type(getattr(atom, "real", None))
        )
        order = own.__mro__ if isinstance(own, type) and kind in own.__mro__ else ()
        later = order[order.index(kind) + 1 :] if order else ()
        holder = next((each for each in later if node.attr in vars(each)), None)
        if holder is object and node.attr == "__init__":
            found |= frozenset({Known(_nothing)})
        elif holder is None or not isinstance(vars(holder)[node.attr], types.FunctionType):
            return frame.report(node, "uses super() in a way that is not understood")
        else:
            frame.analysis.rely_on(own, node.attr)
            frame.analysis.rely_on(holder, node.attr)
            found |= attributes.method(frame, node, vars(holder)[node.attr], atom, holder)
    return found


def _nothing(*given: Any) -> None:
    """What `object.__init__` does."""


def _call(frame: Frame, node: ast.Call) -> Value:
    callee = evaluate(frame, node.func)
    return call(frame, node, callee, arguments_of(frame, node))


def _subscript(frame: Frame, node: ast.Subscript) -> Value:
    value = evaluate(frame, node.value)
    key = evaluate(frame, node.slice)
    if not keyable(frame, node, key):
        return UNKNOWN
    return looked_up(frame, node, value, key, part=isinstance(node.slice, ast.Slice))


def _slice(frame: Frame, node: ast.Slice) -> Value:
    for each in (node.lower, node.upper, node.step):
        if each is not None and (why := tame(frame, evaluate(frame, each))) is not None:
            return refuse(frame, node, "a slice", why)
    return SCALAR


def _display(frame: Frame, node: ast.List | ast.Tuple | ast.Set) -> Value:
    kind = {ast.List: "list", ast.Tuple: "tuple", ast.Set: "set"}[type(node)]
    found, starred = NOTHING, False
    for each in node.elts:
        if isinstance(each, ast.Starred):
            found, starred = found | iterated(frame, each, evaluate(frame, each.value)), True
        else:
            found |= evaluate(frame, each)
    made = frame.make(node, kind)
    item = frame.heap.item(made)
    frame.heap.add(item, found)
    count = min(MANY, len(node.elts))
    frame.heap.count(item, *((0, MANY) if starred else (count, count)))
    if kind == "set" and (why := tame(frame, found, ordered=False)) is not None:
        return refuse(frame, node, "a set", why)
    return frozenset({made})


def _dict(frame: Frame, node: ast.Dict) -> Value:
    layers: list[Layer] = []
    extra: tuple[Value, Value] = (NOTHING, NOTHING)
    for key, each in zip(node.keys, node.values, strict=True):
        keys = evaluate(frame, key) if key is not None else NOTHING
        value = evaluate(frame, each)
        name = constant(keys)
        if key is None:
            layers.append((None, value))
        elif name is not None and isinstance(name.value, str):
            layers.append((name.value, value))
        elif keyable(frame, node, keys):
            layers.append((EVERY, NOTHING))
            extra = (extra[0] | value, extra[1] | keys)
    return made_dict(frame, node, tuple(layers), extra)


def _text(frame: Frame, node: ast.JoinedStr) -> Value:
    for each in node.values:
        if isinstance(each, ast.FormattedValue):
            _formatted(frame, each)
    return SCALAR


def _formatted(frame: Frame, node: ast.FormattedValue) -> Value:
    why = textual(frame, evaluate(frame, node.value))
    if why is not None:
        return refuse(frame, node, "a formatted string", why)
    spec = node.format_spec
    if isinstance(spec, ast.JoinedStr):
        parts = spec.values
        text = "".join(str(p.value) for p in parts if isinstance(p, ast.Constant))
        inner = [evaluate(frame, p.value) for p in parts if isinstance(p, ast.FormattedValue)]
        numbers = all(isinstance(a, Const) and a.kind is int for v in inner for a in v)
        if not numbers or not methods.safe_spec(text):
            return frame.report(node, "formats in a way that may depend on the machine's locale")
    return SCALAR


def _walrus(frame: Frame, node: ast.NamedExpr) -> Value:
    value = evaluate(frame, node.value)
    frame.bind(node, node.target.id, value)
    return value


def _yield(frame: Frame, node: ast.Yield) -> Value:
    frame.gave(evaluate(frame, node.value) if node.value else NONE)
    return NONE


def _yield_from(frame: Frame, node: ast.YieldFrom) -> Value:
    value = evaluate(frame, node.value)
    made = [frame.heap.item(a) for a in value if isinstance(a, Obj)]
    fresh = all(_is_new(frame, node.value, item.kind) for item in made)
    sized = len(made) == len(value)
    least = min((item.least or 0 for item in made), default=0) if sized and fresh else 0
    most = max((item.most for item in made), default=0) if sized else MANY
    frame.gave(iterated(frame, node, value), least, most)
    returned = [item.attributes.get("return", NONE) for item in made]
    return NONE.union(*returned)


def _is_new(frame: Frame, node: ast.expr, kind: str) -> bool:
    """Whether what is yielded from was made by this very expression, so nobody has used it up."""
    if isinstance(node, ast.List | ast.Tuple):
        return kind in ("list", "tuple")
    if kind != "generator" or not isinstance(node, ast.Call):
        return False
    for atom in evaluate(frame, node.func):
        real = atom.real if isinstance(atom, Known) else None
        code = getattr(getattr(real, "__func__", real), "__code__", None)
        inner = frame.heap.item(atom).made_of if isinstance(atom, Obj) else None
        mine = isinstance(inner, Callee) and inner.names.generator
        if not mine and not (code is not None and code.co_flags & 0x20):
            return False
    return True


def _await(frame: Frame, node: ast.expr) -> Value:
    return frame.report(node, "waits (await), which an operator cannot")


def _starred(frame: Frame, node: ast.Starred) -> Value:
    return iterated(frame, node, evaluate(frame, node.value))


KINDS: dict[type[ast.expr], Callable[[Frame, Any], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.BinOp: operators.binary,
    ast.UnaryOp: operators.unary,
    ast.BoolOp: operators.boolean,
    ast.Compare: operators.comparison,
    ast.IfExp: operators.condition,
    ast.List: _display,
    ast.Tuple: _display,
    ast.Set: _display,
    ast.Dict: _dict,
    ast.JoinedStr: _text,
    ast.FormattedValue: _formatted,
    ast.NamedExpr: _walrus,
    ast.Lambda: closures.anonymous,
    ast.ListComp: closures.collected,
    ast.SetComp: closures.collected,
    ast.GeneratorExp: closures.collected,
    ast.DictComp: closures.collected_dict,
    ast.Yield: _yield,
    ast.YieldFrom: _yield_from,
    ast.Await: _await,
    ast.Starred: _starred,
}
