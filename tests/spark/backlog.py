"""Queries that always have something to do while their width changes, and what lanes then take."""

import functools

from anabranch.runtime.payload import LaneJob
from anabranch.spark.shuffle_executor import ShuffleExecutor
from tests.runtime.programs import PROGRAMS
from tests.spark.test_spine import Growing

ROWS = 60
"""As many are waiting all the time: a dozen epochs."""
MOST = 6000


class Backlog(Growing):
    """A directory that never runs dry: what a query commits is made up for, until it is enough."""

    def __init__(self, tmp_path, name="fraud"):
        super().__init__(tmp_path, name)
        self._rows, self._enough = PROGRAMS[name][1](MOST), False
        self.add(ROWS)

    def follow(self, query):
        note = query._loop.on_progress

        def noted(progress):
            note(progress)
            if progress["numInputRows"] and not self._enough:
                self.add(progress["numInputRows"])

        query._loop.on_progress = noted

    def enough(self):
        self._enough = True


class Watching:
    """Watches a shuffle executor: which rows lanes took that were made for others, what was remade."""

    def __init__(self):
        self._before = {name: getattr(ShuffleExecutor, name) for name in self.WATCHED}
        self.widths = []
        """From how many lanes to how many rows were taken, once for each epoch and lane."""
        self.remade = []
        """By what was deployed of what was made by what, by the plans' ids."""

    WATCHED = ("run", "deploy", "start", "_replace")

    def __enter__(self):
        for name in self.WATCHED:
            call = getattr(self, name.strip("_"))
            setattr(ShuffleExecutor, name, functools.partialmethod(_told, call))
        return self

    def __exit__(self, *_):
        for name, method in self._before.items():
            setattr(ShuffleExecutor, name, method)

    def run(self, executor, heads, lanes, merges=()):
        for item in (item for job in lanes.values() for x in job.stages for item in x.items):
            if item.routed is not None and any(item.parts.values()):
                self.widths.append((item.routed.lanes, executor._deployed.lanes))
        return self._before["run"](executor, heads, lanes, merges)

    def deploy(self, executor, deployment, was=None):
        self._before["deploy"](executor, deployment, was)

    def start(self, executor, lanes):
        return self._before["start"](executor, lanes)

    def replace(self, executor, old, dones):
        self.remade.append((executor._deployed.id, executor._shipments[old].shuffle.plan))
        self._before["_replace"](executor, old, dones)


def _told(executor, call, *given):
    return call(executor, *given)


def replicating(lanes: dict[int, LaneJob]):
    """Whether a cycle's lanes make replicas."""
    return any(job.replicas for job in lanes.values())
