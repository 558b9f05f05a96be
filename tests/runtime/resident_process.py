"""A process of its own that has much more state than memory for it, and tells what it has.

    python -m tests.runtime.resident_process <bytes that may be in memory> <directory>

It prints, as JSON, bytes of anonymous memory, of state in memory and of state on disk. With
`die` behind that it ends itself without notice instead, in the middle of it.
"""

import ctypes
import gc
import json
import os
import signal
import sys
from pathlib import Path

import polars as pl

from anabranch.kernels.keyed.rows import ColumnState, Shape
from anabranch.kernels.lane_task import LaneState
from anabranch.runtime.aside import AtOnce
from anabranch.runtime.resident_files import StateFiles
from anabranch.runtime.resident_state import Residence

EPOCHS, ROWS = 8, 30_000
SHAPE = Shape.of(["k"], pl.Schema({"k": pl.String}), {}, one=True)


def anonymous() -> int:
    """The bytes that no file stands behind, without those that are given back when asked for."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
    return 1024 * (sizes["Anonymous"] - sizes["LazyFree"])


def epoch(number: int) -> pl.DataFrame:
    """New keys of about 800 bytes, of all slices."""
    first = number * ROWS
    at = pl.int_range(first, first + ROWS, dtype=pl.Int64, eager=True)
    text = pl.concat_str(at, pl.lit(" is a long key" * 56))
    return pl.select((at % 128).cast(pl.UInt16).alias("slice"), text.alias(SHAPE.keys[0]))


def main(memory: int, directory: Path, *, die: bool) -> None:
    """Take epochs; tell what there is at the end."""
    before = anonymous()
    residence = Residence(AtOnce(), StateFiles(directory), memory)
    states, newest = {"0": LaneState({"seen": ColumnState.from_deltas(SHAPE, ())})}, "0"
    for number in range(EPOCHS):
        view = states[newest].views["seen"]
        assert isinstance(view, ColumnState)
        newest = str(number + 1)
        states = {newest: LaneState({"seen": view.then(epoch(number), None)}).fold()}
        del view
        (sizes,) = residence.settle(states, [newest])
        if die:
            assert sizes["seen"].disk
            os.kill(os.getpid(), signal.SIGKILL)
    found = states[newest].views["seen"].find(epoch(3).head(10))  # type: ignore[attr-defined]
    assert found.height == 10
    held = sizes["seen"]
    told = {"anonymous": anonymous() - before, "memory": held.memory, "disk": held.disk}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), die="die" in sys.argv[3:])
