"""What a query says it waits for, word for word: the texts are for people, so read them as one."""

from textwrap import dedent

import pytest

from anabranch.epoch.machine import Stage
from anabranch.epoch.watermarks import END_OF_TIME, SourceTime
from anabranch.observe.facts import EpochFacts, Facts, SourceFacts
from anabranch.observe.waits import Shape, Wait
from anabranch.observe.why import why
from anabranch.program.windows import SessionGap, Tumbling

S = 1_000_000
NOON = 1_799_928_000 * S
WINDOW = Wait("window-1", "windows", {"clicks": 0}, Tumbling(10 * S))
SHAPE = Shape(frozenset({"clicks"}), {"clicks": None}, (WINDOW,))


def clicks(*, name="clicks", idle=(), **facts):
    """Two partitions: 0 is a minute further than 1, which holds the watermark at noon."""
    time = {
        "partitions": (0, 1),
        "lateness": 2 * S,
        "watermark": NOON,
        "greatest": {0: NOON + 60 * S, 1: NOON + 2 * S},
    }
    time |= {key: facts.pop(key) for key in [*facts] if key in (*time, "finished")}
    return SourceFacts(name, SourceTime(**time), frozenset(idle), **facts)


def epoch(number, stage, **facts):
    return EpochFacts(number, placed=True, source="clicks", stage=stage, since=90.0, **facts)


def views(source, *epochs, committed=41, **facts):
    return Facts("views", (source,), epochs, committed=committed, now=100.0, **facts)


def says(expected, facts, shape=SHAPE):
    assert dedent(expected).strip() == why(facts, shape)


def test_all_well():
    says(
        """
        views: is at work. Epoch 41 was committed last, 500 ms ago.
          epoch 42 is in the lanes; it was cut 10 s ago
          epoch 43 is being read by heads
          epoch 44 and 2 more are cut and not yet read
          a job has been running for 100 ms
        source clicks: watermark 2027-01-14 12:00:00, held by partition 1
          partition 1 of clicks has spoken up to 2027-01-14 12:00:02 (2 s of lateness)
          partition 0 is further, up to 2027-01-14 12:01:00
        operator window-1: the next of its windows may end at 2027-01-14 12:00:10, and is given when the watermark of clicks is there, 10 s of event time further
        """,
        views(
            clicks(),
            epoch(42, Stage.IN_LANES),
            epoch(43, Stage.READING),
            *(epoch(number, Stage.OPEN) for number in (44, 45, 46)),
            committed_at=99.5,
            job_since=99.9,
        ),
    )


def test_a_partition_that_has_fallen_silent():
    says(
        """
        views: waits for data: no source has new rows. Epoch 41 was committed last, 40 s ago.
        source clicks: watermark 2027-01-14 12:00:00, held by partition 1
          partition 1 of clicks has spoken up to 2027-01-14 12:00:02 (2 s of lateness), and has been empty for 42 s: it holds the watermark until it gives a later row or is idle; pass idle_timeout= to read
          partition 0 is further, up to 2027-01-14 12:01:00
        operator window-1: the next of its windows may end at 2027-01-14 12:00:10, and is given when the watermark of clicks is there, 10 s of event time further
        """,
        views(clicks(quiet_since={1: 58.0}), committed_at=60.0),
    )


def test_a_partition_that_never_spoke():
    says(
        """
        views: waits for data: no source has new rows. Epoch 41 was committed last.
        source clicks: watermark none yet, held by partition 1
          partition 1 of clicks has not spoken, and has been empty for 1 min 30 s: it holds the watermark until it does or is idle; pass idle_timeout= to read
          partition 0 is further, up to 2027-01-14 12:00:00
        operator window-1: keeps its windows until clicks has a watermark
        """,
        views(clicks(watermark=None, greatest={0: NOON}, quiet_since={1: 10.0})),
    )


def test_who_has_an_idle_timeout_is_told_when_it_is_over():
    silent = views(clicks(watermark=None, greatest={0: NOON}, quiet_since={1: 90.0}))

    told = why(silent, Shape(frozenset({"clicks"}), {"clicks": 30 * S}))

    assert "until it does or is idle, which is after 30 s without rows\n" in told


def test_a_source_that_is_finished():
    ended = frozenset({0, 1})
    says(
        """
        views: has read all there is to read. Epoch 41 was committed last.
        source clicks: at its end, it holds nothing back
        """,
        views(clicks(watermark=END_OF_TIME, finished=ended, at_end=True)),
    )


def test_a_partition_that_is_finished_holds_nothing():
    says(
        """
        views: waits for data: no source has new rows. Epoch 41 was committed last.
        source clicks: watermark 2027-01-14 12:00:58, held by partition 0
          partition 0 of clicks has spoken up to 2027-01-14 12:01:00 (2 s of lateness)
          partition 1 is at an end and not waited for
        operator window-1: the next of its windows may end at 2027-01-14 12:01:00, and is given when the watermark of clicks is there, 2 s of event time further
        """,
        views(clicks(watermark=NOON + 58 * S, finished=frozenset({1}))),
    )


def test_all_partitions_idle():
    says(
        """
        views: waits for data: no source has new rows. Epoch 41 was committed last.
        source clicks: watermark 2027-01-14 12:00:00; nothing moves it, with partitions 0 and 1 idle, until a row comes
        operator window-1: the next of its windows may end at 2027-01-14 12:00:10, and is given when the watermark of clicks is there, 10 s of event time further
        """,
        views(clicks(idle=(0, 1), quiet_since={0: 20.0, 1: 20.0})),
    )


def test_epochs_that_fail_in_their_heads():
    says(
        """
        views: its work has failed 2 times in a row, and is tried again. Epoch 41 was committed last.
          epoch 42 is being read by heads, attempt 3; it was cut 10 s ago
          a job has been running for 1 s
          what failed last (2 of 5 failures in a row): Traceback (most recent call last): ... OSError: [Errno 5] Input/output error
        source clicks: at its end, it holds nothing back
        """,
        views(
            clicks(watermark=END_OF_TIME),
            epoch(42, Stage.READING, attempt=2),
            failures=2,
            failure="Traceback (most recent call last):\n  ...\nOSError: [Errno 5] Input/output error",
            job_since=99.0,
        ),
    )


def test_epochs_that_fail_in_their_lanes():
    says(
        """
        views: its work has failed 3 times in a row, and is tried again. Epoch 41 was committed last.
          epoch 42 is read, and next for the lanes of level 2 of 2, attempt 4; it was cut 10 s ago
          epoch 43 and 1 more are read, and next for the lanes of level 1 of 2
          what failed last (3 of 5 failures in a row): a worker process died
        source clicks: at its end, it holds nothing back
        """,
        views(
            clicks(watermark=END_OF_TIME),
            epoch(42, Stage.PLACED, attempt=3, level=1),
            epoch(43, Stage.PLACED),
            epoch(44, Stage.PLACED),
            levels=2,
            failures=3,
            failure="a worker process died",
        ),
    )


def test_nothing_is_planned_for_want_of_data():
    nothing = {"watermark": None, "greatest": {}, "quiet_since": {0: 20.0, 1: 20.0}}
    says(
        """
        views: waits for data: no source has new rows. Nothing was committed.
        source clicks: watermark none yet, held by partitions 0 and 1
          partitions 0 and 1 of clicks have not spoken, and have been empty for 1 min 20 s: they hold the watermark until each does or is idle; pass idle_timeout= to read
        operator window-1: keeps its windows until clicks has a watermark
        """,
        views(clicks(**nothing), committed=-1),
    )


def test_it_waits_for_its_trigger():
    told = why(views(clicks(rows=True, due=100.4)), SHAPE)

    assert (
        "views: waits for its trigger: clicks has rows, and the next epoch is cut in 400 ms. "
        "Epoch 41 was committed last." == told.splitlines()[0]
    )


def test_it_ends_with_what_is_cut():
    told = why(views(clicks(), epoch(42, Stage.DONE), stopping=True))

    assert "is at work, and ends with what is cut" in told
    assert "epoch 42 is done, and next to be committed" in told


def test_it_has_failed():
    facts = views(clicks(), epoch(42, Stage.PLACED), ended=True, error="the sink is full")

    says(
        """
        views: has failed: the sink is full. Epoch 41 was committed last.
          epoch 42 is read, and next for the lanes; it was cut 10 s ago
        """,
        facts,
    )


def test_of_several_sources_the_one_that_holds_an_operator_is_named():
    """views is 30 s behind clicks. The window is behind an outer join of 5 s, and so 5 s more."""
    both = {"clicks": 0, "views": 0}
    shape = Shape(
        frozenset(both),
        {"clicks": None, "views": None},
        (
            Wait("join-1", "rows without a partner", both),
            Wait("window-1", "windows", {"clicks": 5 * S, "views": 5 * S}, Tumbling(10 * S)),
            Wait("window-2", "sessions", {"views": 0}, SessionGap(S)),
            Wait("process-1", "timers", {"clicks": 0}),
        ),
    )
    behind = clicks(name="views", watermark=NOON - 30 * S, greatest={0: NOON, 1: NOON - 28 * S})

    told = why(Facts("both", (clicks(), behind), now=100.0), shape)

    assert [
        "operator join-1: keeps its rows without a partner until the watermark of views has passed them",
        "operator window-1: the next of its windows may end at 2027-01-14 11:59:30, and is given when the watermark of views is at 2027-01-14 11:59:35, 5 s of event time further",
        "operator window-2: keeps its sessions until the watermark of views has passed them",
        "operator process-1: keeps its timers until the watermark of clicks has passed them",
    ] == [line for line in told.splitlines() if line.startswith("operator")]


def test_a_source_without_event_times_gives_no_watermark_before_its_end():
    told = why(views(clicks(watermark=None, greatest={})), Shape(frozenset(), {"clicks": None}))

    assert "source clicks: has no event times, so its watermark comes with its end" in told


@pytest.mark.parametrize("stage", Stage)
def test_every_stage_has_words(stage):
    assert "epoch 42 is " in why(views(clicks(), epoch(42, stage)))


def test_what_has_no_place_in_the_log_is_called_by_its_ticket():
    waiting = EpochFacts(7, placed=False, source="clicks", stage=Stage.READ)

    assert "ticket 7 of clicks is read, without a place in the log yet" in why(
        views(clicks(), waiting)
    )


def test_a_task_that_spark_has_not_begun():
    text = why(views(clicks(), unplaced_since=88.0))

    assert "its task waits for one of Spark's slots for 12 s; others have them all" in text
    assert "slots" not in why(views(clicks(), unplaced_since=99.0)), "that is how long it takes"
