"""The `match` statement: what its patterns bind."""

from __future__ import annotations

import ast

from anabranch.compiler.functions import attributes
from anabranch.compiler.functions.catalogue import find
from anabranch.compiler.functions.containers import iterated, looked_up, new, refuse, tame
from anabranch.compiler.functions.evaluation import evaluate
from anabranch.compiler.functions.frame import Flow, Frame, join
from anabranch.compiler.functions.operators import check_truth
from anabranch.compiler.functions.values import PLAIN, Known, Obj, Value, const


def match(frame: Frame, node: ast.Match) -> None:
    """Try the cases one after the other; each may be the one."""
    from anabranch.compiler.functions.statements import execute

    subject = evaluate(frame, node.subject)
    after: Flow | None = None
    for case in node.cases:
        before = frame.flow.copy() if frame.flow else None
        _bind(frame, case.pattern, subject)
        if case.guard is not None:
            check_truth(frame, case.guard, evaluate(frame, case.guard))
        tried = frame.flow.copy() if frame.flow else None
        execute(frame, case.body)
        after = join(after, frame.flow)
        frame.flow = None if _always(case) else join(before, tried)
    frame.flow = join(after, frame.flow)


def _always(case: ast.match_case) -> bool:
    wild = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
    return wild and case.guard is None


def _bind(frame: Frame, pattern: ast.pattern, value: Value) -> None:  # noqa: C901, PLR0912
    match pattern:
        case ast.MatchValue(value=other):
            _comparable(frame, pattern, value | evaluate(frame, other))
        case ast.MatchSingleton():
            pass
        case ast.MatchOr(patterns=parts):
            for part in parts:
                _bind(frame, part, value)
        case ast.MatchAs(pattern=inner, name=name):
            if inner is not None:
                _bind(frame, inner, value)
            if name is not None:
                frame.bind(pattern, name, value)
        case ast.MatchStar(name=name):
            if name is not None:
                frame.bind(pattern, name, new(frame, pattern, "list", value, tag="rest"))
        case ast.MatchSequence() | ast.MatchMapping():
            _bind_inside(frame, pattern, value)
        case ast.MatchClass():
            _bind_class(frame, pattern, value)


def _comparable(frame: Frame, node: ast.AST, value: Value) -> None:
    plain = frozenset(a for a in value if not isinstance(a, Known))
    if (why := tame(frame, plain, ordered=False)) is not None:
        refuse(frame, node, "a pattern", why)


def _bind_inside(frame: Frame, pattern: ast.MatchSequence | ast.MatchMapping, value: Value) -> None:
    _comparable(frame, pattern, value)
    if isinstance(pattern, ast.MatchSequence):
        containers = frozenset(
            a
            for a in value
            if not (isinstance(a, Obj) and frame.heap.item(a).kind in ("set", "dict"))
        )
        elements = iterated(frame, pattern, containers)
        for part in pattern.patterns:
            _bind(frame, part, elements)
        return
    for key, part in zip(pattern.keys, pattern.patterns, strict=True):
        _bind(frame, part, looked_up(frame, pattern, value, evaluate(frame, key), part=False))
    if pattern.rest is not None:
        inside = looked_up(frame, pattern, value, frozenset(), part=False)
        frame.bind(pattern, pattern.rest, new(frame, pattern, "dict", inside, PLAIN, tag="rest"))


def _bind_class(frame: Frame, pattern: ast.MatchClass, value: Value) -> None:
    for atom in evaluate(frame, pattern.cls):
        kind = atom.real if isinstance(atom, Known) else None
        if not isinstance(kind, type):
            frame.report(pattern, "a pattern names a class that is not known")
            continue
        if find(kind) is not None:
            for part in (*pattern.patterns, *pattern.kwd_patterns):
                _bind(frame, part, value)
            if pattern.kwd_patterns:
                frame.report(pattern, "a pattern reads attributes that are not understood")
            continue
        _bind_attributes(frame, pattern, value, kind)


def _bind_attributes(frame: Frame, pattern: ast.MatchClass, value: Value, kind: type) -> None:
    order = getattr(kind, "__match_args__", ())
    if type(kind) is not type or len(pattern.patterns) > len(order):
        frame.report(pattern, f"a pattern of {kind.__name__} is not understood")
        return
    names = [*order[: len(pattern.patterns)], *pattern.kwd_attrs]
    mine = [a for a in value if isinstance(a, Obj) and frame.heap.item(a).made_of is kind]
    for name, part in zip(names, (*pattern.patterns, *pattern.kwd_patterns), strict=True):
        found: Value = frozenset()
        for atom in mine:
            found |= attributes.read(frame, pattern, atom, name)
        _bind(frame, part, found | (const(None) if not mine else frozenset()))
