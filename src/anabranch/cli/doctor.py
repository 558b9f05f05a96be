"""`anabranch doctor`: what this machine has, what is wrong with it, and what to do."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anabranch.cli.checks import Finding, Grade, Machine, examine
from anabranch.cli.failure import told as failure
from anabranch.cli.leftovers import Leftover, Places, leftovers
from anabranch.clock import SystemClock
from anabranch.config import cache_directory, environment
from anabranch.runtime.exchange import SHARED_MEMORY

EXAMPLES = (
    ("doctor", "look at this machine; 1 if something is missing"),
    ("doctor --fix", "and clear away what dead processes of ours left"),
    ("doctor --spark", "start Spark too, and check all that is relied on"),
)


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument(
        "--fix",
        action="store_true",
        help="remove what dead processes of ours left, and archives of classes that are stale; "
        "what belongs to somebody is left alone",
    )
    command.add_argument(
        "--spark", action="store_true", help="start Spark too, and check all that is relied on"
    )
    command.add_argument(
        "--master", default="local[2]", metavar="URL", help="Spark's master (default: local[2])"
    )
    command.set_defaults(call=doctor)


def doctor(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Look at everything, mend what is ours if asked to, and say what is missing."""
    places = Places(Path(tempfile.gettempdir()), SHARED_MEMORY, cache_directory())
    machine = Machine(environment(), places, SystemClock())
    mended = [each for each in _found(options, machine) if each.remove()]
    findings = list(examine(machine))
    if options.spark and all(each.good for each in findings):
        findings += _conformance(options.master)
    if not options.json:
        print("\n".join(_lines(findings, mended)))
    facts = {
        "findings": [{**asdict(each), "good": each.good} for each in findings],
        "mended": [{"path": str(each.path), "why": each.why} for each in mended],
    }
    bad = [each.what for each in findings if not each.good]
    if bad:
        message = f"this machine lacks what is needed: {', '.join(bad)}"
        return 1, {**facts, "error": failure("AnabranchError", message)}
    return 0, facts


def _found(options: argparse.Namespace, machine: Machine) -> list[Leftover]:
    return leftovers(machine.places, machine.clock) if options.fix else []


def _lines(findings: Sequence[Finding], mended: Sequence[Leftover]) -> list[str]:
    lines = [f"removed {each.path}: {each.why}" for each in mended]
    for each in findings:
        lines.append(f"{each.grade:<4} {each.what:<17} {each.text}")
        if each.so and each.grade is not Grade.OK:
            lines.append(f"     {'':<17} so {each.so}")
    count = Counter(each.grade for each in findings)
    return [*lines, ", ".join(f"{count[grade]} {grade}" for grade in Grade)]


def _conformance(master: str) -> list[Finding]:
    """What a Spark upgrade could break without a word, checked on a real one."""
    from anabranch.spark.conformance import run_checks
    from anabranch.spark.session import spark_context

    attached = spark_context(master=master, app_name="anabranch doctor")
    try:
        checks = run_checks(attached.sc)
    finally:
        attached.stop()
    so = "use the PySpark that this version was made for"
    return [
        Finding(each.name, Grade.OK, each.text)
        if each.good
        else Finding(each.name, Grade.FAIL, each.text, so)
        for each in checks
    ]
