"""Operators that only say what they would cost: for pipelines in virtual time.

A tuple is a number, drawn by whoever makes the input; what it costs, which partition it belongs to
and what comes of it are functions of that number, so that no run depends on chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias
from zlib import crc32

from anabranch.ordering.worklist import Fragment

Rows: TypeAlias = tuple[tuple[int, int], ...]
"""Tuples, each with its place in its bundle."""

GAMMA, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
MASK = (1 << 64) - 1


def mixed(value: int, salt: int) -> int:
    """64 bits that look like chance, of a number: SplitMix64 (Steele, Lea, Flood 2014).

    >>> mixed(1, 0) == mixed(1, 0) != mixed(1, 1)
    True
    """
    word = (value + (salt + 1) * GAMMA) & MASK
    word = ((word ^ (word >> 30)) * FIRST) & MASK
    word = ((word ^ (word >> 27)) * SECOND) & MASK
    return word ^ (word >> 31)


def in_ranges(keys: int, partitions: int) -> Callable[[int], int]:
    """Partitions that are ranges of keys, as many of them in each; keys begin with 0.

    >>> part = in_ranges(keys=10, partitions=4)
    >>> [part(key) for key in range(10)]
    [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    """
    return lambda key: key * partitions // keys


@dataclass(frozen=True, slots=True)
class Model:
    """An operator: what a tuple costs, in how many parts its state is, what becomes of a tuple."""

    name: str
    cost: Callable[[int], float]
    """Seconds of a tuple."""
    partitions: int | None = None
    partition: Callable[[int], int] | None = None
    """Of a tuple, as by `in_ranges`; None: by a hash of its number, evenly."""
    gives: Callable[[int], Sequence[int]] | None = None
    """What comes of a tuple; None: itself."""

    @classmethod
    def of(
        cls, name: str, cost: float, *, partitions: int | None = None, selectivity: float = 1.0
    ) -> Model:
        """Every tuple costs the same, and so many come of one, on average.

        >>> model = Model.of("some", 0.5, selectivity=0.25)
        >>> sum(len(model.outputs(n)) for n in range(1000))
        267
        """
        # By name: two operators that let the same through would be one after the other.
        salt = crc32(name.encode())

        def gives(value: int) -> Sequence[int]:
            whole, part = int(selectivity), selectivity - int(selectivity)
            more = mixed(value, salt) < part * (MASK + 1)
            # What is new gets a number of its own, so that copies go to different partitions.
            return [value if n == 0 else mixed(value, n) for n in range(whole + more)]

        return cls(name, lambda _: cost, partitions, gives=None if selectivity == 1.0 else gives)

    def outputs(self, value: int) -> Sequence[int]:
        """What comes of a tuple."""
        return (value,) if self.gives is None else self.gives(value)

    def cut(self, values: Sequence[int]) -> dict[int, Rows]:
        """A bundle as this operator takes it; one without tuples is a bundle too."""
        rows = tuple(enumerate(values))
        if self.partitions is None or not rows:
            return {0: rows}
        parts: dict[int, list[tuple[int, int]]] = {}
        for place, value in rows:
            parts.setdefault(self._part(value, self.partitions), []).append((place, value))
        return {at: tuple(found) for at, found in parts.items()}

    def _part(self, value: int, partitions: int) -> int:
        if self.partition is not None:
            return self.partition(value)
        return mixed(value, partitions) % partitions


@dataclass(frozen=True, slots=True)
class Modelled:
    """A model as the core's work, with the model behind it, if there is one."""

    model: Model
    behind: Model | None

    @property
    def name(self) -> str:
        """What it is called."""
        return self.model.name

    @property
    def partitions(self) -> int | None:
        """In how many parts its state is."""
        return self.model.partitions

    def operate(self, fragment: Fragment[Rows]) -> list[tuple[int, Sequence[int]]]:
        """What comes of each tuple, with its place."""
        return [(place, self.model.outputs(value)) for place, value in fragment.content]

    def together(
        self, serial: int, made: Mapping[int, list[tuple[int, Sequence[int]]]]
    ) -> list[int]:
        """What comes of the bundle, in the order of its tuples."""
        del serial
        rows = sorted(row for part in made.values() for row in part)
        return [value for _, values in rows for value in values]

    def onward(self, serial: int, bundle: list[int]) -> Mapping[int, Any]:
        """The bundle as the operator behind takes it; or as it is."""
        del serial
        return {0: bundle} if self.behind is None else self.behind.cut(bundle)


def chained(models: Sequence[Model]) -> list[Modelled]:
    """The models one behind the other, as the core takes them."""
    return [Modelled(model, behind) for model, behind in pairwise((*models, None)) if model]


def cost_of(models: Sequence[Model]) -> Callable[[int, Fragment[Rows]], float]:
    """What fragments cost: the sum of their tuples."""

    def cost(at: int, fragment: Fragment[Rows]) -> float:
        each = models[at].cost
        return sum(each(value) for _, value in fragment.content)

    return cost
