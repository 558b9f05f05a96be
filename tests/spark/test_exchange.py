import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.runtime.exchange import (
    OwnedDirectory,
    PartError,
    PartName,
    Reference,
    clear_epochs,
    exchange_root,
    read_part,
    sweep,
    write_parts,
)

NAME = PartName("run-1", epoch=7, map=2, attempt="a1")


@pytest.fixture
def written(tmp_path):
    return write_parts(tmp_path, NAME, {0: b"zero" * 100, 3: b"", 5: b"five"})


def test_parts_come_back_by_lane(written):
    assert (b"zero" * 100, b"", b"five") == tuple(read_part(written, lane) for lane in (0, 3, 5))


def test_lane_without_a_part_has_none(written):
    assert read_part(written, 1) is None


def test_reference_survives_json(written):
    import json

    assert written == Reference.from_json(json.loads(json.dumps(written.as_json())))


def test_only_the_whole_file_is_there(written, tmp_path):
    assert ["7_2_a1.parts"] == [file.name for file in tmp_path.iterdir()]


def test_thousand_parts_are_written(tmp_path):
    parts = {lane: bytes([lane % 256]) * lane for lane in range(1500)}

    written = write_parts(tmp_path, NAME, parts)

    assert parts[1499] == read_part(written, 1499)


def test_damage_is_noticed(written):
    data = bytearray(Path(written.path).read_bytes())
    data[-1] ^= 1
    Path(written.path).write_bytes(data)

    with pytest.raises(PartError, match=r"(?s)^the part of lane 5 in 7_2_a1.parts.*damaged"):
        read_part(written, 5)
    assert b"zero" * 100 == read_part(written, 0)


@pytest.mark.parametrize("other", [{"run": "run-2"}, {"epoch": 8}, {"map": 1}])
def test_another_s_part_is_noticed(written, other):
    with pytest.raises(PartError, match=r"(?s)another's"):
        read_part(replace(written, **other), 0)


def test_cut_file_is_noticed(written):
    os.truncate(written.path, 100)

    with pytest.raises(PartError, match=r"(?s)it has \d+ bytes"):
        read_part(written, 5)


def test_lost_file_is_noticed(written):
    Path(written.path).unlink()

    with pytest.raises(PartError, match=r"(?s)No such file"):
        read_part(written, 0)


def test_two_attempts_are_two_files(tmp_path):
    first = write_parts(tmp_path, NAME, {0: b"first"})
    second = write_parts(tmp_path, replace(NAME, attempt="a2"), {0: b"second"})

    assert (b"first", b"second") == (read_part(first, 0), read_part(second, 0))


def test_name_that_leads_elsewhere_is_refused():
    with pytest.raises(ValueError, match=r"^no name for a parts file"):
        PartName("run", 1, 0, "../x")


def test_epochs_before_are_cleared(tmp_path):
    for epoch in range(5):
        write_parts(tmp_path, replace(NAME, epoch=epoch), {0: b"x"})
    (tmp_path / "3_0_a.draft").write_bytes(b"half")
    (tmp_path / "owner").touch()

    assert 5 == clear_epochs(tmp_path, before=4)

    assert {"4_2_a1.parts", "owner"} == {file.name for file in tmp_path.iterdir()}


def test_directory_is_private_and_gone_when_removed(tmp_path):
    owned = OwnedDirectory.create("exchange", tmp_path)
    mode = owned.path.stat().st_mode & 0o777

    owned.remove()

    assert 0o700 == mode
    assert [] == list(tmp_path.iterdir())


def test_directory_of_a_living_owner_is_left(tmp_path):
    owned = OwnedDirectory.create("exchange", tmp_path)

    assert [] == sweep(tmp_path, "exchange")
    assert owned.path.exists()
    owned.remove()


def test_directory_of_a_dead_owner_is_removed(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; "
        "from anabranch.runtime.exchange import OwnedDirectory; "
        "print(OwnedDirectory.create('exchange', Path(sys.argv[1])).path, flush=True); os._exit(9)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=False
    ).stdout.strip()

    assert Path(printed).exists()
    assert [] == sweep(tmp_path, "spark")
    assert [Path(printed)] == sweep(tmp_path, "exchange")
    assert not Path(printed).exists()


def test_memory_without_room_is_not_used(tmp_path):
    assert tmp_path == exchange_root(tmp_path, room=1)
    assert tmp_path != exchange_root(tmp_path, room=1 << 60)
    assert tmp_path != exchange_root(tmp_path / "missing", room=1)
