"""The forms in which a plan can be told."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.compiler.explain.drawing import as_mermaid
from anabranch.compiler.explain.facts import as_json
from anabranch.compiler.explain.text import as_text
from anabranch.compiler.plan import Plan
from anabranch.errors import ProgramError

FORMS: dict[str, Callable[[Plan], str]] = {
    "text": as_text,
    "json": as_json,
    "mermaid": as_mermaid,
}


def explain(plan: Plan, form: str = "text") -> str:
    """How a program runs, in one of the forms."""
    if form not in FORMS:
        message = f"explain: unknown format {form!r}"
        raise ProgramError(message, have=", ".join(FORMS))
    return FORMS[form](plan)
