"""`anabranch completion`: the scripts, and what a real bash makes of its own."""

import json
import shutil
import subprocess

import pytest

from anabranch.cli import main
from anabranch.cli.command import _COMMANDS, parser
from anabranch.cli.completion import script, verbs_of

ASKED = """
source "$1"
cd "$2"
shift 2
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_anabranch
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def completed(tmp_path):
    """What bash offers for the last of some words."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    file, home = tmp_path / "script", tmp_path / "home"
    file.write_text(script(parser(), "bash"))
    home.mkdir()
    for name in ("views.py", "my views.py", "notes.txt"):
        (home / name).touch()
    (home / "ckpt").mkdir()

    def ask(*words):
        done = subprocess.run(
            [bash, "--norc", "-c", ASKED, "bash", file, home, "anabranch", *words],
            capture_output=True,
            text=True,
            check=True,
        )
        assert "" == done.stderr
        return sorted(done.stdout.split("\n")[:-1]) if done.stdout != "\n" else []

    return ask


def test_bash_completes_commands(completed):
    assert sorted(_COMMANDS) == completed("")
    assert ["demo", "doctor"] == completed("d")
    assert ["--version"] == completed("--v")


def test_bash_completes_every_option_of_every_command(completed):
    _, verbs = verbs_of(parser())
    for verb in verbs:
        names = sorted(name for each in verb.options for name in each.names)
        assert names == completed(verb.name, "-")


def test_bash_completes_values(completed):
    assert ["json", "mermaid", "text"] == completed("explain", "--format", "")
    assert ["mermaid"] == completed("explain", "--format", "=", "m")
    assert ["json", "mermaid", "text"] == completed("explain", "--format", "=")
    assert ["bash", "fish", "zsh"] == completed("completion", "")
    assert [] == completed("run", "views.py", "--parallelism", "")


def test_bash_completes_files_of_the_right_kind(completed):
    assert ["ckpt", "my views.py", "views.py"] == completed("run", "")
    assert ["ckpt"] == completed("state", "")
    assert ["ckpt"] == completed("run", "views.py", "--checkpoint", "")
    assert ["ckpt", "my views.py", "notes.txt", "views.py"] == completed("run", "--progress", "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_for_other_shells_are_what_they_were(shell, golden, capsys):
    assert 0 == main(["completion", shell])

    golden(f"completion.{shell}", capsys.readouterr().out)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_that_is_there_can_read_its_script(shell, tmp_path):
    if (found := shutil.which(shell)) is None:
        pytest.skip(f"there is no {shell}")
    file = tmp_path / "script"
    file.write_text(script(parser(), shell))

    subprocess.run([found, "-n", file], check=True)


def test_a_script_is_an_object_too(capsys):
    assert 0 == main(["completion", "bash", "--json"])

    found = json.loads(capsys.readouterr().out)
    assert (True, "bash") == (found["ok"], found["shell"])
    assert script(parser(), "bash") == found["script"]


def test_an_unknown_shell_is_a_wrong_call():
    with pytest.raises(SystemExit) as left:
        main(["completion", "tcsh"])
    assert 2 == left.value.code
