"""A lane that gets slices of another one on its host maps that one's files."""

from dataclasses import replace
from unittest import mock

import pytest

from anabranch.kernels.lane_task import LaneState
from anabranch.runtime import rescaling, resident_state
from anabranch.runtime.aside import AtOnce
from anabranch.runtime.payload import LaneDone, Shared, lane_from_bytes, lane_to_bytes
from anabranch.runtime.resident_files import FilePlace, StateFiles
from anabranch.runtime.resident_shared import Sharing
from anabranch.simulate.inline import UNKIND
from tests.runtime.programs import PROGRAMS
from tests.runtime.test_inline import made, widths_of
from tests.runtime.test_rescaling import Slow, Watched, check, run


@pytest.fixture(autouse=True)
def _however_small(monkeypatch):
    monkeypatch.setattr(rescaling, "SHARED", -1)
    monkeypatch.setattr(resident_state, "SHARED", 0)


@pytest.fixture
def mapped(monkeypatch):
    """Sees what is mapped."""
    seen = mock.create_autospec(Sharing.mapped, side_effect=Sharing.mapped)
    monkeypatch.setattr(Sharing, "mapped", seen)
    return seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_state_that_is_mapped_is_state_as_it_was(name, tmp_path, mapped):
    program, told = made(name, tmp_path, count=300), []
    run(program, tmp_path / "ckpt", Watched(), told=told)

    check(program, tmp_path)
    assert [2, 3, 1, 4] == widths_of(tmp_path / "ckpt")
    assert mapped.call_count >= 3
    assert sum(each["anabranch"]["slicesFrom"]["shared"] for each in told) >= 2
    assert not any(each["anabranch"]["slicesFrom"]["replica"] for each in told)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(4))
def test_whatever_fails_the_output_is_the_same(name, seed, tmp_path):
    program = made(name, tmp_path, count=200)
    run(program, tmp_path / "ckpt", Watched(seed, UNKIND, aside=Slow))

    check(program, tmp_path)


def test_what_cannot_be_mapped_is_read(tmp_path, monkeypatch):
    """As on another host, or when the other process has died."""
    opened = mock.create_autospec(FilePlace.opened, side_effect=FileNotFoundError)
    monkeypatch.setattr(FilePlace, "opened", opened)
    program, told = made("fraud", tmp_path, count=300), []
    run(program, tmp_path / "ckpt", Watched(), told=told)

    check(program, tmp_path)
    assert opened.call_count >= 3
    origins = [each["anabranch"]["slicesFrom"] for each in told]
    assert any(each["replica"] for each in origins)
    assert not any(each["shared"] or each["checkpoint"] for each in origins)


def test_a_lane_without_room_shares_nothing(tmp_path, monkeypatch, mapped):
    def full(self, state):
        raise OSError

    monkeypatch.setattr(resident_state.Residence, "everything", full)
    program = made("fraud", tmp_path, count=300)
    run(program, tmp_path / "ckpt", Watched(), widths=((2, 3),))

    check(program, tmp_path)
    assert [2, 3] == widths_of(tmp_path / "ckpt")
    assert not mapped.called


def test_what_is_shared_comes_back_from_json():
    done = LaneDone(3, shared=(Shared(1, "v", ("host", 5, 6, 7, 8), "token"),))

    assert done == lane_from_bytes(lane_to_bytes(done))


def test_a_file_that_is_another_s_by_now_is_not_taken(tmp_path):
    """Numbers of files, and of their places on disk, are given again."""
    files = StateFiles(tmp_path)
    sharing = Sharing(AtOnce(), files, resident_state.Residence(AtOnce(), files, 0))
    nothing = LaneState({})
    (shared,) = sharing.follow((0,), {0: ("v", nothing)})
    task = mock.Mock(restore=lambda _: nothing)

    assert nothing == sharing.mapped(task, shared)
    with pytest.raises(FileNotFoundError):
        sharing.mapped(task, replace(shared, token="0" * 32))

    def forget(_):
        sharing.follow((), {})
        return nothing

    with pytest.raises(FileNotFoundError):
        sharing.mapped(mock.Mock(restore=forget), shared)
