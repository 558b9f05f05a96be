"""Who is said to hold a watermark does: it moves when they do, and not when others do."""

from hypothesis import assume, given
from hypothesis import strategies as st

from anabranch.epoch.protocol import Offer
from anabranch.epoch.watermarks import SourceTime
from anabranch.observe.facts import Look, SourceFacts
from anabranch.observe.waits import Wait
from anabranch.program.windows import Sliding, Tumbling

PARTITIONS = (0, 1, 2, 3)
NONE = frozenset()


@st.composite
def sources(draw):
    """A source some epochs on; who is idle and who is at an end does not change."""
    some = st.frozensets(st.sampled_from(PARTITIONS), max_size=2)
    idle, finished = draw(some), draw(some)
    time = SourceTime(PARTITIONS, draw(st.integers(0, 5)))
    times = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 50))
    for greatest in draw(st.lists(times, min_size=1, max_size=5)):
        time = time.after(greatest, idle=idle, finished=finished)
    return SourceFacts("clicks", time, idle)


def after(source, who, greatest):
    time = source.time.after(dict.fromkeys(who, greatest), idle=source.idle)
    return time.watermark


@given(sources())
def test_the_watermark_moves_when_all_who_hold_it_have_moved(source):
    assume(source.live)
    before = source.time.watermark

    moved = after(source, source.holders, 100)

    live = [each for each in source.live if each not in source.holders]
    if before is not None:
        assert moved > before
    elif all(each in source.time.greatest for each in live):
        assert moved is not None


@given(sources())
def test_the_watermark_stays_when_anybody_else_moves(source):
    assume(source.live)
    others = [each for each in PARTITIONS if each not in source.holders]

    assert source.time.watermark == after(source, others, 100)


@given(sources())
def test_nobody_who_is_idle_or_at_an_end_holds_anything(source):
    assert not set(source.holders) & (source.idle | source.time.finished)


@given(st.integers(-500, 500), st.integers(1, 40), st.integers(1, 40))
def test_the_next_end_is_the_first_behind_the_watermark(watermark, size, slide):
    ends = [start * slide + size for start in range(-1200, 1200)]

    found = Wait("w", "windows", window=Sliding(size, slide)).next_end(watermark)

    assert min(end for end in ends if end > watermark) == found
    if slide == size:
        assert found == Wait("w", "windows", window=Tumbling(size)).next_end(watermark)


def offer(*empty):
    offsets = {at: (5, 5) if at in empty else (5, 6) for at in PARTITIONS}
    return Offer(offsets, NONE, None, more=False)


def test_a_partition_is_quiet_from_the_look_that_found_nothing_until_one_that_does():
    look = Look().then(offer(1, 2), at=10.0).then(offer(1), at=20.0)
    assert {1: 10.0} == look.quiet_since

    look = look.then(offer(1, 2), at=30.0)
    assert {1: 10.0, 2: 30.0} == look.quiet_since


def test_what_was_cut_is_no_longer_waiting_and_who_was_quiet_still_is():
    look = Look().then(offer(1), at=10.0)
    assert look.rows

    assert not look.taken().rows
    assert {1: 10.0} == look.taken().quiet_since
