"""`anabranch state`: what operators keep, whether the files are whole, all of it as Parquet."""

import json
from dataclasses import dataclass
from datetime import datetime
from itertools import count

import duckdb
import polars as pl
import pytest

import anabranch as ab
from anabranch.cli import main
from anabranch.cli.kept_values import as_text, processed
from anabranch.cli.lasting import Lasting
from anabranch.cli.verify import verify
from anabranch.epoch.triggers import available_now
from anabranch.errors import CheckpointError
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import KIND, InlineExecutor
from anabranch.state.codec import encode
from anabranch.state.delta import Delta, pack
from anabranch.state.layout import Commit
from anabranch.state.recovery import read_state, recover
from anabranch.state.retention import needed_links
from anabranch.state.store import LocalStore
from anabranch.testing import EOF, MockClock, TestingSource
from tests.runtime.programs import PROGRAMS
from tests.runtime.test_inline import made, run

ROWS = [("a", 1), ("b", 2), ("a", 3), ("b", 12), ("a", 14)]
"""After them the watermark is 14 ms."""


def ms(number):
    return datetime(1970, 1, 1, microsecond=1000 * number)


def program_of(build, tmp_path):
    """A program over the rows, which the run reads up to their end and does not finish."""
    program = ab.Program("kept")
    items = [{"k": k, "t": t} for k, t in ROWS]
    source = TestingSource([*items[:2], *items[2:], EOF, {"k": "z", "t": 1000}])
    stream = program.read(source, name="in", event_time="t")
    build(stream).write(ab.sinks.Files(tmp_path / "out", format="parquet"))
    return program


def exported(build, tmp_path):
    """What is exported of the one operator with state."""
    run(program_of(build, tmp_path), tmp_path / "ckpt", rows=2)
    assert 0 == main(["state", str(tmp_path / "ckpt"), "--export", str(tmp_path / "state")])
    (file,) = (tmp_path / "state").iterdir()
    frame = pl.read_parquet(file)
    assert frame.height == duckdb.sql(f"select count(*) from '{file}'").fetchall()[0][0]
    assert {"operator", "slice"} < {*frame.columns}
    assert [file.stem] == frame["operator"].unique().to_list()
    return frame.drop("operator", "slice").sort(pl.all().exclude(pl.List(pl.Struct)))


@ab.operator(out={"n": pl.Int64})
def everything(row, state):
    state.value = (state.value or 0) + 1
    state.list.append((row["t"], b"x"))
    state.map[row["t"]] = {"twice": 2 * row["t"]}
    return {"n": state.value}


def test_a_process_operator_keeps_values_lists_and_maps(tmp_path):
    found = exported(lambda s: s.key_by("k").process(everything), tmp_path)

    assert {"k", "part", "at", "value"} == {*found.columns}
    values = found.filter(pl.col("part") == "value").select("k", "value").rows()
    assert [("a", "3"), ("b", "2")] == sorted(values)
    of_b = found.filter(pl.col("k") == "b").select("part", "at", "value").rows()
    assert {
        ("value", None, "2"),
        ("map", "2", '{"twice": 4}'),
        ("map", "12", '{"twice": 24}'),
    } == {row for row in of_b if row[0] != "list"}
    assert ['[2, "x"]', '[12, "x"]'] == [value for part, _, value in of_b if part == "list"]


class Alarm(ab.KeyedOperator):
    out = {"n": pl.Int64}

    def on_record(self, record, state):
        state.timer_at(record["t"] + 10)
        yield from ()

    def on_timer(self, at, state):
        yield {"n": at}


def test_timers_that_have_fired_are_not_kept(tmp_path):
    """Timers are at 11, 12, 13, 22 and 24 ms, the watermark at 14."""
    found = exported(lambda s: s.key_by("k").process(Alarm), tmp_path)

    timers = found.filter(pl.col("part") == "timer").select("k", "at").rows()
    assert [("a", "24000"), ("b", "22000")] == sorted(timers)


def test_a_time_to_live_ends_what_is_kept(tmp_path):
    """With 1 ms to live only a is there at 14 ms, and has forgotten what it was at 3 ms."""
    found = exported(lambda s: s.key_by("k").process(everything, ttl="1 ms"), tmp_path)

    assert ["a"] == found["k"].unique().to_list()
    assert ["1"] == found.filter(pl.col("part") == "value")["value"].to_list()


def test_windows_that_have_left_are_not_kept(tmp_path):
    """[0, 10) has left at 14 ms, [10, 20) has not."""
    found = exported(lambda s: s.window(ab.tumbling("10 ms"), by="k").agg(c=ab.count()), tmp_path)

    of = found.group_by("k", "pane_start").agg(pl.col("n").sum()).sort("k").rows()
    assert [("a", ms(10), 1), ("b", ms(10), 1)] == of


def test_panes_are_kept_while_a_window_needs_them(tmp_path):
    """Of windows of 10 ms every 5 ms [5, 15) to [10, 20) need 10 ms and later; all ends at 14."""
    window = ab.sliding("10 ms", "5 ms")
    found = exported(lambda s: s.window(window, by="k").agg(c=ab.count()), tmp_path)

    assert {("b", ms(10)), ("a", ms(10))} == {*found.select("k", "pane_start").rows()}


def test_sessions_that_have_ended_are_not_kept(tmp_path):
    """[1, 8) of a and [2, 7) of b have ended at 14 ms; [12, 17) of b and [14, 19) of a have not."""
    found = exported(lambda s: s.window(ab.session("5 ms"), by="k").agg(c=ab.count()), tmp_path)

    assert [("a", ms(14), ms(19)), ("b", ms(12), ms(17))] == sorted(
        found.select("k", "start", "end").rows()
    )


def test_the_last_rows_of_a_key_are_kept(tmp_path):
    found = exported(lambda s: s.window(ab.rows(2), by="k").agg(c=ab.count()), tmp_path)

    assert [("a", 1), ("b", 0)] == sorted(found.select("k", "seen").rows())


def test_a_reduce_keeps_a_record_a_key(tmp_path):
    def later(value, record):
        return {"k": record["k"], "t": value["t"] + record["t"]}

    found = exported(lambda s: s.key_by("k").reduce(later), tmp_path)

    assert [("a", "a", 18), ("b", "b", 14)] == sorted(
        found.select("k", "value.k", "value.t").rows()
    )


@pytest.mark.parametrize(("within", "kept"), [(None, ["a", "b"]), ("3 ms", ["a", "b"])])
def test_a_deduplicate_keeps_what_it_may_meet_again(within, kept, tmp_path):
    found = exported(lambda s: s.key_by("k").deduplicate(within=within), tmp_path)

    assert kept == sorted(found["k"].to_list())


def test_a_join_keeps_what_may_still_match(tmp_path):
    """Within 1 ms of 14 ms and later is only what is at 13 ms or later."""

    def build(stream):
        other = stream.with_columns(u=pl.col("t")).select("k", "u")
        return stream.join(other, on="k", within="1 ms")

    found = exported(build, tmp_path)

    assert {("a", "left", ms(14)), ("a", "right", ms(14))} == {
        *found.select("k", "side", "time").rows()
    }


def test_rows_that_wait_for_their_turn_are_kept(tmp_path):
    found = exported(lambda s: s.in_time_order(), tmp_path)

    assert [(ms(14), "a", 14)] == found.select("time", "value.k", "value.t").rows()


def test_rows_that_come_out_of_a_feedback_next_are_kept(tmp_path):
    program = ab.Program("kept")
    items = [{"k": k, "t": t} for k, t in ROWS]
    stream = program.read(TestingSource([*items, EOF, {"k": "z", "t": 1000}]), event_time="t")
    back = program.feedback({"k": pl.String, "t": pl.Int64}, name="again")
    back.close(stream)
    back.write(ab.sinks.Files(tmp_path / "out", format="parquet"))
    run(program, tmp_path / "ckpt", rows=2)

    assert 0 == main(["state", str(tmp_path / "ckpt"), "--export", str(tmp_path / "state")])

    found = pl.read_parquet(tmp_path / "state" / "again.parquet")
    assert [("a", 14)] == found.select("value.k", "value.t").rows()


@pytest.fixture
def checkpoint(tmp_path):
    build = made("campaign_views", tmp_path, partitions=2)
    run(build, tmp_path / "ckpt", stop_after=6, in_flight=2)
    return tmp_path / "ckpt"


def test_state_tells_operators_versions_slices_and_keys(checkpoint, capsys):
    assert 0 == main(["state", str(checkpoint), "--json", "--keys", "2"])

    (one,) = json.loads(capsys.readouterr().out)["operators"]
    assert one["kind"].startswith("window")
    assert one["whole"]
    assert one["rows"] >= one["slices"] > 0
    assert 2 == len(one["keys"])
    assert all(set(sample) == {"slice", "key"} for sample in one["keys"])
    assert one["epochs"][0] <= one["epochs"][1]
    assert 0 == main(["state", str(checkpoint), "--keys", "0"])
    assert "operator  " in capsys.readouterr().out


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_can_be_told_checked_and_exported_at_any_width(name, tmp_path, capsys):
    checkpoint = tmp_path / "ckpt"
    run(made(name, tmp_path), checkpoint, lanes=2, stop_after=4, in_flight=2)
    run(made(name, tmp_path), checkpoint, lanes=3, rescale=((2, 2), (5, 4)), in_flight=2)

    assert 0 == main(["state", str(checkpoint)])
    assert 0 == main(["state", str(checkpoint), "--verify"]), capsys.readouterr().out
    assert 0 == main(["state", str(checkpoint), "--export", str(tmp_path / "all.parquet")])

    found = pl.read_parquet(tmp_path / "all.parquet")
    assert ["operator", "slice", "key", "value"] == found.columns
    assert all(json.loads(text) is not None for text in found["value"])


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_after_a_change_of_width_nothing_is_counted_twice(lanes, tmp_path):
    def build(program):
        rows = [{"k": n % 5} for n in range(60)]
        keyed = program.read(ab.sources.Records(rows)).key_by("k").process(everything_of, name="p")
        keyed.write(ab.sinks.Files(tmp_path / "out", format="parquet"))
        return program

    @ab.operator(out={"n": pl.Int64})
    def everything_of(row, state):
        state.value = (state.value or 0) + 1
        state.list.append(state.value)
        return {"n": state.value}

    rescale = ((3, 4), (8, lanes))
    run(build(ab.Program("widths")), tmp_path / "ckpt", rescale=rescale, in_flight=2)
    assert 0 == main(["state", str(tmp_path / "ckpt"), "--export", str(tmp_path / "state")])

    found = pl.read_parquet(tmp_path / "state" / "p.parquet")
    values = found.filter(pl.col("part") == "value").select("k", "value").rows()
    assert [(k, "12") for k in range(5)] == sorted(values)
    assert 60 == found.filter(pl.col("part") == "list").height


def test_export_overwrites_nothing_unless_it_is_told_to(checkpoint, tmp_path, capsys):
    for name in ("one.parquet", "many"):
        to = tmp_path / name
        given = ["state", str(checkpoint), "--export", str(to), "--json"]
        assert 0 == main(given)
        before = to.stat().st_mtime_ns
        capsys.readouterr()
        assert 1 == main(given)
        assert "is there already" in json.loads(capsys.readouterr().out)["error"]["message"]
        assert before == to.stat().st_mtime_ns
        assert 0 == main([*given, "--force"])
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]


def test_export_replaces_no_directory_of_other_things(checkpoint, tmp_path, capsys):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")

    assert 1 == main(["state", str(checkpoint), "--export", str(mine), "--force"])

    assert "other files than an export has" in capsys.readouterr().err
    assert "mine" == (mine / "notes.txt").read_text()
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".")]


def test_an_export_that_fails_leaves_nothing(checkpoint, tmp_path, capsys):
    delta = next((checkpoint / "state").rglob("*.delta"))
    _damage(delta)

    assert 1 == main(["state", str(checkpoint), "--export", str(tmp_path / "out.parquet")])

    assert "CheckpointError" in capsys.readouterr().err
    assert not [each for each in tmp_path.iterdir() if "parquet" in each.name]


def _damage(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.chmod(0o600)
    file.write_bytes(data)


def problems(checkpoint, capsys):
    assert 1 == main(["state", str(checkpoint), "--verify", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (False, "CheckpointError") == (found["ok"], found["error"]["type"])
    return found["problems"]


def test_a_whole_checkpoint_is_whole(checkpoint, capsys):
    assert 0 == main(["state", str(checkpoint), "--verify"])

    assert capsys.readouterr().out.startswith("whole: ")


@pytest.mark.parametrize("folder", ["state", "commits", "epochs", "published", "program", "lease"])
def test_a_byte_that_was_changed_is_told_with_its_file(folder, checkpoint, capsys):
    file = max(path for path in (checkpoint / folder).rglob("*") if path.is_file())
    if folder == "epochs":
        latest = recover(LocalStore(checkpoint)).latest
        file = checkpoint / next(iter(latest.values())).path
    _damage(file)

    assert any(str(file.relative_to(checkpoint)) in each for each in problems(checkpoint, capsys))


def test_every_file_of_the_state_that_is_damaged_is_told(checkpoint, capsys):
    files = sorted((checkpoint / "state").rglob("*.delta"))[:2]
    for file in files:
        _damage(file)

    found = problems(checkpoint, capsys)
    assert 2 <= len(found)
    assert all(any(file.name in each for each in found) for file in files)


def test_a_file_that_is_gone_is_told(checkpoint, capsys):
    file = next((checkpoint / "state").rglob("*.delta"))
    file.unlink()

    assert any(file.name in each and "missing" in each for each in problems(checkpoint, capsys))


def test_a_delta_under_the_name_of_another_is_told(checkpoint, capsys):
    one, two = sorted((checkpoint / "state").rglob("*_0_*.delta"))[:2]
    one.chmod(0o600)
    one.write_bytes(two.read_bytes())

    assert any("under another name" in each for each in problems(checkpoint, capsys))


def test_looking_takes_no_lease_and_changes_nothing(checkpoint, tmp_path):
    def content():
        return {path: path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}

    before = content()
    verify(LocalStore(checkpoint))
    main(["state", str(checkpoint), "--export", str(tmp_path / "x")])
    main(["state", str(checkpoint)])
    assert before == content()


@dataclass
class Own:
    n: int


def test_a_class_that_is_not_known_here_is_told_as_bytes():
    code = encode((Own(3),)).replace(b"Own", b"Owm")
    parts = {"slice": [1], "kind": [0], "key": [encode(("a",))], "part": [0], "value": [code]}
    found = processed(pl.DataFrame(parts), {"key": ("k: String",)}, Lasting())

    assert ["a"] == found["k"].to_list()
    assert code.hex() == json.loads(found["value"][0])["undecoded"]


def test_any_value_has_a_text():
    nan = float("nan")

    assert '{"a": [1, "nan", true, null], "[2]": ["x"]}' == as_text(
        {"a": (1, nan, True, None), (2,): {"x"}}
    )


class Restless(LocalStore):
    """A store whose query goes on whenever somebody reads."""

    def __init__(self, root, go_on):
        super().__init__(root)
        self.go_on = go_on

    def read(self, path):
        self.go_on()
        return super().read(path)


def running(tmp_path, every, keep, rows=200, chain=1):
    """A query, and a store that lets it take a step whenever so many files were read."""
    program = made("campaign_views", tmp_path, count=rows)
    settings = Settings(available_now(7), tmp_path / "ckpt", 2, slices=8, keep=keep, in_flight=2)
    assembled = assemble(program.freeze(), settings, InlineExecutor(0, KIND), MockClock())
    reads = count(1)

    def go_on():
        if next(reads) % every == 0 and not assembled.loop.over:
            assembled.loop.step()

    while len(recover(LocalStore(tmp_path / "ckpt")).chains.get("window-1", ())) < chain:
        assembled.loop.step()
    return assembled, Restless(tmp_path / "ckpt", go_on)


@pytest.mark.slow
def test_a_query_that_runs_meanwhile_is_no_damage(tmp_path):
    """It commits and lets go of files while others are read."""
    assembled, store = running(tmp_path, every=12, keep=3)

    looks = 0
    while not assembled.loop.over:
        assert [] == verify(store).problems
        assert 0 == main(["state", str(tmp_path / "ckpt")])
        looks += 1
    assembled.loop.close()
    assembled.close()
    assert looks > 3


@pytest.mark.slow
def test_a_query_that_is_too_fast_to_be_read_is_no_damage_either(tmp_path):
    assembled, store = running(tmp_path, every=2, keep=1, rows=1000, chain=20)

    with pytest.raises(CheckpointError, match="cannot be checked while its query runs"):
        verify(store)
    assembled.loop.close()
    assembled.close()


def test_of_slices_that_a_snapshot_has_nothing_older_counts(tmp_path):
    """One lane wrote slices 0 and 1; then there are two, and the first has taken a snapshot."""

    def delta(run, lane, epoch, slices, kind="delta"):
        frame = pl.DataFrame({"slice": slices, "of": [epoch] * len(slices)})
        frame = frame.with_columns(pl.col("slice").cast(pl.UInt16))
        name = f"e{epoch}l{lane}"
        return Delta("n", lane, run, epoch, epoch, name, frame, kind=kind)

    old, snapshot, other = (
        delta(1, 0, 0, [0, 1]),
        delta(2, 0, 1, [0], "snapshot"),
        delta(2, 1, 1, [1]),
    )
    first = Commit(0, 0, owners=(0, 0), lanes=1, deltas={"n": {0: old.path}}, number=1)
    paths = {0: snapshot.path, 1: other.path}
    second = Commit(1, 1, owners=(0, 1), lanes=2, deltas={"n": paths}, number=2)
    links = sorted(needed_links([first, second]), key=lambda link: (link.number, link.lane))

    store = LocalStore(tmp_path)
    for each in (old, snapshot, other):
        store.create(each.path, pack(each))

    frames = read_state(store, [link.part for link in links])

    assert [[(1, 0)], [(1, 1)], [(0, 1)]] == [frame.rows() for frame in frames]
