"""`anabranch completion SHELL`: a script by which a shell completes commands, options and values.

It is made of the command line's own parser, so it knows what that knows. What an option takes is
told by its placeholder: a directory for DIR, a file for FILE.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

EXAMPLES = (
    ("completion bash > ~/.local/share/bash-completion/completions/anabranch", "for bash"),
    ("completion zsh > ~/.zfunc/_anabranch", "for zsh, where fpath has ~/.zfunc"),
    ("completion fish > ~/.config/fish/completions/anabranch.fish", "for fish"),
)


class Takes(Enum):
    """What an option or a command takes, beside words of a list."""

    NOTHING = "nothing"
    ANYTHING = "anything"
    DIRECTORY = "directory"
    FILE = "file"
    PROGRAM = "program"


_BY_PLACEHOLDER = {"DIR": Takes.DIRECTORY, "FILE": Takes.FILE, "FILE[:program]": Takes.PROGRAM}


@dataclass(frozen=True, slots=True)
class Argument:
    """An option, or what a command takes without one."""

    names: tuple[str, ...]
    """None: it is no option."""
    text: str
    takes: Takes
    choices: tuple[str, ...] = ()
    many: bool = False


@dataclass(frozen=True, slots=True)
class Verb:
    """A command with its arguments."""

    name: str
    text: str
    arguments: tuple[Argument, ...]

    @property
    def options(self) -> tuple[Argument, ...]:
        """Those that have names."""
        return tuple(each for each in self.arguments if each.names)

    @property
    def operands(self) -> tuple[Argument, ...]:
        """Those that have none."""
        return tuple(each for each in self.arguments if not each.names)


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument(
        "shell", choices=tuple(_SCRIPTS), metavar="SHELL", help=", ".join(_SCRIPTS)
    )
    command.set_defaults(call=completion)


def completion(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Print the script for a shell."""
    from anabranch.cli.command import parser

    text = script(parser(), options.shell)
    if not options.json:
        print(text, end="")
    return 0, {"shell": options.shell, "script": text}


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell."""
    top, verbs = verbs_of(parser)
    return _SCRIPTS[shell](top, verbs)


def verbs_of(parser: argparse.ArgumentParser) -> tuple[Verb, list[Verb]]:
    """What stands before a command, and the commands."""
    # argparse has no other way to what it was told.
    actions = parser._actions  # noqa: SLF001
    nested = next(each for each in actions if isinstance(each, argparse._SubParsersAction))  # noqa: SLF001
    texts = {each.dest: each.help or "" for each in nested._choices_actions}  # noqa: SLF001
    top = Verb("", "", tuple(_argument(each) for each in actions if each is not nested))
    return top, [
        Verb(name, texts[name], tuple(_argument(each) for each in verb._actions))  # noqa: SLF001
        for name, verb in nested.choices.items()
    ]


def _argument(action: argparse.Action) -> Argument:
    choices = tuple(str(each) for each in action.choices or ())
    placeholder = action.metavar if isinstance(action.metavar, str) else ""
    takes = _BY_PLACEHOLDER.get(placeholder, Takes.ANYTHING)
    if action.nargs == 0:
        takes = Takes.NOTHING
    return Argument(
        tuple(action.option_strings), action.help or "", takes, choices, action.nargs in ("+", "*")
    )


# bash

_BASH = """\
# What bash completes after `anabranch`; made by `anabranch completion bash`.
_anabranch() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} verb= word
    # "--option=value" is three words here.
    if [[ $cur == "=" ]]; then
        cur=
    elif [[ $prev == "=" ]]; then
        prev=${{COMP_WORDS[COMP_CWORD-2]}}
    fi
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case $word in
            {names}) verb=$word; break ;;
        esac
    done
    COMPREPLY=()
    case "$verb $prev" in
{values}
    esac
    case "$verb:$cur" in
{options}
{operands}
    esac
}}
_anabranch_words() {{
    local found
    while IFS= read -r found; do COMPREPLY+=("$found"); done < <(compgen -W "$1" -- "$cur")
}}
_anabranch_paths() {{
    local found
    compopt -o filenames 2>/dev/null
    while IFS= read -r found; do COMPREPLY+=("$found"); done < <(compgen "$@" -- "$cur")
}}
complete -F _anabranch anabranch
"""


def _bash(top: Verb, verbs: Sequence[Verb]) -> str:
    every = [top, *verbs]
    return _BASH.format(
        names="|".join(verb.name for verb in verbs),
        values="\n".join(_bash_values(every)),
        options="\n".join(
            f'        {verb.name}:-*) _anabranch_words "{" ".join(_names(verb))}" ;;'
            for verb in every
        ),
        operands="\n".join(_bash_operands(verbs)),
    )


def _names(verb: Verb) -> list[str]:
    return [name for each in verb.options for name in each.names]


def _bash_values(verbs: Sequence[Verb]) -> Iterator[str]:
    """What is completed behind an option."""
    for verb in verbs:
        for each in verb.options:
            if each.takes is not Takes.NOTHING:
                # "--" and what it is: an option of one verb may mean another thing in the next.
                patterns = "|".join(f'"{verb.name} {name}"' for name in each.names)
                yield f"        {patterns}) {_bash_what(each)}; return ;;"


def _bash_operands(verbs: Sequence[Verb]) -> Iterator[str]:
    yield f'        :*) _anabranch_words "{" ".join(verb.name for verb in verbs)}" ;;'
    for verb in verbs:
        if verb.operands:
            what = "; ".join(_bash_what(each) for each in verb.operands)
            yield f"        {verb.name}:*) {what} ;;"


def _bash_what(each: Argument) -> str:
    if each.choices:
        return f'_anabranch_words "{" ".join(each.choices)}"'
    match each.takes:
        case Takes.DIRECTORY:
            return "_anabranch_paths -d"
        case Takes.FILE:
            return "_anabranch_paths -f"
        case Takes.PROGRAM:
            return "_anabranch_paths -f -X '!*.py'; _anabranch_paths -d"
    return ":"


# zsh

_ZSH = """\
#compdef anabranch
# What zsh completes after `anabranch`; made by `anabranch completion zsh`.
_anabranch() {{
    local -a commands
    local context state state_descr line
    typeset -A opt_args
    commands=(
{commands}
    )
    _arguments -C {top} '1:command:->command' '*::argument:->argument'
    case $state in
        command) _describe -t commands command commands ;;
        argument)
            case $words[1] in
{verbs}
            esac ;;
    esac
}}
# Found by its name it is asked at once; read from a file it waits until it is.
if [[ $funcstack[1] == _anabranch ]]; then
    _anabranch "$@"
else
    compdef _anabranch anabranch
fi
"""


def _zsh(top: Verb, verbs: Sequence[Verb]) -> str:
    commands = "\n".join(f"        {_quoted(f'{each.name}:{each.text}')}" for each in verbs)
    lines = "\n".join(
        f"                {each.name}) _arguments {_zsh_arguments(each)} ;;" for each in verbs
    )
    return _ZSH.format(commands=commands, top=_zsh_arguments(top), verbs=lines)


def _zsh_arguments(verb: Verb) -> str:
    return " ".join(_quoted(form) for each in verb.arguments for form in _zsh_forms(each))


def _zsh_forms(each: Argument) -> Iterator[str]:
    text = "".join(f"\\{letter}" if letter in "[]:" else letter for letter in each.text)
    what = _zsh_what(each)
    if not each.names:
        yield f"{'*' if each.many else ''}:{text}:{what}"
    for name in each.names:
        # An option may be given several times: at worst the last counts.
        yield f"*{name}[{text}]" + ("" if each.takes is Takes.NOTHING else f":value:{what}")


def _zsh_what(each: Argument) -> str:
    if each.choices:
        return f"({' '.join(each.choices)})"
    of = {
        Takes.DIRECTORY: "_files -/",
        Takes.FILE: "_files",
        Takes.PROGRAM: '_files -g "*.py"',
    }
    return of.get(each.takes, " ")


# fish

_FISH = "# What fish completes after `anabranch`; made by `anabranch completion fish`.\n"


def _fish(top: Verb, verbs: Sequence[Verb]) -> str:
    lines = [
        f"complete -c anabranch -n __fish_use_subcommand {_fish_of(each)}" for each in top.options
    ]
    for verb in verbs:
        text = f"-a {verb.name} -d {_quoted(verb.text)}"
        lines.append(f"complete -c anabranch -n __fish_use_subcommand -f {text}")
        where = _quoted(f"__fish_seen_subcommand_from {verb.name}")
        lines += [f"complete -c anabranch -n {where} {_fish_of(each)}" for each in verb.arguments]
    return _FISH + "\n".join(lines) + "\n"


def _fish_of(each: Argument) -> str:
    parts = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in each.names]
    if each.names and each.takes is not Takes.NOTHING:
        parts.append("-r")
    parts.append(_fish_what(each))
    return " ".join([*filter(None, parts), f"-d {_quoted(each.text)}"])


def _fish_what(each: Argument) -> str:
    if each.choices:
        return f"-f -a {_quoted(' '.join(each.choices))}"
    match each.takes:
        case Takes.DIRECTORY:
            return "-f -a '(__fish_complete_directories)'"
        case Takes.PROGRAM:
            return "-f -a '(__fish_complete_suffix .py)'"
        case Takes.FILE:
            return "-F"
    return "-f"


def _quoted(text: str) -> str:
    """A text as one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


_SCRIPTS: Mapping[str, Callable[[Verb, Sequence[Verb]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
