"""The store on a real file system, and with system calls that fail."""

import errno
import os
import pickle
from pathlib import Path

import pytest

from anabranch.errors import RunError
from anabranch.state.object_store import ObjectStore
from anabranch.state.store import AlreadyThere, LocalStore, Missing
from anabranch.state.stores import place_of, store_at

DURABILITIES = ("process", "power")


@pytest.fixture(params=DURABILITIES)
def store(request, tmp_path):
    return LocalStore(tmp_path / "ckpt", request.param)


@pytest.fixture(params=[*DURABILITIES, "objects"])
def any_store(request, tmp_path):
    """A store of every kind: what holds of `Store` holds of all."""
    if request.param != "objects":
        return LocalStore(tmp_path / "ckpt", request.param)
    return store_at(place_of(f"{request.getfixturevalue('bucket')}/queries/one"))


def temporary_files(store):
    if isinstance(store, ObjectStore):
        return sorted({*store._bucket.sizes("")} - {*store.list("")})
    return [path for path in Path(store.root).rglob("*") if path.name.startswith(".tmp-")]


def test_what_was_created_is_read(any_store):
    any_store.create("state/count/1.delta", b"\0\1")
    any_store.create("metadata", b"")

    assert b"\0\1" == any_store.read("state/count/1.delta")
    assert b"" == any_store.read("metadata")
    assert any_store.exists("metadata")
    assert not any_store.exists("commits/1")
    assert [] == temporary_files(any_store)


def test_a_name_is_created_once(any_store):
    any_store.create("commits/1", b"first")

    with pytest.raises(AlreadyThere, match=r"^commits/1$"):
        any_store.create("commits/1", b"second")

    assert b"first" == any_store.read("commits/1")
    assert [] == temporary_files(any_store)


def test_what_is_not_there_is_missing(any_store):
    any_store.create("commits/1", b"")

    for path in ("commits/2", "nothing/2", "metadata"):
        with pytest.raises(Missing):
            any_store.read(path)


def test_listing_is_by_prefix_and_sorted(any_store):
    for path in ("b/2", "b/10", "a", "b/c/1", "bc/1"):
        any_store.create(path, b"")

    assert ["a", "b/10", "b/2", "b/c/1", "bc/1"] == any_store.list("")
    assert ["b/10", "b/2", "b/c/1"] == any_store.list("b/")
    assert ["b/10"] == any_store.list("b/1")
    assert ["b/10", "b/2", "b/c/1", "bc/1"] == any_store.list("b")
    assert [] == any_store.list("nothing/")


def test_deleting_twice_is_deleting_once(any_store):
    any_store.create("commits/1", b"")

    any_store.delete("commits/1")
    any_store.delete("commits/1")
    any_store.delete("nothing/1")

    assert [] == any_store.list("")


def test_the_root_is_its_owners_alone(store):
    store.create("a/b", b"")

    assert 0o700 == Path(store.root).stat().st_mode & 0o777
    assert 0o600 == (Path(store.root) / "a/b").stat().st_mode & 0o777


@pytest.mark.parametrize(
    "path",
    ["../out", "a/../../out", "/etc/passwd", "a//b", "", ".", ".tmp-x", "a/.b", "a b", "a\n"],
)
def test_a_path_that_leads_elsewhere_is_refused(any_store, path):
    store = any_store
    for do in (store.read, store.delete, store.exists, lambda path: store.create(path, b"")):
        with pytest.raises(ValueError, match="not a path in a checkpoint"):
            do(path)


def test_links_are_not_followed(store, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = Path(store.root)
    (root / "commits").symlink_to(outside)
    (root / "metadata").symlink_to(outside / "secret")

    assert [] == store.list("")
    assert not store.exists("metadata")
    with pytest.raises(RunError, match="symbolic link"):
        store.read("metadata")
    with pytest.raises(RunError, match="symbolic link"):
        store.create("commits/1", b"")
    with pytest.raises(AlreadyThere):
        store.create("metadata", b"")

    assert [outside / "secret"] == [*outside.iterdir()]


def test_a_root_that_is_a_link_or_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)

    for name in ("file", "link"):
        with pytest.raises(RunError, match="symbolic link or a file"):
            LocalStore(tmp_path / name)


def test_what_another_run_swept_half_done_is_written_again(store, monkeypatch):
    link, swept = LocalStore._link, []

    def sweeping(self, folder, temporary, name, path):
        if not swept:
            os.unlink(temporary, dir_fd=folder)
            swept.append(temporary)
        link(self, folder, temporary, name, path)

    monkeypatch.setattr(LocalStore, "_link", sweeping)
    store.create("epochs/1", b"plan")

    assert swept
    assert b"plan" == store.read("epochs/1")
    assert ["epochs/1"] == store.list("")


def test_a_small_file_that_is_huge_is_not_read(store):
    store.create("commits/1", b"")
    store.create("state/n/1", b"")
    for path in ("commits/1", "state/n/1"):
        os.truncate(Path(store.root) / path, 300 << 20)

    with pytest.raises(RunError, match="more than any file of its kind"):
        store.read("commits/1")
    assert 300 << 20 == len(store.read("state/n/1"))


def test_a_pipe_is_not_waited_for(store):
    os.mkfifo(Path(store.root) / "metadata")

    with pytest.raises(RunError, match="not a regular file"):
        store.read("metadata")


def test_what_a_crash_left_is_not_listed_and_is_swept(store):
    store.create("commits/1", b"")
    left = Path(store.root) / "commits" / ".tmp-2-abc"
    left.write_bytes(b"half")

    assert ["commits/1"] == store.list("")
    store.sweep()

    assert not left.exists()
    assert ["commits/1"] == store.list("")


def test_it_travels(any_store):
    any_store.create("metadata", b"x")

    copy = pickle.loads(pickle.dumps(any_store))

    assert b"x" == copy.read("metadata")
    assert repr(any_store) == repr(copy)


def test_sizes_are_those_of_the_files(any_store):
    for path, size in {"metadata": 0, "state/a/1": 3, "state/b/1": 5}.items():
        any_store.create(path, b"x" * size)

    assert {"metadata": 0, "state/a/1": 3, "state/b/1": 5} == any_store.sizes("")
    assert {"state/b/1": 5} == any_store.sizes("state/b")


def failing(monkeypatch, name, code, *, when=lambda *_, **__: True):
    real = getattr(os, name)

    def call(*args, **kwargs):
        if when(*args, **kwargs):
            raise OSError(code, os.strerror(code))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, name, call)


def test_a_full_disk_is_told_and_leaves_nothing(store, monkeypatch):
    with monkeypatch.context() as patch:
        failing(patch, "write", errno.ENOSPC)
        with pytest.raises(RunError) as caught:
            store.create("commits/1", b"data")

    assert caught.value.what.endswith("ckpt/commits/1")
    assert "No space left on device" == caught.value.why
    assert "make room" in str(caught.value)
    assert [] == temporary_files(store)
    assert [] == store.list("")
    store.create("commits/1", b"data")


def test_a_denied_write_is_told(store, monkeypatch):
    failing(monkeypatch, "link", errno.EACCES)

    with pytest.raises(RunError, match="give this user the right"):
        store.create("commits/1", b"data")

    assert [] == temporary_files(store)


def test_a_write_may_be_short(store, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, bytes(data)[:3]))

    store.create("commits/1", b"0123456789")

    assert b"0123456789" == store.read("commits/1")


def test_a_file_whose_sync_failed_never_gets_its_name(tmp_path, monkeypatch):
    store = LocalStore(tmp_path / "ckpt", "power")
    store.create("commits/1", b"")
    failing(monkeypatch, "fsync", errno.EIO)

    with pytest.raises(RunError, match="check that disk"):
        store.create("commits/2", b"data")

    assert ["commits/1"] == store.list("")
    assert [] == temporary_files(store)


def test_power_is_synced_and_process_is_not(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    for durability in DURABILITIES:
        store = LocalStore(tmp_path / durability, durability)
        store.create("commits/1", b"")
        synced.clear()
        store.create("commits/2", b"")
        assert {"process": 0, "power": 2}[durability] == len(synced)


def test_a_temporary_file_that_was_swept_by_another_is_told(store, monkeypatch):
    real = os.link

    def link(source, *args, **kwargs):
        os.unlink(source, dir_fd=kwargs["src_dir_fd"])
        return real(source, *args, **kwargs)

    monkeypatch.setattr(os, "link", link)

    with pytest.raises(RunError, match="another run is using this checkpoint"):
        store.create("commits/1", b"")


def test_an_unknown_durability_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'process' or 'power'"):
        LocalStore(tmp_path, "eternal")


# Hostile directories: who may write there


@pytest.mark.parametrize("path", ["", "commits", "commits/1"])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_what_everybody_may_write_to_is_refused_and_left_as_it_was(store, path, mode):
    store.create("commits/1", b"x")
    place = Path(store.root, path)
    place.chmod(mode)

    with pytest.raises(RunError) as caught:
        LocalStore(store.root).read("commits/1")

    # The checkpoint is named by its path alone: what is in it is not shown to anybody.
    assert f"checkpoint: cannot {'read' if path else 'use'} {store.root}" in caught.value.what
    assert "everybody may write to it" == caught.value.why
    assert "chmod -R o-w" in caught.value.so
    place.chmod(0o700)
    assert b"x" == LocalStore(store.root).read("commits/1")


def test_a_folder_that_everybody_may_write_to_is_neither_listed_nor_swept(store):
    store.create("commits/1", b"x")
    folder = Path(store.root, "commits")
    (folder / ".tmp-1").write_bytes(b"somebody's")
    folder.chmod(0o777)

    for do in (lambda: store.list(""), store.sweep, lambda: store.delete("commits/1")):
        with pytest.raises(RunError, match="everybody may write to it"):
            do()
    assert ["1", ".tmp-1"] == sorted((each.name for each in folder.iterdir()), key=len)


def test_a_group_may_write_there(store):
    """Where every user has a group of his own, directories are made so."""
    Path(store.root).chmod(0o775)

    LocalStore(store.root).create("commits/1", b"x")

    assert b"x" == store.read("commits/1")


def of_user(monkeypatch, number):
    monkeypatch.setattr(os, "geteuid", lambda: number)


def test_what_is_another_user_s_is_refused(store, monkeypatch):
    store.create("commits/1", b"x")
    mine = Path(store.root).stat().st_uid
    real = os.fstat

    def theirs(file):
        found = list(real(file))
        found[4] = 4242
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", theirs)
    of_user(monkeypatch, mine or 1000)
    with pytest.raises(RunError, match="it belongs to another user, number 4242"):
        LocalStore(store.root)

    of_user(monkeypatch, 0)  # who could have taken it anyway
    assert b"x" == LocalStore(store.root).read("commits/1")


def test_what_is_root_s_may_be_used(store, monkeypatch):
    """A volume that was made for this user."""
    real = os.fstat
    monkeypatch.setattr(
        os, "fstat", lambda file: os.stat_result([*real(file)[:4], 0, *real(file)[5:]])
    )
    of_user(monkeypatch, 1000)

    LocalStore(store.root).create("commits/1", b"x")


def test_state_that_no_memory_holds_is_not_read(store):
    """A file of nothing may say it has any size."""
    store.create("state/n/1", b"")
    os.truncate(Path(store.root) / "state/n/1", 1 << 43)

    with pytest.raises(RunError, match="more than this machine has memory"):
        store.read("state/n/1")


def test_a_device_is_not_read(store):
    """As a link, which is what a user without rights can make; it is not even opened."""
    (Path(store.root) / "metadata").symlink_to("/dev/zero")

    with pytest.raises(RunError, match="it is a symbolic link, and none is followed"):
        store.read("metadata")
