"""What a query is waiting for, in words: facts in, text out.

First what it is doing. Then each source: its watermark, who holds it, since when, and what would
release it. Then each operator that holds something back until a watermark comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from anabranch.epoch.machine import Stage
from anabranch.epoch.watermarks import END_OF_TIME
from anabranch.observe.facts import EpochFacts, Facts, SourceFacts
from anabranch.observe.shown import length, listed, moment, partitions
from anabranch.observe.waits import Shape, Wait

_SILENCE_S = 3.0
"""Less is no silence: between two epochs every partition is empty."""


def why(facts: Facts, shape: Shape | None = None) -> str:
    """What a query is waiting for. `shape` is what its program says, where that is known.

    >>> print(why(Facts("clicks", ended=True)))
    clicks: has stopped. Nothing was committed.
    """
    lines = [f"{facts.program}: {_doing(facts)}. {_committed(facts)}."]
    lines += _under_way(facts)
    if not facts.ended:
        for source in facts.sources:
            lines += _source(source, facts, shape)
        if shape is not None:
            lines += _waits(facts, shape)
        lines += _firing(facts)
    return "\n".join(lines)


# What it is doing


def _doing(facts: Facts) -> str:
    if facts.error is not None:
        return f"has failed: {facts.error}"
    if facts.ended:
        return "has stopped"
    if not facts.live:
        return "this is what its checkpoint says; whether it runs is not known here"
    return _working(facts)


def _working(facts: Facts) -> str:
    if facts.failures:
        return f"its work has failed {_times(facts.failures)} in a row, and is tried again"
    if facts.unplaced_since is not None and facts.now - facts.unplaced_since > _SILENCE_S:
        since = length(facts.now - facts.unplaced_since)
        return f"its task waits for one of Spark's slots for {since}; others have them all"
    if facts.turn_since is not None:
        return f"waits for its turn for {length(facts.now - facts.turn_since)}{_ahead(facts)}"
    if facts.epochs:
        return "is at work" + (", and ends with what is cut" if facts.stopping else "")
    return _resting(facts)


def _ahead(facts: Facts) -> str:
    """Who has the turns that a query waits for."""
    who = f": {listed(facts.at_work)} {_are(facts.at_work)} at work" if facts.at_work else ""
    short = ", and memory is short: what frees most of it goes first" if facts.memory_short else ""
    return who + short


def _resting(facts: Facts) -> str:
    if all(source.at_end for source in facts.sources):
        return "has read all there is to read"
    waiting = [source for source in facts.sources if source.rows and source.due is not None]
    if waiting:
        due = min(source.due for source in waiting if source.due is not None)
        names = f"{listed(source.name for source in waiting)} {_have(waiting)}"
        ahead = f"in {length(due - facts.now)}" if due > facts.now else "now"
        return f"waits for its trigger: {names} rows, and the next epoch is cut {ahead}"
    return "waits for data: no source has new rows"


def _committed(facts: Facts) -> str:
    if facts.committed < 0:
        return "Nothing was committed"
    ago = "" if facts.committed_at is None else f", {length(facts.now - facts.committed_at)} ago"
    return f"Epoch {facts.committed} was committed last{ago}"


# Epochs under way


def _under_way(facts: Facts) -> Iterator[str]:
    if not facts.epochs:
        return
    first, *others = facts.epochs
    tries = f", attempt {first.attempt + 1}" if first.attempt else ""
    since = "" if first.since is None else f"; it was cut {length(facts.now - first.since)} ago"
    yield f"  {_name(first)} is {_where(first, facts)}{tries}{since}"
    for _, some in groupby(others, key=lambda each: (each.stage, each.level)):
        group = list(some)
        yield f"  {_names(group)} {_are(group)} {_where(group[0], facts)}"
    if facts.job_since is not None:
        yield f"  a job has been running for {length(facts.now - facts.job_since)}"
    if facts.failure is not None:
        allowed = f" ({facts.failures} of {facts.attempts} failures in a row)"
        counted = allowed if facts.failures else ""
        yield f"  what failed last{counted}: {_short(facts.failure)}"


_WHERE = {
    Stage.OPEN: "cut and not yet read",
    Stage.READING: "being read by heads",
    Stage.READ: "read, without a place in the log yet",
    Stage.PLANNING: "being written to the log",
    Stage.PLACED: "read, and next for the lanes",
    Stage.IN_LANES: "in the lanes",
    Stage.DONE: "done, and next to be committed",
}


def _where(epoch: EpochFacts, facts: Facts) -> str:
    if not facts.live:
        return "planned and not committed"
    lanes = epoch.stage in (Stage.PLACED, Stage.IN_LANES) and facts.levels > 1
    level = f" of level {epoch.level + 1} of {facts.levels}" if lanes else ""
    return _WHERE[epoch.stage] + level


def _name(epoch: EpochFacts) -> str:
    return f"epoch {epoch.number}" if epoch.placed else f"ticket {epoch.number} of {epoch.source}"


def _names(epochs: Sequence[EpochFacts]) -> str:
    if len(epochs) == 1:
        return _name(epochs[0])
    return f"{_name(epochs[0])} and {len(epochs) - 1} more"


# Sources


def _source(source: SourceFacts, facts: Facts, shape: Shape | None) -> Iterator[str]:
    head = f"source {source.name}:"
    if source.finished:
        yield f"{head} at its end, it holds nothing back"
        return
    if shape is not None and source.name not in shape.timed:
        yield f"{head} has no event times, so its watermark comes with its end"
        return
    at = f"watermark {moment(source.time.watermark)}"
    if not source.live:
        idle = partitions(sorted(source.idle - source.time.finished, key=str))
        yield f"{head} {at}; nothing moves it, with {idle} idle, until a row comes"
        return
    yield f"{head} {at}, held by {partitions(source.holders)}"
    yield f"  {_held(source, facts)}{_release(source, facts, shape)}"
    yield from _beside(source)


def _held(source: SourceFacts, facts: Facts) -> str:
    """Who holds the watermark, how far it is, and for how long it has given nothing."""
    who = f"{partitions(source.holders)} of {source.name} {_have(source.holders)}"
    if source.silent:
        spoken = f"{who} not spoken"
    else:
        lateness = source.time.lateness
        late = f" ({length(lateness / 1e6)} of lateness)" if lateness else ""
        spoken = f"{who} spoken up to {moment(source.time.greatest[source.holders[0]])}{late}"
    quiet = _quiet(source, facts)
    if quiet is None:
        return spoken
    return f"{spoken}, and {_have(source.holders)} been empty for {length(quiet)}"


def _quiet(source: SourceFacts, facts: Facts) -> float | None:
    """For how long all who hold the watermark have been empty."""
    since = [source.quiet_since.get(each) for each in source.holders]
    found = [each for each in since if each is not None]
    return facts.now - max(found) if found and len(found) == len(since) else None


def _release(source: SourceFacts, facts: Facts, shape: Shape | None) -> str:
    """What would let the watermark go on; nothing where rows come."""
    one = len(source.holders) == 1
    stuck = bool(source.silent) or (_quiet(source, facts) or 0.0) >= _SILENCE_S
    if facts.live and not stuck:
        return ""
    until = "it does" if source.silent else "it gives a later row"
    if not one:
        until = "each does" if source.silent else "each gives a later row"
    timeout = None if shape is None else shape.idle_timeouts.get(source.name)
    idle = "; pass idle_timeout= to read"
    if timeout is not None:
        idle = f", which is after {length(timeout / 1e6)} without rows"
    who = "it holds" if one else "they hold"
    return f": {who} the watermark until {until} or is idle{idle}"


def _beside(source: SourceFacts) -> Iterator[str]:
    """What the other partitions are at, where that says something."""
    ahead = [each for each in source.live if each not in source.holders]
    known = [source.time.greatest[each] for each in ahead if each in source.time.greatest]
    if known:
        furthest = moment(max(known))
        yield f"  {partitions(ahead)} {_are(ahead)} further, up to {furthest}"
    finished = source.time.finished
    for some, what in ((source.idle - finished, "idle"), (finished, "at an end")):
        if some:
            names = sorted(some, key=str)
            yield f"  {partitions(names)} {_are(names)} {what} and not waited for"


# Operators


def _waits(facts: Facts, shape: Shape) -> Iterator[str]:
    watermarks = {source.name: source.time.watermark for source in facts.sources}
    for wait in shape.waits:
        watermark, source = wait.watermark(watermarks)
        if watermark != END_OF_TIME:
            yield f"operator {wait.operator}: {_waiting(wait, watermark, source)}"


def _firing(facts: Facts) -> Iterator[str]:
    """When a window is expected to fire, where that is known: its watermark has yet to come."""
    if (firing := facts.firing) is None:
        return
    ahead = f"in {length(firing.at - facts.now)}"
    if firing.at <= facts.now:
        ahead = f"since {length(facts.now - firing.at)}"
    low, high = (length(max(0.0, each - facts.now)) for each in (firing.low, firing.high))
    between = f" ({low} to {high} from now, in {firing.sure:.0%} of cases)"
    yield f"the next window is expected to fire {ahead}{between if firing.high > facts.now else ''}"


def _waiting(wait: Wait, watermark: int | None, source: str) -> str:
    if watermark is None:
        return f"keeps its {wait.holds} until {source} has a watermark"
    end = wait.next_end(watermark)
    lag = wait.lags[source]
    if end is None:
        behind = f", less {length(lag / 1e6)}" if lag else ""
        return f"keeps its {wait.holds} until the watermark of {source}{behind} has passed them"
    there = f"is at {moment(end + lag)}" if lag else "is there"
    return (
        f"the next of its {wait.holds} may end at {moment(end)}, and is given when the watermark "
        f"of {source} {there}, {length((end - watermark) / 1e6)} of event time further"
    )


def _are(some: Sequence[object]) -> str:
    return "is" if len(some) == 1 else "are"


def _have(some: Sequence[object]) -> str:
    return "has" if len(some) == 1 else "have"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _short(text: str) -> str:
    """The first line of an error and its last, which is what Python says went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if len(lines) < 2 else f"{lines[0]} ... {lines[-1]}"
