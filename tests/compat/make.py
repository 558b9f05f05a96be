"""Makes the checkpoints of this version, each broken off in the middle, and what must come of it.

`./x python -m tests.compat.make` writes `tests/compat/<version>/<program>.tar.gz`: the checkpoint, the
sinks' files so far, and `golden.json`, all rows of all sinks once the program has come to its end. To
be run once for each version that is released, and never again for it.
"""

import gzip
import io
import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import anabranch as ab
from anabranch.epoch.triggers import available_now
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import MockClock, run_sequential
from tests.compat.programs import PROGRAMS

HERE = Path(__file__).resolve().parent
ROWS, STEPS, IN_FLIGHT = 3, 6, 4


def program(name, home):
    """The program of this name, writing below `home`."""
    return PROGRAMS[name](lambda sink: ab.sinks.Files(home / "out" / sink, format="parquet"))


def plain(rows):
    """Rows as JSON has them."""
    return json.loads(json.dumps(rows, default=str))


def run(name, home, *, steps=None, lanes=2):
    """Run a program to its end, or for so many steps, then let go of it as a crash would."""
    settings = Settings(
        available_now(ROWS), home / "ckpt", lanes, slices=8, keep=None, in_flight=IN_FLIGHT
    )
    graph = program(name, home).freeze()
    assembled = assemble(graph, settings, InlineExecutor(), MockClock())
    try:
        while not assembled.loop.over and steps != 0:
            assembled.loop.step()
            steps = None if steps is None else steps - 1
    finally:
        assembled.loop._pool.shutdown(wait=True)
        assembled.close()


def make(name, home):
    """A checkpoint that a run left in the middle, with epochs planned and not committed."""
    run(name, home, steps=STEPS)
    ended = home.with_name("ended")
    shutil.copytree(home, ended)
    run(name, ended)
    found = run_sequential(program(name, ended), log=ended / "ckpt")
    golden = {sink.removesuffix("-out"): rows for sink, rows in found.items()}
    (home / "golden.json").write_text(json.dumps(plain(golden), indent=1) + "\n")


def packed(home):
    """The directory as one file, the same for the same content."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for file in sorted(each for each in home.rglob("*") if each.is_file()):
            entry = tarfile.TarInfo(str(file.relative_to(home)))
            entry.size, entry.mode = file.stat().st_size, 0o600
            archive.addfile(entry, io.BytesIO(file.read_bytes()))
    return gzip.compress(data.getvalue(), mtime=0)


def unpack(file, home):
    """What `packed` made, as a directory again."""
    with tarfile.open(file) as archive:
        for entry in archive.getmembers():
            place = home / entry.name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(archive.extractfile(entry).read())


def main():
    folder = HERE / ab.__version__
    if folder.exists():
        sys.exit(f"{folder} is there: what a version has written is not made again")
    folder.mkdir()
    for name in PROGRAMS:
        with tempfile.TemporaryDirectory() as place:
            home = Path(place) / "home"
            make(name, home)
            data = packed(home)
            (folder / f"{name}.tar.gz").write_bytes(data)
            sys.stderr.write(f"{name}: {len(data)} bytes\n")


if __name__ == "__main__":
    main()
