"""`anabranch why DIR`: what the query of a checkpoint waits for."""

from __future__ import annotations

import argparse
from typing import Any

from anabranch.cli.checkpoints import place
from anabranch.clock import SystemClock
from anabranch.observe.checkpoint import facts_of
from anabranch.observe.facts import SourceFacts
from anabranch.observe.why import why as words

EXAMPLES = (
    ("why ckpt", "which source holds the watermark, and what would release it"),
    ("why ckpt --json", "for programs"),
)


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument(
        "directory", type=place, metavar="DIR", help="the checkpoint of a query, running or not"
    )
    command.set_defaults(call=why)


def why(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Tell which partition holds the watermark, since when, and what would release it."""
    facts = facts_of(options.directory, SystemClock())
    text = words(facts)
    if not options.json:
        print(text)
    return 0, {
        "why": text,
        "program": facts.program,
        "committed": facts.committed,
        "committed_at": facts.committed_at,
        "planned": [each.number for each in facts.epochs],
        "sources": [_source(each) for each in facts.sources],
    }


def _source(source: SourceFacts) -> dict[str, Any]:
    return {
        "name": source.name,
        "watermark": source.time.watermark,
        "held_by": [] if source.finished else list(source.holders),
        "idle": sorted(source.idle, key=str),
        "finished": sorted(source.time.finished, key=str),
        "greatest": [[partition, time] for partition, time in source.time.greatest.items()],
    }
