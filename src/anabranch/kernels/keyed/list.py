"""A list of which each element is kept by itself, so that what an epoch writes is what it changed.

Each element has a number by which it is kept; sorted by number the elements are in order. Numbers
are far apart: an element that is put between others gets one between theirs, and only where there
is none left does the list get new ones.

What changed is found by comparing the list, object by object, with what it was. That is fast, and
it also holds for those who change a list without calling its methods, as `heapq` does. Methods that
move elements move their numbers too, which makes less to write and decides nothing.

Elements that can change in place are encoded again at every look, except for dicts that nobody has.
A dict that is put in is decoded anew once it is kept; one that was given away is too, as soon as a
look finds that it was not given again. What takes elements out of a list behind its back, which is
`heapq` again, compares them first, and dicts have no order. In a short list there may be nothing to
compare with: there, all count as given away.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import compress
from typing import Any, SupportsIndex, TypeAlias

from anabranch.kernels.keyed.fixed import is_fixed
from anabranch.state.codec import decode, encode, encode_as

APART = 2**20
"""How far apart numbers are at first: 2^42 elements can be put at either end."""
SHORT = 16
"""Of lists up to this length all dicts are looked at."""

Mark: TypeAlias = tuple["array[int]", list[Any]]
"""What a list was, to go back to."""

_UNNUMBERED = -(2**63)
_FARTHEST = 2**62
_NEW: Any = object()
"""Stands where there was no element."""
_NONE: AbstractSet[int] = frozenset()


class StateList(list[Any]):
    """`state.list`: in every way a list."""

    __slots__ = (
        "_all_given", "_codes", "_found", "_given", "_gone", "_inserted", "_lent", "_numbers",
        "_was", "_wild", "used",
    )  # fmt: skip

    def __init__(self, kept: Mapping[int, bytes] | None = None) -> None:
        """Decode the elements that are kept."""
        codes = {} if kept is None else kept
        numbers = sorted(codes)
        super().__init__([decode(codes[number]) for number in numbers])
        self.used = False
        """Whether someone may have changed it since the last look."""
        self._numbers = array("q", numbers)
        self._was = list.copy(self)
        """The elements at the last look: as many as numbers, and moved with them."""
        self._codes: dict[int, bytes] = {}
        """Of elements that can change in place."""
        self._wild: AbstractSet[int] = _NONE
        """Those of them that are no dicts."""
        self._lent: AbstractSet[int] = _NONE
        """Dicts that were given away, as the last look found."""
        self._given: list[dict[Any, Any]] = []
        """Dicts that were given away since the last look."""
        self._all_given = self._inserted = False
        self._gone: list[tuple[int, Any]] = []
        """Numbers that were taken out since the last look, and their elements."""
        self._found: dict[int, tuple[bytes | None, bytes | None]] = {}
        """What was kept and what is to be kept, where looks have found something."""
        for number, element in zip(numbers, self._was, strict=True):
            if not is_fixed(element):
                self._remember(number, element, codes[number])

    # What is kept

    def changes(self) -> dict[int, bytes | None]:
        """What is to be kept otherwise than before; from now on it is what is kept."""
        self.look()
        if not self._found:
            return {}
        found, self._found = self._found, {}
        return {number: new for number, (old, new) in found.items() if new != old}

    def look(self) -> None:
        """Find what changed; a TypeError, and nothing is found, if that cannot be kept."""
        if not (self.used or self._wild or self._lent):
            return
        self._number()
        found, given, lent = self._others(), self._dicts_given(), self._lent
        if loose := self._wild | lent | given if given or lent else self._wild:
            found.update(self._changed_in_place(loose))
        if self._gone:
            self._let_go()
        for at, code in found.items():
            self._keep(at, code)
        if returned := lent - given:
            self._take_back(returned)
        self._lent = given
        self.used = self._all_given = False
        if self._given:
            self._given = []

    def mark(self) -> Mark:
        """What it is now, to go back to; a TypeError if that cannot be kept."""
        self.look()
        return self._numbers[:], self._was[:]

    def back(self, mark: Mark) -> StateList:
        """A list as it was at the last mark, in place of this one."""
        numbers, elements = mark
        found = self.replaced(
            decode(self._codes[number]) if number in self._codes else element
            for number, element in zip(numbers, elements, strict=True)
        )
        found._begin(numbers)  # noqa: SLF001 - one of us
        return found

    def _begin(self, numbers: array[int]) -> None:
        """Nothing has changed, and nobody has been given anything."""
        self._numbers, self._was = numbers, list.copy(self)
        self._gone, self._given = [], []
        self.used = self._all_given = self._inserted = False

    def replaced(self, elements: Iterable[Any]) -> StateList:
        """A list of these elements in place of this one, which from now on is any list."""
        found = StateList()
        list.extend(found, elements)
        for name in (
            "_numbers",
            "_was",
            "_codes",
            "_wild",
            "_lent",
            "_gone",
            "_inserted",
            "_found",
        ):
            setattr(found, name, getattr(self, name))
        self._numbers, self._was, self._gone = array("q"), [], []
        found._align()
        return found

    def _align(self) -> None:
        """All may be new; where they are the old ones without the oldest, those are gone."""
        self.used = self._all_given = True
        was = self._was
        first = list.__getitem__(self, 0) if self else _NEW
        begin = next((at for at, each in enumerate(was) if each is first), 0)
        if begin and all(map(operator.is_, list.__iter__(self), was[begin:])):
            self._take_out(slice(0, begin))

    def _number(self) -> None:
        """A number for each element, ascending; those that are behind the others are new."""
        extra = len(self) - len(self._numbers)
        if extra < 0:
            self._take_out(slice(len(self), None))
        elif extra:
            last = self._numbers[-1] if self._numbers else -APART
            if last == _UNNUMBERED:
                self._numbers.extend([_UNNUMBERED] * extra)
            else:
                first = last + APART
                self._numbers.extend(range(first, first + extra * APART, APART))
        if self._inserted and not _fill(self._numbers):
            self._was.extend([_NEW] * extra)
            self._take_out(slice(None))
            self._numbers = array("q", range(0, len(self) * APART, APART))
        self._inserted = False

    def _others(self) -> dict[int, bytes]:
        """The places of objects that were not there before, and their codes."""
        found: Iterable[int] = range(len(self._was), len(self))
        if not all(map(operator.is_, list.__iter__(self), self._was)):
            others = map(operator.is_not, list.__iter__(self), self._was)
            found = (*compress(range(len(self)), others), *found)
        self._was.extend([_NEW] * (len(self) - len(self._was)))
        return {at: encode(list.__getitem__(self, at)) for at in found}

    def _dicts_given(self) -> AbstractSet[int]:
        """The numbers of dicts that were given away since the last look."""
        if self._codes and (self._all_given or len(self) <= SHORT):
            return self._codes.keys() - self._wild
        if not self._given:
            return _NONE
        given = set(map(id, self._given))
        places = compress(self._numbers, map(given.__contains__, map(id, self._was)))
        return {number for number in places if number in self._codes}

    def _changed_in_place(self, numbers: AbstractSet[int]) -> dict[int, bytes]:
        """The places of those elements that are otherwise than they are kept, and their codes."""
        kept, all_numbers = self._codes, self._numbers
        return {
            at: code
            for at in self._places(numbers)
            if (code := encode(list.__getitem__(self, at))) != kept.get(all_numbers[at])
        }

    def _places(self, numbers: AbstractSet[int]) -> Iterable[int]:
        return compress(range(len(self)), map(numbers.__contains__, self._numbers))

    def _take_back(self, numbers: AbstractSet[int]) -> None:
        """Have own dicts in the place of those that others may have."""
        for at in self._places(numbers):
            if type(self._was[at]) is dict:
                self._own(at, self._codes[self._numbers[at]])

    def _own(self, at: int, code: bytes) -> None:
        self._was[at] = decode(code)
        list.__setitem__(self, at, self._was[at])

    def _code_of(self, number: int, was: Any) -> bytes:
        """What is kept by a number: what cannot change is encoded when it is asked for."""
        return self._codes.get(number) or encode(was)

    def _note(self, number: int, old: bytes | None, new: bytes | None) -> None:
        if new != old or number in self._found:
            self._found[number] = (self._found.get(number, (old,))[0], new)

    def _let_go(self) -> None:
        """Nothing is kept of what was taken out; its numbers may be those of others by now."""
        for number, was in self._gone:
            self._note(number, self._code_of(number, was), None)
            self._forget(number)
        self._gone = []

    def _keep(self, at: int, code: bytes) -> None:
        """From now on this is what is kept of the element at this place."""
        number, was, element = self._numbers[at], self._was[at], list.__getitem__(self, at)
        self._note(number, None if was is _NEW else self._code_of(number, was), code)
        self._forget(number)
        self._was[at] = element
        if not is_fixed(element):
            self._remember(number, element, code)
            if type(element) is dict and was is not element:
                self._own(at, code)

    def _remember(self, number: int, element: Any, code: bytes) -> None:
        self._codes[number] = code
        if type(element) is not dict:
            self._own_wild().add(number)

    def _forget(self, number: int) -> None:
        if self._codes.pop(number, None) is not None and number in self._wild:
            self._own_wild().discard(number)

    def _own_wild(self) -> set[int]:
        """A set that may be changed: most lists have none, and share that."""
        if not isinstance(self._wild, set):
            self._wild = set(self._wild)
        return self._wild

    # What moves elements

    def _take_out(self, places: slice) -> None:
        """What was at these places is gone."""
        taken = zip(self._numbers[places], self._was[places], strict=True)
        self._gone += (each for each in taken if each[1] is not _NEW)
        del self._numbers[places]
        del self._was[places]

    def _put_in(self, at: int, count: int) -> None:
        """So many elements are new in front of what was at this place."""
        if count and at < len(self._numbers):
            self._numbers[at:at] = array("q", [_UNNUMBERED] * count)
            self._was[at:at] = [_NEW] * count
            self._inserted = True

    def insert(self, index: SupportsIndex, value: Any, /) -> None:
        """Put an element in front of another."""
        at, length = operator.index(index), len(self)
        super().insert(at, value)
        self._put_in(max(at + length, 0) if at < 0 else at, 1)

    def pop(self, index: SupportsIndex = -1, /) -> Any:
        """Take an element out."""
        at, length = operator.index(index), len(self)
        found = super().pop(at)
        self._take_out_one(at, length)
        return found

    def remove(self, value: Any, /) -> None:
        """Take out the first element that is equal."""
        try:
            at = self.index(value)
        except ValueError:
            super().remove(value)  # which says it as any list does
        else:
            del self[at]

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        """Take elements out."""
        length = len(self)
        super().__delitem__(index)
        if not isinstance(index, slice):
            self._take_out_one(operator.index(index), length)
        elif taken := range(length)[index]:
            low, high = min(taken[0], taken[-1]), max(taken[0], taken[-1])
            self._take_out(slice(low, high + 1, abs(taken.step)))

    def _take_out_one(self, index: int, length: int) -> None:
        at = index + length if index < 0 else index
        if at < len(self._numbers):
            taken = self._numbers.pop(at), self._was.pop(at)
            if taken[1] is not _NEW:
                self._gone.append(taken)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Put one element, or any number of them, in the place of others."""
        if not isinstance(index, slice):
            super().__setitem__(index, value)
            return
        length, values = len(self), [*value]
        super().__setitem__(index, values)
        begin, end, step = index.indices(length)
        if step == 1:
            # As many as there were have their places; more are new, and of fewer some are gone.
            behind, more = begin + min(len(values), max(end - begin, 0)), len(self) - length
            if more < 0:
                self._take_out(slice(behind, behind - more))
            else:
                self._put_in(behind, more)

    # What gives elements away

    def __getitem__(self, index: Any) -> Any:
        """An element, or a plain list of some."""
        found = super().__getitem__(index)
        if type(found) is dict:
            self._given.append(found)
        elif isinstance(index, slice):
            self._given += (each for each in found if type(each) is dict)
        return found

    def __iter__(self) -> Iterator[Any]:
        """One after the other."""
        self._all_given = True
        return super().__iter__()

    def __reversed__(self) -> Iterator[Any]:
        """The last one first."""
        self._all_given = True
        return super().__reversed__()

    def sort(self, *, key: Callable[[Any], Any] | None = None, reverse: bool = False) -> None:
        """Put the elements in order."""
        self._all_given = True
        super().sort(key=key, reverse=reverse)

    # What makes other lists of it

    def copy(self) -> list[Any]:
        """A plain list of the same elements."""
        return [*self]

    def __add__(self, other: Any) -> Any:
        """A plain list of these elements, then others."""
        return [*self] + other  # noqa: RUF005 - what is no list is refused

    def __radd__(self, other: Any) -> Any:
        """A plain list of other elements, then these."""
        return other + [*self]  # noqa: RUF005

    def __mul__(self, times: Any) -> Any:
        """A plain list of these elements, several times."""
        return [*self] * times

    __rmul__ = __mul__

    def __iadd__(self, others: Any) -> StateList:
        """Put others behind these elements: without this, Python would make a list by `+`."""
        self.extend(others)
        return self

    def __imul__(self, times: Any) -> StateList:
        """Have these elements several times: without this, Python would make a list by `*`."""
        return super().__imul__(times)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Be copied as a plain list."""
        del protocol
        return (list, ([*self],))


def _fill(numbers: array[int]) -> bool:
    """Give a number to each that has none; False if there is no room between two others.

    >>> found = array("q", [_UNNUMBERED, 0, _UNNUMBERED, _UNNUMBERED, APART])
    >>> _fill(found), list(found)
    (True, [-1048576, 0, 349525, 699050, 1048576])
    """
    end, left = 0, numbers.count(_UNNUMBERED)
    while left:
        begin = end = numbers.index(_UNNUMBERED, end)
        while end < len(numbers) and numbers[end] == _UNNUMBERED:
            end += 1
        count, span = end - begin, (end - begin + 1) * APART
        left -= count
        high = numbers[end] if end < len(numbers) else None
        low = numbers[begin - 1] if begin else (0 if high is None else high) - span
        high = low + span if high is None else high
        if high - low <= count or not -_FARTHEST < low < high < _FARTHEST:
            return False
        for step in range(count):
            numbers[begin + step] = low + (high - low) * (step + 1) // (count + 1)
    return True


encode_as(StateList, list)
