"""What tasks do, the same in every shape: plain Polars, as the kernels will.

Head: read a file, filter, look up, count by window and campaign, divide by lane. Lane: merge the
counts into a versioned state, emit windows that are over, write the delta and the staged output.
"""

from __future__ import annotations

import gc
import io
import json
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from anabranch.runtime.exchange import PartName, Reference, read_part, write_parts
from anabranch.spark.private import pack_partition, task_property
from bench.shapes.workload import WINDOW_US
from bench.workloads import ysb

LANES = 2
HEAD_ITEMS, LANE_ITEMS = "bench.heads", "bench.lanes"
_KEYS = ("start", "campaign_id")
_LENGTH = struct.Struct("<i")
_versions: dict[tuple[str, int, int], tuple[int, pl.DataFrame, int]] = {}


def head(item: dict[str, Any]) -> dict[int, bytes]:
    """The partial counts of one partition of one epoch, by lane."""
    start = (pl.col("event_time").cast(pl.Int64) + item["shift"]) // WINDOW_US * WINDOW_US
    found = (
        pl.scan_parquet(item["path"], row_index_name="__ab_o")
        .filter(pl.col("event_type") == "view")
        .select("ad_id", "event_time", "__ab_o")
        .join(_ads().lazy(), on="ad_id")
        .group_by(start.alias("start"), "campaign_id", "lane")
        .agg(views=pl.len().cast(pl.Int64), first=pl.col("__ab_o").min())
        .collect()
    )
    parts = found.partition_by("lane", as_dict=True, include_key=False)
    return {int(lane): _to_blob(part) for (lane,), part in parts.items()}


def lane(item: dict[str, Any], lane_number: int, blobs: Iterable[bytes]) -> dict[str, Any]:
    """One epoch of one query in its lane."""
    key = (item["run"], item["q"], lane_number)
    version, state, emitted = _versions.get(key, (-1, None, 0))
    if version != item["e"] - 1:
        message = f"lane {lane_number} holds version {version} before epoch {item['e']}"
        raise RuntimeError(message)
    parts = [_from_blob(blob).select(*_KEYS, "views") for blob in blobs]
    delta = pl.concat(parts).group_by(_KEYS).agg(pl.col("views").sum())
    merged = delta if state is None else pl.concat([state, delta])
    merged = merged.group_by(_KEYS).agg(pl.col("views").sum())
    over = pl.col("start") + WINDOW_US <= item["w"]
    closed, kept = merged.filter(over).sort(_KEYS), merged.filter(~over)
    name = f"{item['q']}-{item['e']}-{lane_number}"
    out = Path(item["out"])
    (out / f"{name}.delta").write_bytes(_to_blob(delta))
    if closed.height:
        closed.write_parquet(out / f"{name}.parquet")
    emitted += int(closed["views"].sum())
    _forget_other_runs(item["run"])
    _versions[key] = (item["e"], kept, emitted)
    counted = emitted + int(kept["views"].sum())
    return {"q": item["q"], "e": item["e"], "lane": lane_number, "counted": counted}


# --- tasks over a shuffle ------------------------------------------------------------------------


def map_task(split: int, items: Iterator[bytes]) -> Iterator[bytes]:
    """All head items of one partition: a lane's number, a blob, a lane's number, ..."""
    list(items)
    for item in json.loads(task_property(HEAD_ITEMS) or "")[split]:
        label = json.dumps({"q": item["q"], "p": item["p"]}).encode()
        for to, blob in head(item).items():
            yield pack_partition(to)
            yield _LENGTH.pack(len(label)) + label + blob
    gc.freeze()  # as Lanes does: no shape pays for Spark's collection after each task


def reduce_task(lane_number: int, _split: int, items: Iterator[bytes]) -> Iterator[bytes]:
    """All lane items, in order; blobs are put into order first, since they come in any."""
    mine: dict[int, list[tuple[int, bytes]]] = {}
    for item in items:
        (length,) = _LENGTH.unpack_from(item)
        label = json.loads(item[_LENGTH.size : _LENGTH.size + length])
        mine.setdefault(label["q"], []).append((label["p"], item[_LENGTH.size + length :]))
    answers = []
    for item in json.loads(task_property(LANE_ITEMS) or ""):
        blobs = [blob for _, blob in sorted(mine[item["q"]])]
        answers.append(lane(item, lane_number, blobs))
    gc.freeze()
    yield json.dumps(answers).encode()


# --- tasks over files ----------------------------------------------------------------------------


def head_work(_plans: object, _index: int, payloads: Iterator[bytes]) -> Iterator[bytes]:
    """Head items, their parts written as files."""
    for payload in payloads:
        work = json.loads(payload)
        answers = []
        for item in work["items"]:
            name = PartName(work["run"], item["e"], item["p"], str(item["q"]))
            reference = write_parts(Path(work["exchange"]), name, head(item))
            answers.append({"q": item["q"], "reference": reference.as_json()})
        yield json.dumps(answers).encode()


def lane_work(_plans: object, index: int, payloads: Iterator[bytes]) -> Iterator[bytes]:
    """Lane items with references to their parts."""
    for payload in payloads:
        answers = []
        for item in json.loads(payload):
            references = [Reference.from_json(each) for each in item["parts"]]
            blobs = [read_part(each, index) for each in references]
            answers.append(lane(item, index, [blob for blob in blobs if blob is not None]))
        yield json.dumps(answers).encode()


@cache
def _ads() -> pl.DataFrame:
    number = pl.int_range(pl.len()) // ysb.ADS_EACH % LANES
    return ysb.ads().with_columns(lane=number.cast(pl.Int32))


def _forget_other_runs(run: str) -> None:
    for key in [key for key in _versions if key[0] != run]:
        del _versions[key]


def _to_blob(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer)
    return buffer.getvalue()


def _from_blob(blob: bytes) -> pl.DataFrame:
    return pl.read_ipc_stream(io.BytesIO(blob))
