"""A warm-up is a favour: a query whose warm-up came to nothing runs, or stops, all the same."""

import threading

from anabranch.api.starting import start
from anabranch.epoch.triggers import available_now, epochs
from anabranch.runtime.assembly import Settings
from anabranch.runtime.executor import JobFailed
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import assert_same_rows, run_sequential
from tests.runtime.test_inline import made, written

PATIENCE_S = 60


class Cold(InlineExecutor):
    """Its workers die while they are started."""

    def warm_up(self):
        raise JobFailed("a worker process died")


class Slow(InlineExecutor):
    """Warms up until it is cancelled, which makes the job fail."""

    def __init__(self):
        super().__init__()
        self.cancelled = threading.Event()

    def warm_up(self):
        assert self.cancelled.wait(PATIENCE_S)
        raise JobFailed("a Spark job was cancelled")

    def cancel(self):
        self.cancelled.set()


def test_a_worker_that_dies_in_the_warm_up_does_not_end_a_query(tmp_path):
    settings = Settings(available_now(7), tmp_path / "ckpt", 2, slices=8, keep=None, in_flight=16)
    assert start(made("fraud", tmp_path).freeze(), settings, Cold()).await_termination(PATIENCE_S)

    expected = run_sequential(made("fraud", tmp_path), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


def test_a_query_that_is_stopped_in_its_warm_up_is_stopped_and_has_not_failed(tmp_path):
    settings = Settings(epochs("1 s", 7), tmp_path / "ckpt", 2, slices=8, keep=None, in_flight=16)
    query = start(made("fraud", tmp_path).freeze(), settings, Slow())

    query.stop(drain=False)

    assert "Stopped" == query.status["message"]
