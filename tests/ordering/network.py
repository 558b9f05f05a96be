"""Rows through splitters, channels, operators and mergers, in an order that is drawn; no threads."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np

from anabranch.ordering.run import Run, Taken


def gathered(merged):
    """The rows of what a merger released: of a bundle that is an array, one value a row."""
    if not merged.pieces:
        return np.empty(0, dtype=np.int64)
    rows = np.concatenate([values(piece.run) for piece in merged.pieces])
    return rows if merged.order is None else rows[merged.order]


def by_segments(merged):
    return [
        value
        for each in merged.segments()
        for value in values(Run(each.rows, each.start, each.stop)).tolist()
    ]


def values(run):
    if isinstance(run.rows, Taken):
        return run.rows.rows[run.rows.places[run.start : run.stop]]
    rows = np.empty(0, dtype=np.int64) if run.rows is None else np.asarray(run.rows)
    return rows[run.start : run.stop]


def applied(run, copies):
    """An operator that makes copies[value] rows of each: the value times 8 and which copy it is."""
    taken = values(run)
    times = np.asarray([copies[value] for value in taken.tolist()], dtype=np.int64)
    subs = np.concatenate([np.arange(each) for each in times] or [taken]).astype(np.int64)
    return run.made(np.repeat(taken, times) * 8 + subs, np.repeat(run.numbers, times))


def expected(copies):
    return [row * 8 + sub for row, times in enumerate(copies) for sub in range(times)]


def cut_up(run, cuts):
    """The run as several, cut before some of its rows; the pulse goes with the last."""
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(run)}), len(run)]
    parts = [run.part(start, stop) for start, stop in pairwise(edges)]
    return [*parts[:-1], parts[-1].carrying(run.pulse)]


class Region:
    """A splitter, one operator a channel, a merger; each channel holds `capacity` runs anywhere."""

    def __init__(self, splitter, merger, channels, capacity, work):
        self.splitter, self.merger, self.work = splitter, merger, work
        self.capacity = capacity
        self.before = [deque() for _ in range(channels)]
        self.behind = [deque() for _ in range(channels)]
        self.output = []

    def steps(self):
        """What may happen, each telling whether something did."""
        return [
            self.send,
            *(
                step
                for at in range(len(self.before))
                for step in (lambda at=at: self.operate(at), lambda at=at: self.merge(at))
            ),
        ]

    def send(self):
        sent = self.splitter.send([self.capacity - len(each) for each in self.before])
        for channel, run in sent:
            self.before[channel].append(run)
        return bool(sent)

    def operate(self, channel):
        if not self.before[channel] or len(self.behind[channel]) >= self.capacity:
            return False
        run = self.work(self.before[channel].popleft())
        if len(run) or run.pulse >= 0:
            self.behind[channel].append(run)
        return True

    def merge(self, channel):
        waiting = self.behind[channel]
        if not waiting:
            return False
        if len(waiting[0]) and self.merger.statistics().runs[channel] >= self.capacity:
            return False
        self.output += gathered(self.merger.receive(channel, waiting.popleft())).tolist()
        return True


def run_until_stuck(network, inputs, draw):
    """Take steps in a drawn order until none does anything; whether all input was taken."""
    inputs = deque(inputs)

    def take():
        if network.splitter.blocked or not inputs:
            return False
        inputs.popleft()()
        return True

    steps = [take, *network.steps()]
    moving = True
    while moving:
        draw.shuffle(steps)
        # A sum, for every step gets its turn in every round.
        moving = sum(step() for step in steps) > 0
    return not inputs and not network.splitter.blocked
