"""`anabranch bench NAME`: the benchmarks of the repository."""

from __future__ import annotations

import argparse
import importlib
import io
import json
from contextlib import redirect_stdout
from typing import Any

from anabranch.errors import AnabranchError

EXAMPLES = (
    ("bench", "say which there are"),
    ("bench ysb --quick", "the Yahoo Streaming Benchmark, with small inputs"),
    ("bench ysb --peer spark --json", "beside Spark's own engine, as JSON"),
)


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command; they are the benchmarks' own."""
    command.add_argument(
        "name", nargs="?", metavar="NAME", help="which one; none: say which there are"
    )
    command.add_argument("--quick", action="store_true", help="smaller inputs and fewer runs")
    command.add_argument("--peer", metavar="P", help="measure beside another system")
    command.add_argument("--runs", metavar="N", help="runs of each system")
    command.add_argument("--minutes", metavar="N", help="how long the soak takes")
    command.add_argument("--save", action="store_true", help="write results files also if --quick")
    command.set_defaults(call=bench)


def bench(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Run a benchmark; its report is the result."""
    try:
        runner = importlib.import_module("bench.cli")
    except ModuleNotFoundError as error:
        message = "the benchmarks are not here"
        why = "they are part of the repository, not of the package"
        so = "in a clone of the repository, run ./x bench NAME"
        raise AnabranchError(message, why=why, so=so) from error
    given = _given(options)
    if not options.json:
        return runner.main(given), {}
    if options.name is None:
        names = importlib.import_module("bench.harness.registry").descriptions()
        return 0, {"benchmarks": names}
    report = io.StringIO()
    with redirect_stdout(report):
        code = runner.main([*given, "--json"])
    if code:
        message = f"the benchmark {options.name!r} failed, or there is none"
        raise AnabranchError(message, so="what it said is on standard error")
    return 0, json.loads(report.getvalue())


def _given(options: argparse.Namespace) -> list[str]:
    given = [] if options.name is None else [options.name]
    given += [f"--{flag}" for flag in ("quick", "save") if getattr(options, flag)]
    for name in ("peer", "runs", "minutes"):
        if (value := getattr(options, name)) is not None:
            given += [f"--{name}", value]
    return given
