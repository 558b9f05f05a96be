"""A small run of six epochs in three commits, and what must be true of it whatever dies when.

The source has sixty rows. How many an epoch takes depends on the run that plans it, so an epoch that is
planned once and then planned anew by another run would show.
"""

from dataclasses import dataclass, field

from anabranch.connectors.base import Sink
from anabranch.state.commit import CommitMachine
from anabranch.state.commits import Commits
from anabranch.state.description import Description
from anabranch.state.layout import Commit, DeltaName, EpochPlan, program_path

ROWS, EPOCHS, GROUP, KEEP = 60, 6, 2, 1


def _nothing():
    pass


class RecordingSink(Sink):
    """Outlives every crash; an epoch published again must be the same, a new one the next."""

    def __init__(self):
        self.epochs = {}
        self.calls = []
        self.on_call = _nothing

    def write(self, batches, epoch, attempt):
        raise NotImplementedError

    def publish(self, messages, epoch):
        self.on_call()
        self.calls.append((epoch, messages))
        if epoch in self.epochs:
            assert self.epochs[epoch] == messages, f"epoch {epoch} published twice, not the same"
        else:
            assert epoch == len(self.epochs), f"epoch {epoch} published after {len(self.epochs)}"
            self.epochs[epoch] = messages
        self.on_call()

    def rows(self):
        return [
            row for messages in self.epochs.values() for each in messages for row in each["rows"]
        ]


@dataclass
class Witness:
    """What the outside saw, which no crash undoes."""

    planned: dict[int, object] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    runs: list[int] = field(default_factory=list)
    aborted: int = 0


class Master:
    """A driver: opens, runs again what was planned, plans, stages, commits, publishes."""

    def __init__(
        self, store, sink, witness, *, group=GROUP, keep=KEEP, name="master", together=1, fold=False
    ):
        self.store, self.sink, self.witness = store, sink, witness
        self.commits = Commits(store, {"out": sink}, CommitMachine(keep=keep))
        self.name = name
        self.group, self.together, self.fold = group, together, fold

    def run(self):
        self.open()
        while self.epoch < EPOCHS:
            self.do_group()
        self.commits.publish()
        self.commits.close()

    def open(self):
        self.recovered = self.commits.open("test", holder=self.name, created=0, run_id=self.name)
        self.commits._machine.validate()
        self.commits.describe(Description({"sum": {"kind": (self.name,)}}))
        self.witness.runs.append(self.commits.run)
        commit = self.recovered.commit
        self.epoch = commit.last + 1 if commit else 0
        self.position = commit.positions["in"][0] if commit else 0
        self.plans = {plan.epoch: plan for plan in self.recovered.plans}
        assert sorted(self.plans) == list(range(self.epoch, self.epoch + len(self.plans)))
        # Everything that was said to be durable is.
        assert self.epoch > max(self.witness.committed, default=-1)
        for epoch, offsets in self.witness.planned.items():
            if epoch >= self.epoch:
                assert offsets == self.plans[epoch].offsets

    def do_group(self):
        first, last = self.epoch, min(self.epoch + self.group, EPOCHS) - 1
        staged = []
        begin = self.position
        for epoch in range(first, last + 1):
            (begin, end) = self.plan(epoch, begin).offsets[0]
            staged.append((epoch, ({"rows": list(range(begin, end)), "run": self.commits.run},)))
            begin = end
        # The output of the commit before goes out while this one is being worked on.
        self.commits.publish()
        self.write_deltas(first, last)
        commit = Commit(
            first,
            last,
            positions={"in": {0: begin}},
            watermarks={"in": begin},
            owners=(0, 1),
            lanes=2,
            deltas={"sum": {lane: self.delta(last, lane) for lane in (0, 1)}},
            staged={"out": tuple(staged)},
        )
        if self.fold:
            self.commits.fold(*(self.plans[epoch] for epoch in range(first, last + 1)))
            self.commits._machine.validate()
        sealed = self.commits.commit(commit)
        self.commits._machine.validate()
        assert not self.fold or len(sealed.plans) == 1
        assert (first, last) == (sealed.first, sealed.last)
        for epoch in range(first, last + 1):
            assert epoch not in self.witness.committed, f"epoch {epoch} committed twice"
            self.witness.committed[epoch] = self.commits.run
        self.epoch, self.position = last + 1, begin

    def plan(self, epoch, begin):
        if epoch not in self.plans:
            made = []
            for each in range(epoch, min(epoch + self.together, EPOCHS)):
                width = 7 + (self.commits.run * 3 + each) % 5
                end = ROWS if each == EPOCHS - 1 else begin + width
                made.append(EpochPlan(each, "in", {0: (begin, end)}, lanes=2))
                begin = end
            self.commits.plan(*made)
            self.plans |= {plan.epoch: plan for plan in made}
            self.witness.planned |= {plan.epoch: plan.offsets for plan in made}
        return self.plans[epoch]

    def delta(self, last, lane):
        # The second commit has snapshots, so that retention has something to do.
        name = DeltaName("sum", last, self.commits.run, lane, "a", snapshot=last // GROUP == 1)
        return name.path

    def write_deltas(self, first, last):
        loser = DeltaName("sum", last, self.commits.run, 0, "b").path
        for path in (self.delta(last, 0), loser, self.delta(last, 1)):
            self.store.create(path, b"")
        self.commits.abort(last, {"out": [{"rows": [], "run": "loser"}]}, [loser])


def check_finished(store, sink, witness):
    """Nothing lost, nothing twice, in order; and only what is needed is left."""
    assert list(range(ROWS)) == sink.rows()
    assert list(range(EPOCHS)) == list(sink.epochs)
    assert set(witness.committed) <= set(range(EPOCHS))
    assert witness.runs == sorted(set(witness.runs))
    last = Master(store, sink, witness)
    last.open()
    assert () == last.recovered.unpublished
    last.commits.publish()
    last.commits.close()
    files = set(store.files)
    kept = last.commits._machine._retention.referenced()
    [lease] = [path for path in files if path.startswith("lease/")]
    [published] = [path for path in files if path.startswith("published/")]
    # What a run kept state for is known while one of its commits is.
    runs = {commit.run for commit in last.recovered.history} | {last.commits.run}
    described = {path for path in files if path.startswith("program/")}
    assert described <= {program_path(run) for run in runs}
    assert files == {"metadata", lease, published, *kept, *described}
    assert set() == {path for path in files if path.endswith("_b.delta")}
