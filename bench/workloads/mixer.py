"""Random numbers as a pure function of (seed, number, field).

Any process can make any part of a stream, in any order, and everyone gets the same events. The
mixer is SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA
2014): its i-th output is a bijection of key + i * gamma, so it can be asked for any i at once.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.uint64]

GAMMA = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1


def mix(word: int) -> int:
    """The finaliser for one word: a bijection of 64 bits.

    >>> hex(mix(GAMMA))
    '0xe220a8397b1dcdaf'
    """
    word &= _MASK
    word = (word ^ (word >> 30)) * _FIRST & _MASK
    word = (word ^ (word >> 27)) * _SECOND & _MASK
    return word ^ (word >> 31)


def bits(numbers: npt.ArrayLike, *, seed: int, field: int) -> Numbers:
    """64 random bits for each sequence number; fields of one event are independent of each other.

    >>> [hex(word) for word in bits([7], seed=1, field=2).tolist()]
    ['0x75a2e148a597fdc4']
    """
    key = mix(mix(seed) + (field + 1) * GAMMA)
    words = np.array(numbers, dtype=np.uint64)
    words *= np.uint64(GAMMA)  # arrays wrap silently, as wanted; in place, as memory is the limit
    words += np.uint64(key)
    words ^= words >> np.uint64(30)
    words *= np.uint64(_FIRST)
    words ^= words >> np.uint64(27)
    words *= np.uint64(_SECOND)
    words ^= words >> np.uint64(31)
    return words


def below(limit: int, numbers: npt.ArrayLike, *, seed: int, field: int) -> Numbers:
    """Whole numbers in 0 .. limit - 1, uniform but for at most limit / 2**32.

    The upper half of a word times the limit, instead of a remainder: faster, and no bit is weak.
    """
    if not 1 <= limit <= 2**32:
        message = f"limit must lie between 1 and 2**32, got {limit}"
        raise ValueError(message)
    words = bits(numbers, seed=seed, field=field)
    words >>= np.uint64(32)
    words *= np.uint64(limit)
    words >>= np.uint64(32)
    return words


def fractions(numbers: npt.ArrayLike, *, seed: int, field: int) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1), of 53 bits."""
    return (bits(numbers, seed=seed, field=field) >> np.uint64(11)).astype(np.float64) * 2.0**-53
