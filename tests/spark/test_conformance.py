import subprocess
import sys

import pytest

from anabranch.spark.conformance import CHECKS, run_checks

ON_TWO_EXECUTORS = """
from anabranch.spark.conformance import run_checks
from anabranch.spark.session import spark_context

attached = spark_context(master="local-cluster[2,1,1024]")
for checked in run_checks(attached.sc):
    print("good" if checked.good else "BAD", checked.name, checked.text, sep=": ")
attached.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_this_spark_does_what_is_relied_on(spark_context, name):
    assert CHECKS[name](spark_context)


@pytest.mark.spark
@pytest.mark.slow
def test_two_executors_do_what_is_relied_on():
    done = subprocess.run(
        [sys.executable, "-c", ON_TWO_EXECUTORS],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    lines = done.stdout.splitlines()
    assert len(CHECKS) == len(lines)
    assert [] == [line for line in lines if not line.startswith("good")]
    assert "good: lanes are where they want: 2 executors, asked for in both orders" in lines
    assert "good: slots are known: 2 on 2 executors" in lines
    assert "good: executors can be asked for: asked for the 2 that there are" in lines


def test_check_that_fails_hides_no_other():
    found = run_checks(None)

    assert list(CHECKS) == [checked.name for checked in found]
    assert not any(checked.good for checked in found)


@pytest.mark.spark
@pytest.mark.slow
def test_a_failure_tells_why_where_spark_sql_is_in_use(spark_context):
    """PySpark then raises exceptions of its own for those of Java."""
    from pyspark.errors.exceptions.captured import install_exception_handler

    install_exception_handler()

    assert CHECKS["a failure tells why"](spark_context)
