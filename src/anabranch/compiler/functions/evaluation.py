"""Evaluating an expression: which function knows its kind."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from anabranch.compiler.functions.frame import Frame
from anabranch.compiler.functions.values import Value

EVALUATE: dict[type[ast.expr], Callable[[Frame, Any], Value]] = {}
"""Filled from `expressions.py`, whose parts evaluate parts of expressions in turn."""


def evaluate(frame: Frame, node: ast.expr) -> Value:
    """The value of an expression; what stands in the way of a proof is noted."""
    frame.step()
    found = EVALUATE.get(type(node))
    if found is None:
        return frame.report(node, f"{type(node).__name__} is not understood")
    return found(frame, node)
