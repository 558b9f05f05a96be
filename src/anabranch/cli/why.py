"""`anabranch why DIR`: what the query of a checkpoint waits for."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from anabranch.observe.checkpoint import why_of

EXAMPLES = (
    ("why ckpt", "which source holds the watermark, and what would release it"),
    ("why ckpt --json", "for programs"),
)


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument(
        "directory", type=Path, metavar="DIR", help="the checkpoint of a query, running or not"
    )
    command.set_defaults(call=why)


def why(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Tell which partition holds the watermark, since when, and what would release it."""
    text = why_of(options.directory)
    if not options.json:
        print(text)
    return 0, {"why": text}
