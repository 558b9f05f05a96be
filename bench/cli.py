"""The command line: `python -m bench NAME [CASE ...] [--json] [--quick] [--runs N] [--save] ...`.

Standard output carries the result alone, as JSON or as a table; all else is on standard error.
Exit 1: the benchmark failed, 2: it was called wrongly.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from typing import TYPE_CHECKING

from rich.console import Console

from bench.harness import registry, results
from bench.harness.machine import header
from bench.harness.report import Report
from bench.harness.stand import Settings, Stand
from bench.harness.table import text
from bench.harness.watch import Bar
from bench.peers.environment import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RUNS, QUICK_RUNS = 5, 3
QUICK_PEER_RUNS = 1
"""A run beside a peer starts processes, each with a JVM of its own."""
MINUTES = 10.0
"""What takes as long as it is told writes no results files if it is told less."""


def main(arguments: Sequence[str], folder: Path = results.FOLDER) -> int:
    """Run one benchmark, or say which there are; returns the exit code."""
    parser = _parser()
    chosen = parser.parse_intermixed_args(arguments)
    if chosen.list or (chosen.name is None and not chosen.json):
        print(_listing())
        return 0
    if chosen.name is None:
        parser.error("--json needs the NAME of a benchmark")
    try:
        bench = registry.find(chosen.name)
    except registry.UnknownBenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if (refused := _refused(bench, chosen)) is not None:
        print(f"bench: {refused}", file=sys.stderr)
        return 2
    try:
        report = _measured(bench, _settings(chosen))
    except UnavailableError as error:
        print(f"bench: nothing was measured: {error}", file=sys.stderr)
        return 1
    except Exception:  # noqa: BLE001 - whatever a benchmark raises, it has failed
        traceback.print_exc()
        return 1
    _show(report, as_json=chosen.json)
    if chosen.save or not (chosen.quick or chosen.cases or _shortened(chosen)):
        for file in results.save(report, folder, _stem(report.bench, chosen)):
            print(f"bench: wrote {file.name}", file=sys.stderr)
    return 0


def _stem(bench: str, chosen: argparse.Namespace) -> str:
    """What results files are called: some cases' do not take the place of all cases'.

    >>> _stem("elastic", argparse.Namespace(peer=None, cases=["rescale-*", "memory-2"]))
    'elastic-rescale-memory-2'
    >>> _stem("ysb", argparse.Namespace(peer="spark", cases=[]))
    'ysb-spark'
    >>> _stem("ysb", argparse.Namespace(peer="spark,flink", cases=[]))
    'ysb-spark-flink'
    """
    peers = (chosen.peer or "").split(",")
    parts = (bench, *peers, *(case.strip("*-") for case in chosen.cases))
    return "-".join(part for part in parts if part)


def _refused(bench: registry.Bench, chosen: argparse.Namespace) -> str | None:
    """What a benchmark cannot do that was asked of it, if there is something."""
    for peer in [] if chosen.peer is None else chosen.peer.split(","):
        if peer not in bench.peers:
            return f"no peer {peer!r}; {bench.name} has {', '.join(bench.peers) or 'none'}"
    if chosen.minutes is not None and not bench.timed:
        return f"{bench.name} takes as long as it takes: no --minutes"
    for case in chosen.cases:
        if not bench.has(case):
            known = ", ".join(bench.choices) or "none to choose"
            return f"no case {case!r}; {bench.name} has {known}"
    return None


def _settings(chosen: argparse.Namespace) -> Settings:
    quick = QUICK_RUNS if chosen.peer is None else QUICK_PEER_RUNS
    default = quick if chosen.quick else RUNS
    return Settings(
        runs=chosen.runs or default,
        quick=chosen.quick,
        peer=chosen.peer,
        minutes=chosen.minutes,
        cases=tuple(chosen.cases),
    )


def _shortened(chosen: argparse.Namespace) -> bool:
    return chosen.minutes is not None and chosen.minutes < MINUTES


def _measured(bench: registry.Bench, settings: Settings) -> Report:
    machine = header()
    with Bar(Console(stderr=True)) as bar:
        stand = Stand(settings, progress=bar)
        rows = bench.measure(stand)
    notes = (*stand.notes,) if settings.peer else (*bench.notes, *stand.notes)
    return Report(bench.name, machine, tuple(rows), notes, tuple(stand.series))


def _show(report: Report, *, as_json: bool) -> None:
    print(text(report), end="", file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(results.as_json_text(report), end="")


def _listing() -> str:
    return "\n".join(f"{name:<12} {about}" for name, about in registry.descriptions().items())


def _runs(given: str) -> int:
    runs = int(given)
    if runs < 1:
        message = f"at least 1, got {runs}"
        raise argparse.ArgumentTypeError(message)
    return runs


def _minutes(given: str) -> float:
    minutes = float(given)
    if not 0 < minutes < float("inf"):
        message = f"more than 0, got {given}"
        raise argparse.ArgumentTypeError(message)
    return minutes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench",
        description="Run a benchmark; without a NAME, say which there are.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"benchmarks:\n{_listing()}",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="which benchmark")
    parser.add_argument(
        "cases",
        nargs="*",
        metavar="CASE",
        help="these alone, in files of their own if --save: elastic's",
    )
    parser.add_argument("--json", action="store_true", help="JSON on standard output")
    parser.add_argument(
        "--quick", action="store_true", help="smaller inputs, 3 runs, and no results file"
    )
    parser.add_argument(
        "--peer",
        metavar="P[,P]",
        help="measure beside other systems: ysb has spark, flink and bytewax",
    )
    parser.add_argument("--runs", type=_runs, metavar="N", help="runs of each system (5)")
    parser.add_argument(
        "--minutes",
        type=_minutes,
        metavar="N",
        help="how long the soak takes (10); no results file if less",
    )
    parser.add_argument(
        "--save", action="store_true", help="write results files also of --quick, or of some cases"
    )
    parser.add_argument("--list", action="store_true", help="say which benchmarks there are")
    return parser
