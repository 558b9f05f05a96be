"""Programs as tasks, and their epochs as partitions take them."""

from pyspark import cloudpickle

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.engine.requests import Tasks
from anabranch.kernels.bundle import visible
from anabranch.kernels.region import lower
from anabranch.kernels.results import END, EpochInput
from anabranch.state.slices import Owners


def lowered(piece, rows, partitions=1):
    """The tasks of a program with one source and one sink."""
    program = ab.Program("evaluated")
    stream = program.read(ab.sources.Records(rows), event_time="t", name="in")
    piece(stream).write(ab.sinks.Memory("out"), name="out")
    found = lower(plan_of(program.freeze()))
    owners = Owners.spread(slices=8, lanes=partitions)
    return Tasks(found.stages, [head.route(owners) for head in found.heads], owners)


def shipped(tasks):
    """The tasks as whoever starts evaluators pickles them."""
    return cloudpickle.dumps(tasks)


def frames_of(rows, size):
    """Epochs of so many rows, as the source gives them."""
    source = ab.sources.Records(rows)
    (partition,) = source.partitions()
    for start in range(0, len(rows), size):
        to = min(len(rows), start + size)
        (split,) = source.plan({partition: start}, {partition: to})
        yield start, source.frame(split)


def epochs_of(tasks, rows, size, partitions=None):
    """Of each epoch what each partition takes."""
    partitions = range(tasks.owners.lanes) if partitions is None else partitions
    found, mark = [], None
    for number, (start, frame) in enumerate(frames_of(rows, size)):
        result = tasks.heads[0].run(frame.select(tasks.heads[0].columns), 0, start)
        assert result.error is None
        after = END if start + size >= len(rows) else result.greatest_time
        parts = result.parts.get(0, {})
        found.append(
            [
                EpochInput(number, {0: (parts[p],)} if p in parts else {}, {"in": (mark, after)})
                for p in partitions
            ]
        )
        mark = after
    return found


def outputs_of(output):
    """The rows that leave, as users see them."""
    return [
        row
        for parts in output.parts.values()
        for frame in parts.values()
        for row in visible(frame).rows(named=True)
    ]


def same_frames(expected, found):
    """The same frames by operator."""
    assert list(expected) == list(found)
    for name, frame in expected.items():
        assert frame.equals(found[name]), name
