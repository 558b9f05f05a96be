"""Something done to a query's processes at chosen jobs of it: a kill comes where it is meant to come."""

import os
import signal
import threading
from contextlib import suppress


def lanes_of(query):
    """The lanes of a query on Spark: their processes and places."""
    return query._loop._executor._inner._lanes


class Shaking:
    """Calls what it was given just before the n-th job with work for lanes, counted from now on."""

    def __init__(self, query):
        self._executor = query._loop._executor
        self._run, self._jobs, self._due = self._executor.run, 0, {}
        self._changed = threading.Condition()

    def at(self, job, act):
        self._due[job] = act

    def __enter__(self):
        self._executor.run = self._shaken
        return self

    def __exit__(self, *_):
        self._executor.run = self._run

    def _shaken(self, heads, lanes, merges=()):
        if lanes:
            act = self._due.get(self._jobs)
            if act is not None:
                act()
            with self._changed:
                self._jobs += 1
                self._due.pop(self._jobs - 1, None)
                self._changed.notify_all()
        return self._run(heads, lanes, merges)

    def done(self, patience=90):
        """Wait until all of it was done."""
        with self._changed:
            came = self._changed.wait_for(lambda: not self._due, patience)
        assert came, f"jobs {sorted(self._due)} never came: nothing was shaken"


def kill_lanes(query):
    """What kills the processes of all lanes that have run."""

    def kill():
        for pid in lanes_of(query).pids().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    return kill
