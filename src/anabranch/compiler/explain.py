"""A program told back to its author: as text, as JSON, as a drawing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from anabranch.compiler.reason import Reason
from anabranch.compiler.traits import Traits, traits_of
from anabranch.errors import ProgramError
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import OUT, Operator
from anabranch.program.schema import describe

_BECAUSE = "the whole program is one sequential region: nothing has been proved about it yet"


def explain(graph: Graph, form: str = "text") -> str:
    """What a program is made of and how it runs."""
    forms: dict[str, Callable[[Graph], str]] = {"text": _text, "json": _json, "mermaid": _mermaid}
    if form not in forms:
        message = f"explain: unknown format {form!r}"
        raise ProgramError(message, have=", ".join(forms))
    return forms[form](graph)


def _text(graph: Graph) -> str:
    count = len(graph.operators)
    lines = [
        f"{graph.name}: {count} operators, 1 region",
        f"region 0: sequential, since {_BECAUSE}",
    ]
    return "\n".join([*lines, *(line for op in graph.operators for line in _operator(graph, op))])


def _operator(graph: Graph, op: Operator) -> Iterator[str]:
    traits = traits_of(graph, op)
    inputs = ", ".join(_port(graph, op, at) for at in range(len(op.inputs)))
    yield ""
    yield f"  {op.name}" + (f"  <- {inputs}" if inputs else "")
    yield f"    at       {op.site}"
    keyed = f" by {', '.join(traits.key)}" if traits.key else ""
    yield f"    is       {traits.state}{keyed}, selectivity {traits.selectivity}"
    if OUT in op.outputs:
        yield f"    gives    {describe(op.outputs[OUT].schema)}"
    for reason in traits.reasons:
        yield f"    since    {reason.text}" + (f"   ({reason.site})" if reason.site else "")


def _port(graph: Graph, op: Operator, at: int) -> str:
    port = op.inputs[at]
    name = graph[port.operator].name
    return name if port.output == OUT else f"{name}.{port.output}"


def _json(graph: Graph) -> str:
    operators = [_fact(graph, op) for op in graph.operators]
    region = {
        "id": 0,
        "operators": [op.name for op in graph.operators],
        "parallel": False,
        "key": None,
        "routing": "none",
        "ordering": "none",
        "because": _BECAUSE,
    }
    facts = {"program": graph.name, "operators": operators, "regions": [region], "joints": []}
    return json.dumps(facts, indent=2, ensure_ascii=False)


def _fact(graph: Graph, op: Operator) -> dict[str, Any]:
    traits: Traits = traits_of(graph, op)
    return {
        "name": op.name,
        "kind": op.kind,
        "region": 0,
        "state": traits.state,
        "key": None if traits.key is None else list(traits.key),
        "selectivity": traits.selectivity,
        "forwards": list(traits.forwards),
        "pure": traits.pure,
        "declared": list(traits.declared),
        "reasons": [_reason(each) for each in (*traits.reasons, Reason("written here", op.site))],
    }


def _reason(reason: Reason) -> dict[str, Any]:
    site = reason.site
    return {
        "text": reason.text,
        "file": site.file if site else None,
        "line": site.line if site else None,
    }


def _mermaid(graph: Graph) -> str:
    lines = ["flowchart LR"]
    for op in graph.operators:
        lines.append(f'  n{op.id}["{op.name}"]')
        for at, port in enumerate(op.inputs):
            label = f"|{port.output}|" if port.output != OUT else ""
            lines.append(f"  n{op.inputs[at].operator} -->{label} n{op.id}")
    for number, port in graph.feedback.items():
        lines.append(f"  n{port.operator} -. next epoch .-> n{number}")
    return "\n".join(lines)
