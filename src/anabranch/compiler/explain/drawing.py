"""A plan as a drawing for Mermaid: a box a region, an arrow a stream."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.compiler.plan import Plan, Region
from anabranch.ids import OperatorId
from anabranch.program.operators.operator import OUT, Operator, Port


def as_mermaid(plan: Plan) -> str:
    """The text of a flowchart; arrows between regions say which joint they are."""
    lines = ["flowchart LR"]
    for region in plan.regions:
        lines.append(f'  subgraph r{region.id}["{_title(region)}"]')
        lines += [f'    n{op.id}["{_plain(op.name)}"]' for op in plan.operators(region)]
        lines.append("  end")
    return "\n".join([*lines, *_arrows(plan)])


def _arrows(plan: Plan) -> Iterator[str]:
    homes = {number: region.id for number, region in plan.homes().items()}
    joints = {(each.before, each.behind): each for each in plan.joints}

    def label(port: Port, number: OperatorId) -> str:
        words = [port.output] if port.output != OUT else []
        if joint := joints.get((homes[port.operator], homes[number])):
            words.append(f"{joint.kind}: {joint.strategy}")
        return f'|"{_plain(", ".join(words))}"|' if words else ""

    op: Operator
    for op in plan.graph.operators:
        for port in op.inputs:
            yield f"  n{port.operator} -->{label(port, op.id)} n{op.id}"
        if closing := plan.graph.feedback.get(op.id):
            yield f"  n{closing.operator} -. next epoch .-> n{op.id}"


def _title(region: Region) -> str:
    if not region.parallel:
        return f"region {region.id}: sequential"
    by = f" by {', '.join(region.key)}" if region.key else ""
    return _plain(f"region {region.id}: parallel{by}")


def _plain(text: str) -> str:
    """Mermaid ends a text at a quote and takes # for the beginning of a character's name."""
    return text.replace("#", "#35;").replace('"', "#quot;")
