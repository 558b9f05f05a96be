"""A plan as JSON, for programs to read; the form is part of the public contract."""

from __future__ import annotations

import json
from typing import Any

from anabranch.compiler.plan import Joint, Plan, Region
from anabranch.compiler.reason import Reason
from anabranch.program.operators.operator import Operator


def as_json(plan: Plan) -> str:
    """All that is known, one object."""
    homes = plan.homes()
    facts = {
        "program": plan.graph.name,
        "operators": [_operator(plan, op, homes[op.id]) for op in plan.graph.operators],
        "regions": [_region(plan, region) for region in plan.regions],
        "joints": [_joint(joint) for joint in plan.joints],
    }
    return json.dumps(facts, indent=2, ensure_ascii=False)


def _operator(plan: Plan, op: Operator, home: Region) -> dict[str, Any]:
    traits = plan.traits[op.id]
    return {
        "name": op.name,
        "kind": op.kind,
        "region": home.id,
        "state": traits.state,
        "key": _key(traits.key),
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


def _region(plan: Plan, region: Region) -> dict[str, Any]:
    return {
        "id": region.id,
        "operators": [op.name for op in plan.operators(region)],
        "parallel": region.parallel,
        "key": _key(region.key),
        "routing": region.routing,
        "ordering": region.ordering,
        "because": region.because,
    }


def _joint(joint: Joint) -> dict[str, Any]:
    return {
        "from": joint.before,
        "to": joint.behind,
        "kind": joint.kind,
        "strategy": joint.strategy,
    }


def _key(key: tuple[str, ...] | None) -> list[str] | None:
    return None if key is None else list(key)
