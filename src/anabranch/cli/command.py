"""`anabranch COMMAND`: results on standard output, everything else on standard error."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from types import ModuleType
from typing import Any, NoReturn, TypeAlias

from anabranch import __version__
from anabranch.cli import failure
from anabranch.cli.secrets import Secrets, without_settings
from anabranch.errors import AnabranchError, nearest

Result: TypeAlias = tuple[int, dict[str, Any]]

FAILED, MISUSED, INTERRUPTED = 1, 2, 130


_COMMANDS = {
    "demo": "see a program run, from a generator to windowed results",
    "run": "run the program of a file",
    "explain": "say what a program is made of, what runs in parallel, and why",
    "bench": "run a benchmark of the repository",
    "doctor": "see whether this machine has all that is needed, and mend what is ours",
    "state": "say what a checkpoint holds; check it, or write its state as Parquet",
    "why": "say what the query of a checkpoint waits for",
    "top": "watch queries as they go, by their checkpoints",
    "completion": "print a script that lets a shell complete commands and options",
}
"""What each is for. Each has a module of its name, with its `arguments` and `EXAMPLES`."""

_EPILOG = """\
anabranch COMMAND --help tells more of a command.

examples:
  anabranch demo                                   see it work
  anabranch run views.py --checkpoint ckpt         run a program; Ctrl-C ends it in order
  anabranch doctor                                 if something does not work
  source <(anabranch completion bash)              complete commands and options with Tab

exit status: 0 done, 1 it failed, 2 it was called wrongly, 130 it was stopped by Ctrl-C
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0: done, 1: it failed, 2: it was called wrongly, 130: Ctrl-C ended it."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser(given, as_json="--json" in given).parse_args(given)
    secrets = Secrets.of(getattr(options, "conf", ()))
    try:
        # A user's file may print while it is imported or run; with --json that is everything else.
        with redirect_stdout(sys.stderr) if options.json else nullcontext():
            code, facts = options.call(options)
    except AnabranchError as error:
        return _failed(error, options, secrets)
    except KeyboardInterrupt:
        return _interrupted(options)
    except BrokenPipeError:
        # Whoever read standard output has seen enough, as `head` has.
        sys.stdout = None
        return FAILED
    except Exception as error:  # noqa: BLE001 - not foreseen: people want all of it, programs an object
        if not options.json:
            print(secrets.hidden(traceback.format_exc()), file=sys.stderr, end="")
        return _failed(AnabranchError(f"{type(error).__name__}: {error}"), options, secrets)
    if options.json:
        _print({"ok": code == 0, **facts}, secrets)
    return int(code)


class Parser(argparse.ArgumentParser):
    """With `--json` a wrong call is told as an object on standard output too."""

    as_json = False
    is_command = False

    def parse_known_args(  # type: ignore[override]  # the form that is called
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuse what a command does not know by the command's own usage, not by that of all."""
        found, unknown = super().parse_known_args(args, namespace)
        if self.is_command and unknown:
            names = [name for name in self._option_string_actions if name.startswith("--")]
            meant = nearest(unknown[0].partition("=")[0], names)
            message = f"unrecognized arguments: {' '.join(unknown)}"
            self.error(f"{message}; {meant}" if meant else message)
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Tell what is wrong and end with 2."""
        message = without_settings(message)
        if self.as_json:
            facts = {"ok": False, "error": failure.told("UsageError", message)}
            print(json.dumps(facts, ensure_ascii=False))
        self.print_usage(sys.stderr)
        self.exit(MISUSED, f"{self.prog}: error: {message}\n{self.prog} --help has examples\n")


def parser(given: Sequence[str] | None = None, *, as_json: bool = False) -> Parser:
    """All commands with their options; of a call that is `given`, those of its command alone.

    What a command needs is loaded with its options, and takes a second for some.
    """
    top = Parser(
        prog="anabranch",
        description="Stream programs in Python, run in parallel on Spark.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.as_json = as_json
    top.add_argument(
        "--version", action="version", version=f"anabranch {__version__}", help="say which it is"
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text in _COMMANDS.items():
        command = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.as_json, command.is_command = as_json, True
        if given is None or name in given:
            _fill(command, importlib.import_module(f"anabranch.cli.{name}"))
    return top


def _fill(command: Parser, module: ModuleType) -> None:
    """Give a command its options."""
    command.add_argument("--json", action="store_true", help="one JSON object on standard output")
    command.epilog = _told(module.EXAMPLES)
    module.arguments(command)


def _told(examples: Sequence[tuple[str, str]]) -> str:
    lines = [f"  anabranch {call}\n      {text}" for call, text in examples]
    return "\n".join(["examples:", *lines])


def _interrupted(options: argparse.Namespace) -> int:
    error = AnabranchError(
        "stopped by Ctrl-C before the end", so="run it again: what is committed is not lost"
    )
    _failed(error, options, Secrets())
    return INTERRUPTED


def _failed(error: AnabranchError, options: argparse.Namespace, secrets: Secrets) -> int:
    if options.json:
        _print({"ok": False, "error": failure.of(error)}, secrets)
    else:
        print(secrets.hidden(f"{type(error).__name__}: {error}"), file=sys.stderr)
    return FAILED


def _print(facts: dict[str, Any], secrets: Secrets) -> None:
    print(json.dumps(_hidden(facts, secrets), default=str, ensure_ascii=False))


def _hidden(value: Any, secrets: Secrets) -> Any:
    """The same without secrets: inside the values, so that it stays JSON."""
    match value:
        case str():
            return secrets.hidden(value)
        case dict():
            return {name: _hidden(each, secrets) for name, each in value.items()}
        case list() | tuple():
            return [_hidden(each, secrets) for each in value]
    return value
