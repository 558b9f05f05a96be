"""Says, as JSON, where keys are kept and what is kept of them: in a process with its own hash seed.

The arguments are a directory for a checkpoint, and after how many steps to let go of the query.
"""

import hashlib
import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl

import anabranch as ab
from anabranch.state.delta import unpack
from anabranch.state.slices import slice_of
from tests.runtime.test_inline import run

KEYS = {
    pl.String: ["", "\0", "a\0b", "é", "e\u0301", "💧", "\U0010ffff", "x" * (1 << 20), None],
    pl.Binary: [b"", b"\0", b"\xff\xfe", b"a" * 100, None],
    pl.Float64: [0.0, -0.0, float("nan"), float("inf"), 5e-324, -1.5, None],
    pl.Int64: [0, -1, 2**63 - 1, -(2**63), None],
    pl.Decimal(38, 2): [Decimal(0), Decimal("-0.01"), Decimal(10) ** 35, None],
    pl.Datetime("us"): [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), None],
    pl.Datetime("us", "UTC"): [datetime(1970, 1, 1, tzinfo=UTC), None],
}


def slices():
    found = {}
    for dtype, keys in KEYS.items():
        frame = pl.DataFrame({"k": pl.Series(keys, dtype=dtype)})
        found[str(dtype)] = slice_of(frame, ["k"], 128).to_list()
    return found


def gather(record, state):
    """State whose order is nobody's business but the hash seed's."""
    seen = state.value or {"set": set(), "dict": {}}
    seen["set"] |= {record["v"], record["v"] + "!"}
    seen["dict"] = {each: len(each) for each in sorted(seen["set"])}
    state.map[record["v"]] = frozenset({record["v"], record["k"]})
    state.value = seen
    yield {"k": record["k"], "n": len(seen["set"]), "all": " ".join(sorted(seen["set"]))}


def program(home):
    made = ab.Program("seeds")
    rows = [{"k": f"k{i % 5}", "v": f"v{i * 7 % 31}"} for i in range(40)]
    read = made.read(ab.sources.Records(rows, schema={"k": pl.String, "v": pl.String}), name="in")
    out = {"k": pl.String, "n": pl.Int64, "all": pl.String}
    gathered = read.key_by("k").process(gather, out=out, name="gather")
    gathered.write(ab.sinks.Files(Path(home) / "out", format="parquet"), name="out")
    return made


def deltas(home):
    """Digests of what the state's files hold, in the order of their epochs and lanes."""
    found = []
    for file in sorted((Path(home) / "ckpt" / "state").rglob("*.delta")):
        frame = unpack(file.read_bytes(), file.name).frame
        name = file.name.split("_")
        found.append(
            [name[0], name[2], hashlib.sha256(frame.write_ipc(None).getvalue()).hexdigest()]
        )
    return sorted(found)


if __name__ == "__main__":
    home, stop = Path(sys.argv[1]), int(sys.argv[2])
    run(program(home), home / "ckpt", rows=4, stop_after=stop)
    json.dump({"slices": slices(), "deltas": deltas(home), "hash": hash("a")}, sys.stdout)
