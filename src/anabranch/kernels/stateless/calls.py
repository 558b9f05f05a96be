"""Users' functions over rows, one call a record: what they give, and where they fail.

These are the loops over records of operators without state, so they hold nothing else. Each record
is a dict of its own, and what a function gives is taken out of its dict at once (M8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from types import GeneratorType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from anabranch.kernels.failures import BadRow
from anabranch.kernels.stateless.python_rows import Made, Picker, Record, Values, several

Numbers: TypeAlias = npt.NDArray[np.int64]
Call: TypeAlias = Callable[[Record], Any]

_SEVERAL = frozenset({list, tuple, GeneratorType})
"""What holds records, told without asking what it can do."""
_NO_RECORD = "map must return a record, got None; use filter or flat_map to drop records"


@dataclass(slots=True)
class Called:
    """What a function gave for some rows."""

    rows: Sequence[Values]
    parents: Numbers | None = None
    """The place of the row that each was made of, ascending; None: one of each, in its place."""
    failures: dict[int, Exception] = field(default_factory=dict)
    """By the place of the row; nothing that was made of it is among the rows."""

    @classmethod
    def of(cls, made: Made) -> Called:
        """The same, of places in a list."""
        return cls(made.rows, np.asarray(made.parents, dtype=np.int64), made.failures)

    def made(self) -> Made:
        """The same, with places in a list."""
        places = range(len(self.rows)) if self.parents is None else self.parents.tolist()
        return Made(list(self.rows), list(places), self.failures)

    def subs(self) -> Numbers:
        """The number of each row among those that were made of one.

        >>> Called([(), (), ()], np.array([4, 4, 7])).subs().tolist()
        [0, 1, 0]
        """
        places = np.arange(len(self.rows), dtype=np.int64)
        parents = places if self.parents is None else self.parents
        return places - np.searchsorted(parents, parents)


def mapped(
    call: Call, rows: Sequence[Values], names: Sequence[str], pick: Picker, *, stop: bool
) -> Called:
    """The row that a function makes of each; with `stop` the first failure ends it."""
    made, failures = list[Values](), dict[int, Exception]()
    take, waiting = pick.values, iter(rows)
    while True:
        try:
            for row in waiting:
                given = call(dict(zip(names, row)))  # noqa: B905 - one length, and hot
                if given is None:
                    raise BadRow(_NO_RECORD)
                made.append(take(given))
            break
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            failures[len(made) + len(failures)] = error
            if stop:
                break
    if not failures:
        return Called(made)
    places = np.arange(len(made) + len(failures), dtype=np.int64)
    return Called(made, np.delete(places, list(failures)), failures)


def flat_mapped(
    call: Call, rows: Sequence[Values], names: Sequence[str], pick: Picker, *, stop: bool
) -> Called:
    """All rows that a function makes of each; what it gave before it failed is undone."""
    made, ends, failures = list[Values](), [0], dict[int, Exception]()
    take, waiting = pick.values, iter(rows)
    while True:
        try:
            for row in waiting:
                given = call(dict(zip(names, row)))  # noqa: B905 - one length, and hot
                if type(given) is dict:
                    made.append(take(given))
                elif given is not None:
                    for each in given if type(given) in _SEVERAL else several(given):
                        made.append(take(each))
                ends.append(len(made))
            break
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            del made[ends[-1] :]
            failures[len(ends) - 1] = error
            ends.append(len(made))
            if stop:
                break
    marks = np.asarray(ends, dtype=np.int64)
    places = np.arange(len(marks) - 1, dtype=np.int64)
    return Called(made, np.repeat(places, marks[1:] - marks[:-1]), failures)


def kept(
    call: Call, rows: Sequence[Values], names: Sequence[str], pick: Picker, *, stop: bool
) -> Called:
    """The rows for which a function gives something true."""
    del pick
    mask, failures = list[bool](), dict[int, Exception]()
    waiting = iter(rows)
    while True:
        try:
            for row in waiting:
                mask.append(bool(call(dict(zip(names, row)))))  # noqa: B905 - one length, and hot
            break
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            failures[len(mask)] = error
            mask.append(False)
            if stop:
                break
    return Called(list(compress(rows, mask)), np.flatnonzero(mask).astype(np.int64), failures)
