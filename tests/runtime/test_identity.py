"""A query has one name for all its runs, and each run one of its own."""

import json

import anabranch as ab
from anabranch.api.starting import start
from anabranch.cli import main
from anabranch.epoch.triggers import available_now
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from anabranch.state.layout import Lease

PATIENCE_S = 60


def ran(checkpoint):
    program = ab.Program("numbers")
    program.read(ab.sources.Records([{"n": n} for n in range(3)])).write(ab.sinks.Memory("out"))
    settings = Settings(available_now(2), checkpoint, 2, slices=8)
    query = start(program.freeze(), settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)
    return query


def test_the_id_is_the_checkpoint_s_and_the_run_s_is_its_own(tmp_path):
    queries = [ran(tmp_path / "ckpt") for _ in range(3)]

    assert 1 == len({query.id for query in queries})
    assert 3 == len({query.run_id for query in queries})
    assert all(query.id != query.run_id for query in queries)


def test_progress_tells_both(tmp_path):
    query = ran(tmp_path / "ckpt")

    assert (query.id, query.run_id) == (query.last_progress["id"], query.last_progress["runId"])


def test_the_files_of_the_checkpoint_tell_both(tmp_path, capsys):
    ran(tmp_path / "ckpt")
    query = ran(tmp_path / "ckpt")

    (path,) = (tmp_path / "ckpt" / "lease").iterdir()
    assert query.run_id == Lease.from_bytes(path.name, path.read_bytes()).run_id
    assert 0 == main(["state", str(tmp_path / "ckpt"), "--json"])
    assert query.id == json.loads(capsys.readouterr().out)["id"]


def test_two_checkpoints_are_two_queries_and_none_is_a_new_one_each_time(tmp_path):
    ids = [ran(place).id for place in (tmp_path / "one", tmp_path / "two", None, None)]

    assert 4 == len(set(ids))
