"""From files to what a run begins with; what is committed must be there, what is not may be anything."""

import polars as pl
import pytest

from anabranch.errors import CheckpointError
from anabranch.simulate.store import SimulatedStore
from anabranch.state.delta import Delta, pack
from anabranch.state.description import Description
from anabranch.state.layout import (
    Acknowledgement,
    Commit,
    EpochPlan,
    Lease,
    Metadata,
    commit_path,
    lease_path,
    program_path,
    published_path,
)
from anabranch.state.recovery import (
    Recovered,
    read_chain,
    read_delta,
    read_description,
    recover,
)


def delta(last, lane, parent=None, kind="delta"):
    frame = pl.DataFrame({"slice": [lane], "n": [last]}, schema_overrides={"slice": pl.UInt16})
    return Delta("sum", lane, 1, last, last, f"{last}-{lane}", frame, parent=parent, kind=kind)


def commit(number, epoch, lanes=(0, 1), **values):
    deltas = {"sum": {lane: delta(epoch, lane).path for lane in lanes}} if lanes else {}
    return Commit(
        **{
            "first": epoch,
            "last": epoch,
            "positions": {"in": {0: epoch + 1}},
            "owners": (0, 1),
            "lanes": 2,
            "deltas": deltas,
            "staged": {"out": ((epoch, (f"m{epoch}",)),)},
            "number": number,
            "run": 1,
            "parent": number - 1 or None,
            "plans": (EpochPlan(epoch, "in", {}, run=1).path,),
            "state_from": 1,
        }
        | values
    )


@pytest.fixture
def store():
    """Commits of epochs 0 and 1, epochs 2 and 3 planned, the first published."""
    store = SimulatedStore()
    store.create("metadata", Metadata("i", "test", 0).to_bytes())
    store.create(lease_path(1), Lease(1, "r", "h").to_bytes())
    for epoch in range(4):
        plan = EpochPlan(epoch, "in", {0: (epoch, epoch + 1)}, run=1)
        store.create(plan.path, plan.to_bytes())
    for epoch in range(2):
        for lane in (0, 1):
            parent = f"{epoch - 1}-{lane}" if epoch else None
            store.create(delta(epoch, lane).path, pack(delta(epoch, lane, parent)))
        store.create(commit_path(epoch + 1), commit(epoch + 1, epoch).to_bytes())
    store.create(published_path(1), Acknowledgement(1, 1).to_bytes())
    return store


def test_an_empty_store_is_the_beginning():
    found = recover(SimulatedStore())

    assert Recovered(lease=0) == found
    assert 0 == found.next_epoch


def test_what_a_run_begins_with(store):
    found = recover(store)

    assert 1 == found.lease
    assert found.commit is not None
    assert 2 == found.commit.number
    assert {0: 2} == found.commit.positions["in"]
    assert [(2, {0: (2, 3)}), (3, {0: (3, 4)})] == [(p.epoch, p.offsets) for p in found.plans]
    assert 4 == found.next_epoch
    assert (delta(0, 1).path, delta(1, 1).path) == found.chain("sum", 1)
    assert [(1, 0), (1, 1), (2, 0), (2, 1)] == [(x.number, x.lane) for x in found.chains["sum"]]
    assert [(2, 1, "out", ("m1",))] == [
        (each.number, each.epoch, each.sink, each.messages) for each in found.unpublished
    ]
    assert () == found.garbage


def test_a_chain_is_read_and_checked(store):
    found = recover(store)

    deltas = read_chain(store, found.chain("sum", 0))

    assert [0, 1] == [each.frame["n"].item() for each in deltas]
    with pytest.raises(CheckpointError, match="it follows"):
        read_chain(store, [found.chain("sum", 0)[0], found.chain("sum", 1)[1]])


def test_a_committed_delta_that_is_missing_is_named(store):
    store.delete(delta(0, 1).path)

    with pytest.raises(CheckpointError) as caught:
        recover(store)

    assert f"checkpoint file {delta(0, 1).path} is missing" == caught.value.what
    assert "commits/0000000001 names it" == caught.value.why
    with pytest.raises(CheckpointError, match="is missing"):
        read_delta(store, delta(0, 1).path)


def test_a_delta_under_another_name_is_refused(store):
    store.delete(delta(0, 1).path)
    store.create(delta(0, 1).path, pack(delta(0, 0)))

    with pytest.raises(CheckpointError, match="under another name"):
        read_delta(store, delta(0, 1).path)


def test_a_commit_that_is_missing_and_needed_is_named(store):
    store.delete(commit_path(1))

    with pytest.raises(CheckpointError, match=r"^checkpoint file commits/0000000001 is missing"):
        recover(store)


def test_all_commits_lost_are_noticed(store):
    store.delete(commit_path(1))
    store.delete(commit_path(2))

    with pytest.raises(CheckpointError, match=r"^checkpoint file commits/0000000001 is missing"):
        recover(store)


def test_a_damaged_commit_is_never_passed_over(store):
    data = store.files[commit_path(2)]
    for length in (0, 1, 2, len(data) // 2, len(data) - 1):
        store.delete(commit_path(2))
        store.create(commit_path(2), data[:length])
        with pytest.raises(CheckpointError, match="commits/0000000002 cannot be read"):
            recover(store)


def test_a_commit_under_another_number_is_refused(store):
    store.create(commit_path(3), commit(2, 1).to_bytes())

    with pytest.raises(CheckpointError, match="it is commit 2 under another name"):
        recover(store)


def test_a_plan_that_is_not_whole_ends_the_plans(store):
    path = EpochPlan(2, "in", {}, run=1).path
    store.delete(path)
    store.create(path, b"v1\n{")

    found = recover(store)

    assert () == found.plans
    assert {path, EpochPlan(3, "in", {}, run=1).path} == set(found.garbage)


def test_a_plan_that_a_commit_adopted_must_be_whole(store):
    path = EpochPlan(2, "in", {}, run=1).path
    adopting = commit(3, 2, (), first=2, last=1, run=2, adopted=(path,), staged={}, plans=())
    store.create(commit_path(3), adopting.to_bytes())
    assert [2] == [plan.epoch for plan in recover(store).plans]
    store.delete(path)

    with pytest.raises(CheckpointError, match=f"{path} is missing"):
        recover(store)


def test_what_nobody_committed_is_garbage(store):
    store.create(delta(2, 0).path, b"half")
    store.create(lease_path(2), b"")
    store.create(published_path(0), b"")

    found = recover(store)

    assert (lease_path(1), published_path(0), delta(2, 0).path) == found.garbage


def test_what_is_not_ours_is_let_be(store):
    for path in ("README", "commits/notes", "state/count", "epochs/4.plan", "x/y"):
        store.create(path, b"")

    assert () == recover(store).garbage


def test_what_is_older_than_what_is_kept_is_garbage_unless_needed(store):
    found = recover(store, keep=1)

    assert (EpochPlan(0, "in", {}, run=1).path,) == found.garbage
    assert [1, 2] == [each.number for each in found.history]


def test_the_newest_plan_of_each_source_is_found(store):
    found = recover(store)
    assert {"in": 1} == {name: plan.epoch for name, plan in found.latest.items()}
    old = EpochPlan(0, "in", {}, run=1).path
    said = commit(3, 2, (), first=2, last=1, run=2, staged={}, plans=(), latest={"in": old})
    store.create(commit_path(3), said.to_bytes())

    found = recover(store, keep=1)
    assert {"in": 0} == {name: plan.epoch for name, plan in found.latest.items()}
    assert old not in found.garbage

    store.delete(old)
    with pytest.raises(CheckpointError, match=f"{old} is missing"):
        recover(store)


def test_plans_that_an_older_version_let_go_of_are_not_asked_for(store):
    store.delete(EpochPlan(0, "in", {}, run=1).path)

    found = recover(store, keep=1)

    assert {"in": 1} == {name: plan.epoch for name, plan in found.latest.items()}


def test_the_program_is_that_of_the_last_run_that_committed_epochs(store):
    for run in (1, 2, 3):
        store.create(program_path(run), Description({f"op{run}": {}}).to_bytes())
    opening = commit(3, 2, (), first=2, last=1, run=3, staged={}, plans=())
    store.create(commit_path(3), opening.to_bytes())

    found = recover(store)

    assert 1 == found.described_by
    assert {"op1"} == read_description(store, 1).operators.keys()
    assert read_description(store, 4) is None
    assert [program_path(2)] == [each for each in found.garbage if "program" in each]


def test_unpublished_commits_are_kept_whatever_their_age(store):
    store.delete(published_path(1))

    found = recover(store, keep=1)

    assert () == found.garbage
    assert [0, 1] == [each.epoch for each in found.unpublished]
