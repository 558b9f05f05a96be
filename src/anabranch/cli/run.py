"""`anabranch run FILE[:program] ...`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

from anabranch.api.program import Program
from anabranch.cli.on_spark import Options, run_on_spark
from anabranch.cli.programs import load
from anabranch.cli.sequentially import NOTICE, run_to_sinks
from anabranch.compiler.compile import plan_of
from anabranch.epoch.triggers import Trigger, available_now, epochs
from anabranch.errors import AnabranchError, ProgramError


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument(
        "program",
        nargs="+",
        metavar="FILE[:program]",
        help="a Python file, and the name of a program in it if it has several",
    )
    command.add_argument(
        "--trigger",
        metavar="WHEN",
        help='"now": all that is there, then end; or an epoch every so often: "1 s" (the default)',
    )
    command.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="go on from here, and leave off here"
    )
    command.add_argument("--parallelism", type=int, metavar="N", help="lanes (default: cores)")
    command.add_argument(
        "--master", default="local[*]", metavar="URL", help="Spark's master (default: local[*])"
    )
    command.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's"
    )
    command.add_argument(
        "--sequential", action="store_true", help="run it by the oracle, in this process"
    )
    command.set_defaults(call=run)


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Run programs: on Spark, or by the oracle where there is no kernel yet for what they do."""
    programs = [load(target) for target in options.program]
    for program in programs:
        if not program.freeze().sinks:
            message = f"program {program.name!r} writes nothing"
            raise AnabranchError(message, so="end a stream with .write(sink)")
    if options.sequential or not all(_on_spark(program) for program in programs):
        return 0, {"runtime": "oracle", "programs": _sequentially(programs, options)}
    done = run_on_spark(programs, _options(options))
    if not options.json:
        for ran in done:
            rows, each = _some(ran.rows, "row"), _some(ran.epochs, "epoch")
            print(f"{ran.program}: {rows} in {each}, {ran.seconds:.2f} s")
    return 0, {"runtime": "spark", "programs": [dataclasses.asdict(ran) for ran in done]}


def _on_spark(program: Program) -> bool:
    try:
        plan_of(program.freeze())
    except ProgramError as refused:
        print(f"{program.name}: {refused.what}: {refused.why}", file=sys.stderr)
        return False
    return True


def _sequentially(programs: list[Program], options: argparse.Namespace) -> list[dict[str, Any]]:
    print(NOTICE, file=sys.stderr)
    done = []
    for program in programs:
        ran, _ = run_to_sinks(program)
        done.append(dataclasses.asdict(ran))
        if not options.json:
            rows = ", ".join(f"{_some(count, 'row')} to {sink}" for sink, count in ran.rows.items())
            print(f"{ran.program}: {_some(ran.epochs, 'epoch')} in {ran.seconds:.2f} s, {rows}")
    return done


def _options(options: argparse.Namespace) -> Options:
    pairs = [pair.partition("=") for pair in options.conf]
    for key, sign, _ in pairs:
        if not sign:
            message = f"--conf takes KEY=VALUE, got {key!r}"
            raise AnabranchError(message)
    conf = {key: value for key, _, value in pairs}
    return Options(
        _trigger(options.trigger), options.checkpoint, options.parallelism, options.master, conf
    )


def _trigger(given: str | None) -> Trigger | None:
    if given is None:
        return None
    return available_now() if given == "now" else epochs(given)


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
