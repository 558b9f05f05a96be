"""Keyed state in layers of dicts and of Arrow is the same state, whatever was folded when."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.kernels import state as states
from anabranch.kernels.encoded import SCHEMA, Encoded, as_frame, newest
from anabranch.kernels.state import KeyedState, delta_of

KEYS = [bytes([65 + at]) * (1 + at % 3) for at in range(12)]
CHANGES = st.dictionaries(st.sampled_from(KEYS), st.none() | st.binary(max_size=4), max_size=8)


def entries(changes):
    return {key: (key[0] % 4, value) for key, value in changes.items()}


@pytest.mark.parametrize("large", [1, 5, 10**9])
@settings(max_examples=60, deadline=None)
@given(epochs=st.lists(st.tuples(CHANGES, st.booleans()), max_size=8))
def test_any_mixture_of_layers_holds_what_the_last_epochs_said(large, epochs):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(states, "LARGE", large)
        state, model, deltas = KeyedState.from_deltas([]), {}, []
        for changes, folded in epochs:
            state = state.then(entries(changes))
            deltas.append(delta_of(entries(changes)))
            model.update(changes)
            if folded:
                state = state.fold(state.version)
        expected = {key: value for key, value in model.items() if value is not None}

        assert expected == {key: found for key in KEYS if (found := state.find(key)) is not None}
        assert expected == {row["key"]: row["value"] for row in state.whole().iter_rows(named=True)}
        rebuilt = KeyedState.from_deltas(deltas)
        assert state.whole().sort("key").equals(rebuilt.whole().sort("key"))


def test_a_version_before_a_fold_is_left_as_it_was():
    before = KeyedState.from_deltas([delta_of({b"a": (0, b"1")})])
    after = before.then({b"a": (0, None), b"b": (1, b"2")}).fold(1)

    assert (b"1", None) == (before.find(b"a"), before.find(b"b"))
    assert (None, b"2") == (after.find(b"a"), after.find(b"b"))


def test_an_encoded_base_is_a_frame_that_can_be_written_and_mapped(tmp_path):
    import polars as pl

    made = newest([as_frame({b"b": (1, b"x"), b"a": (0, b"y")})], gone=False)
    made.frame.write_ipc(tmp_path / "base.arrow", compression="uncompressed")
    mapped = Encoded(pl.scan_ipc(tmp_path / "base.arrow").collect())

    assert [b"a", b"b"] == list(mapped)
    assert ((0, b"y"), None) == (mapped.get(b"a"), mapped.get(b"c"))
    assert dict(SCHEMA) == dict(mapped.frame.schema)
