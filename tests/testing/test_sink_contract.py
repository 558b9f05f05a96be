"""Our own sinks keep the contract; of sinks that break one rule each, that rule is told."""

import re
import threading
from itertools import count

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import ProgramError
from anabranch.testing import check_sink
from anabranch.testing.sink_contract import SinkRule


def test_memory_keeps_the_contract():
    memory = ab.sinks.Memory("out")
    check_sink(memory, read=lambda: memory.rows)


SCANS = {
    "parquet": pl.read_parquet,
    "arrow": pl.read_ipc,
    "csv": pl.read_csv,
    "jsonl": pl.read_ndjson,
}


@pytest.mark.parametrize("kind", SCANS)
def test_files_keep_the_contract(kind, tmp_path):
    def make():
        return ab.sinks.Files(tmp_path / "out", format=kind)

    def read():
        files = sorted((tmp_path / "out").glob(f"*.{kind}"))
        return pl.concat(map(SCANS[kind], files)) if files else []

    check_sink(make(), read=read, again=make)


def test_a_callback_keeps_the_contract_at_least_once():
    taken = []
    sink = ab.sinks.Callback(lambda rows, epoch: taken.extend(rows))

    check_sink(sink, read=lambda: taken, again=lambda: sink, at_least_once=True)
    with pytest.raises(AssertionError, match=f"^broken: {SinkRule.ONCE.value}\n"):
        check_sink(sink, read=lambda: taken)


def test_a_console_keeps_the_contract_at_least_once(capsys):
    shown = []

    def read():
        lines = [line.split("|") for line in capsys.readouterr().out.splitlines() if "|" in line]
        cells = [[cell.strip() for cell in line[2:-1]] for line in lines]
        shown.extend({"n": int(n), "text": text} for n, text in cells if n != "n")
        return shown

    check_sink(ab.sinks.Console(), read=read, at_least_once=True)
    assert shown


class World:
    """What is outside: the copies of a sink, in whatever process, have it in common."""

    def __init__(self):
        self.staged, self.published, self.failed = {}, {}, set()

    @property
    def rows(self):
        return [row for epoch in sorted(self.published) for row in self.published[epoch]]


WORLDS: dict[int, World] = {}
_numbers = count()


class Good(ab.sinks.Sink):
    """Rows in a world."""

    def __init__(self, number=None):
        self.number = next(_numbers) if number is None else number
        WORLDS.setdefault(self.number, World())

    @property
    def world(self):
        return WORLDS[self.number]

    def write(self, batches, epoch, attempt):
        rows = [row for batch in batches for row in batch.to_pylist()]
        name = f"{epoch}-{attempt}-{next(_numbers)}"
        self.world.staged[name] = (epoch, rows)
        return {"name": name}

    def publish(self, messages, epoch):
        if epoch not in self.world.published:
            self.world.published[epoch] = [row for each in messages for row in self.take(each)]

    def take(self, message):
        return self.world.staged.pop(message["name"])[1]

    def abort(self, messages, epoch):
        for message in messages:
            self.world.staged.pop(message["name"], None)

    def sweep(self, keep):
        kept = {message["name"] for message in keep}
        self.world.staged = {n: s for n, s in self.world.staged.items() if n in kept}

    def show(self, rows):
        self.world.published.setdefault(10**6, []).extend(rows)


class Early(Good):
    """Shows rows when they are written, and takes them back when it is told."""

    visible = "early"

    def write(self, batches, epoch, attempt):
        message = super().write(batches, epoch, attempt)
        self.world.published.setdefault(epoch, []).extend(self.world.staged[message["name"]][1])
        return message

    def publish(self, messages, epoch):
        """It is there."""

    def rewind(self, after):
        published = self.world.published
        self.world.published = {e: rows for e, rows in published.items() if e <= after}


@pytest.mark.parametrize("kind", [Good, Early])
def test_one_of_ones_own_keeps_the_contract(kind):
    sink = kind()
    check_sink(sink, read=lambda: sink.world.rows)
    assert sink.world.rows

    other = kind()
    rows = [{"k": f"k{n}", "x": n / 7, "when": None} for n in range(50)]
    check_sink(other, read=lambda: other.world.rows, rows=rows, again=lambda: kind(other.number))
    assert rows[:9] == other.world.rows[:9]


class NoneOfTheName(Good):
    def called(self, program, name):
        return None


class Locked(Good):
    def __init__(self, number=None):
        super().__init__(number)
        self.lock = threading.Lock()


class Tuples(Good):
    def write(self, batches, epoch, attempt):
        return (super().write(batches, epoch, attempt)["name"], epoch)


class ShownAtOnce(Good):
    def write(self, batches, epoch, attempt):
        message = super().write(batches, epoch, attempt)
        self.show(self.world.staged[message["name"]][1])
        return message


class Turned(Good):
    def publish(self, messages, epoch):
        super().publish(messages[::-1], epoch)


class OneForAllTasks(Good):
    """Two tasks of one attempt write at the same time."""

    def write(self, batches, epoch, attempt):
        rows = [row for batch in batches for row in batch.to_pylist()]
        self.world.staged[f"{epoch}-{attempt}"] = (epoch, rows)
        return {"name": f"{epoch}-{attempt}"}

    def take(self, message):
        return self.world.staged[message["name"]][1]


class GoneThroughTwice(Good):
    def write(self, batches, epoch, attempt):
        assert sum(batch.num_rows for batch in batches) >= 0
        return super().write(batches, epoch, attempt)


class NothingInTheWay(Good):
    def publish(self, messages, epoch):
        staged = self.world.staged
        known = [m for m in messages if m["name"] in staged]
        super().publish(known if all(staged[m["name"]][1] for m in known) else [], epoch)


class SaysThatNothingCame(Good):
    def publish(self, messages, epoch):
        super().publish(messages, epoch)
        if not messages:
            self.show([{"n": None, "text": "nothing"}])


class AbortShows(Good):
    def abort(self, messages, epoch):
        for message in messages:
            self.show(self.world.staged.get(message["name"], (0, []))[1])


class AllThatIsStaged(Good):
    def publish(self, messages, epoch):
        mine = [{"name": name} for name, (of, _) in self.world.staged.items() if of == epoch]
        super().publish(messages if len(messages) != 1 else mine, epoch)


class AbortTakesMore(Good):
    def abort(self, messages, epoch):
        super().abort(messages, epoch)
        self.world.published.pop(epoch - 1, None)


class ErrorsSwallowed(Good):
    def write(self, batches, epoch, attempt):
        try:
            return super().write(batches, epoch, attempt)
        except Exception:
            return {"name": ""}


class ErrorsChanged(Good):
    def write(self, batches, epoch, attempt):
        try:
            return super().write(batches, epoch, attempt)
        except Exception as error:
            raise OSError("no room") from error


class RowByRow(Good):
    """Shows what came before a failure."""

    def write(self, batches, epoch, attempt):
        rows = []
        try:
            for batch in batches:
                rows += batch.to_pylist()
        except Exception:
            self.show(rows)
            raise
        return super().write(pl.DataFrame(rows).to_arrow().to_batches(), epoch, attempt)


class FailsForGood(Good):
    def write(self, batches, epoch, attempt):
        try:
            message = super().write(batches, epoch, attempt)
        except Exception:
            self.world.failed.add(epoch)
            raise
        if epoch in self.world.failed:
            self.world.staged[message["name"]] = (epoch, [])
        return message


class SweepShows(Good):
    def sweep(self, keep):
        for name, (_, rows) in self.world.staged.items():
            if {"name": name} not in keep:
                self.show(rows)


class SweepTakesAll(Good):
    def sweep(self, keep):
        self.world.staged = {}

    def take(self, message):
        return self.world.staged.pop(message["name"], (0, []))[1]


class SweepTakesTheLast(Good):
    def sweep(self, keep):
        super().sweep(keep)
        if not keep and self.world.published:
            self.world.published.popitem()


class RewindTakesAll(Good):
    def rewind(self, after):
        self.world.published = {}


class NoRewind(Early):
    def rewind(self, after):
        """Leaves what was shown early."""


class Twice(Good):
    def publish(self, messages, epoch):
        staged = self.world.staged
        rows = [row for each in messages for row in staged[each["name"]][1]]
        self.world.published[epoch] = [*self.world.published.get(epoch, []), *rows]


class SecondHalfTwice(Good):
    """Takes an epoch for published when its first message is."""

    def publish(self, messages, epoch):
        if epoch in self.world.published:
            self.show(self.world.staged[messages[-1]["name"]][1])
            return
        rows = [row for each in messages for row in self.world.staged[each["name"]][1]]
        self.world.published[epoch] = rows


class ClearsWhenItBegins(Good):
    def __init__(self, number=None):
        super().__init__(number)
        self.anew = number is not None

    def sweep(self, keep):
        super().sweep(keep)
        if self.anew:
            self.world.published = {}


class StopsAfterARepetition(Good):
    def publish(self, messages, epoch):
        if epoch in self.world.published:
            self.world.failed.add("repeated")
        elif "repeated" not in self.world.failed:
            super().publish(messages, epoch)


class SaysSoWhenARepetitionIsEmpty(Good):
    def publish(self, messages, epoch):
        if epoch in self.world.published and not messages:
            self.show([{"n": None, "text": "again"}])
        super().publish(messages, epoch)


class AbortTakesWhatIsPublished(Good):
    def abort(self, messages, epoch):
        if all(message["name"] not in self.world.staged for message in messages):
            self.world.published.pop(epoch, None)
        super().abort(messages, epoch)


class KnowsItsOwnStaged(Good):
    """Remembers in the process what `publish` needs."""

    def __init__(self, number=None):
        super().__init__(number)
        self.anew = number is not None

    def take(self, message):
        return [] if self.anew else super().take(message)


BROKEN = [
    (NoneOfTheName, SinkRule.SAME, "None"),
    (Locked, SinkRule.TRAVELS, "TypeError: cannot pickle '_thread.lock' object"),
    (Tuples, SinkRule.MESSAGES, r"\('0-a-.*"),
    (ShownAtOnce, SinkRule.UNSEEN, "9 rows, number 0: .*"),
    (Turned, SinkRule.ORDERED, "9 rows, number 0: {'n': 6, 'text': 'row 6'}"),
    (OneForAllTasks, SinkRule.ORDERED, "9 rows, number 0: {'n': 3, 'text': 'row 3'}"),
    (GoneThroughTwice, SinkRule.ORDERED, "0 rows"),
    (NothingInTheWay, SinkRule.NOTHING, "18 rows"),
    (SaysThatNothingCame, SinkRule.NO_TASKS, "22 rows, number 21: {'n': None, 'text': 'nothing'}"),
    (AbortShows, SinkRule.ABORTED, "27 rows, number 21: {'n': 21, 'text': 'row 21'}"),
    (AllThatIsStaged, SinkRule.WINNER, "27 rows, number 21: {'n': 24, 'text': 'row 24'}"),
    (AbortTakesWhatIsPublished, SinkRule.PUBLISHED_STAYS, "21 rows"),
    (AbortTakesMore, SinkRule.ABORT_ALONE, "21 rows"),
    (ErrorsSwallowed, SinkRule.ERRORS, "none"),
    (ErrorsChanged, SinkRule.ERRORS, "OSError: no room"),
    (RowByRow, SinkRule.FAILED, "27 rows, number 24: .*"),
    (FailsForGood, SinkRule.REPEATED, "24 rows"),
    (SweepShows, SinkRule.SWEPT, r"\d+ rows, number 27: .*"),
    (SweepTakesAll, SinkRule.KEPT, "27 rows"),
    (SweepTakesTheLast, SinkRule.KEPT, "27 rows"),
    (RewindTakesAll, SinkRule.REWOUND, "0 rows"),
    (NoRewind, SinkRule.REWOUND, "24 rows, number 21: .*"),
    (KnowsItsOwnStaged, SinkRule.TAKEN_OVER, r"\d+ rows"),
    (Twice, SinkRule.ONCE, r"\d+ rows, number 45: .*"),
    (SecondHalfTwice, SinkRule.ONCE, r"\d+ rows, number 45: .*"),
    (ClearsWhenItBegins, SinkRule.RESTARTED, "0 rows"),
    (StopsAfterARepetition, SinkRule.GOES_ON, "45 rows"),
    (SaysSoWhenARepetitionIsEmpty, SinkRule.NO_TASKS, r"\d+ rows, number 48: .*"),
]


@pytest.mark.parametrize(
    ("kind", "rule", "found"), BROKEN, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_broken_rule_is_told(kind, rule, found):
    sink = kind()

    with pytest.raises(AssertionError) as failed:
        check_sink(sink, read=lambda: sink.world.rows, again=lambda: kind(sink.number))

    told, *lines = str(failed.value).splitlines()
    parts = {line[2:12].rstrip(): line[12:] for line in lines}
    assert f"broken: {rule.value}" == told
    # Before the first epoch there is none to tell.
    early = {SinkRule.SAME, SinkRule.TRAVELS}
    assert re.fullmatch("" if rule in early else r"epoch \d+", parts.pop("at", ""))
    assert ["expected", "found", "so"] == list(parts)
    assert re.fullmatch(found, parts["found"]), parts["found"]


def test_every_rule_can_fail():
    assert set(SinkRule) == {rule for _, rule, _ in BROKEN}


def test_a_sink_that_is_at_least_once_gives_the_same_rows_again():
    class OtherRows(Good):
        def publish(self, messages, epoch):
            if epoch in self.world.published:
                self.show([{"n": 0, "text": "other"}])
            else:
                super().publish(messages, epoch)

    sink = OtherRows()
    with pytest.raises(AssertionError, match=f"^broken: {SinkRule.ONCE.value}\n"):
        check_sink(sink, read=lambda: sink.world.rows, at_least_once=True)


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(ProgramError, match=r"^check_sink: not a sink: 7"):
        check_sink(7, read=list)
    for rows in ([{"n": 1}], [{"n": n % 20} for n in range(40)]):
        with pytest.raises(ProgramError, match=r"^check_sink: rows must be 36 or more"):
            check_sink(Good(), read=list, rows=rows)
