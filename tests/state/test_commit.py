"""The commit machine alone: whatever order outcomes come in, and whatever comes twice."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from anabranch.errors import CheckpointError, RunError
from anabranch.state.commit import CommitMachine, Phase
from anabranch.state.description import Description
from anabranch.state.layout import Commit, EpochPlan, Metadata
from anabranch.state.protocol import (
    Abort,
    Acknowledge,
    Acknowledged,
    Close,
    CommitRefused,
    Committed,
    CommitWritten,
    ContentsRead,
    ContentsUnreadable,
    CreateLease,
    Delete,
    Describe,
    DescriptionRefused,
    DescriptionWritten,
    Failed,
    Fenced,
    FindMetadata,
    Halt,
    IllegalMove,
    LeaseCreated,
    LeaseRefused,
    LeasesListed,
    ListLeases,
    Lost,
    MetadataFound,
    Open,
    Opened,
    Plan,
    PlanWritten,
    Propose,
    Publish,
    Published,
    PublishFailed,
    ReadContents,
    Rewind,
    Start,
    WriteCommit,
    WriteDescription,
    WritePlan,
)
from anabranch.state.recovery import Recovered

METADATA = Metadata("id", "views", 0)
OPEN = Open(METADATA, "run", "me")
DELTA = "state/n/0000000000_1_0_a.delta"


def new(**options):
    return CommitMachine(**options)


def opened(recovered=None, **options):
    machine = new(**options)
    machine.handle(OPEN, MetadataFound(METADATA), LeasesListed("take", 0), LeaseCreated(1))
    machine.handle(LeasesListed("take", 1), ContentsRead(recovered or Recovered(1)))
    number = machine._writing[0].number
    machine.handle(LeasesListed("commit", 1), CommitWritten(number), LeasesListed("verify", 1))
    assert machine.phase is Phase.OPEN
    return machine


def planned(machine, *epochs):
    for epoch in epochs:
        machine.handle(Plan(EpochPlan(epoch, "in", {})), PlanWritten(epoch))


def commit(first, last=None, **values):
    last = first if last is None else last
    staged = {"out": tuple((epoch, (f"m{epoch}",)) for epoch in range(first, last + 1))}
    return Commit(first, last, **({"staged": staged} | values))


def written(machine, number):
    outcomes = LeasesListed("commit", 1), CommitWritten(number), LeasesListed("verify", 1)
    return machine.handle(*outcomes)


def kinds(commands):
    return [type(command) for command in commands]


# ---- Opening ------------------------------------------------------------------------------------


def test_a_run_takes_the_lease_reads_and_closes_the_log_to_older_runs():
    machine = new(keep=7)

    assert [FindMetadata(METADATA)] == machine.handle(OPEN)
    assert [ListLeases("take")] == machine.handle(MetadataFound(METADATA))
    [take] = machine.handle(LeasesListed("take", 4))
    assert (5, "run", "me") == (take.lease.number, take.lease.run_id, take.lease.holder)
    assert [ListLeases("take")] == machine.handle(LeaseCreated(5))
    assert [ReadContents(7)] == machine.handle(LeasesListed("take", 5))
    assert [ListLeases("commit")] == machine.handle(ContentsRead(Recovered(5)))
    [write] = machine.handle(LeasesListed("commit", 5))
    assert (1, 5, 0, -1) == (
        write.commit.number,
        write.commit.run,
        write.commit.first,
        write.commit.last,
    )
    assert [ListLeases("verify")] == machine.handle(CommitWritten(1))
    assert [Opened(Recovered(5))] == machine.handle(LeasesListed("verify", 5))


def test_a_number_that_another_took_is_followed_by_the_next():
    machine = new()
    machine.handle(OPEN, MetadataFound(METADATA), LeasesListed("take", 4))

    assert [ListLeases("take")] == machine.handle(LeaseRefused(5))
    [take] = machine.handle(LeasesListed("take", 5))
    assert 6 == take.lease.number


def test_a_lease_is_above_all_runs_that_commits_tell_of():
    """Leases may be lost; a run that is counted twice would be taken for the one before."""
    machine = new()
    machine.handle(OPEN, MetadataFound(METADATA), LeasesListed("take", 0), LeaseCreated(1))
    machine.handle(LeasesListed("take", 1))
    old = Recovered(1, history=(Commit(0, 0, number=4, run=7),))

    assert [ListLeases("take")] == machine.handle(ContentsRead(old))
    [create] = machine.handle(LeasesListed("take", 1))
    assert 8 == create.lease.number
    machine.handle(LeaseCreated(8))
    assert [ReadContents(100)] == machine.handle(LeasesListed("take", 8))
    assert [ListLeases("commit")] == machine.handle(ContentsRead(old))
    assert 8 == machine.run


def test_what_a_newer_run_clears_away_is_not_taken_for_damage():
    def reading():
        machine = new()
        machine.handle(OPEN, MetadataFound(METADATA), LeasesListed("take", 0), LeaseCreated(1))
        machine.handle(LeasesListed("take", 1))
        return machine

    error = CheckpointError("commits/4 is missing")

    machine = reading()
    assert [ListLeases("take")] == machine.handle(ContentsUnreadable(error))
    [halt] = machine.handle(LeasesListed("take", 2))
    assert isinstance(halt.error, Fenced)

    machine = reading()
    machine.handle(ContentsUnreadable(error))
    assert [ReadContents(100)] == machine.handle(LeasesListed("take", 1))
    assert [Halt(error)] == machine.handle(ContentsUnreadable(error))


def test_a_name_that_is_taken_and_not_listed_is_tried_once():
    machine = new()
    machine.handle(OPEN, MetadataFound(METADATA), LeasesListed("take", 0), LeaseRefused(1))
    [halt] = machine.handle(LeasesListed("take", 0))
    assert "lease/0000000001 of the checkpoint is there and is no file" == halt.error.what

    machine = new()
    machine.handle(OPEN, MetadataFound(METADATA), LeasesListed("take", 0), LeaseCreated(1))
    machine.handle(LeasesListed("take", 1), ContentsRead(Recovered(1)))
    machine.handle(LeasesListed("commit", 1), CommitRefused(1))
    [halt] = machine.handle(ContentsRead(Recovered(1)))
    assert "commits/0000000001 of the checkpoint is there and is no file" == halt.error.what


def test_a_run_that_is_not_the_newest_when_it_begins_stops():
    machine = new()
    machine.handle(OPEN, MetadataFound(METADATA), LeasesListed("take", 0), LeaseCreated(1))

    [halt] = machine.handle(LeasesListed("take", 2))

    assert isinstance(halt.error, Fenced)


def test_a_checkpoint_of_another_program_is_refused():
    machine = new()
    machine.handle(OPEN)

    [halt] = machine.handle(MetadataFound(Metadata("id", "clicks", 0)))

    assert isinstance(halt.error, CheckpointError)
    assert "the checkpoint belongs to program 'clicks', not 'views'" == halt.error.what
    assert [] == machine.handle(Close())


def test_a_checkpoint_of_a_newer_format_is_refused():
    machine = new()
    machine.handle(OPEN)

    [halt] = machine.handle(MetadataFound(Metadata("id", "views", 0, format=2)))

    assert "written by a newer version" in halt.error.what


def test_a_run_that_goes_on_tells_early_sinks_to_go_back():
    last = Commit(0, 3, number=4)
    machine = new()
    machine.handle(OPEN, MetadataFound(METADATA), LeasesListed("take", 0), LeaseCreated(1))
    recovered = Recovered(1, commit=last, history=(last,), garbage=("epochs/x",))
    machine.handle(LeasesListed("take", 1), ContentsRead(recovered), LeasesListed("commit", 1))

    commands = machine.handle(CommitWritten(5), LeasesListed("verify", 1))

    assert [ListLeases("verify"), Rewind(3), Opened(recovered), Delete(("epochs/x",))] == commands


# ---- Planning and committing --------------------------------------------------------------------


def test_a_run_says_what_it_keeps_state_for_before_its_first_epoch():
    machine = opened()
    program = Description({"n": {}})

    assert [WriteDescription(1, program)] == machine.handle(Describe(program, ("old",)))
    assert [] == machine.handle(DescriptionWritten(1))
    planned(machine, 0, 1)
    with pytest.raises(IllegalMove, match="behind its first plan"):
        machine.handle(Describe(program))


def test_what_is_dropped_is_said_by_the_first_commit_with_epochs_alone():
    machine = opened()
    machine.handle(Describe(Description(), ("old",)), DescriptionWritten(1))
    planned(machine, 0, 1)

    machine.handle(Propose(commit(0)))
    first = machine._writing[0]
    written(machine, first.number)
    machine.handle(Propose(commit(1)))

    assert ("old",) == first.dropped
    assert () == machine._writing[0].dropped


def test_a_run_that_was_described_by_another_process_stops():
    machine = opened()
    machine.handle(Describe(Description()))

    [halt] = machine.handle(DescriptionRefused(1))

    assert isinstance(halt.error, Fenced)


def test_commits_name_the_newest_plan_of_each_source():
    machine = opened()
    for epoch, source in enumerate(["a", "b", "a"]):
        machine.handle(Plan(EpochPlan(epoch, source, {})), PlanWritten(epoch))

    machine.handle(Propose(commit(0, 1)))
    first = machine._writing[0]
    written(machine, first.number)
    machine.handle(Propose(commit(2)))

    paths = [EpochPlan(epoch, "", {}, run=1).path for epoch in range(3)]
    assert {"a": paths[0], "b": paths[1]} == first.latest
    assert {"a": paths[2], "b": paths[1]} == machine._writing[0].latest


def test_work_starts_when_its_plan_and_those_before_are_durable():
    machine = opened()
    for epoch in range(3):
        [write] = machine.handle(Plan(EpochPlan(epoch, "in", {})))
        assert (epoch, 1) == (write.plan.epoch, write.plan.run)

    assert [] == machine.handle(PlanWritten(1))
    assert [Start(0), Start(1)] == machine.handle(PlanWritten(0))
    assert [] == machine.handle(PlanWritten(0))
    assert [Start(2)] == machine.handle(PlanWritten(2))


def test_plans_follow_each_other():
    machine = opened()

    with pytest.raises(IllegalMove, match="planning epoch 1 after -1"):
        machine.handle(Plan(EpochPlan(1, "in", {})))


def test_what_has_not_started_is_not_committed():
    machine = opened()
    planned(machine, 0)
    machine.handle(Plan(EpochPlan(1, "in", {})))

    with pytest.raises(IllegalMove, match="committing epochs 0 to 1"):
        machine.handle(Propose(commit(0, 1)))


def test_commits_are_written_one_at_a_time_and_in_order():
    machine = opened()
    planned(machine, 0, 1, 2)

    assert [ListLeases("commit")] == machine.handle(Propose(commit(0)))
    assert [] == machine.handle(Propose(commit(1)))
    assert [] == machine.handle(Propose(commit(2)))
    [first] = machine.handle(LeasesListed("commit", 1))
    assert (2, 1, 0, ("epochs/0000000000_1.plan",)) == (
        first.commit.number,
        first.commit.parent,
        first.commit.first,
        first.commit.plans,
    )
    machine.handle(CommitWritten(2))
    commands = machine.handle(LeasesListed("verify", 1))
    assert [Committed(first.commit), ListLeases("commit"), ListLeases("publish")] == commands
    [second] = machine.handle(LeasesListed("commit", 1))
    assert (3, 2, 1) == (second.commit.number, second.commit.parent, second.commit.first)


def test_the_next_commit_is_written_while_the_last_is_published():
    machine = opened()
    planned(machine, 0, 1)
    machine.handle(Propose(commit(0)))
    written(machine, 2)
    [publish] = machine.handle(LeasesListed("publish", 1))

    machine.handle(Propose(commit(1)))
    written(machine, 3)

    assert Publish("out", 0, ("m0",)) == publish
    assert 1 == machine.statistics().last_epoch
    assert 2 == machine.statistics().unpublished
    assert [Publish("out", 1, ("m1",))] == [
        each
        for each in machine.handle(LeasesListed("publish", 1), Published("out", 0))
        if isinstance(each, Publish)
    ]


def test_a_group_that_is_proposed_twice_is_committed_once():
    machine = opened()
    planned(machine, 0, 1)
    machine.handle(Propose(commit(0)))

    assert [] == machine.handle(Propose(commit(0)))
    written(machine, 2)
    assert [] == machine.handle(Propose(commit(0)))
    with pytest.raises(IllegalMove):
        machine.handle(Propose(commit(0, 1)))


def test_commits_are_of_consecutive_epochs():
    machine = opened()
    planned(machine, 0, 1)

    with pytest.raises(IllegalMove, match="committing epochs 1 to 1"):
        machine.handle(Propose(commit(1)))


@pytest.mark.parametrize(
    "outcomes",
    [
        [LeasesListed("commit", 2)],
        [LeasesListed("commit", 1), CommitRefused(2)],
        [LeasesListed("commit", 1), CommitWritten(2), LeasesListed("verify", 2)],
    ],
)
def test_a_run_that_was_fenced_stops_and_publishes_nothing(outcomes):
    machine = opened()
    planned(machine, 0)
    machine.handle(Propose(commit(0)))

    *_, halt = machine.handle(*outcomes)

    assert isinstance(halt.error, Fenced)
    assert Phase.STOPPED is machine.phase
    assert [] == machine.handle(LeasesListed("publish", 1), Published("out", 0))
    with pytest.raises(Fenced):
        machine.handle(Plan(EpochPlan(1, "in", {})))


# ---- Publishing ---------------------------------------------------------------------------------


def publishing(*commits):
    machine = opened()
    planned(machine, *range(commits[-1].last + 1))
    for number, each in enumerate(commits, 2):
        machine.handle(Propose(each))
        written(machine, number)
    return machine


def test_each_sink_gets_one_epoch_at_a_time_in_order():
    both = {"a": ((0, ("a0",)), (1, ("a1",))), "b": ((1, ("b1",)),)}
    machine = publishing(commit(0, 1, staged=both))

    assert [Publish("a", 0, ("a0",)), Publish("b", 1, ("b1",))] == machine.handle(
        LeasesListed("publish", 1)
    )
    assert [] == machine.handle(Published("b", 1))
    assert [Publish("a", 1, ("a1",))] == machine.handle(Published("a", 0))
    assert [Acknowledge] == kinds(machine.handle(Published("a", 1)))


def test_an_acknowledgement_covers_all_that_is_published():
    machine = publishing(commit(0), commit(1), commit(2))
    machine.handle(LeasesListed("publish", 1))
    [first, _] = machine.handle(Published("out", 0), LeasesListed("publish", 1))

    commands = machine.handle(Published("out", 1), Published("out", 2))
    assert 2 == first.acknowledgement.number
    assert [Publish] == kinds(commands)
    [second] = machine.handle(Acknowledged(2))

    assert 4 == second.acknowledgement.number
    assert [Delete(("published/0000000002",))] == machine.handle(Acknowledged(4))


def test_what_comes_twice_changes_nothing():
    machine = publishing(commit(0), commit(1))
    machine.handle(LeasesListed("publish", 1), Published("out", 0))

    assert [] == machine.handle(Published("out", 0))
    assert [] == machine.handle(Published("out", 7), Published("nobody", 0))
    machine.handle(Acknowledged(2))
    assert [] == machine.handle(Acknowledged(2), Acknowledged(9))


def test_a_commit_without_output_needs_no_acknowledgement():
    machine = opened()
    planned(machine, 0)
    machine.handle(Propose(commit(0, staged={})))

    assert [WriteCommit, ListLeases, Committed] == kinds(written(machine, 2))
    assert 0 == machine.statistics().unpublished


def test_a_sink_that_fails_stops_the_run():
    machine = publishing(commit(0))
    machine.handle(LeasesListed("publish", 1))
    cause = OSError("no such host")

    [halt] = machine.handle(PublishFailed("out", 0, cause))

    assert "sink 'out' could not publish epoch 0" == halt.error.what
    assert cause is halt.cause
    assert not isinstance(halt.error, Fenced)


# ---- Losing and letting go ----------------------------------------------------------------------


def test_what_losers_left_is_let_go_of_and_what_winners_wrote_is_not():
    machine = opened()
    planned(machine, 0)
    machine.handle(Propose(commit(0, owners=(0,), lanes=1, deltas={"n": {0: DELTA}})))
    other = DELTA.replace("_a.", "_b.")

    commands = machine.handle(Lost(0, {"out": ("m0", "x0")}, (DELTA, other)))

    assert [Abort("out", 0, ("x0",)), Delete((other,))] == commands
    written(machine, 2)
    assert [] == machine.handle(Lost(0, {"out": ("m0",)}, (DELTA,)))


def test_what_an_attempt_that_lost_wrote_cannot_be_committed():
    machine = opened()
    planned(machine, 0)
    machine.handle(Lost(0, {}, (DELTA,)))

    with pytest.raises(IllegalMove, match="an attempt that lost"):
        machine.handle(Propose(commit(0, owners=(0,), lanes=1, deltas={"n": {0: DELTA}})))


def test_old_commits_go_when_they_are_published():
    machine = opened(keep=1)
    deleted = []
    for epoch in range(3):
        planned(machine, epoch)
        machine.handle(Propose(commit(epoch)))
        commands = written(machine, epoch + 2)
        commands += machine.handle(LeasesListed("publish", 1), Published("out", epoch))
        commands += machine.handle(Acknowledged(epoch + 2))
        for command in commands:
            deleted += command.paths if isinstance(command, Delete) else ()

    assert [
        "commits/0000000001",
        "commits/0000000002",
        "epochs/0000000000_1.plan",
        "published/0000000002",
        "commits/0000000003",
        "epochs/0000000001_1.plan",
        "published/0000000003",
    ] == deleted


# ---- The rest -----------------------------------------------------------------------------------


def test_an_illegal_move_tells_the_story():
    machine = opened()

    with pytest.raises(IllegalMove, match="LeaseCreated while open") as caught:
        machine.handle(LeaseCreated(3))

    assert "LeasesListed(verify, 1) -> OPEN: Opened" in str(caught.value)
    assert machine.story()[-1] == "LeasesListed(verify, 1) -> OPEN: Opened"


def test_an_outcome_of_nothing_is_illegal():
    for event in (CommitWritten(2), CommitRefused(2), LeasesListed("commit", 1)):
        with pytest.raises(IllegalMove):
            opened().handle(event)


def test_a_store_that_fails_stops_the_run():
    machine = opened()
    error = RunError("cannot write")

    assert [Halt(error)] == machine.handle(Failed(error))
    with pytest.raises(RunError, match="cannot write"):
        machine.handle(Propose(commit(0)))


def test_after_closing_nothing_is_asked_for():
    machine = publishing(commit(0))

    assert [] == machine.handle(Close())
    assert [] == machine.handle(LeasesListed("publish", 1))
    with pytest.raises(IllegalMove):
        machine.handle(Plan(EpochPlan(1, "in", {})))


class AnyOrder(RuleBasedStateMachine):
    """A run whose commands are carried out in any order that a driver with threads may choose."""

    @initialize(keep=st.sampled_from([None, 1, 2]))
    def begin(self, keep):
        self.machine = opened(keep=keep)
        self.waiting, self.told = [], []
        self.started, self.committed, self.published, self.commits = [], [], {}, {}
        self.acknowledged, self.newer, self.planned, self.proposed = 1, 1, 0, 0
        self.deleted = set()

    def handle(self, event):
        self.told.append(event)
        for command in self.machine.handle(event):
            match command:
                case Start(epoch):
                    self.started.append(epoch)
                case Committed(commit):
                    self.committed += range(commit.first, commit.last + 1)
                case Halt(error):
                    assert isinstance(error, Fenced)
                case Delete(paths):
                    self.deleted.update(paths)
                case _:
                    self.waiting.append(command)

    @property
    def alive(self):
        return self.machine.phase is Phase.OPEN

    @precondition(lambda self: self.alive)
    @rule()
    def plan(self):
        self.handle(Plan(EpochPlan(self.planned, "in", {})))
        self.planned += 1

    @precondition(lambda self: self.alive and len(self.started) > self.proposed)
    @rule(data=st.data())
    def propose(self, data):
        last = data.draw(st.integers(self.proposed, len(self.started) - 1))
        self.handle(Propose(commit(self.proposed, last)))
        self.proposed = last + 1

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def carry_out(self, data):
        command = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        match command:
            case WritePlan(plan):
                self.handle(PlanWritten(plan.epoch))
            case ListLeases(purpose):
                self.handle(LeasesListed(purpose, self.newer))
            case WriteCommit(commit):
                assert commit.number not in self.commits
                self.commits[commit.number] = commit
                self.handle(CommitWritten(commit.number))
            case Publish(sink, epoch, messages):
                assert epoch in self.committed
                self.published.setdefault(sink, []).append((epoch, messages))
                self.handle(Published(sink, epoch))
            case Acknowledge(acknowledgement):
                last = self.commits[acknowledgement.number].last
                assert [*range(last + 1)] == [e for e, _ in self.published["out"]][: last + 1]
                self.acknowledged = acknowledgement.number
                self.handle(Acknowledged(acknowledgement.number))
            case CreateLease() | ReadContents() | Abort():
                raise AssertionError(command)

    @precondition(lambda self: any(isinstance(e, Published | Acknowledged) for e in self.told))
    @rule(data=st.data())
    def say_again(self, data):
        old = [event for event in self.told if isinstance(event, Published | Acknowledged)]
        assert [] == self.machine.handle(data.draw(st.sampled_from(old)))

    @precondition(lambda self: self.alive and self.planned > 6)
    @rule()
    def be_taken_over(self):
        self.newer = 2

    @precondition(lambda self: not self.alive)
    @rule()
    def ask_when_fenced(self):
        with pytest.raises(Fenced):
            self.machine.handle(Plan(EpochPlan(self.planned, "in", {})))

    @invariant()
    def holds(self):
        self.machine.validate()
        assert list(range(len(self.started))) == self.started
        assert list(range(len(self.committed))) == self.committed
        shown = [epoch for epoch, _ in self.published.get("out", [])]
        assert list(range(len(shown))) == shown
        assert all(messages == (f"m{e}",) for e, messages in self.published.get("out", []))
        numbers = sorted(self.commits)
        assert list(range(2, 2 + len(numbers))) == numbers
        for number, each in self.commits.items():
            if number > self.acknowledged:
                assert each.path not in self.deleted
        assert not self.committed or self.commits[numbers[-1]].path not in self.deleted
        publishing = [each.sink for each in self.waiting if isinstance(each, Publish)]
        assert len(publishing) == len(set(publishing))
        assert 1 >= sum(isinstance(each, WriteCommit) for each in self.waiting)


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestAnyOrder = pytest.mark.slow(AnyOrder.TestCase)
