"""What `--help` says, word for word; `--version`; and that secrets are not said."""

import importlib
import json
import shlex
import subprocess
import sys

import pytest

import anabranch as ab
from anabranch.cli import main
from anabranch.cli.command import _COMMANDS, parser
from anabranch.cli.secrets import Secrets


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize("command", ["", *_COMMANDS])
def test_help_is_what_it_was(command, golden, capsys):
    with pytest.raises(SystemExit) as left:
        main([*filter(None, [command]), "--help"])

    said = capsys.readouterr()
    assert (0, "") == (left.value.code, said.err)
    golden(f"help_{command or 'anabranch'}.txt", said.out)


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_example_is_a_call_that_is_taken(command):
    calls = [call for call, _ in importlib.import_module(f"anabranch.cli.{command}").EXAMPLES]

    assert calls
    for call in calls:
        words = shlex.split(call.partition(" > ")[0])
        assert command == words[0]
        parser(words).parse_args(words)


def test_what_a_command_needs_is_loaded_for_it_alone():
    code = "import sys; from anabranch.cli import main\n"
    code += "try: main(['--version'])\nexcept SystemExit: pass\n"
    code += "sys.exit('polars' in sys.modules)"

    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])

    assert (0, f"anabranch {ab.__version__}\n") == (left.value.code, capsys.readouterr().out)


@pytest.mark.parametrize(
    "given",
    [
        ["--conf", "=hunter2"],
        ["--conf", "spark.ssl.keyPassword:hunter2"],
        ["--config", "spark.ssl.keyPassword=hunter2"],
        ["--conf", "spark.ssl.keyPassword=hunter2", "--parallelism", "0"],
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_wrong_call_tells_no_secret(given, form, capsys):
    with pytest.raises(SystemExit):
        main(["run", "p.py", *form, *given])

    said = capsys.readouterr()
    assert "hunter2" not in said.out + said.err
    assert "error" in said.err


FAILS = """
import sys
raise {error}("cannot log in with hunter2, spark.hadoop.fs.s3a.secret.key=hunter2")
"""


@pytest.mark.parametrize("error", ["KeyError", "SystemExit"])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_an_error_that_holds_a_secret_is_told_without_it(error, form, tmp_path, capsys):
    file = tmp_path / "p.py"
    file.write_text(FAILS.format(error=error))

    given = ["--conf", "spark.hadoop.fs.s3a.secret.key=hunter2"]
    assert 1 == main(["run", str(file), *form, *given])

    said = capsys.readouterr()
    assert "hunter2" not in said.out + said.err
    assert f"could not be imported: {error}" in said.out + said.err
    if form:
        assert str(file) == json.loads(said.out)["error"]["file"]


def test_what_is_no_secret_is_told():
    secrets = Secrets.of([("spark.app.name", "hunter2"), ("spark.token", "ab")])

    assert "hunter2 at app=x: ab" == secrets.hidden("hunter2 at app=x: ab")
