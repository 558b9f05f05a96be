"""Several masters on one checkpoint, interleaved at every call of the store by a seed.

Scenario 6 of the reliability notes: whoever took the lease last wins and finishes; the others are
stopped and do no harm. Of the threads here exactly one runs at any time, chosen by the seed: the
same seed is the same run.
"""

import random
import threading

import pytest

from anabranch.simulate.store import SimulatedStore
from anabranch.state.commit import CommitMachine
from anabranch.state.commits import Commits
from anabranch.state.layout import Commit, EpochPlan, commit_path
from anabranch.state.protocol import Fenced, Propose, ReadContents
from tests.state.workload import EPOCHS, Master, RecordingSink, Witness, check_finished


class Baton:
    """Lets one thread run at a time, until it hands the baton back."""

    def __init__(self):
        self._turn = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self.done = False
        self.error = None

    def start(self, work):
        threading.Thread(target=self._work, args=(work,), daemon=True).start()

    def step(self):
        """Let the thread run up to its next call."""
        self._turn.release()
        self._back.acquire()

    def wait(self):
        """Called by the thread: hand the baton back and wait for it."""
        self._back.release()
        self._turn.acquire()

    def _work(self, work):
        self._turn.acquire()
        try:
            work()
        except BaseException as error:
            self.error = error
        self.done = True
        self._back.release()


class WaitingStore:
    """A store of which each call waits for the baton first."""

    def __init__(self, store, baton):
        self._store, self._baton = store, baton

    def __getattr__(self, name):
        call = getattr(self._store, name)
        if name not in ("create", "read", "list", "delete", "exists", "sweep"):
            return call

        def waiting(*arguments):
            self._baton.wait()
            return call(*arguments)

        return waiting


class WaitingSink(RecordingSink):
    """A master's own view of the sink that all share, which waits for the baton first."""

    def __init__(self, shared, baton):
        super().__init__()
        self.shared, self.baton = shared, baton

    def publish(self, messages, epoch):
        self.baton.wait()
        self.calls.append(epoch)
        self.shared.publish(messages, epoch)


class Runner:
    """A master in its thread."""

    def __init__(self, store, sink, witness, name, group):
        self.baton = Baton()
        self.sink = WaitingSink(sink, self.baton)
        store = WaitingStore(store, self.baton)
        self.master = Master(store, self.sink, witness, name=name, group=group)
        self.witness = witness
        self.baton.start(self.master.run)


def interleave(seed, masters):
    rng = random.Random(seed)
    store, sink = SimulatedStore(), RecordingSink()
    witnesses = [Witness() for _ in range(masters)]
    runners = [
        Runner(store, sink, witness, f"m{number}", rng.randint(1, 3))
        for number, witness in enumerate(witnesses)
    ]
    while left := [runner for runner in runners if not runner.baton.done]:
        runner = rng.choice(left)
        # Long bursts let a master get far while another sleeps through it.
        for _ in range(rng.choice([1, 1, 2, 5, 20, 80])):
            if not runner.baton.done:
                runner.baton.step()
    return store, sink, runners


@pytest.mark.parametrize("masters", [2, 3])
@pytest.mark.parametrize("seed", range(150))
def test_the_newest_finishes_and_the_others_are_fenced(seed, masters):
    store, sink, runners = interleave(seed, masters)

    for runner in runners:
        if runner.baton.error is not None:
            assert isinstance(runner.baton.error, Fenced), runner.baton.error
            assert "another run owns its checkpoint" in str(runner.baton.error)
    newest = max(runners, key=lambda runner: runner.witness.runs or [0])
    assert newest.baton.error is None
    committed = [epoch for runner in runners for epoch in runner.witness.committed]
    assert len(committed) == len(set(committed)), "an epoch was committed by two masters"
    assert list(range(EPOCHS)) == list(sink.epochs)
    check_finished(store, sink, Witness())


def test_some_are_fenced_at_every_place():
    """The seeds above are worth something: masters are stopped at many different places."""
    reasons = set()
    for seed in range(150):
        _, _, runners = interleave(seed, 2)
        for runner in runners:
            if runner.baton.error is not None:
                reasons.add((runner.baton.error.why, len(runner.witness.committed)))

    assert len({committed for _, committed in reasons}) >= 4
    assert any("taken the lease" in why for why, _ in reasons)
    assert any("has made commit" in why for why, _ in reasons)


def opened(store, sink, keep=100):
    commits = Commits(store, {"out": sink}, CommitMachine(keep=keep))
    recovered = commits.open("test", holder="me", created=0)
    return commits, recovered


def group(first, last, run):
    staged = tuple((epoch, ({"rows": [epoch], "run": run},)) for epoch in range(first, last + 1))
    return Commit(first, last, staged={"out": staged})


def plan(commits, *epochs):
    for epoch in epochs:
        commits.plan(EpochPlan(epoch, "in", {0: (epoch, epoch + 1)}))


def asleep_before_writing(commits, commit):
    """A master has looked for a newer lease, found none, and falls asleep; this wakes it."""
    [look] = commits._machine.handle(Propose(commit))
    [write] = commits._perform(look)
    return lambda: commits._drain([write])


def runs_published(sink):
    return [message["run"] for messages in sink.epochs.values() for message in messages]


def test_groups_of_other_lengths_cannot_both_be_committed():
    """Were commits named by their last epoch, those of 0..1 and of 0..2 would both be made."""
    store, sink = SimulatedStore(), RecordingSink()
    old, _ = opened(store, sink)
    plan(old, 0, 1, 2)
    wake = asleep_before_writing(old, group(0, 1, "old"))
    new, recovered = opened(store, sink)

    with pytest.raises(Fenced, match="another run has made commit 2"):
        wake()
    new.commit(group(0, 2, "new"))
    new.publish()
    old.publish()

    assert [0, 1, 2] == [each.epoch for each in recovered.plans]
    assert ["new"] * 3 == runs_published(sink)


def test_a_number_that_was_let_go_of_is_not_made_again_unnoticed():
    store, sink = SimulatedStore(), RecordingSink()
    old, _ = opened(store, sink)
    plan(old, 0)
    wake = asleep_before_writing(old, group(0, 0, "old"))
    new, _ = opened(store, sink, keep=1)
    for epoch in range(5):
        if epoch:
            plan(new, epoch)
        new.commit(group(epoch, epoch, "new"))
        new.publish()
    assert commit_path(2) not in store.files

    with pytest.raises(Fenced, match="run 2 has taken the lease"):
        wake()
    old.publish()
    _, recovered = opened(store, sink)

    assert ["new"] * 5 == runs_published(sink)
    assert 4 == recovered.commit.last
    assert commit_path(2) in recovered.garbage


def test_what_a_fenced_run_still_plans_is_in_nobodys_way():
    store, sink = SimulatedStore(), RecordingSink()
    old, _ = opened(store, sink)
    new, _ = opened(store, sink)
    plan(old, 0, 1)
    plan(new, 0)
    new.close()

    _, recovered = opened(store, sink)

    assert [(0, 2)] == [(each.epoch, each.run) for each in recovered.plans]
    assert {"epochs/0000000000_1.plan", "epochs/0000000001_1.plan"} <= set(recovered.garbage)


def test_a_run_that_was_taken_over_after_its_commit_leaves_publishing_to_the_next():
    store, sink = SimulatedStore(), RecordingSink()
    old, _ = opened(store, sink)
    plan(old, 0)
    old.commit(group(0, 0, "old"))
    new, recovered = opened(store, sink)

    with pytest.raises(Fenced, match="lease/0000000002 says who it is"):
        old.publish()
    assert [] == sink.calls
    new.publish()
    with pytest.raises(Fenced):
        plan(old, 1)

    assert [("out", 0)] == [(each.sink, each.epoch) for each in recovered.unpublished]
    assert ["old"] == runs_published(sink)


def test_a_commit_that_comes_while_another_run_opens_is_kept(monkeypatch):
    store, sink = SimulatedStore(), RecordingSink()
    old, _ = opened(store, sink)
    plan(old, 0)
    wake = asleep_before_writing(old, group(0, 0, "old"))
    new = Commits(store, {"out": sink})
    real = new._read_contents

    def read_contents(command):
        found = real(command)
        if not sink.calls and commit_path(2) not in store.files:
            with pytest.raises(Fenced):
                wake()
        return found

    doing = {**Commits.DOING, ReadContents: lambda _, command: read_contents(command)}
    monkeypatch.setattr(Commits, "DOING", doing)
    recovered = new.open("test", holder="new", created=0)
    new.publish()

    assert 1 == recovered.next_epoch
    assert ["old"] == runs_published(sink)
