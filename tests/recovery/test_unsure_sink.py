"""A sink that fails before it took an epoch, or after, or is slow: scenario 11 of the notes.

A publication that failed may have been made. So it is repeated with the same epoch and the same
messages, by the next run, and no epoch is ever put together with another: a sink that remembers which
epochs it has taken shows each of them once (M15).
"""

import json

import pytest

import anabranch as ab
from anabranch.connectors.base import Sink
from anabranch.epoch.triggers import available_now
from anabranch.errors import RunError
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import UNKIND, InlineExecutor
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from anabranch.testing.sequential.checkpoint import log_of
from tests.runtime.programs import PROGRAMS

COUNT = 60


class Ledger(Sink):
    """A system outside, that outlives all runs: it takes an epoch once and counts the calls."""

    def __init__(self):
        self.taken, self.calls = {}, []
        self.fail_at, self.when = {}, "before"
        self.on_call = lambda epoch: None

    def write(self, batches, epoch, attempt):
        rows = [row for batch in batches for row in batch.to_pylist()]
        return {"attempt": attempt, "rows": json.dumps(rows)}

    def publish(self, messages, epoch):
        self.calls.append((epoch, json.dumps(messages)))
        self.on_call(epoch)
        fails = self.fail_at.pop(len(self.calls), False)
        if fails and self.when == "before":
            raise TimeoutError("the ledger does not answer")
        if epoch not in self.taken:
            self.taken[epoch] = [row for each in messages for row in json.loads(each["rows"])]
        if fails:
            raise TimeoutError("the ledger did not say whether it was done")

    @property
    def rows(self):
        return [row for epoch in sorted(self.taken) for row in self.taken[epoch]]


def program(name, sink):
    make, rows, schema = PROGRAMS[name]
    return make(ab.sources.Records(rows(COUNT), schema=schema), sink)


def live(name, sink, checkpoint, *, seed=0, mischief=None, lanes=2, in_flight=16, rows=3):
    """Run to the end; an error ends it, as it ends a driver."""
    settings = Settings(
        available_now(rows), checkpoint, lanes, slices=8, keep=None, in_flight=in_flight
    )
    executor = InlineExecutor(seed, mischief) if mischief else InlineExecutor(seed)
    assembled = assemble(program(name, sink).freeze(), settings, executor, MockClock())
    try:
        while not assembled.loop.over:
            assembled.loop.step()
    finally:
        assembled.loop._pool.shutdown(wait=True)
        assembled.close()
    return assembled


def check(name, ledger, checkpoint):
    """Each epoch by itself is what the log's epoch means, and each was told of in the same words."""
    log = list(log_of(checkpoint, program(name, ledger).freeze()))
    shown = 0
    for epoch in range(len(log)):
        upto = run_sequential(program(name, ledger), log=log[: epoch + 1])["out"]
        assert_same_rows(upto[shown:], ledger.taken.get(epoch, []))
        shown = len(upto)
    assert shown == len(ledger.rows)
    words = {}
    for epoch, told in ledger.calls:
        assert words.setdefault(epoch, told) == told, f"epoch {epoch} was told of in two ways"
    firsts = list(words)
    assert firsts == sorted(firsts), "epochs are published in the order of the log"


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_every_publication_may_fail_once_before_or_after_it_was_made(name, when, tmp_path):
    """Each run makes one publication more than the run before it, and dies of it."""
    ledger, died = Ledger(), 0
    ledger.when = when
    while True:
        ledger.fail_at = {len(ledger.calls) + 1 + died: True}
        try:
            live(name, ledger, tmp_path / "ckpt", lanes=1 + died % 3)
        except RunError as error:
            assert "could not publish" in str(error)
            assert "the ledger" in str(error)
            died += 1
            continue
        break

    ledger.fail_at = {}
    live(name, ledger, tmp_path / "ckpt")
    assert died >= 2
    check(name, ledger, tmp_path / "ckpt")


@pytest.mark.parametrize("when", ["before", "after"])
def test_of_a_commit_of_several_epochs_each_is_published_by_itself(when, tmp_path):
    """The second of them fails: the next run begins with it or before it, never with both in one."""
    ledger = Ledger()
    ledger.when, ledger.fail_at = when, {2: True}
    with pytest.raises(RunError, match="could not publish epoch"):
        live("fraud", ledger, tmp_path / "ckpt")
    commit = recover(LocalStore(tmp_path / "ckpt")).history[-1]
    assert commit.last > commit.first, "the test is of nothing unless a commit has several epochs"
    failed = ledger.calls[1]

    live("fraud", ledger, tmp_path / "ckpt")

    again = [call for call in ledger.calls[2:] if call[0] == failed[0]]
    assert [failed] == again
    check("fraud", ledger, tmp_path / "ckpt")


@pytest.mark.slow
def test_a_sink_that_fails_while_jobs_fail_and_processes_die(tmp_path):
    for seed in range(4):
        home, ledger = tmp_path / str(seed), Ledger()
        for life in range(12):
            ledger.when = ("before", "after")[(seed + life) % 2]
            ledger.fail_at = {len(ledger.calls) + 2 + life: True}
            try:
                live("fraud", ledger, home, seed=seed * 100 + life, mischief=UNKIND)
            except RunError as error:
                told = str(error)
                assert "could not publish" in told or "times in a row" in told
                continue
            break
        ledger.fail_at = {}
        live("fraud", ledger, home)
        check("fraud", ledger, home)


@pytest.mark.parametrize("in_flight", [2, 5])
def test_a_slow_sink_holds_the_source_back(in_flight, tmp_path):
    """Whenever it is asked to take an epoch, no more than so many are planned from this one on.

    So what a query holds is bounded by epochs in flight, however far its source is ahead.
    """
    ledger, behind = Ledger(), []

    def look(epoch):
        plans = {int(each.name.split("_")[0]) for each in (tmp_path / "ckpt" / "epochs").iterdir()}
        behind.append(max(plans) - epoch + 1)

    ledger.on_call = look
    live("fraud", ledger, tmp_path / "ckpt", in_flight=in_flight, rows=1)

    assert max(behind) <= in_flight, behind
    assert max(behind) > 1, "nothing was ever in flight"
    check("fraud", ledger, tmp_path / "ckpt")
