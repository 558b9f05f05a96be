"""On real executors: what one had is taken over by others, from copies on their own disks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


def test_slices_of_a_killed_executor_come_from_copies_that_its_peers_have(tmp_path):
    """Neither the checkpoint's state nor what the dead one kept can be read meanwhile."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.three_executors", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    # Two to each survivor. Progress tells of the attempt that was committed: one whose task is done
    # again, because the other's was lost, has its two in memory by then.
    assert found["came"]["backup"] in {2, 4}
    assert 0 == found["came"]["checkpoint"] + found["came"]["replica"] + found["came"]["shared"]
    assert [True, True] == found["kept"], "other lanes lost their processes"
    assert found["executors"][0] != found["executors"][1]
    assert 3 == len(found["owners"]), "a lane got nothing back"
