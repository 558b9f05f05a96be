"""A continuous query whose executor is killed, on two; in a process of its own: it has one Spark.

The argument is a directory. Says, as a line of JSON, how often rows were taken back.
"""

import json
import os
import signal
import sys
from pathlib import Path

import anabranch as ab
from anabranch.spark.session import spark_context
from anabranch.testing import assert_same_rows, run_sequential
from tests.spark.test_continuous import RATE, Shown, numbers, program_over
from tests.spark.test_spine import promptly
from tests.spark.two_executors import parent

MASTER = "local-cluster[2,2,768]"


def main(home):
    attached, shown = spark_context(master=MASTER), Shown()
    sink = ab.sinks.Callback(shown.take, visible="early", on_rewind=shown.rewind)
    program = program_over(numbers(rate=RATE), sink)
    query = program.start(
        attached.sc,
        trigger=ab.continuous("5 ms", "300 ms"),
        checkpoint=home / "ckpt",
        parallelism=2,
    )
    promptly(shown.wait_for_more)

    before = query._loop.pid
    os.kill(parent(parent(before)), signal.SIGKILL)
    while query._loop.pid == before:
        promptly(shown.wait_for_more)
    promptly(shown.wait_for_more)
    promptly(query.stop)

    assert_same_rows(run_sequential(program, log=home / "ckpt")["out"], shown.rows)
    sys.stdout.write(json.dumps({"rewound": len(shown.rewound)}) + "\n")
    sys.stdout.flush()
    attached.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
