"""The simulated store keeps the contract of the real one, and forgets what a disk may forget."""

import random

import pytest

from anabranch.simulate.store import SimulatedCrash, SimulatedStore
from anabranch.state.store import AlreadyThere, LocalStore, Missing


@pytest.fixture(params=["simulated", "local"])
def store(request, tmp_path):
    return SimulatedStore() if request.param == "simulated" else LocalStore(tmp_path / "c")


def outcome(do, *arguments):
    try:
        return do(*arguments)
    except (AlreadyThere, Missing) as error:
        return type(error)


def test_it_answers_as_a_local_store_does(tmp_path):
    simulated, local = SimulatedStore(), LocalStore(tmp_path / "c")
    rng = random.Random(7)
    paths = ["a", "b/1", "b/2", "b/c/3", "bb"]
    for step in range(2000):
        name = rng.choice(["create", "read", "list", "delete", "exists", "sweep"])
        arguments = {
            "create": (rng.choice(paths), b"%d" % step),
            "list": (rng.choice(["", "b", "b/", "b/c/", "x/"]),),
            "sweep": (),
        }.get(name, (rng.choice(paths),))
        assert outcome(getattr(local, name), *arguments) == outcome(
            getattr(simulated, name), *arguments
        )


def test_calls_are_counted():
    store = SimulatedStore()

    store.create("a", b"")
    store.list("")
    store.list("")

    assert 3 == store.calls
    assert {"create": 1, "list": 2} == store.counts


@pytest.mark.parametrize(
    ("moment", "there"), [("before", False), ("within", True), ("after", True)]
)
def test_a_crash_comes_when_told_and_lasts_until_reopened(moment, there):
    store = SimulatedStore()
    store.create("a", b"")
    store.crash_at(2, moment)

    with pytest.raises(SimulatedCrash):
        store.create("b", b"")
    with pytest.raises(SimulatedCrash):
        store.read("a")
    store.reopen()

    assert (["a", "b"] if there else ["a"]) == store.list("")


def after_power_loss(store, seeds=40):
    found = set()
    for seed in range(seeds):
        copy = SimulatedStore(store.durability)
        copy._files, copy._states = dict(store._files), dict(store._states)
        copy.reopen(random.Random(seed))
        found.add(tuple(sorted(copy.files.items())))
    return found


def test_what_was_created_survives_a_loss_of_power_and_what_was_not_may():
    store = SimulatedStore("power")
    store.create("a", b"1")
    store.crash_at(2, "within")
    with pytest.raises(SimulatedCrash):
        store.create("b", b"22")

    assert {(("a", b"1"),), (("a", b"1"), ("b", b"22"))} == after_power_loss(store)


def test_what_was_deleted_may_come_back_until_swept():
    store = SimulatedStore("power")
    store.create("a", b"1")
    store.delete("a")
    assert {(), (("a", b"1"),)} == after_power_loss(store)

    store.sweep()

    assert {()} == after_power_loss(store)


def test_without_syncs_files_may_be_gone_or_cut_off():
    store = SimulatedStore("process")
    store.create("a", b"1234")

    assert {(), (("a", b"12"),), (("a", b"1234"),)} == after_power_loss(store)


def test_a_crash_is_caught_by_nobody():
    assert not issubclass(SimulatedCrash, Exception)
