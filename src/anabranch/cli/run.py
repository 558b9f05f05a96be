"""`anabranch run FILE[:program] ...`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import Any

from anabranch.cli.programs import load
from anabranch.cli.sequentially import NOTICE, run_to_sinks
from anabranch.errors import AnabranchError


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
    for program in programs:
        if not program.freeze().sinks:
            message = f"program {program.name!r} writes nothing"
            raise AnabranchError(message, so="end a stream with .write(sink)")
    print(NOTICE, file=sys.stderr)
    done = []
    for program in programs:
        ran, _ = run_to_sinks(program)
        done.append(dataclasses.asdict(ran))
        if not options.json:
            rows = ", ".join(f"{_some(count, 'row')} to {sink}" for sink, count in ran.rows.items())
            print(f"{ran.program}: {_some(ran.epochs, 'epoch')} in {ran.seconds:.2f} s, {rows}")
    return 0, {"runtime": "oracle", "programs": done}


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
