"""Functions made inside functions, and comprehensions."""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.compiler.functions.assignment import targets_of
from anabranch.compiler.functions.catalogue import genuine
from anabranch.compiler.functions.columns import filtered_record
from anabranch.compiler.functions.containers import iterated, new, refuse, tame
from anabranch.compiler.functions.dicts import made_dict
from anabranch.compiler.functions.evaluation import evaluate
from anabranch.compiler.functions.frame import Callee, Frame, join, root_of
from anabranch.compiler.functions.heap import EVERY
from anabranch.compiler.functions.operators import check_truth, keyable
from anabranch.compiler.functions.scope import names_of
from anabranch.compiler.functions.source import Scope
from anabranch.compiler.functions.values import (
    NOTHING,
    UNKNOWN,
    Value,
)


def closure(frame: Frame, node: Scope, extra: str = "") -> Value:
    """A function made here, with what it finds around it."""
    around: dict[str, Value] = {}
    for overlay in frame.overlays:
        around.update(overlay)
    arguments = node.args
    defaults = tuple(evaluate(frame, each) for each in arguments.defaults)
    named = {
        parameter.arg: evaluate(frame, each)
        for parameter, each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if each is not None
    }
    _check_annotations(frame, node)
    made = frame.make(node, "closure", extra)
    item, root = frame.heap.item(made), root_of(frame.callee)
    before = item.made_of
    if isinstance(before, Callee):
        around = {n: v | before.around.get(n, NOTHING) for n, v in around.items()}
        defaults = tuple(a | b for a, b in zip(defaults, before.defaults, strict=True))
        named = {n: v | before.named_defaults[n] for n, v in named.items()}
    now = Callee(
        identity=("closure", frame.context, id(node)),
        name=getattr(node, "name", "<lambda>"),
        node=node,
        names=names_of(node),
        file=frame.callee.file,
        within=frame.callee.within,
        home=root.home,
        key=root.key,
        parent=frame,
        around=around,
        defaults=defaults,
        named_defaults=named,
    )
    if before is None or _grown(before, now):
        frame.heap.version += 1
    item.made_of = now
    return frozenset({made})


def _check_annotations(frame: Frame, node: Scope) -> None:
    """Annotations are evaluated when a function is made: they may only name classes."""
    if isinstance(node, ast.Lambda):
        return
    given = node.args
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    found = [each.annotation for each in every if each is not None and each.annotation is not None]
    for each in (*found, *([node.returns] if node.returns is not None else [])):
        for part in ast.walk(each):
            if not isinstance(part, _ANNOTATION):
                frame.report(each, f"the annotation `{ast.unparse(each)}` is not understood")
            elif isinstance(part, ast.Name) and not _names_a_class(frame, part.id):
                frame.report(each, f"the annotation `{part.id}` is no plain class")


_ANNOTATION = (
    ast.Name, ast.Attribute, ast.Constant, ast.Subscript, ast.BinOp, ast.BitOr, ast.Tuple, ast.List,
    ast.expr_context,
)  # fmt: skip


def _names_a_class(frame: Frame, name: str) -> bool:
    home = root_of(frame.callee).home
    real = home.get(name, getattr(builtins, name, None))
    if isinstance(real, type):
        return (type(real) is type and "__class_getitem__" not in vars(real)) or genuine(real)
    return isinstance(real, types.ModuleType) or type(real).__module__ == "typing"


def _grown(before: Callee, now: Callee) -> bool:
    facts = (dict(before.around), before.defaults, dict(before.named_defaults))
    return facts != (dict(now.around), now.defaults, dict(now.named_defaults))


def anonymous(frame: Frame, node: ast.Lambda) -> Value:
    """A lambda."""
    return closure(frame, node)


@contextmanager
def comprehension(
    frame: Frame, generators: list[ast.comprehension], first: Value | None = None
) -> Iterator[None]:
    """Bind the variables of a comprehension for as long as it is evaluated."""
    before = frame.flow.copy() if frame.flow else None
    overlay: dict[str, Value] = {}
    frame.overlays.append(overlay)
    try:
        for at, each in enumerate(generators):
            if each.is_async:
                frame.report(each.target, "async is not understood in an operator")
            source = first if at == 0 and first is not None else evaluate(frame, each.iter)
            elements = iterated(frame, each.iter, source)
            for name, value in targets_of(frame, each.target, elements):
                overlay[name] = overlay.get(name, NOTHING) | value
            for test in each.ifs:
                check_truth(frame, test, evaluate(frame, test))
        yield
    finally:
        frame.overlays.pop()
        frame.flow = join(frame.flow, before)


def collected(frame: Frame, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
    """A list, set or iterator made by a comprehension."""
    kind = {ast.ListComp: "list", ast.SetComp: "set", ast.GeneratorExp: "iterator"}[type(node)]
    # Twice: what `:=` binds in one round is there in the next.
    for _ in range(2):
        with comprehension(frame, node.generators):
            found = evaluate(frame, node.elt)
    if kind == "set" and (why := tame(frame, found, ordered=False)) is not None:
        return refuse(frame, node, "a set", why)
    return new(frame, node, kind, found)  # type: ignore[arg-type]


def collected_dict(frame: Frame, node: ast.DictComp) -> Value:
    """A dict made by a comprehension."""
    chosen = filtered_record(frame, node)
    for _ in range(2):
        with comprehension(frame, node.generators):
            keys, values = evaluate(frame, node.key), evaluate(frame, node.value)
    if not keyable(frame, node, keys):
        return UNKNOWN
    if chosen is not None:
        return made_dict(frame, node, chosen)
    return made_dict(frame, node, ((EVERY, NOTHING),), (values, keys))
