"""The log in a checkpoint, as the oracle reads it: with its own eyes, from the files alone.

Commits name the plans of their epochs (`epochs/*.plan`); their order is the log's. The second line
of each of these files is one JSON object: a plan, and those that follow it in the same file.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from anabranch.errors import CheckpointError
from anabranch.program.graph import Graph
from anabranch.program.log import Cut
from anabranch.program.operators.edges import Read
from anabranch.program.operators.operator import OUT


def log_of(directory: Path, graph: Graph) -> list[Cut]:
    """The epochs that a checkpoint has committed, from the first on."""
    commits = sorted((directory / "commits").glob("[0-9]*"))
    told = [_object(commit) for commit in commits]
    plans = [
        plan | {"quarantined": commit.get("quarantined", {})}
        for commit in told
        for path in commit["plans"]
        for plan in _plans(directory / path)
        if commit["first"] <= plan["epoch"] <= commit["last"]
    ]
    epochs = [plan["epoch"] for plan in plans]
    if epochs != list(range(len(epochs))):
        message = f"{directory} no longer has the plans of all its epochs"
        so = "keep all commits, as tests do, to compare a whole run"
        raise CheckpointError(message, have=f"epochs {epochs[:1]} to {epochs[-1:]}", so=so)
    for plan in {plan["source"]: plan for plan in plans}.values():
        _source(plan, graph).source.recall(plan["memory"])
    return [_cut(plan, graph, directory) for plan in plans]


def _plans(path: Path) -> list[dict[str, Any]]:
    first = _object(path)
    return [first, *first.pop("following", [])]


def _object(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text().splitlines()[1])
    except (OSError, ValueError, IndexError) as error:
        message = f"{path} is no part of a checkpoint: {error}"
        raise CheckpointError(message) from error
    return found


def _cut(plan: dict[str, Any], graph: Graph, directory: Path) -> Cut:
    versions = plan.get("tables", {})
    return Cut(
        plan["source"],
        {partition: (start, end) for partition, (start, end) in plan["offsets"]},
        idle=frozenset(plan["idle"]),
        finished=frozenset(plan["finished"]),
        hint=_shown(plan, graph),
        tables={name: pl.read_ipc(directory / path) for name, path in versions.items()},
        # A commit's rows, whichever of its epochs they are in: a row has its number once.
        quarantined=frozenset(
            (partition, row)
            for partition, rows in plan["quarantined"].get(plan["source"], [])
            for row in rows
        ),
    )


def _shown(plan: dict[str, Any], graph: Graph) -> Any:
    """A plan has its hint in microseconds; a cut has it in the time column's own type."""
    kind = _source(plan, graph).outputs[OUT].time
    if plan["hint"] is None or kind is None:
        return None
    if isinstance(kind.dtype, pl.Datetime):
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=plan["hint"])
    return plan["hint"] // kind.tick


def _source(plan: dict[str, Any], graph: Graph) -> Read:
    found = [each for each in graph.sources if each.name == plan["source"]]
    if not found:
        message = f"the checkpoint reads a source {plan['source']!r} that the program does not"
        raise CheckpointError(message, have=", ".join(each.name for each in graph.sources))
    return found[0]
