"""How the bad cases are run: in this process, by the inline executor."""

import anabranch as ab
from anabranch.api.starting import start
from anabranch.epoch.triggers import available_now
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor

PATIENCE_S = 60
ROWS = [{"user": user, "n": n, "at": n * 1000} for n, user in enumerate("abcabc")]


def run(program, place, *, rows=2, slices=8, lanes=2, executor=None):
    """Run it to its end, with its checkpoint in `place`; what went wrong is raised."""
    settings = Settings(available_now(rows), place / "ckpt", lanes, slices=slices, in_flight=1)
    query = start(program.freeze(), settings, executor or InlineExecutor())
    assert query.await_termination(PATIENCE_S)


def stream(name="bad", rows=ROWS, **options):
    """Some rows to begin with, and the program that reads them."""
    program = ab.Program(name)
    return program, program.read(ab.sources.Records(rows), name="rows", **options)


def files(path, **options):
    """A program that copies files, and does nothing else."""
    program = ab.Program("bad")
    read = program.read(ab.sources.Files(path, bounded=True, **options), name="files")
    read.write(ab.sinks.Memory("out"))
    return program
