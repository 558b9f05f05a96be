"""What a statement does to the variables, and where it leads."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.compiler.functions import catalogue
from anabranch.compiler.functions.assignment import assign, assign_in_place, delete
from anabranch.compiler.functions.closures import closure
from anabranch.compiler.functions.containers import iterated
from anabranch.compiler.functions.evaluation import evaluate
from anabranch.compiler.functions.frame import Flow, Frame, Loop, join
from anabranch.compiler.functions.matching import match
from anabranch.compiler.functions.operators import check_truth
from anabranch.compiler.functions.values import NONE, SCALAR, Const, Known, Value, constant

_ROUNDS = 24
"""More rounds of a loop than joins can go on changing anything in ordinary code."""


def execute(frame: Frame, body: Sequence[ast.stmt]) -> None:
    """Run statements one after the other, as long as any way leads to the next."""
    for each in body:
        if frame.flow is None:
            return
        frame.step()
        frame.may_raise()
        found = _EXECUTE.get(type(each))
        if found is None:
            frame.report(each, f"{type(each).__name__} is not understood")
        else:
            found(frame, each)
    frame.may_raise()


def _expression(frame: Frame, node: ast.Expr) -> None:
    evaluate(frame, node.value)


def _assign(frame: Frame, node: ast.Assign) -> None:
    first = node.targets[0]
    if len(node.targets) == 1 and _pairwise(first, node.value):
        values = [evaluate(frame, each) for each in node.value.elts]  # type: ignore[attr-defined]
        for target, value in zip(first.elts, values, strict=True):  # type: ignore[attr-defined]
            assign(frame, target, value)
        return
    value = evaluate(frame, node.value)
    for target in node.targets:
        assign(frame, target, value)


def _pairwise(target: ast.expr, value: ast.expr) -> bool:
    """Whether `a, b = x, y` says which goes where."""
    if not (isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)):
        return False
    starred = any(isinstance(each, ast.Starred) for each in (*target.elts, *value.elts))
    return not starred and len(target.elts) == len(value.elts)


def _assign_annotated(frame: Frame, node: ast.AnnAssign) -> None:
    if node.value is not None:
        assign(frame, node.target, evaluate(frame, node.value))


def _assign_in_place(frame: Frame, node: ast.AugAssign) -> None:
    assign_in_place(frame, node)


def _delete(frame: Frame, node: ast.Delete) -> None:
    for target in node.targets:
        delete(frame, target)


def _return(frame: Frame, node: ast.Return) -> None:
    value = evaluate(frame, node.value) if node.value else NONE
    _leave(frame, 0)
    if frame.flow is not None:
        frame.outcome.returned.add(value)
        frame.give(value)
        frame.outcome.end(frame.flow)
    frame.flow = None


def _leave(frame: Frame, loops: int) -> None:
    """Run the `finally` parts on the way out of everything inside more than `loops` loops."""
    pending = frame.finals
    while frame.finals and frame.finals[-1][1] >= loops and frame.flow is not None:
        body = frame.finals[-1][0]
        frame.finals = frame.finals[:-1]
        execute(frame, body)
    frame.finals = pending


def _raise(frame: Frame, node: ast.Raise) -> None:
    for each in (node.exc, node.cause):
        if each is not None:
            _raised(frame, each)
    frame.may_raise()
    frame.flow = None


def _raised(frame: Frame, node: ast.expr) -> None:
    """Evaluate what is raised; a class is called."""
    from anabranch.compiler.functions.calls import Arguments, call

    found = evaluate(frame, node)
    kinds = frozenset(a for a in found if isinstance(a, Known) and isinstance(a.real, type))
    call(frame, node, kinds, Arguments())


def _if(frame: Frame, node: ast.If) -> None:
    check_truth(frame, node.test, evaluate(frame, node.test))
    before = frame.flow.copy() if frame.flow else None
    execute(frame, node.body)
    after, frame.flow = frame.flow, before
    execute(frame, node.orelse)
    frame.flow = join(after, frame.flow)


def _loop(frame: Frame, step: Callable[[], Flow | None], body: Sequence[ast.stmt]) -> Flow | None:
    """Run a loop until nothing changes; what holds where it is broken. `step` gives the way out."""
    head = frame.flow
    broken: Flow | None = None
    leaves: Flow | None = None
    for _ in range(_ROUNDS):
        loop = Loop()
        frame.flow = head.copy() if head else None
        leaves = step()
        frame.loops.append(loop)
        execute(frame, body)
        frame.loops.pop()
        broken = join(broken, loop.broken)
        again = join(head, join(frame.flow, loop.continued))
        if again == head:
            break
        head = again
    else:
        frame.report(body[0], "a loop is too intricate to look through")
    frame.flow = leaves
    return broken


def _for(frame: Frame, node: ast.For) -> None:
    elements = iterated(frame, node.iter, evaluate(frame, node.iter))

    def step() -> Flow | None:
        out = frame.flow.copy() if frame.flow else None
        assign(frame, node.target, elements)
        return out

    broken = _loop(frame, step, node.body)
    execute(frame, node.orelse)
    frame.flow = join(frame.flow, broken)


def _while(frame: Frame, node: ast.While) -> None:
    endless = isinstance(node.test, ast.Constant) and bool(node.test.value)

    def step() -> Flow | None:
        check_truth(frame, node.test, evaluate(frame, node.test))
        return None if endless or frame.flow is None else frame.flow.copy()

    broken = _loop(frame, step, node.body)
    execute(frame, node.orelse)
    frame.flow = join(frame.flow, broken)


def _break(frame: Frame, node: ast.Break) -> None:
    del node
    _leave(frame, len(frame.loops))
    frame.loops[-1].broken = join(frame.loops[-1].broken, frame.flow)
    frame.flow = None


def _continue(frame: Frame, node: ast.Continue) -> None:
    del node
    _leave(frame, len(frame.loops))
    frame.loops[-1].continued = join(frame.loops[-1].continued, frame.flow)
    frame.flow = None


def _try(frame: Frame, node: ast.Try) -> None:
    if node.finalbody:
        frame.finals = [*frame.finals, (node.finalbody, len(frame.loops))]
    escaped: list[Flow | None] = [None]
    if node.finalbody:
        frame.sinks.append(escaped)
    _try_except(frame, node)
    if not node.finalbody:
        return
    frame.sinks.pop()
    frame.finals = frame.finals[:-1]
    execute(frame, node.finalbody)
    after, frame.flow = frame.flow, escaped[0]
    execute(frame, node.finalbody)  # an exception is on its way: behind it nothing goes on
    frame.flow = after


def _try_except(frame: Frame, node: ast.Try) -> None:
    raised: list[Flow | None] = [None]
    frame.sinks.append(raised)
    execute(frame, node.body)
    frame.sinks.pop()
    execute(frame, node.orelse)
    after = frame.flow
    for handler in node.handlers:
        frame.flow = raised[0].copy() if raised[0] else None
        _handle(frame, handler)
        after = join(after, frame.flow)
    frame.flow = after


def _handle(frame: Frame, handler: ast.ExceptHandler) -> None:
    if handler.type is not None:
        for atom in evaluate(frame, handler.type):
            if isinstance(atom, Const):
                frame.report(handler, "catches something that is no exception")
    if handler.name is not None:
        frame.bind(handler, handler.name, SCALAR)
    execute(frame, handler.body)


def _with(frame: Frame, node: ast.With) -> None:
    for item in node.items:
        if not _suppresses(frame, item.context_expr):
            text = f"enters `{ast.unparse(item.context_expr)}`, which is not known"
            frame.report(item.context_expr, text)
            evaluate(frame, item.context_expr)
            if item.optional_vars is not None:
                assign(frame, item.optional_vars, SCALAR)
    raised: list[Flow | None] = [None]
    frame.sinks.append(raised)
    execute(frame, node.body)
    frame.sinks.pop()
    frame.flow = join(frame.flow, raised[0])


def _suppresses(frame: Frame, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    found = evaluate(frame, node.func)
    return found == frozenset({Known(contextlib.suppress)}) and all(
        isinstance(atom, Known) for each in node.args for atom in evaluate(frame, each)
    )


def _function(frame: Frame, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    from anabranch.compiler.functions.calls import Arguments, call

    value: Value = closure(frame, node)
    for each in reversed(node.decorator_list):
        value = call(frame, each, evaluate(frame, each), Arguments([value]))
    frame.bind(node, node.name, value)


def _class(frame: Frame, node: ast.ClassDef) -> None:
    text = f"makes the class {node.name} anew in every call: define it outside"
    frame.bind(node, node.name, frame.report(node, text))


def _assert(frame: Frame, node: ast.Assert) -> None:
    value = evaluate(frame, node.test)
    check_truth(frame, node.test, value)
    if node.msg is not None:
        before = frame.flow.copy() if frame.flow else None
        evaluate(frame, node.msg)
        frame.flow = before
    fixed = constant(value)
    if fixed is not None and not fixed.value:
        frame.flow = None


def _import(frame: Frame, node: ast.Import) -> None:
    for alias in node.names:
        root = alias.name if alias.asname else alias.name.partition(".")[0]
        frame.bind(node, alias.asname or root, _module(frame, node, alias.name, root))


def _module(frame: Frame, node: ast.AST, name: str, bound: str) -> Value:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if module is None or not (file is None or catalogue.from_library(file)):
        return frame.report(node, f"imports {name} in every call: import it at the top of the file")
    return frozenset({Known(sys.modules[bound])})


def _import_from(frame: Frame, node: ast.ImportFrom) -> None:
    from anabranch.compiler.functions.attributes import read

    for alias in node.names:
        if node.level or node.module is None or alias.name == "*":
            value = frame.report(node, "imports in every call: import it at the top of the file")
        else:
            (atom,) = _module(frame, node, node.module, node.module)
            value = read(frame, node, atom, alias.name)
        frame.bind(node, alias.asname or alias.name, value)


def _nothing(frame: Frame, node: ast.stmt) -> None:
    del frame, node


_EXECUTE: dict[type[ast.stmt], Callable[[Frame, Any], None]] = {
    ast.Expr: _expression,
    ast.Assign: _assign,
    ast.AnnAssign: _assign_annotated,
    ast.AugAssign: _assign_in_place,
    ast.Delete: _delete,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.If: _if,
    ast.For: _for,
    ast.While: _while,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.Try: _try,
    ast.With: _with,
    ast.Match: match,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Assert: _assert,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Pass: _nothing,
    ast.Global: _nothing,
    ast.Nonlocal: _nothing,
}
