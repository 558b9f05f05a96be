"""A secret in options is in no log, plan, checkpoint, error or page: scenario 24, redaction."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.api.starting import start
from anabranch.config import Outlets
from anabranch.epoch.triggers import available_now
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from tests.observe import canary
from tests.observe.canary import CANARY

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def holding(directory):
    """The files below a directory that hold the secret, of those that are ours to answer for."""
    files = [file for file in directory.rglob("*") if file.is_file()]
    assert files
    return [str(file) for file in files if CANARY.encode() in file.read_bytes()]


def started(program, directory):
    settings = Settings(
        available_now(7), directory / "ckpt", 2, slices=8, in_flight=2,
        outlets=Outlets(progress=directory / "progress.jsonl"),
    )  # fmt: skip
    return start(program.freeze(), settings, InlineExecutor(), program.explain())


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name, value in canary.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def test_it_is_in_nothing_that_a_run_writes_or_shows(tmp_path, caplog, capfd):
    program = canary.program(tmp_path)
    with caplog.at_level(logging.DEBUG):
        query = started(program, tmp_path)
        assert query.await_termination(PATIENCE_S)

    told, wrote = capfd.readouterr()
    shown = [
        program.explain(), program.explain("json"), program.explain("mermaid"), repr(program),
        program.compile()._repr_html_(), query.explain(), query.why(), repr(query),
        query._repr_html_(), str(query.status), json.dumps(query.recent_progress),
        str(query.statistics()), caplog.text, told, wrote,
    ]  # fmt: skip
    assert [] == [text for text in shown if CANARY in text]
    assert [] == holding(tmp_path)
    files = sorted((tmp_path / "letters").rglob("*.jsonl"))
    letters = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [0, 5, 10, 15] == [json.loads(letter["record"])["n"] for letter in letters]
    assert "canary.py" in letters[0]["traceback"]


def test_it_is_not_in_the_error_of_a_function_that_had_it(tmp_path):
    with pytest.raises(ab.RunError) as caught:
        started(canary.failing_program(), tmp_path).await_termination(PATIENCE_S)

    assert "lookup failed" in str(caught.value)
    assert "KeyError: 'missing'" in str(caught.value)
    assert CANARY not in str(caught.value)
    assert [] == holding(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ab.sources.Files(f"s3://user:{CANARY}@bucket/orders"),
        lambda: ab.sources.Files(f"https://user:{CANARY}@example.org/orders.parquet"),
        lambda: ab.sources.Files(f"https://example.org/orders?token={CANARY}"),
        lambda: ab.Program("p").read({"url": "x", "password": CANARY}),
        lambda: ab.Program("p").read(f"postgres://me:{CANARY}@db/orders"),
        lambda: read().write({"url": "x", "secret_key": CANARY}),
        lambda: read().write(f"kafka://me:{CANARY}@broker/topic"),
        lambda: read().lookup(f"https://me:{CANARY}@example.org/a.csv", on="n"),
        lambda: read().lookup({"access.key": CANARY}, on="n"),
    ],
)  # fmt: skip
def test_it_is_not_in_the_error_of_what_was_refused(wrong):
    with pytest.raises(ab.ProgramError) as caught:
        wrong()

    assert CANARY not in str(caught.value)
    assert CANARY not in repr(caught.value)
    assert "***" in str(caught.value)


def read():
    return ab.Program("p").read(ab.sources.Records([{"n": 1}]))


def test_it_is_not_in_the_line_of_the_program_that_is_shown(tmp_path):
    """Who writes it into the program has it there; an error or a plan does not spread it."""
    file = tmp_path / "orders.py"
    file.write_text(
        "import anabranch as ab\n"
        f"rows = ab.Program('p').read(ab.sources.Records([{{'password': '{CANARY}', 'n': 1}}]))\n"
        f"rows.select('m', password='{CANARY}')\n"
    )
    with pytest.raises(ab.ProgramError) as caught:
        exec(compile(file.read_text(), str(file), "exec"), {})

    assert "rows.select('m', password='***')" in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.spark
@pytest.mark.slow
def test_nor_is_it_in_anything_of_spark_s_whose_pages_are_for_this_host_alone(tmp_path):
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "observe" / "canary.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **canary.ENVIRONMENT, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )

    assert 0 == done.returncode, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert [200, 200, 200] == told["pages"]
    assert told["settings"], "the page of settings shows them, redacted"
    assert "false" == told["killing"]
    assert told["kill"] >= 400
    assert set(told["bound"]) <= LOOPBACK, told["bound"]
    assert CANARY not in done.stdout + done.stderr
    assert [] == holding(tmp_path)
