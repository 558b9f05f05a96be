"""`anabranch run FILE[:program] ...`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from contextlib import suppress
from typing import Any

from anabranch import config
from anabranch.api.program import Program
from anabranch.cli.checkpoints import place
from anabranch.cli.failure import told
from anabranch.cli.interrupts import Asked
from anabranch.cli.on_spark import Ended, Options, run_on_spark
from anabranch.cli.programs import load
from anabranch.cli.sequentially import NOTICE, run_to_sinks
from anabranch.compiler.compile import plan_of
from anabranch.epoch.triggers import Trigger, available_now, epochs
from anabranch.errors import AnabranchError, ProgramError
from anabranch.program.durations import parse_duration
from anabranch.scheduling.query_policies import QUERY_POLICIES, SPARKS
from anabranch.spark.private import active_context

NOWHERE = """\
OpenTelemetry has no provider of meters or tracers: what it is told goes nowhere
  so    set one in the file, or run opentelemetry-instrument anabranch run ...: docs/watching.md"""
EXAMPLES = (
    ("run views.py", "until Ctrl-C: once ends it in order, twice at once"),
    ("run views.py --checkpoint ckpt", "go on where the last run ended"),
    ("run views.py --trigger now --checkpoint ckpt", "all that is there now, then end"),
    ("run shop.py:views shop.py:orders --checkpoint ckpt", "two programs side by side"),
    ("run views.py orders.py --goal 2s --policy klink", "a session, by goals"),
    ("run views.py --master spark://host:7077 --conf spark.executor.memory=4g", "on a cluster"),
)

_ENDED = {Asked.GO_ON: "done", Asked.DRAIN: "drained", Asked.STOP: "stopped"}


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
        type=_trigger,
        metavar="WHEN",
        help='"now": all that is there, then end; or an epoch every so often, such as "500 ms"'
        ' (default: "1 s")',
    )
    command.add_argument(
        "--max-rows",
        type=_count,
        metavar="N",
        help="rows of a partition in an epoch, at most (default: what a cycle can take)",
    )
    command.add_argument(
        "--checkpoint",
        type=place,
        metavar="DIR",
        help="go on from here, and leave off here; of several programs, a directory in it for each "
        "(default: one that is removed at the end)",
    )
    command.add_argument(
        "--parallelism", type=_count, metavar="N", help="lanes (default: as many as cores)"
    )
    command.add_argument(
        "--goal",
        type=_goal,
        metavar="TIME",
        help='how long what a window gives may take from its end, such as "2 s": misses are '
        "counted, and of several programs the one goes first that would miss it (default: none)",
    )
    command.add_argument(
        "--policy",
        choices=(*QUERY_POLICIES, *SPARKS),
        default="klink",
        metavar="NAME",
        help=f"whose turn it is, of several programs: {', '.join((*QUERY_POLICIES, *SPARKS))} "
        "(default: klink, by how soon the next window has to fire)",
    )
    command.add_argument(
        "--memory-limit",
        type=_size,
        metavar="SIZE",
        help="of rows that several programs have read and not committed, such as 2GB: above it "
        "what frees most goes first (default: none)",
    )
    command.add_argument("--master", metavar="URL", help="Spark's master (default: local[*])")
    command.add_argument(
        "--conf",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark's, such as spark.driver.memory=4g; may be given several times",
    )
    command.add_argument(
        "--metrics-port",
        type=_port,
        metavar="PORT",
        help="show figures for Prometheus at http://127.0.0.1:PORT/metrics (default: nowhere)",
    )
    command.add_argument(
        "--progress",
        metavar="FILE",
        help="append a line of JSON for every commit (default: nowhere)",
    )
    command.add_argument(
        "--otel",
        action="store_true",
        help="give figures and spans to OpenTelemetry, as the file or opentelemetry-instrument "
        "has set it up",
    )
    command.add_argument(
        "--sequential", action="store_true", help="run it by the oracle, in this process"
    )
    command.set_defaults(call=run)


def run(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Run programs: on Spark, or by the oracle where the runtime refuses one of them."""
    before = _running()
    programs = [load(target) for target in options.program]
    for program in programs:
        if not program.freeze().sinks:
            message = f"program {program.name!r} writes nothing"
            raise AnabranchError(message, so="end a stream with .write(sink)")
    if options.sequential or not all(_on_spark(program) for program in programs):
        return 0, {"runtime": "oracle", "programs": _sequentially(programs, options)}
    if _running() is not before:
        _refuse_two_sparks(options)
    with config.saying(_said(options)):
        _tell_if_nobody_is_told()
        ended = run_on_spark(programs, _options(options))
    if not options.json:
        _tell(ended, options)
    done = [dataclasses.asdict(ran) for ran in ended.queries]
    facts: dict[str, Any] = {"runtime": "spark", "ended": _ENDED[ended.asked], "programs": done}
    if ended.code:
        facts["error"] = told("Interrupted", "stopped at once, as it was asked to")
    return ended.code, facts


def _tell(ended: Ended, options: argparse.Namespace) -> None:
    for ran in ended.queries:
        rows, each = _some(ran.rows, "row"), _some(ran.epochs, "epoch")
        aside = [(ran.late, "late"), (ran.failed, "failed")]
        more = ", ".join(f"{count:,} {how}" for count, how in aside if count)
        print(f"{ran.program}: {rows} in {each}, {ran.seconds:.2f} s{more and '; '}{more}")
    if ended.asked and options.checkpoint is not None:
        print(f"it goes on from here with --checkpoint {options.checkpoint}", file=sys.stderr)


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


def _running() -> Any:
    """The SparkContext of this process; without PySpark there is none, and it is slow to import."""
    return active_context() if "pyspark" in sys.modules else None


def _refuse_two_sparks(options: argparse.Namespace) -> None:
    """A file that makes a DataFrame has started a Spark, and a process has one."""
    asked = [f"--{name}" for name in ("master", "conf") if getattr(options, name)]
    if asked:
        wanted = " and ".join(asked)
        message = f"{wanted} cannot be had: the file has started a Spark of its own"
        so = f"leave {wanted} out, or set it where the file makes its SparkSession"
        raise AnabranchError(message, have=f"master {_running().master}", so=so)


def _options(options: argparse.Namespace) -> Options:
    master = options.master or "local[*]"
    conf, trigger = dict(options.conf), options.trigger
    if options.max_rows is not None:
        trigger = dataclasses.replace(trigger or epochs(), max_rows=options.max_rows)
    return Options(
        trigger,
        options.checkpoint,
        options.parallelism,
        master,
        conf,
        options.policy,
        options.memory_limit,
        options.goal,
    )


def _said(options: argparse.Namespace) -> dict[str, str]:
    """What is said here in place of the environment."""
    said = {
        "ANABRANCH_METRICS_PORT": options.metrics_port,
        "ANABRANCH_PROGRESS": options.progress,
        "ANABRANCH_OTEL": 1 if options.otel else None,
    }
    return {name: str(value) for name, value in said.items() if value is not None}


def _tell_if_nobody_is_told() -> None:
    """Say so where figures for OpenTelemetry go nowhere: nothing else would."""
    if not config.outlets().telemetry:
        return
    with suppress(ImportError):  # which each query tells itself
        from anabranch.observe.telemetry import unset

        if unset():
            print(NOWHERE, file=sys.stderr)


def _trigger(given: str) -> Trigger:
    try:
        return available_now() if given == "now" else epochs(given)
    except ProgramError as error:
        message = f'"now", or a duration such as "1 s" or "500 ms"; got {given!r}'
        raise argparse.ArgumentTypeError(message) from error


def _goal(given: str) -> str:
    try:
        parse_duration(given, "goal")
    except ProgramError as error:
        message = f'a duration such as "2 s" or "500 ms"; got {given!r}'
        raise argparse.ArgumentTypeError(message) from error
    return given


def _size(given: str) -> int:
    if (found := config.size_of(given)) is None:
        message = f"a size such as 512MB or 2GB, got {given!r}"
        raise argparse.ArgumentTypeError(message)
    return found


def _count(given: str) -> int:
    if not given.isdecimal() or int(given) < 1:
        message = f"a whole number from 1, got {given!r}"
        raise argparse.ArgumentTypeError(message)
    return int(given)


def _port(given: str) -> int:
    if not given.isdecimal() or not 0 < int(given) < 65_536:
        message = f"a port from 1 to 65535, got {given!r}"
        raise argparse.ArgumentTypeError(message)
    return int(given)


def _setting(given: str) -> tuple[str, str]:
    key, sign, value = given.partition("=")
    if not sign or not key.strip():
        # Without what follows the name: it may be a secret.
        message = f"KEY=VALUE, such as spark.driver.memory=4g; got {key.split(':')[0].strip()!r}"
        raise argparse.ArgumentTypeError(message)
    return key.strip(), value


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
