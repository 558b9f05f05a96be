"""What all tests share: no sleeping, no Spark outside tests/spark, golden texts."""

import logging
import sys
import time
import urllib.request
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

# No time limit decides a test: machines are slow, and busy. Examples are the same in every run, so
# that a change is judged by what it changed; `--hypothesis-profile=searching` looks for new ones.
settings.register_profile("settled", deadline=None, derandomize=True)
settings.register_profile("searching", deadline=None)
settings.load_profile("settled")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BUCKETS = count(1)


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="write golden texts anew instead of comparing"
    )


@pytest.fixture(autouse=True)
def _no_waiting(request, monkeypatch):
    """Our own code and tests never sleep; libraries may (subprocess polls with it).

    Outside tests marked `spark` there is no Java to start a Spark with.
    """
    asleep = time.sleep

    def sleep(seconds):
        caller = sys._getframe(1).f_code.co_filename
        assert not caller.startswith(str(ROOT / "src")), "take a Clock instead of sleeping"
        assert not caller.startswith(str(HERE)), "no sleeping in tests"
        asleep(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    if request.node.get_closest_marker("spark") is None:
        monkeypatch.setenv("JAVA_HOME", "/nonexistent")


@pytest.fixture(autouse=True)
def _no_stopping():
    """A process has one Spark, and the tests after this one go on with it."""
    before = _spark()
    yield
    assert before is None or before is _spark(), "stopped the Spark of other tests: use a process"


def _spark():
    """The SparkContext that runs in this process, without an import of Spark for its sake."""
    pyspark = sys.modules.get("pyspark")
    return None if pyspark is None else pyspark.SparkContext._active_spark_context


@pytest.fixture(scope="session")
def s3_server():
    """A server that speaks S3's protocol, on this host alone; yields its address."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not a line a request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_environment(s3_server):
    """What a process must have in its environment to use that server."""
    return {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture
def bucket(s3_server, s3_environment, monkeypatch):
    """The URL of a bucket of the test's own, in which nothing is."""
    for name, value in s3_environment.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{next(BUCKETS)}"
    request = urllib.request.Request(f"{s3_server}/{name}", method="PUT")
    urllib.request.urlopen(request).close()
    return f"s3://{name}"


@pytest.fixture
def golden(request):
    """Compare a text with the one in tests/snapshots."""

    def compare(name: str, text: str) -> None:
        file = HERE / "snapshots" / name
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        assert file.exists(), f"no {file.name}: run ./x test --update-golden and read what it wrote"
        assert file.read_text() == text

    return compare
