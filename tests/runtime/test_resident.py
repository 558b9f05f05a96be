"""State that is larger than the memory it may have: on disk, and otherwise the same."""

import errno
import json
import logging
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import config
from anabranch.api.starting import start
from anabranch.config import StateMemory
from anabranch.epoch.triggers import available_now
from anabranch.kernels.keyed.parts import PartStore
from anabranch.runtime import resident_state
from anabranch.runtime.aside import AtOnce
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.memory import machine_memory
from anabranch.runtime.resident import Piece, to_disk
from anabranch.runtime.resident_files import StateFiles
from anabranch.runtime.resident_state import Residence
from anabranch.runtime.tasks import Worker
from anabranch.simulate.inline import UNKIND, InlineExecutor
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from tests.runtime.programs import PROGRAMS
from tests.runtime.test_inline import made, run, written

NOTHING = 0
"""Bytes that a lane may have for its state."""


@pytest.fixture
def files(monkeypatch):
    """Sees how often something is put into a file."""
    seen = mock.create_autospec(StateFiles.frame, side_effect=StateFiles.frame)
    monkeypatch.setattr(StateFiles, "frame", seen)
    # However few cells there are, they are in columns.
    monkeypatch.setitem(PartStore.from_frames.__func__.__kwdefaults__, "large", 0)
    return seen


def same_as_the_oracle(program, tmp_path):
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert expected
    assert_same_rows(expected, written(tmp_path / "out"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_without_memory_for_its_state_gives_what_it_means(name, tmp_path, files):
    run(made(name, tmp_path), tmp_path / "ckpt", memory=NOTHING, in_flight=2)

    same_as_the_oracle(made(name, tmp_path), tmp_path)
    assert files.call_count >= 3


@pytest.mark.parametrize("name", PROGRAMS)
def test_lanes_come_and_go_without_memory_for_their_state(name, tmp_path, files):
    long, rescale = made(name, tmp_path, count=120), ((2, 2), (8, 4), (14, 1))
    run(long, tmp_path / "ckpt", lanes=1, rescale=rescale, in_flight=2, memory=NOTHING)

    same_as_the_oracle(long, tmp_path)
    assert files.call_count >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("files")
def test_whatever_fails_the_output_is_the_same(name, seed, tmp_path):
    ways = {"seed": seed, "mischief": UNKIND, "lanes": 1 + seed % 3, "memory": NOTHING}
    program = made(name, tmp_path)
    run(program, tmp_path / "ckpt", stop_after=3 + seed, in_flight=2, **ways)
    run(program, tmp_path / "ckpt", rescale=((3, 3),), **ways)

    same_as_the_oracle(program, tmp_path)


# What goes to disk

pieces = st.lists(st.tuples(st.integers(0, 10_000), st.booleans(), st.booleans())).map(
    lambda drawn: [Piece(at, *each) for at, each in enumerate(drawn)]
)


@given(pieces, st.integers(0, 20_000))
def test_what_goes_is_enough_and_not_more_and_the_largest(pieces, memory):
    gone = to_disk(pieces, memory)
    here = {piece.number: piece for piece in pieces if not piece.on_disk}
    can = [x.size for x in here.values() if not x.fixed and x.size > memory // 64]
    resident = sum(piece.size for piece in here.values())
    left = resident - sum(here[at].size for at in gone)

    assert not any(here[at].fixed for at in gone)
    assert sorted((here[at].size for at in gone), reverse=True) == sorted(can)[::-1][: len(gone)]
    if resident <= memory:
        assert gone == ()
    elif len(gone) < len(can):
        assert left <= 0.75 * memory < left + here[gone[-1]].size
    assert (
        to_disk([Piece(x.number, x.size, x.on_disk or x.number in gone) for x in pieces], left)
        == ()
    )


# Files

KINDS = pl.DataFrame(
    {
        "slice": pl.Series([1, 2, 3], dtype=pl.UInt16),
        "text": ["a", None, "a text that is too long to lie within its place"],
        "bytes": [b"", b"x" * 40, None],
        "flag": [True, None, False],
        "time": pl.Series([1, 2, None]).cast(pl.Datetime("us", "UTC")),
        "day": pl.Series([1, None, 3], dtype=pl.Int32).cast(pl.Date),
        "list": [[1, 2], [], None],
        "both": pl.Series([[{"v": "text" * 9, "n": 1}], [], None]),
        "pair": pl.Series([[1, 2], [3, 4], [5, 6]], dtype=pl.Array(pl.Int64, 2)),
        "nothing": pl.Series([None, None, None]),
        "float": [0.0, float("nan"), -0.0],
    }
)
COPIED = KINDS.select(
    pl.col("slice").cast(pl.String).cast(pl.Categorical).alias("category"),
    pl.col("slice").cast(pl.Decimal(20, 2)).alias("decimal"),
    pl.Series("enum", ["x", "y", None], dtype=pl.Enum(["x", "y"])),
)


def open_files():
    return sorted(each.name for each in Path("/proc/self/fd").iterdir())


def places_of(path_part):
    """The stretches of memory that are files with this in their names."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    bounds = [line.split(" ")[0].split("-") for line in lines if path_part in line]
    return [(int(low, 16), int(high, 16)) for low, high in bounds]


def test_columns_of_a_frame_in_a_file_are_the_bytes_of_the_file(tmp_path):
    several = pl.concat([KINDS, KINDS], rechunk=False)
    found = StateFiles(tmp_path).frame(several)

    assert several.equals(found)
    assert several.schema == found.schema
    stretches = places_of(str(tmp_path))
    for name in found.columns:
        buffers = found[name].to_arrow(compat_level=pl.CompatLevel.newest()).buffers()
        for buffer in (each for each in buffers if each is not None and each.size):
            assert any(low <= buffer.address < high for low, high in stretches), name
    numbers = StateFiles(tmp_path).array(np.arange(5, dtype=np.uint64))
    assert [0, 1, 2, 3, 4] == numbers.tolist()
    assert any(low <= numbers.ctypes.data < high for low, high in places_of(str(tmp_path)))


def test_columns_that_cannot_be_mapped_are_the_same_all_the_same(tmp_path):
    found = StateFiles(tmp_path).frame(COPIED)

    assert COPIED.equals(found)
    assert COPIED.schema == found.schema


def test_a_file_has_no_name_and_goes_with_what_is_in_it(tmp_path):
    before, files = open_files(), StateFiles(tmp_path)
    frames = [files.frame(KINDS) for _ in range(3)]

    assert [] == list(tmp_path.iterdir())
    assert len(before) + 3 == len(open_files())
    assert all(KINDS.equals(each) for each in frames)
    del frames
    assert before == open_files()
    assert not places_of(str(tmp_path))


def test_a_file_of_another_process_is_mapped_while_that_one_has_it(tmp_path):
    files, others = StateFiles(tmp_path), StateFiles(tmp_path)
    frame, array = files.frame(KINDS), files.array(np.arange(3))
    places = files.place(frame), files.place(array)

    assert KINDS.equals(found := others.mapped(places[0], array=False))
    assert [0, 1, 2] == others.mapped(places[1], array=True).tolist()
    assert len(places_of(str(tmp_path))) >= 2
    assert others.place(found).inode == places[0].inode
    assert files.place(KINDS) is None
    with pytest.raises(FileNotFoundError):
        others.mapped(replace(places[0], inode=places[1].inode), array=False)
    with pytest.raises(FileNotFoundError):
        others.mapped(replace(places[0], host="another"), array=False)
    del frame
    with pytest.raises(FileNotFoundError):
        others.mapped(places[0], array=False)
    assert KINDS.equals(found)


# Memory that is really free


def process(*arguments):
    command = [sys.executable, "-m", "tests.runtime.resident_process", *map(str, arguments)]
    # The allocators of Polars and PyArrow give back at once what is free, else some time later.
    at_once = {
        "_RJEM_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0",
        "MIMALLOC_PURGE_DELAY": "0",
    }
    env = {**config.environment(), **at_once}
    return subprocess.run(command, capture_output=True, check=False, env=env)


@pytest.mark.slow
def test_memory_is_bounded_however_much_state_there_is(tmp_path):
    memory = 20_000_000
    whole, little = (json.loads(process(each, tmp_path).stdout) for each in (1 << 30, memory))

    size = whole["memory"]
    assert size > 9 * memory
    assert whole["disk"] == 0
    assert size < whole["anonymous"] * 1.1
    assert little["memory"] <= memory
    assert little["memory"] + little["disk"] >= size
    assert little["anonymous"] < 2 * memory


@pytest.mark.slow
def test_nothing_is_left_of_a_process_that_was_killed(tmp_path):
    died = process(0, tmp_path, "die")

    assert -signal.SIGKILL == died.returncode
    assert [] == list(tmp_path.iterdir())


# When there is no room


class Full(StateFiles):
    """A disk without room."""

    def frame(self, rows):
        raise OSError(errno.ENOSPC, "No space left on device")


class Odd(StateFiles):
    """What Arrow has no form for."""

    def frame(self, rows):
        raise pa.ArrowNotImplementedError


def held(program, tmp_path, monkeypatch, kind):
    monkeypatch.setattr("anabranch.runtime.tasks.StateFiles", kind)
    run(program, tmp_path / "ckpt", memory=NOTHING)
    same_as_the_oracle(program, tmp_path)


def test_a_full_disk_is_told_once_and_nothing_else_happens(tmp_path, monkeypatch, caplog):
    with caplog.at_level(logging.WARNING, "anabranch"):
        held(made("word_count", tmp_path), tmp_path, monkeypatch, Full)

    (record,) = caplog.records
    assert "state that is too much for the memory of lanes stays in it" in record.message
    assert "No space left on device in " in record.message
    assert "ANABRANCH_STATE_DIRECTORY" in record.message


def test_a_full_disk_is_left_alone_for_a_while(tmp_path):
    tries = []

    class Counting(Full):
        def frame(self, rows):
            tries.append(rows.height)
            return super().frame(rows)

    task = worker_of(tmp_path)._deployment.stages[0].task
    states = {"v": task.restore({"window-1": [window_rows(task)]})}
    residence = Residence(AtOnce(), Counting(tmp_path), NOTHING)
    for _ in range(resident_state.PATIENCE + 1):
        residence.settle(states, ["v"])
    assert 1 == len(tries)
    assert residence.crowded == f"No space left on device in {tmp_path}"
    residence.settle(states, ["v"])
    assert 2 == len(tries)


def test_what_arrow_has_no_form_for_stays_in_memory(tmp_path, monkeypatch, caplog):
    held(made("word_count", tmp_path), tmp_path, monkeypatch, Odd)

    assert not caplog.records


# How much it is


def worker_of(tmp_path, memory=NOTHING):
    settings = Settings(available_now(7), tmp_path / "x", 1, slices=8, state=StateMemory(memory))
    program = made("campaign_views", tmp_path)
    assembled = assemble(program.freeze(), settings, InlineExecutor(), MockClock())
    assembled.loop.close()
    assembled.close()
    return Worker(assembled.deployment)


def window_rows(task):
    empty = task.restore({}).views["window-1"].whole()
    return empty.clear(3).with_columns(pl.all().fill_null(strategy="zero"))


def test_progress_tells_what_is_in_memory_and_what_on_disk(tmp_path):
    told = {}
    for memory in (NOTHING, 1 << 30):
        settings = Settings(
            available_now(7), tmp_path / str(memory), 2, 8, in_flight=1, state=StateMemory(memory)
        )
        program = made("campaign_views", tmp_path)
        query = start(program.freeze(), settings, InlineExecutor())
        assert query.await_termination(60)
        told[memory] = [
            (each["memoryUsedBytes"], each["customMetrics"]["diskBytes"])
            for progress in query.recent_progress
            for each in progress["stateOperators"]
        ]

    assert all(memory == 0 for memory, _ in told[NOTHING])
    assert any(disk > 0 for _, disk in told[NOTHING])
    assert any(memory > 0 for memory, _ in told[1 << 30])
    assert all(disk == 0 for _, disk in told[1 << 30])


def test_a_container_s_limit_is_less_than_the_machine_s_memory(tmp_path):
    machine, limit, none = (tmp_path / name for name in "abc")
    machine.write_text("MemTotal:       1000 kB\nMemFree: 1 kB\n")
    limit.write_text("500000\n")
    none.write_text("max\n")

    assert 1_024_000 == machine_memory(machine, (none, tmp_path / "nowhere"))
    assert 500_000 == machine_memory(machine, (none, limit))
