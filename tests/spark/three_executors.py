"""A query on three executors that loses one; in a process of its own: it has one Spark.

The argument is a directory. Says, as a line of JSON, what was seen.
"""

import json
import os
import shutil
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import anabranch as ab
from anabranch.spark.file_executor import FileExecutor
from anabranch.spark.session import spark_context
from tests.spark.test_spine import Growing, check, promptly
from tests.spark.two_executors import parent

MASTER = "local-cluster[3,1,512]"


def until(true):
    """Wait for something that is bound to come."""
    moment = threading.Event()
    while not true():
        moment.wait(0.01)


def local_directory(pid):
    """Where a worker's executor keeps what is its own."""
    environment = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    (found,) = [each for each in environment if each.startswith("SPARK_LOCAL_DIRS=")]
    return Path(found.partition("=")[2])


def main(home):
    attached = spark_context(master=MASTER)
    growing, told = Growing(home), []
    query = growing.program(home).start(
        attached.sc,
        trigger=ab.epochs("20 ms", 5),
        checkpoint=home / "ckpt",
        parallelism=3,
        slices=12,
    )
    loop = query._loop
    executor = loop._executor._inner
    assert isinstance(executor, FileExecutor)
    note = loop.on_progress

    def noted(progress):
        told.append(progress["anabranch"])
        note(progress)

    loop.on_progress = noted
    for _ in range(6):
        growing.add(30)
        promptly(query.process_all_available)
    promptly(until, lambda: loop._shape.backups["behind"] == 0 < loop._shape.backups["files"])

    pids, before = executor._lanes.pids(), executor._lanes.executors()
    place, seen = local_directory(pids[1]), len(told)
    os.kill(parent(parent(pids[1])), signal.SIGKILL)
    shutil.rmtree(place)
    shutil.move(home / "ckpt" / "state", home / "away")
    growing.add(30)
    promptly(query.process_all_available)
    came = Counter()
    for each in told[seen:]:
        came.update(each["slicesFrom"])
    lanes = executor._lanes.pids()
    after = executor._lanes.executors()

    for file in (home / "away").rglob("*.*"):
        there = home / "ckpt" / "state" / file.relative_to(home / "away")
        there.parent.mkdir(exist_ok=True, parents=True)
        if not there.exists():
            file.rename(there)
    for _ in range(4):
        growing.add(30)
        promptly(query.process_all_available)
    promptly(until, lambda: loop._shape._rescaling is None)
    growing.add(30)
    promptly(query.process_all_available)
    owners = Counter(loop._deployment.owners.of)
    promptly(query.stop)
    check(growing.program(home), home)
    found = {
        "came": came,
        "kept": [lanes[lane] == pids[lane] for lane in (0, 2)],
        "executors": [before[1].id, after[1].id],
        "owners": sorted(owners.values()),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    attached.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
