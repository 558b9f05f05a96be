"""`anabranch COMMAND`: results on standard output, everything else on standard error."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext, redirect_stdout
from typing import Any, NoReturn, TypeAlias

from anabranch import __version__
from anabranch.cli import bench, demo, doctor, explain, run, state, top, why
from anabranch.errors import AnabranchError

Result: TypeAlias = tuple[int, dict[str, Any]]

FAILED, MISUSED, INTERRUPTED = 1, 2, 130

_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "demo": ("see a program run, from a generator to windowed results", demo.arguments),
    "run": ("run the program of a file", run.arguments),
    "explain": ("say what a program is made of, what runs in parallel, and why", explain.arguments),
    "bench": ("run a benchmark of the repository", bench.arguments),
    "doctor": ("see whether this machine has all that is needed", doctor.arguments),
    "state": ("say what a checkpoint holds", state.arguments),
    "why": ("say what the query of a checkpoint waits for", why.arguments),
    "top": ("watch queries as they go, by their checkpoints", top.arguments),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0: done, 1: it failed, 2: it was called wrongly."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser(as_json="--json" in given).parse_args(given)
    try:
        # A user's file may print while it is imported or run; with --json that is everything else.
        with redirect_stdout(sys.stderr) if options.json else nullcontext():
            code, facts = options.call(options)
    except AnabranchError as error:
        return _failed(error, options.json)
    except KeyboardInterrupt:
        print("stopped before the end; run it again to have all of it", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        # Not foreseen: people want the traceback, programs one object on standard output.
        if not options.json:
            raise
        return _failed(AnabranchError(f"{type(error).__name__}: {error}"), as_json=True)
    if options.json:
        print(json.dumps({"ok": code == 0, **facts}, default=str, ensure_ascii=False))
    return int(code)


class Parser(argparse.ArgumentParser):
    """With `--json` a wrong call is told as an object on standard output too."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        """Tell what is wrong and end with 2."""
        if self.as_json:
            error = {"type": "UsageError", "message": message, "file": None, "line": None}
            print(json.dumps({"ok": False, "error": error}, ensure_ascii=False))
        super().error(message)


def parser(*, as_json: bool = False) -> Parser:
    """All commands with their options."""
    top = Parser(
        prog="anabranch",
        description="Stream programs in Python, run in parallel on Spark.",
        epilog="anabranch COMMAND --help tells more of a command.",
    )
    top.as_json = as_json
    top.add_argument("--version", action="version", version=f"anabranch {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (text, arguments) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        command.as_json = as_json
        command.add_argument(
            "--json", action="store_true", help="one JSON object on standard output"
        )
        arguments(command)
    return top


def _failed(error: AnabranchError, as_json: bool) -> int:  # noqa: FBT001 - the user's flag
    if as_json:
        facts = {"type": type(error).__name__, "message": str(error)}
        where = {"file": error.file, "line": error.line}
        print(json.dumps({"ok": False, "error": {**facts, **where}}, ensure_ascii=False))
    else:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    return FAILED
