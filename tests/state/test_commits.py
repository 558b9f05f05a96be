"""The shell around the commit machine: sinks that fail, stores that fail, programs that changed."""

import pytest

from anabranch.connectors.base import Sink
from anabranch.errors import CheckpointError, RunError
from anabranch.simulate.store import SimulatedStore
from anabranch.state.commits import Commits
from anabranch.state.layout import Commit, EpochPlan
from anabranch.state.store import LocalStore


class Recorder(Sink):
    def __init__(self, *, fails=0):
        self.seen, self.fails = [], fails

    def write(self, batches, epoch, attempt):
        raise NotImplementedError

    def publish(self, messages, epoch):
        if self.fails:
            self.fails -= 1
            raise OSError("no such host")
        self.seen.append(("publish", epoch, tuple(messages)))

    def abort(self, messages, epoch):
        self.seen.append(("abort", epoch, tuple(messages)))

    def rewind(self, after):
        self.seen.append(("rewind", after))


class Early(Recorder):
    visible = "early"


def opened(store, sink, program="test"):
    commits = Commits(store, {"out": sink})
    return commits, commits.open(program, holder="me", created=0)


def committed(commits, epoch):
    commits.plan(EpochPlan(epoch, "in", {0: (epoch, epoch + 1)}))
    return commits.commit(Commit(epoch, epoch, staged={"out": ((epoch, ("m",)),)}))


def test_from_plan_to_publication_on_a_real_disk(tmp_path):
    sink = Recorder()
    for run in (1, 2):
        commits, recovered = opened(LocalStore(tmp_path / "c", "power"), sink)
        epoch = recovered.next_epoch
        sealed = committed(commits, epoch)
        commits.publish()
        commits.close()
        assert (run, run * 2, epoch) == (commits.run, sealed.number, run - 1)

    assert [("publish", 0, ("m",)), ("publish", 1, ("m",))] == sink.seen
    assert (EpochPlan(1, "in", {0: (1, 2)}, run=2),) == commits.read_plans(sealed.plans[0])
    assert ["0000000002"] == [path.name for path in (tmp_path / "c" / "lease").iterdir()]


def test_nothing_is_published_before_it_is_asked_for():
    sink = Recorder()
    commits, _ = opened(SimulatedStore(), sink)

    committed(commits, 0)
    assert [] == sink.seen
    commits.publish()

    assert [("publish", 0, ("m",))] == sink.seen
    assert 0 == commits.statistics().unpublished
    assert 2 == commits.statistics().acknowledged


def test_a_sink_that_fails_ends_the_run_and_gets_the_epoch_again_in_the_next():
    store, sink = SimulatedStore(), Recorder(fails=1)
    commits, _ = opened(store, sink)
    committed(commits, 0)

    with pytest.raises(RunError, match="sink 'out' could not publish epoch 0") as caught:
        commits.publish()
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(RunError, match="could not publish"):
        committed(commits, 1)
    commits.close()
    again, _ = opened(store, sink)
    again.publish()

    assert [("publish", 0, ("m",))] == sink.seen


def test_a_sink_that_the_program_no_longer_has_is_told():
    store = SimulatedStore()
    commits, _ = opened(store, Recorder())
    committed(commits, 0)
    commits.close()

    changed = Commits(store, {"other": Recorder()})
    changed.open("test", holder="me", created=0)

    with pytest.raises(CheckpointError, match="no longer writes to sink 'out'"):
        changed.publish()


def test_the_checkpoint_of_another_program_is_refused():
    store = SimulatedStore()
    opened(store, Recorder())

    with pytest.raises(CheckpointError, match="belongs to program 'test', not 'other'"):
        opened(store, Recorder(), "other")
    assert ["lease/0000000001"] == store.list("lease/")


def test_sinks_that_show_rows_early_are_told_to_go_back():
    store, sink = SimulatedStore(), Early()
    commits, _ = opened(store, sink)
    assert [] == sink.seen
    committed(commits, 0)
    commits.publish()
    commits.plan(EpochPlan(1, "in", {}))

    opened(store, sink)

    assert ("rewind", 0) == sink.seen[-1]


def test_what_losers_staged_is_let_go_of_later():
    store, sink = SimulatedStore(), Recorder()
    commits, _ = opened(store, sink)
    commits.plan(EpochPlan(0, "in", {}))
    loser = "state/n/0000000000_1_0_b.delta"
    store.create(loser, b"")

    commits.abort(0, {"out": ["x"]}, [loser])
    commits.publish()

    assert [("abort", 0, ("x",))] == sink.seen
    assert not store.exists(loser)


def test_a_store_that_fails_ends_the_run(tmp_path, monkeypatch):
    store = LocalStore(tmp_path / "c")
    commits, _ = opened(store, Recorder())

    def create(path, data):
        raise RunError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "create", create)
        with pytest.raises(RunError, match="the disk is full"):
            commits.plan(EpochPlan(0, "in", {}))
    with pytest.raises(RunError, match="the disk is full"):
        commits.plan(EpochPlan(0, "in", {}))
    commits.close()

    again, recovered = opened(store, Recorder())
    assert 0 == recovered.next_epoch
    committed(again, 0)


def test_a_group_given_twice_is_committed_once():
    store, sink = SimulatedStore(), Recorder()
    commits, _ = opened(store, sink)
    first = committed(commits, 0)

    assert first == commits.commit(Commit(0, 0, staged={"out": ((0, ("m",)),)}))
    commits.publish()

    assert [("publish", 0, ("m",))] == sink.seen
    assert 2 == len(store.list("commits/"))


def test_calls_of_the_store_for_one_epoch():
    """One plan, a look before and after one commit; then a look, and one acknowledgement."""
    store = SimulatedStore()
    commits, _ = opened(store, Recorder())
    committed(commits, 0)
    commits.publish()
    store.counts.clear()

    committed(commits, 1)
    assert {"create": 2, "list": 2} == store.counts
    commits.publish()

    assert {"create": 3, "list": 3, "delete": 1} == store.counts
