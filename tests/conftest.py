"""What all tests share: no sleeping, no Spark outside tests/spark, golden texts."""

import sys
import time
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
