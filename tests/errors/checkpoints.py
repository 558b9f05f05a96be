"""Checkpoints that are damaged, hostile, another program's, or somebody else's just now.

Each takes a directory of its own, in which a query has run for a while, and is started again.
"""

import io
import json
import os
import pickle

import polars as pl
from crc32c import crc32c

import anabranch as ab
from anabranch.api.starting import start
from anabranch.epoch.triggers import available_now, epochs
from anabranch.observe.checkpoint import why_of
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import InlineExecutor
from anabranch.state.delta import _FOOTER, _HEADER, _MAGIC, _divide
from anabranch.state.envelope import as_line, seal
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock
from tests.errors.running import ROWS, run


def counting(name="counting", *, key="user", of="count", source=None, out="n"):
    """A program with state; the arguments are what may have changed since."""
    program = ab.Program(name)
    rows = program.read(source or ab.sources.Records(ROWS), name="rows", event_time="at")

    def count(record, state):
        state.value = (state.value or 0) + 1
        yield {key: record[key], out: state.value}

    types = {"user": pl.String, "n": pl.Int64}
    given = rows.key_by(key).process(count, out={key: types[key], out: pl.Int64}, name=of)
    given.write(ab.sinks.Memory("out"))
    return program


def begun(place):
    """A checkpoint in which there are commits; what it holds."""
    settings = Settings(available_now(2), place / "ckpt", 2, slices=8, in_flight=1)
    assembled = assemble(counting().freeze(), settings, InlineExecutor(), MockClock())
    while len(list((place / "ckpt" / "commits").glob("*"))) < 3:
        assembled.loop.step()
    assembled.loop._pool.shutdown(wait=True)
    assembled.close()
    return recover(LocalStore(place / "ckpt"))


def newest(place):
    return place / "ckpt" / begun(place).history[-1].path


def delta(place):
    return place / "ckpt" / begun(place).chains["count"][-1].path


def again(place, program=None, **options):
    run(program or counting(), place, **options)


def a_commit_that_is_a_pickle(place):
    newest(place).write_bytes(pickle.dumps({"commit": 4}))
    again(place)


def metadata_that_are_a_symbolic_link(place):
    begun(place)
    (place / "ckpt" / "metadata").rename(place / "metadata")
    (place / "ckpt" / "metadata").symlink_to(place / "metadata")
    again(place)


def a_checkpoint_that_is_a_symbolic_link(place):
    begun(place)
    (place / "ckpt").rename(place / "elsewhere")
    (place / "ckpt").symlink_to(place / "elsewhere")
    again(place)


def a_folder_that_is_a_symbolic_link(place):
    begun(place)
    (place / "ckpt" / "commits").rename(place / "elsewhere")
    (place / "ckpt" / "commits").symlink_to(place / "elsewhere")
    again(place)


def a_commit_that_names_a_file_of_elsewhere(place):
    commit = begun(place).history[-1]
    content = json.loads(commit.to_bytes().splitlines()[1])
    spoilt = {**content, "deltas": {"count": [[0, "../../../etc/passwd"]]}}
    (place / "ckpt" / commit.path).write_bytes(seal(spoilt))
    again(place)


def a_pipe_in_the_place_of_the_metadata(place):
    begun(place)
    (place / "ckpt" / "metadata").unlink()
    os.mkfifo(place / "ckpt" / "metadata")
    again(place)


def a_directory_in_the_place_of_the_next_commit(place):
    file = newest(place)
    file.with_name(f"{int(file.name) + 1:010d}").mkdir()
    again(place)


def a_commit_of_a_gigabyte(place):
    os.truncate(newest(place), 1 << 30)
    again(place)


def a_checkpoint_that_everybody_may_write_to(place):
    begun(place)
    (place / "ckpt").chmod(0o777)
    again(place)


def a_commit_of_a_newer_version(place):
    file = newest(place)
    file.write_bytes(b"v7\n" + file.read_bytes()[3:])
    again(place)


def a_delta_of_a_newer_version(place):
    file = delta(place)
    file.write_bytes(b"anabranch delta v9\n" + file.read_bytes()[len(_HEADER) :])
    again(place)


def a_checkpoint_of_a_newer_format(place):
    begun(place)
    file = place / "ckpt" / "metadata"
    content = json.loads(file.read_bytes().splitlines()[1])
    file.write_bytes(seal({**content, "format": 2}))
    again(place)


def a_truncated_commit(place):
    file = newest(place)
    file.write_bytes(file.read_bytes()[:-30])
    again(place)


def a_commit_that_was_changed_by_hand(place):
    file = newest(place)
    file.write_bytes(file.read_bytes().replace(b'"lanes":2', b'"lanes":3'))
    again(place)


def a_delta_that_is_missing(place):
    delta(place).unlink()
    again(place)


def a_delta_with_a_flipped_bit(place):
    file = delta(place)
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)
    again(place)


def a_delta_whose_rows_are_compressed(place):
    file = delta(place)
    body, trailer = _divide("", file.read_bytes())
    stream = io.BytesIO(_HEADER)
    stream.seek(0, io.SEEK_END)
    pl.read_ipc_stream(body[len(_HEADER) :]).write_ipc_stream(stream, compression="zstd")
    body = stream.getvalue()
    line = as_line({**json.loads(trailer), "length": len(body), "crc32c": crc32c(body)})
    file.write_bytes(body + line + _FOOTER.pack(len(line), crc32c(line), _MAGIC))
    again(place)


def metadata_that_is_missing(place):
    begun(place)
    (place / "ckpt" / "metadata").unlink()
    why_of(place / "ckpt", MockClock())


def a_checkpoint_of_another_program(place):
    begun(place)
    again(place, counting("summing"))


def an_operator_that_has_changed(place):
    begun(place)
    again(place, counting(key="n", out="m"))


def an_operator_that_was_renamed(place):
    begun(place)
    again(place, counting(of="counted"))


def a_source_of_another_kind(place):
    begun(place)
    made = ab.sources.Generator(
        lambda n: {"user": "a", "n": n, "at": n},
        schema={"user": pl.String, "n": pl.Int64, "at": pl.Int64},
        rows=3,
    )
    again(place, counting(source=made))


def more_slices_than_there_were(place):
    begun(place)
    again(place, slices=16)


def a_checkpoint_that_another_driver_took(place):
    """The other one begins while this one runs: this one is fenced at its next commit."""
    taken = []

    def take(rows, epoch):
        if not taken:
            taken.append(place)
            run(copying(lambda rows, epoch: None), place)

    def copying(then):
        program = ab.Program("copying")
        program.read(ab.sources.Records(ROWS), name="rows").write(
            ab.sinks.Callback(then), name="out"
        )
        return program

    run(copying(take), place)


def a_savepoint_where_something_is(place):
    settings = Settings(epochs("1 h"), place / "ckpt", 1, slices=8, in_flight=1)
    (place / "in").mkdir()
    pl.DataFrame(ROWS).write_parquet(place / "in" / "rows.parquet")
    source = ab.sources.Files(place / "in")
    query = start(counting(source=source).freeze(), settings, InlineExecutor())
    query.process_all_available()
    try:
        query.savepoint(place)
    finally:
        query.stop()


def a_directory_that_is_no_checkpoint(place):
    why_of(place, MockClock())


_HELPERS = {"counting", "begun", "newest", "delta", "again"}
CASES = [
    case
    for name, case in list(globals().items())
    if getattr(case, "__module__", None) == __name__ and name not in _HELPERS
]
