import fcntl
import importlib.util
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text()


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


x = load("x")
docs = load("docs")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of its own for tools/x.py, with an installer that counts and installs nothing."""
    (tmp_path / "requirements.lock").write_text("a==1 \\\n    --hash=sha256:00\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1"\n')
    places = {"ROOT": ".", "LOCK": "requirements.lock", "VENV": ".venv", "SIDE": ".x"}
    for name, place in places.items():
        monkeypatch.setattr(x, name, tmp_path / place)
    monkeypatch.setattr(x, "STAMP", tmp_path / ".venv" / "stamp")
    monkeypatch.setattr(
        x, "installers", lambda: iter([x.uv_installer("uv", "a testing installer")])
    )
    fills = []

    def fill(installer, count):
        fills.append(count)
        (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / ".venv" / "bin" / "python").touch()
        (tmp_path / ".venv" / "lib" / "python3" / "site-packages").mkdir(
            parents=True, exist_ok=True
        )

    monkeypatch.setattr(x, "fill_environment", fill)
    return fills


def enter_and_leave() -> None:
    os.close(x.enter_environment())


def run_x(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(ROOT / "x"), *arguments]
    settings = dict(os.environ) | environment
    return subprocess.run(command, env=settings, capture_output=True, text=True, check=False)


# --- help and refusals


def test_help_names_every_command():
    run = run_x("--help")

    assert 0 == run.returncode
    named = re.findall(r"^  (\w+)", run.stdout, re.MULTILINE)
    assert list(x.COMMANDS) == named


@pytest.mark.parametrize("name", x.USAGE)
def test_every_command_explains_itself_without_an_environment(name, project, capsys):
    assert 0 == x.main([name, "--help"])

    assert capsys.readouterr().out.startswith(f"usage: ./x {name}")
    assert [] == project


def test_unknown_command_is_answered_with_those_that_exist():
    with pytest.raises(
        x.Trouble, match=r"^there is no command 'tset': there are demo, test, lint, "
    ):
        x.main(["tset"])


def test_unknown_argument_is_refused_before_anything_is_done(project):
    with pytest.raises(x.Trouble, match=r"^lint knows nothing of --fast: see \./x lint --help$"):
        x.main(["lint", "--fast"])

    assert [] == project


def test_python_that_is_too_old_is_told_in_one_line(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))

    with pytest.raises(x.Trouble, match=r"^Python 3\.11 or newer is needed; this is 3\.10$"):
        x.main(["test"])


def test_shell_part_asks_for_python_in_one_line_where_there_is_none(tmp_path):
    script = tmp_path / "x"
    script.write_text((ROOT / "x").read_text())

    run = subprocess.run(
        ["/bin/sh", str(script), "test"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 1 == run.returncode
    assert 1 == len(run.stderr.splitlines())
    assert run.stderr.startswith("x: Python 3.11 or newer is needed and was not found: install ")


def test_shell_part_passes_over_a_python_that_is_too_old(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "x.py").touch()
    (tmp_path / "x").write_text((ROOT / "x").read_text())
    for name, answer in {
        "python3": "exit 1",
        "python3.12": 'case $2 in -c) ;; *) echo "$0";; esac',
    }.items():
        python = tmp_path / name
        python.write_text(f"#!/bin/sh\n{answer}\n")
        python.chmod(0o755)

    run = subprocess.run(
        ["/bin/sh", str(tmp_path / "x"), "test"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert str(tmp_path / "python3.12") == run.stdout.strip()


# --- the stamp


def test_environment_is_made_once(project):
    enter_and_leave()
    enter_and_leave()

    assert [1] == project


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("requirements.lock", "a==2 \\\n    --hash=sha256:11\n"),
        ("pyproject.toml", '[project]\nversion = "2"\n'),
        (".venv/stamp", None),
        (".venv/bin/python", None),
    ],
)
def test_environment_is_made_anew_after_a_change(project, file, content):
    enter_and_leave()
    if content is None:
        (x.ROOT / file).unlink()
    else:
        (x.ROOT / file).write_text(content)

    enter_and_leave()

    assert [1, 1] == project


def test_stamp_tells_pythons_places_and_locks_apart():
    stamps = {
        x.stamp_of(lock, python, Path(root), version)
        for lock in (b"a", b"b")
        for python in ((3, 11), (3, 12))
        for root in ("here", "there")
        for version in ("1", "2")
    }

    assert 16 == len(stamps)


def test_failed_install_leaves_nothing_that_counts_as_done(project, monkeypatch):
    def fail(installer, count):
        x.VENV.mkdir()
        raise subprocess.CalledProcessError(2, "install")

    monkeypatch.setattr(x, "fill_environment", fail)

    with pytest.raises(x.Trouble, match=r"^could not install the dependencies with a testing inst"):
        x.enter_environment()

    assert not x.is_ready()


def test_bare_python_is_told_what_to_install(project, monkeypatch):
    monkeypatch.setattr(x, "installers", lambda: iter([]))

    with pytest.raises(x.Trouble, match=r"^this Python can make no environment: install pip, "):
        x.enter_environment()


def test_environment_in_use_is_locked_against_remaking(project):
    mine = x.enter_environment()

    with (x.SIDE / "lock").open() as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(mine)


def test_caches_stay_beside_the_environment_without_a_home(project, monkeypatch):
    monkeypatch.setattr(x, "system_certificates", lambda: False)
    monkeypatch.setenv("HOME", str(x.ROOT / "missing"))
    monkeypatch.setenv("PIP_CACHE_DIR", "mine")
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)

    assert {"UV_CACHE_DIR": str(x.SIDE / "cache" / "uv")} == x.installer_settings()


def test_uv_trusts_whom_the_system_trusts(monkeypatch, tmp_path):
    monkeypatch.setattr(x, "system_certificates", lambda: True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("UV_SYSTEM_CERTS", raising=False)

    assert {"UV_SYSTEM_CERTS": "1"} == x.installer_settings()


# --- the lock


def test_every_locked_requirement_has_a_version_and_a_hash():
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    for line, following in pairwise(lines):
        if not line.startswith(" "):
            assert re.match(r"[a-z0-9-]+==\S+ ", line), line
            assert re.match(r" +--hash=sha256:[0-9a-f]{64}", following), line


def test_lock_holds_no_address_and_no_path():
    for line in LOCK.splitlines():
        assert re.fullmatch(
            r"# This file was autogenerated by uv via the following command:|#    \./x lock"
            r"|[a-z0-9-]+==[0-9a-z.]+( ; [a-zA-Z0-9_.*' <>=!()]+)? \\"
            r"|    --hash=sha256:[0-9a-f]{64}( \\)?",
            line,
        ), line


def test_lock_holds_what_the_environment_is_made_with():
    assert {"uv", *x.BUILD_TOOLS} <= set(x.read_lock(LOCK))


# --- the commands


@pytest.mark.parametrize(
    ("arguments", "pytest_arguments"),
    [
        ([], ["-m", "not chaos", "--numprocesses", "3", "--dist", "loadfile"]),
        (
            ["--quick", "--durations=9"],
            [
                *("-m", "not slow and not chaos", "--numprocesses", "3", "--dist", "loadfile"),
                "--durations=9",
            ],
        ),
        (["--quick", "tests/a.py"], ["-m", "not slow and not chaos", "tests/a.py"]),
        (["--chaos"], ["-m", "chaos"]),
        (["-k", "name", "-x"], ["-m", "not chaos", "-k", "name", "-x"]),
    ],
)
def test_tests_are_chosen_by_mark(monkeypatch, arguments, pytest_arguments):
    calls = []
    monkeypatch.setattr(x, "become", lambda *words, folder: calls.append(list(words)))
    monkeypatch.setattr(x.os, "cpu_count", lambda: 3)

    x.COMMANDS["test"](arguments)

    assert [["-m", "pytest", *pytest_arguments]] == calls


def test_lint_runs_every_check_and_fails_if_one_fails(project, monkeypatch, capsys):
    ran = []

    def passes(name, check):
        ran.append(name)
        return name != "mypy"

    monkeypatch.setattr(x, "passes", passes)

    assert 1 == x.main(["lint"])

    assert ["ruff check", "ruff format", "mypy", "import rule"] == ran
    assert capsys.readouterr().err.endswith("x: lint: mypy failed\n")


@pytest.mark.slow
def test_exit_code_is_passed_through():
    assert 7 == run_x("python", "-c", "raise SystemExit(7)").returncode


@pytest.mark.slow
def test_commands_find_the_project_and_nothing_outside(tmp_path):
    (tmp_path / "polars.py").write_text("raise ImportError")
    code = "import anabranch, polars, sys; print(sys.prefix)"

    run = run_x("python", "-c", code, PYTHONPATH=str(tmp_path))

    assert str(ROOT / ".venv") == run.stdout.strip(), run.stderr


# --- the documentation


def test_docs_report_names_the_line_of_each_fault(tmp_path, capsys):
    (tmp_path / "README.md").write_text(
        "# Here\n[ok](docs/a.md#part-one) [web](https://a.b/c) [gone](docs/b.md) `[code](no.md)`\n"
        "[bad](docs/a.md#part-two) [bad](http://a.b) [bad](https:x)\n\n```python\nx = = 1\n```\n```sh\nx = = 1\n```\n"
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("## Part one\n```python\nawait_ = 1\n```\n")

    assert 1 == docs.check(tmp_path)

    assert [
        "README.md:2: there is no docs/b.md",
        "README.md:3: a.md has no heading for #part-two",
        "README.md:3: http://a.b is no address that begins with https://",
        "README.md:3: https:x is no address that begins with https://",
        "README.md:6: does not compile: invalid syntax (line 1 of the block)",
        "docs: 2 pages, 6 links, 2 Python blocks checked; 5 wrong",
    ] == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("arguments", [["--fast"], ["--serve", "no"], ["--serve", "1", "2"], ["1"]])
def test_docs_refuses_what_it_does_not_know_before_anything_is_done(tmp_path, capsys, arguments):
    assert 2 == docs.main(tmp_path, arguments)

    out, err = capsys.readouterr()
    assert "" == out
    assert err.startswith("docs knows nothing of ")
