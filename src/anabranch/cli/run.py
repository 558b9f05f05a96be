"""`anabranch run FILE[:program] ...`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import Any

from anabranch.cli.programs import load
from anabranch.cli.sequentially import NOTICE, run_to_sinks


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument(
        "program",
        nargs="+",
        metavar="FILE[:program]",
        help="a Python file, and the name of a program in it if it has several",
    )
    command.set_defaults(call=run)


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Run each program in turn to the end of its sources."""
    programs = [load(target) for target in options.program]
    print(NOTICE, file=sys.stderr)
    done = []
    for program in programs:
        ran, _ = run_to_sinks(program)
        done.append(dataclasses.asdict(ran))
        if not options.json:
            rows = ", ".join(f"{count} rows to {sink}" for sink, count in ran.rows.items())
            print(
                f"{ran.program}: {ran.epochs} epochs in {ran.seconds:.2f} s, {rows or 'no sinks'}"
            )
    return 0, {"runtime": "oracle", "programs": done}
