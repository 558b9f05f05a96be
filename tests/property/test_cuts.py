"""Property 3 of the meaning: where the law says so, how a log is cut does not show."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.testing import assert_same_rows, cuts, programs, run_sequential


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_cuts_of_one_partition_do_not_show(data):
    """One source, one partition, no timers, one input, nothing behind: cuts change nothing."""
    program = data.draw(programs(cut_safe=True))
    log = data.draw(cuts(program))

    whole = run_sequential(program)
    cut = run_sequential(program, log=log)

    assert_same_rows(whole["out"], cut["out"])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_content_of_windows_over_several_partitions_does_not_depend_on_cuts(data):
    """Counts a key ignore the order across partitions, so their content is the same."""
    records = data.draw(ab.testing.streams())
    program = ab.Program("partitions")
    stream = program.read(
        ab.sources.Records(records, schema=ab.testing.strategies.EVENTS, partitions=3),
        event_time="t",
        # More than all records together span: none is ever behind, whatever the cuts.
        lateness="1 d",
    )
    windows = stream.window(ab.tumbling("2 s"), by="k")
    windows.agg(rows=ab.count(), low=ab.min("n"), kinds=ab.count_distinct("x")).write(
        ab.sinks.Memory("out"), ordered=False
    )
    log = data.draw(cuts(program))

    whole = run_sequential(program)
    cut = run_sequential(program, log=log)

    assert_same_rows(whole["out"], cut["out"], ordered=False)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_program_on_any_log_is_the_same_twice(data):
    """The meaning is a function of program and log: timers, joins, diamonds and all (M1)."""
    program = data.draw(programs(partitions=2))
    log = data.draw(cuts(program))

    assert_same_rows(
        run_sequential(program, log=log)["out"], run_sequential(program, log=log)["out"]
    )
