"""Rows of several lanes in one order: small ones by the driver, large ones by tasks."""

import pytest

from anabranch.epoch.triggers import available_now
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.executor import JobFailed
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from tests.runtime.test_inline import made, written


class Watched(InlineExecutor):
    """Keeps the merges that it was given, a list for each job that had some."""

    def __init__(self, failing=()):
        super().__init__()
        self.jobs, self._failing = [], failing

    def run(self, heads, lanes, merges=()):
        if merges:
            self.jobs.append([item.epoch for item in merges])
            if len(self.jobs) in self._failing:
                raise JobFailed("as it should")
        return super().run(heads, lanes, merges)


def run(tmp_path, executor, **chosen):
    settings = Settings(available_now(20), tmp_path / "ckpt", 2, slices=8, keep=None, **chosen)
    graph = made("campaign_views", tmp_path, count=200).freeze()
    assembled = assemble(graph, settings, executor, MockClock())
    while not assembled.loop.over:
        assembled.loop.step()
    assembled.loop.close()
    assembled.close()


def assert_right(tmp_path):
    expected = run_sequential(made("campaign_views", tmp_path, count=200), log=tmp_path / "ckpt")
    assert expected["out"]
    assert_same_rows(expected["out"], written(tmp_path / "out"))


def test_tasks_merge_what_is_large(tmp_path):
    executor = Watched()

    run(tmp_path, executor, merge_above=0)

    assert executor.jobs
    assert_right(tmp_path)


def test_the_driver_merges_what_is_small(tmp_path):
    executor = Watched()

    run(tmp_path, executor)

    assert [] == executor.jobs
    assert_right(tmp_path)


@pytest.mark.parametrize("failing", [(1,), (2,), (1, 2, 3)])
def test_a_merge_that_fails_is_repeated(tmp_path, failing):
    executor = Watched(failing)

    run(tmp_path, executor, merge_above=0)

    first = failing[0]
    assert set(executor.jobs[first - 1]) <= set(executor.jobs[first])
    assert_right(tmp_path)
