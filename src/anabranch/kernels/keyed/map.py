"""A dict that knows which of its elements may have changed, so that only these are encoded.

Each element has a number, the next one when it is put in, by which it is kept: sorted by number the
elements are in the dict's own order. Elements whose values can change in place always count as
touched; of all others only those that were put in or taken out since the last look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from anabranch.kernels.keyed.fixed import is_fixed
from anabranch.state.codec import decode, encode, encode_as

_GONE: Any = object()
_NO_DEFAULT: Any = object()


class StateMap(dict[Any, Any]):
    """`state.map`: in every way a dict."""

    __slots__ = ("_elements", "_kept", "_loose", "_next", "_numbers", "_touched")

    def __init__(self, kept: Mapping[int, bytes] | None = None) -> None:
        """Decode the elements that are kept."""
        super().__init__()
        self._kept = dict(kept or {})
        self._next = max(self._kept, default=-1) + 1
        self._numbers: dict[Any, int] = {}
        self._elements: dict[int, Any] = {}
        self._touched: set[int] = set()
        self._loose: set[int] = set()
        for number in sorted(self._kept):
            element, value = decode(self._kept[number])
            self._numbers[element] = number
            self._elements[number] = element
            if not is_fixed(value):
                self._loose.add(number)
            super().__setitem__(element, value)

    def changes(self) -> dict[int, bytes | None]:
        """What is to be kept otherwise than before; from now on it is what is kept."""
        found: dict[int, bytes | None] = {}
        for number in sorted(self._touched | self._loose):
            element = self._elements.get(number, _GONE)
            new = None if element is _GONE else encode((element, self[element]))
            if new != self._kept.get(number):
                found[number] = new
        for number, new in found.items():
            if new is None:
                del self._kept[number]
            else:
                self._kept[number] = new
        self._touched = set()
        return found

    def replace(self, items: Iterable[tuple[Any, Any]]) -> None:
        """Have these elements and no others."""
        found = list(items)
        self.clear()
        self.update(found)

    # What changes a dict

    def __setitem__(self, element: Any, value: Any) -> None:
        """Put an element in."""
        number = self._numbers.get(element)
        if number is None:
            number = self._numbers[element] = self._next
            self._elements[number] = element
            self._next += 1
        super().__setitem__(element, value)
        self._touched.add(number)
        if is_fixed(value):
            self._loose.discard(number)
        else:
            self._loose.add(number)

    def __delitem__(self, element: Any) -> None:
        """Take an element out."""
        super().__delitem__(element)
        self._forget(self._numbers.pop(element))

    def __ior__(self, other: Any) -> StateMap:  # type: ignore[misc]
        """Put elements in."""
        self.update(other)
        return self

    def pop(self, element: Any, default: Any = _NO_DEFAULT) -> Any:
        """Take an element out and give its value."""
        if element not in self:
            if default is _NO_DEFAULT:
                raise KeyError(element)
            return default
        value = self[element]
        del self[element]
        return value

    def popitem(self) -> tuple[Any, Any]:
        """Take the last element out."""
        if not self:
            message = "popitem(): dictionary is empty"
            raise KeyError(message)
        element = next(reversed(self))
        return element, self.pop(element)

    def setdefault(self, element: Any, default: Any = None) -> Any:
        """The element's value, which is put in if there is none."""
        if element not in self:
            self[element] = default
        return self[element]

    def update(self, *others: Any, **named: Any) -> None:
        """Put elements in."""
        for element, value in dict(*others, **named).items():
            self[element] = value

    def clear(self) -> None:
        """Take all elements out."""
        for number in self._numbers.values():
            self._forget(number)
        self._numbers = {}
        super().clear()

    def _forget(self, number: int) -> None:
        del self._elements[number]
        self._touched.add(number)
        self._loose.discard(number)

    # What makes other dicts of it

    def copy(self) -> dict[Any, Any]:
        """A plain dict of the same elements."""
        return dict(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Be copied as a plain dict."""
        del protocol
        return (dict, (list(self.items()),))


encode_as(StateMap, dict)
