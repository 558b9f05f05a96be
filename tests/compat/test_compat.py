"""Checkpoints of every version that was released: scenario 27 of the reliability notes.

Each must be opened and gone on with, to the very output that was written down when it was made; or, if it
is newer than this version, be refused in so many words, and left as it was.
"""

import json
import re

import pytest

from anabranch.errors import CheckpointError
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import assert_same_rows, run_sequential
from tests.compat.make import HERE, plain, program, run, unpack
from tests.compat.programs import PROGRAMS
from tests.runtime.test_inline import written

ARCHIVES = sorted(HERE.glob("*/*.tar.gz"))
IDS = [f"{each.parent.name}-{each.name.removesuffix('.tar.gz')}" for each in ARCHIVES]
VERSION_LINE = re.compile(rb"\A(?:anabranch delta )?v(\d+)\n")


@pytest.fixture(params=ARCHIVES, ids=IDS)
def opened(request, tmp_path):
    unpack(request.param, tmp_path)
    return request.param.name.removesuffix(".tar.gz"), tmp_path


def test_there_is_a_checkpoint_of_each_program():
    assert set(PROGRAMS) == {each.name.removesuffix(".tar.gz") for each in ARCHIVES}


@pytest.mark.parametrize("lanes", [2, 3])
def test_a_checkpoint_is_opened_and_gone_on_with(opened, lanes):
    name, home = opened
    found = recover(LocalStore(home / "ckpt"))
    assert found.commit is not None, "a part of the work was done"
    assert found.plans, "another part was planned"
    assert found.chains, "there was state"
    before = {sink: written(home / "out" / sink) for sink in golden(home)}

    run(name, home, lanes=lanes)

    expected = run_sequential(program(name, home), log=home / "ckpt")
    for sink, rows in golden(home).items():
        actual = written(home / "out" / sink)
        assert before[sink] == actual[: len(before[sink])], "what was published stays"
        assert_same_rows(expected[f"{sink}-out"], actual)
        assert_same_rows(rows, plain(actual))
    assert any(len(rows) > len(before[sink]) for sink, rows in golden(home).items())


def golden(home):
    return json.loads((home / "golden.json").read_text())


def test_a_file_of_a_newer_version_is_refused_and_nothing_is_changed(opened):
    """Whichever file that is needed it is: of each kind the newest."""
    name, home = opened
    store = LocalStore(home / "ckpt")
    found = recover(store)
    chains = [link.path for links in found.chains.values() for link in links]
    needed = ["metadata", found.history[-1].path, found.plans[-1].path, chains[-1]]
    for path in needed:
        file = home / "ckpt" / path
        data = file.read_bytes()
        line = VERSION_LINE.match(data)
        assert line, f"{path} does not begin with a version line"
        file.write_bytes(data[: line.start(1)] + b"99" + data[line.end(1) :])
        commits, out = names(home / "ckpt" / "commits"), published(home)

        with pytest.raises(CheckpointError) as caught:
            run(name, home)

        told = str(caught.value)
        assert f"{path} was written by a newer version of Anabranch" in told
        assert "its format is v99, this version reads v" in told
        assert "run the version that wrote it, or a later one" in told
        file.write_bytes(data)
        assert out == published(home)
        assert commits <= names(home / "ckpt" / "commits")

    run(name, home)
    for sink, rows in golden(home).items():
        assert_same_rows(rows, plain(written(home / "out" / sink)))


def names(folder):
    return {each.name for each in folder.iterdir()}


def published(home):
    return sorted(str(each) for each in (home / "out").glob("*/part-*"))
