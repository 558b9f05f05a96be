"""`anabranch explain FILE`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from anabranch.cli.programs import load

EXAMPLES = (
    ("explain views.py", "what runs in parallel by what, and why, for people"),
    ("explain views.py:hourly --format mermaid > views.mmd", "a drawing of one program of several"),
    ("explain views.py --json", "for programs"),
)


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument("program", metavar="FILE[:program]", help="a Python file with a program")
    command.add_argument(
        "--format", choices=("text", "json", "mermaid"), default="text", help="how to tell it"
    )
    command.add_argument(
        "--mermaid", dest="format", action="store_const", const="mermaid", help="draw it"
    )
    command.set_defaults(call=explain)


def explain(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Tell a program back to its author."""
    program = load(options.program)
    if not options.json:
        print(program.explain(options.format))
    facts = json.loads(program.explain("json"))
    if options.format == "mermaid":
        facts["mermaid"] = program.explain("mermaid")
    return 0, facts
