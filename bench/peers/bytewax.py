"""Bytewax's process: `python -m bench.peers.bytewax ORDER RESULT`, by an interpreter with it.

One dataflow a case. An item is a file: Arrow reads it, keeps its views, finds their campaigns and
counts them by window, so that Python sees a hundred partial counts a window and not every event;
Bytewax's windows add them up. Recovery is on, and what is in the output counts once the position
in it is in the recovery store: after a crash the output is cut off behind it.

A key's watermark goes by that key's items alone, so a file gives every campaign a partial count a
window, if need be of 0, and that of the last window at the file's last moment. Several readers
could not be kept in step: there is one, and Arrow's threads are what makes it parallel.

With `items` events it is as the documentation of Bytewax has it: every event is an item, which
Python's functions filter, look up and count; each file ends with one of every campaign that counts
nothing.
"""

from __future__ import annotations

import csv
import json
import pickle
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.peers.task import (
    ADS,
    CORES,
    LATENESS_MS,
    PATIENCE_S,
    WINDOW_MS,
    Task,
    Timed,
    answer,
    read,
    run,
)

BEGINNING = datetime.fromtimestamp(0, UTC)
_AWAKE = timedelta(milliseconds=1)
_IN, _OUT, _OVER, _STORE = "in", "out.csv", "over", "recovery"


def main(arguments: list[str]) -> None:
    """Do what is ordered; without a RESULT, only run the dataflows."""
    tasks = read(Path(arguments[0]))
    if len(arguments) == 1:
        import_module("pyarrow").set_cpu_count(CORES)
        for task in tasks:
            _flows(task)
    else:
        Path(arguments[1]).write_text(json.dumps(_told(tasks, arguments[0])))


def _told(tasks: Sequence[Task], order: str) -> list[dict[str, Any]]:
    """What was found, with the dataflows in a process of their own.

    The recovery store is SQLite's: a second copy of SQLite in its process would take away its locks
    on closing the file, and the store would be damaged.
    """
    for task in tasks:
        (task.home / _IN).mkdir(parents=True)
    flows = subprocess.Popen([sys.executable, "-m", "bench.peers.bytewax", order])
    try:
        timed = [_timed(task, flows) for task in tasks]
        if flows.wait(PATIENCE_S):
            message = f"the dataflows ended with {flows.returncode}"
            raise RuntimeError(message)
    finally:
        flows.kill()
    for task in tasks:
        _gather(task)
    # The end of the input closes all windows.
    ends = [(task.due_ms(task.last) // WINDOW_MS + 1) * WINDOW_MS for task in tasks]
    return [answer(*each) for each in zip(tasks, timed, ends, strict=True)]


def _timed(task: Task, flows: subprocess.Popen[bytes]) -> Timed:
    found = run(task, _Query(task, flows))
    (task.home / _OVER).touch()
    return found


def _flows(task: Task) -> None:
    """The dataflow of one case, until its input is over."""
    recovery: Any = import_module("bytewax.recovery")
    store = task.home / _STORE
    store.mkdir()
    recovery.init_db_dir(store, 1)
    import_module("bytewax._bytewax").cluster_main(
        _flow(task),
        [],
        0,
        epoch_interval=timedelta(milliseconds=float(task.options["epoch_ms"])),
        recovery_config=recovery.RecoveryConfig(store),
        worker_count_per_proc=int(task.options["width"]),
    )


class _Query:
    """The dataflow of one case, seen from outside."""

    def __init__(self, task: Task, flows: subprocess.Popen[bytes]) -> None:
        self._task = task
        self._flows = flows
        self._out = task.home / _OUT
        self._read = 0
        self._rows: Counter[int] = Counter()
        self._campaigns = len(set(_campaigns(task).values()))

    def give(self, first: int, last: int) -> None:
        inputs = self._task.home / _IN
        draft = inputs / "_draft"
        draft.mkdir()
        for number in range(first, last):
            path = self._task.path(number)
            (draft / path.name).hardlink_to(path)
        draft.rename(inputs / f"{first:05d}")

    def committed(self, files: int) -> bool:
        if self._flows.poll() is not None:
            message = f"the dataflows ended with {self._flows.returncode}"
            raise RuntimeError(message)
        due = (self._task.due_ms(files) - LATENESS_MS) // WINDOW_MS * WINDOW_MS
        if self._rows[due] < self._campaigns:
            self._look()
        # Every campaign has a row for every window, and gives them in order.
        return self._rows[due] == self._campaigns and self._position() >= self._read

    def _look(self) -> None:
        """See how many rows of which windows are in the output."""
        if not self._out.exists():
            return
        with self._out.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        self._rows.update(int(line.partition(b",")[0]) for line in whole.splitlines())

    def _position(self) -> int:
        """Up to where the output is in the recovery store."""
        part = self._task.home / _STORE / "part-0.sqlite3"
        if not part.exists():
            return 0
        newest = "SELECT ser_change FROM snaps WHERE step_id = ? ORDER BY snap_epoch DESC LIMIT 1"
        with closing(sqlite3.connect(f"{part.as_uri()}?mode=ro", uri=True)) as store:
            found = store.execute(newest, ("ysb.out",)).fetchone()
        return 0 if found is None or found[0] is None else int(pickle.loads(found[0]))


def _gather(task: Task) -> None:
    """Turn the output into a file that the race reads; windows without views have no row in it."""
    with (task.home / _OUT).open(newline="") as file:
        told = [(int(end), campaign, int(views)) for end, campaign, views in csv.reader(file)]
    rows = [row for row in told if row[2]]
    arrow: Any = import_module("pyarrow")
    at = arrow.timestamp("us")
    ends = [end * 1000 for end, _, _ in rows]
    table = arrow.table(
        {
            "window_start": arrow.array([end - WINDOW_MS * 1000 for end in ends]).cast(at),
            "window_end": arrow.array(ends).cast(at),
            "campaign_id": [campaign for _, campaign, _ in rows],
            "views": [views for _, _, views in rows],
        }
    )
    task.output.mkdir(parents=True)
    import_module("pyarrow.parquet").write_table(table, task.output / "all.parquet")


def _flow(task: Task) -> Any:
    op: Any = import_module("bytewax.operators")
    windows: Any = import_module("bytewax.operators.windowing")
    files: Any = import_module("bytewax.connectors.files")
    flow = import_module("bytewax.dataflow").Dataflow("ysb")
    given = op.input("in", flow, _source(task.home))
    counted = (
        _events(op, given, task)
        if task.options["items"] == "events"
        else (op.flat_map("count", given, _Counter(task)))
    )
    clock = windows.EventClock(
        lambda partial: partial[0],
        timedelta(milliseconds=LATENESS_MS),
        # Event time alone, as with the others: no window closes because time goes by.
        now_getter=lambda: BEGINNING,
        to_system_utc=lambda _: None,
    )
    length = timedelta(milliseconds=WINDOW_MS)
    added = windows.fold_window(
        "add", counted, clock, windows.TumblingWindower(length, BEGINNING),
        lambda: 0, lambda total, partial: total + partial[1], lambda a, b: a + b,
        ordered=False,
    )  # fmt: skip
    op.output("out", op.map("line", added.down, _line), files.FileSink(task.home / _OUT))
    return flow


def _events(op: Any, files: Any, task: Task) -> Any:
    """Views by campaign, one of them an item."""
    campaigns = _campaigns(task)
    ads = {campaign: ad for ad, campaign in campaigns.items()}
    parquet: Any = import_module("pyarrow.parquet")

    def rows(path: str) -> Iterator[dict[str, Any]]:
        found = parquet.read_table(path, columns=["ad_id", "event_type", "event_time"]).to_pylist()
        yield from found
        last = max(each["event_time"] for each in found)
        for ad in ads.values():
            yield {"ad_id": ad, "event_type": "view", "event_time": last, "views": 0}

    def by_campaign(event: dict[str, Any]) -> tuple[str, tuple[datetime, int]]:
        at = event["event_time"].replace(tzinfo=UTC)
        return campaigns[event["ad_id"]], (at, event.get("views", 1))

    events = op.flat_map("rows", files, rows)
    views = op.filter("views", events, lambda event: event["event_type"] == "view")
    return op.map("campaign", views, by_campaign)


def _line(window: tuple[str, tuple[int, int]]) -> tuple[str, str]:
    campaign, (number, views) = window
    return "all", f"{(number + 1) * WINDOW_MS},{campaign},{views}"  # one key, as there is one file


def _campaigns(task: Task) -> dict[str, str]:
    with (task.work / ADS).open(newline="") as file:
        return dict(csv.reader(file))


class _Counter:
    """From a file to partial counts."""

    def __init__(self, task: Task) -> None:
        arrow: Any = import_module("pyarrow")
        campaigns = _campaigns(task)
        self._names = sorted(set(campaigns.values()))
        self._ads = arrow.array(list(campaigns))
        numbers = {name: number for number, name in enumerate(self._names)}
        self._numbers = arrow.array([numbers[each] for each in campaigns.values()], arrow.int32())
        self._parquet: Any = import_module("pyarrow.parquet")
        self._compute: Any = import_module("pyarrow.compute")

    def __call__(self, path: str) -> Iterator[tuple[str, tuple[datetime, int]]]:
        columns = ["ad_id", "event_type", "event_time"]
        events = self._parquet.read_table(path, columns=columns)
        last = self._compute.max(events["event_time"]).as_py().replace(tzinfo=UTC)
        counts = self._counts(events)
        begins = sorted({begin for begin, _ in counts})
        for begin in begins:
            at = last if begin == begins[-1] else begin
            for number, name in enumerate(self._names):
                yield name, (at, counts.get((begin, number), 0))

    def _counts(self, events: Any) -> dict[tuple[datetime, int], int]:
        compute = self._compute
        views = events.filter(compute.equal(events["event_type"], "view"))
        ads = compute.index_in(views["ad_id"], value_set=self._ads)
        begins = compute.floor_temporal(views["event_time"], WINDOW_MS // 1000, "second")
        columns = {"begin": begins, "number": compute.take(self._numbers, ads)}
        keys = import_module("pyarrow").table(columns)
        found = keys.group_by(list(columns)).aggregate([([], "count_all")])
        begin, number, count = (found[name].to_pylist() for name in (*columns, "count_all"))
        starts = (each.replace(tzinfo=UTC) for each in begin)
        return dict(zip(zip(starts, number, strict=True), count, strict=True))


def _source(home: Path) -> Any:
    """The files of a directory, by name, from where the last snapshot was."""
    bases: Any = import_module("bytewax.inputs")

    class Reader(bases.StatefulSourcePartition):  # type: ignore[misc]
        def __init__(self, done: int) -> None:
            self._done = done
            self._ahead: list[str] = []
            self._next: datetime | None = None

        def next_batch(self) -> list[str]:
            self._next = None
            if not self._ahead:
                # In this order: what is given before the end is seen is given for good.
                ended = (home / _OVER).exists()
                self._ahead = sorted(map(str, home.glob(f"{_IN}/0*/*.parquet")))[self._done :]
                if not self._ahead and ended:
                    raise StopIteration
            if not self._ahead:
                self._next = datetime.now(UTC) + _AWAKE
                return []
            self._done += 1
            return [self._ahead.pop(0)]

        def next_awake(self) -> datetime | None:
            return self._next

        def snapshot(self) -> int:
            return self._done

    class Source(bases.FixedPartitionedSource):  # type: ignore[misc]
        def list_parts(self) -> list[str]:
            return ["all"]

        def build_part(self, _step: str, _part: str, resume_state: int | None) -> Reader:
            return Reader(resume_state or 0)

    return Source()


if __name__ == "__main__":
    main(sys.argv[1:])
