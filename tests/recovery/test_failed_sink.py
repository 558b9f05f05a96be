"""What is committed is published in the end, however a run ended after its commit."""

import pytest

import anabranch as ab
from anabranch.api.starting import start
from anabranch.connectors import file_sink
from anabranch.epoch.triggers import available_now
from anabranch.errors import RunError
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import assert_same_rows, run_sequential
from tests.runtime.programs import PROGRAMS
from tests.runtime.test_inline import made, written

PATIENCE_S = 60


def query(name, tmp_path):
    settings = Settings(available_now(7), tmp_path / "ckpt", 2, slices=8, keep=None, in_flight=16)
    return start(made(name, tmp_path).freeze(), settings, InlineExecutor())


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_output_that_could_not_be_published_is_published_by_the_next_run(
    when, name, tmp_path, monkeypatch
):
    publish = ab.sinks.Files.publish

    def full(self, messages, epoch):
        if when == "after":
            publish(self, messages, epoch)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(file_sink.Files, "publish", full)
        with pytest.raises(RunError, match="could not publish"):
            query(name, tmp_path).await_termination(PATIENCE_S)
    assert query(name, tmp_path).await_termination(PATIENCE_S)

    expected = run_sequential(made(name, tmp_path), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))
