"""One Spark for all tests: it takes 2 s to start, a job 20 ms."""

import pytest

from anabranch import config
from anabranch.spark.session import spark_context as attach


@pytest.fixture(scope="session")
def spark_context():
    """A SparkContext with two slots, as Anabranch starts it for users."""
    # Before any test's own environment: JAVA_HOME is taken away from those without the mark.
    attached = attach(
        master="local[2]", app_name="tests", environment=_environment(), cache=_cache()
    )
    assert attached.sc.master.startswith("local[2"), "a test before left its own Spark behind"
    yield attached.sc
    attached.stop()


def _environment():
    found = dict(config.environment())
    if found.get("JAVA_HOME") == "/nonexistent":
        del found["JAVA_HOME"]
    return found


def _cache():
    return config.cache_directory(_environment())
