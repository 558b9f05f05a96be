import polars as pl
import pytest

import anabranch as ab
from anabranch.kernels.bundle import OFFSET, PARTITION, SLICE, TIME
from anabranch.kernels.failures import Failed
from anabranch.kernels.state import Adding
from anabranch.kernels.together.feedback import CLOSED, FeedbackKernel
from anabranch.program.operators.edges import Feedback

SCHEMA = {"t": pl.Int64, "n": pl.Int64}


def kernels(count=1, event_time="t"):
    program = ab.Program("loops")
    stream = program.read(ab.sources.Records([], schema=SCHEMA))
    for _ in range(count):
        program.feedback(SCHEMA, event_time=event_time).close(stream)
    graph = program.freeze()
    return [FeedbackKernel.of(graph, op) for op in graph.of(Feedback)]


def rows(*numbers):
    return pl.DataFrame({"t": numbers, "n": numbers, SLICE: [0] * len(numbers)}, schema=ROWS)


ROWS = {**SCHEMA, SLICE: pl.UInt16}


def numbers(kernel, state):
    return kernel.given(state)["n"].to_list()


def after(kernel, *epochs):
    """The state behind these epochs, and their deltas."""
    state, deltas = kernel.restore([]), []
    for epoch, entered in enumerate(epochs):
        state, delta = kernel.closed(epoch, rows(*entered), state)
        deltas.append(delta)
    return state, deltas


def test_what_entered_comes_out_before_all_rows_of_sources():
    (kernel,) = kernels()
    state, _ = after(kernel, [7, 3])

    given = kernel.given(state)

    assert {"t": [7, 3], "n": [7, 3]} == given.select("t", "n").to_dict(as_series=False)
    assert [7_000, 3_000] == given[TIME].to_list()
    assert [(-1, 0), (-1, 1)] == given.select(PARTITION, OFFSET).rows()


def test_what_was_made_first_comes_out_first():
    assert [-3, -2, -1] == [kernel.partition for kernel in kernels(3)]


def test_an_epoch_says_all_there_is_though_it_is_nothing():
    (kernel,) = kernels()
    state, deltas = after(kernel, [1, 2], [])

    assert [] == numbers(kernel, state)
    assert [3, 1] == [delta.height for delta in deltas]
    assert [CLOSED] == deltas[-1]["at"].to_list()
    assert [] == numbers(kernel, kernel.restore(deltas))


@pytest.mark.parametrize("given", [[[1], [2, 3]], [[1, 2], []], [[], [5]], [[]], [[4], [], [6, 6]]])
def test_it_is_restored_of_its_deltas_apart_or_as_one(given):
    (kernel,) = kernels()
    state, deltas = after(kernel, *given)

    as_one = pl.concat(deltas)
    for made in (deltas, [as_one], deltas[-1:], [state.whole()], [*deltas[:1], state.whole()]):
        assert given[-1] == numbers(kernel, kernel.restore(made))
    assert given[-1] == numbers(kernel, kernel.after(kernel.restore(deltas[:1]), deltas[1:]))


def test_versions_are_values():
    (kernel,) = kernels()
    state, _ = after(kernel, [1], [2], [3])

    assert (0, 3) == (state.oldest, state.version)
    assert [[], [1], [2], [3]] == [numbers(kernel, state.at(version)) for version in range(4)]
    folded = state.fold(2)
    assert (2, 3) == (folded.oldest, folded.version)
    assert [2] == numbers(kernel, folded.at(2))
    for unknown in (1, 4):
        with pytest.raises(LookupError, match="2 to 3 are known"):
            folded.at(unknown)


def test_many_epochs_are_one_delta_that_the_last_one_made():
    (kernel,) = kernels()
    state, deltas = after(kernel, [1, 1, 1], [2], [3])

    assert isinstance(state, Adding)
    together, delta = state.together(0)
    assert deltas[-1].equals(delta)
    assert (3, 3) == (together.oldest, together.version)


def test_slices_leave_and_come_back():
    (kernel,) = kernels()
    state, _ = after(kernel, [1, 2])
    state = state.fold(state.version)

    mine, others = state.only(frozenset({0})), state.only(frozenset({1, 2}))

    assert [1, 2] == numbers(kernel, mine)
    assert [] == numbers(kernel, others)
    assert [1, 2] == numbers(kernel, others.joined(mine))
    assert [1, 2] == numbers(kernel, mine.joined(others))


def test_a_null_event_time_is_an_error_of_the_epoch_that_it_comes_out_in():
    (kernel,) = kernels()
    entered = pl.DataFrame({"t": [1, None], "n": [1, 2], SLICE: [0, 0]}, schema=ROWS)
    state, _ = kernel.closed(0, entered, kernel.restore([]))

    with pytest.raises(Failed) as failed:
        kernel.given(state)

    assert "ValueError: null event time in column 't'" == failed.value.error.text
    assert '{"t": null, "n": 2}' == failed.value.error.record


def test_without_event_times_a_row_has_none():
    (kernel,) = kernels(event_time=None)
    state, _ = after(kernel, [1])

    assert [None] == kernel.given(state)[TIME].to_list()
