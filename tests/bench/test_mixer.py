from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.workloads import mixer

WORDS = st.integers(0, 2**64 - 1)
NUMBERS = st.lists(st.integers(0, 2**63), min_size=1, max_size=50)


def test_it_is_splitmix64():
    """The first outputs for seed 1234567, as published with other implementations."""
    seed = 1234567
    found = [mixer.mix(seed + i * mixer.GAMMA) for i in (1, 2, 3)]

    assert [6457827717110365317, 3203168211198807973, 9817491932198370423] == found


@given(NUMBERS, WORDS, st.integers(0, 20))
def test_the_vectorised_form_is_the_plain_one(numbers, seed, field):
    key = mixer.mix(mixer.mix(seed) + (field + 1) * mixer.GAMMA)

    found = mixer.bits(numbers, seed=seed, field=field).tolist()

    assert [mixer.mix(key + number * mixer.GAMMA) for number in numbers] == found


@given(NUMBERS, WORDS)
def test_the_numbers_are_left_alone(numbers, seed):
    given_numbers = np.array(numbers, dtype=np.uint64)

    mixer.below(10, given_numbers, seed=seed, field=0)

    assert numbers == given_numbers.tolist()


@given(st.integers(1, 2**32), NUMBERS, WORDS)
def test_numbers_are_below_their_limit(limit, numbers, seed):
    assert all(n < limit for n in mixer.below(limit, numbers, seed=seed, field=0).tolist())


@pytest.mark.parametrize("limit", [0, -1, 2**32 + 1])
def test_a_limit_that_cannot_be_kept_is_refused(limit):
    with pytest.raises(ValueError, match=r"^limit must lie between"):
        mixer.below(limit, [1], seed=0, field=0)


def test_draws_are_uniform():
    """Chi squared with 99 degrees of freedom: 150 is beyond the 0.999 quantile of 148.2."""
    counts = np.bincount(mixer.below(100, np.arange(100_000), seed=5, field=1).astype(int))

    assert ((counts - 1000.0) ** 2 / 1000.0).sum() < 150


def test_fields_are_not_correlated():
    first, second = (mixer.fractions(np.arange(100_000), seed=5, field=f) for f in (0, 1))

    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
