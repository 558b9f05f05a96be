"""Texts of a seed: sentences of words, of which the n-th is n times as rare as the first.

A text is made of sentences that are made once: as many draws for a text as it has sentences, and
not as many as it has words.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl

from bench.workloads import mixer

VOCABULARY = 50_000
SENTENCES = 16_384
"""Different ones for each length."""
SYLLABLES = tuple(f"{first}{second}" for first in "bdfgklmnprstvz" for second in "aeiou")


@cache
def words() -> pl.Series:
    """All words, the most frequent first. These are shorter, as in any language.

    >>> words().head(3).to_list(), words().tail(1).to_list()
    (['baba', 'babe', 'babi'], ['fafugu'])
    """
    return pl.Series([_word(number) for number in range(VOCABULARY)])


def _word(number: int) -> str:
    """Two syllables for as many words as that gives, else three."""
    base = len(SYLLABLES)
    count = 2 if number < base**2 else 3
    digits = [number // base**at % base for at in reversed(range(count))]
    return "".join(SYLLABLES[digit] for digit in digits)


@cache
def sentences(length: int) -> pl.Series:
    """Sentences of so many words."""
    shares = np.cumsum(1.0 / np.arange(1, VOCABULARY + 1))
    numbers = np.arange(SENTENCES, dtype=np.uint64)
    drawn = []
    for at in range(length):
        place = np.searchsorted(shares, mixer.fractions(numbers, seed=6, field=at) * shares[-1])
        drawn.append(words().gather(place.astype(np.uint32)).alias(f"word {at}"))
    first, *others = drawn
    first = first.str.to_titlecase()
    frame = pl.DataFrame([first, *others])
    return frame.select(pl.concat_str(pl.all(), separator=" ") + ".").to_series()


def texts(numbers: mixer.Numbers, *, seed: int, field: int, count: int, length: int) -> pl.Series:
    """A text for each number: so many sentences, each of so many words.

    Takes as many fields as there are sentences.
    """
    known = sentences(length)
    drawn = [
        known.gather(mixer.below(SENTENCES, numbers, seed=seed, field=field + at)).alias(str(at))
        for at in range(count)
    ]
    return pl.DataFrame(drawn).select(pl.concat_str(pl.all(), separator=" ")).to_series()
