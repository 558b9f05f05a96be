"""A task that waits within its work until it is let go: it can be killed, or outlive its time, there."""

import os
from pathlib import Path

import polars as pl

import anabranch as ab
from anabranch.connectors.base import Sink
from tests.runtime.programs import CALLS, places, speed
from tests.spark.test_spine import files


class Gate:
    """Where the first process waits that comes by when it is shut; others go through."""

    def __init__(self, home):
        self._shut, self._claimed, self._pipe = (
            str(home / f"gate-{name}") for name in ("shut", "claimed", "pipe")
        )
        os.mkfifo(self._pipe)

    def shut(self):
        Path(self._shut).touch()

    def pass_through(self):
        """In a task: go on, or be the one that waits."""
        if not Path(self._shut).exists():
            return
        try:
            handle = os.open(self._claimed, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return
        os.write(handle, str(os.getpid()).encode())
        os.close(handle)
        os.close(os.open(self._pipe, os.O_RDONLY))  # until somebody opens the other end

    def who(self):
        """The process that waits, if one does."""
        claimed = Path(self._claimed)
        return int(claimed.read_text() or 0) if claimed.exists() else 0

    def open(self):
        """Let it go on; says whether somebody was waiting: one that slept comes back a moment later."""
        try:
            os.close(os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True


def holding(gate, home, at, *, within="kernel"):
    """The fraud program, of which a task waits at the gate: in its kernel, or writing its rows."""

    def held(place, state):
        if within == "kernel":
            gate.pass_through()
        yield from speed(place, state)

    program = ab.Program("fraud")
    source = ab.sources.Files(home / "in", format="parquet", schema=CALLS)
    (
        program.read(source, name="calls", event_time="t")
        .flat_map(places, out={"phone": pl.String, "t": pl.Int64, "x": pl.Int64})
        .key_by("phone")
        .process(held, out={"phone": pl.String, "t": pl.Int64, "v": pl.Int64})
        .write(HeldSink(files(at), gate) if within == "sink" else files(at), name="out")
    )
    return program


class HeldSink(Sink):
    """Another sink, whose tasks pass by the gate when their rows are written."""

    def __init__(self, inner, gate):
        self._inner, self._gate = inner, gate

    def write(self, batches, epoch, attempt):
        message = self._inner.write(batches, epoch, attempt)
        self._gate.pass_through()
        return message

    def publish(self, messages, epoch):
        self._inner.publish(messages, epoch)

    def abort(self, messages, epoch):
        self._inner.abort(messages, epoch)

    def sweep(self, keep):
        self._inner.sweep(keep)

    def with_durability(self, durability):
        return HeldSink(self._inner.with_durability(durability), self._gate)


def gone(pid):
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
