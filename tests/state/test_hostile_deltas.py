"""A delta whose checksums are right and whose Arrow is not: scenario 23 of the reliability notes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def read_hostile(first, count):
    script = str(ROOT / "tests" / "state" / "hostile_deltas.py")
    done = subprocess.run(
        [sys.executable, script, str(first), str(count)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        check=False,
    )
    assert 0 == done.returncode, f"its process died: {done.stderr[:500]}"
    return json.loads(done.stdout)


@pytest.mark.slow
def test_it_is_refused_or_read_and_never_ends_the_process():
    found = read_hostile(0, 1500)

    assert {"refused", "read"} == set(found)
    assert found["refused"] > found["read"]


@pytest.mark.chaos
@pytest.mark.parametrize("first", range(1500, 21_500, 5000))
def test_nor_do_many_more(first):
    assert {"refused", "read"} == set(read_hostile(first, 5000))
