"""What `--help` says, word for word; `--version`; and that secrets are not said."""

import json

import pytest

import anabranch as ab
from anabranch.cli import main
from anabranch.cli.command import _COMMANDS
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
def test_every_command_has_an_example_that_it_takes(command):
    assert _COMMANDS[command].examples
    assert all(call.split()[0] == command for call, _ in _COMMANDS[command].examples)


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
