"""A store in memory that crashes when told, and then has what a disk would have.

A crash is of the process that made the call, not of the store: `SimulatedCrash` is raised from that
call, and from every later one until `reopen`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from anabranch.state.store import AlreadyThere, Durability, Missing

if TYPE_CHECKING:
    from random import Random  # noqa: TID251 - the type alone: who calls brings one

Moment: TypeAlias = Literal["before", "within", "after"]
"""When in a call a crash comes: nothing is done; it is done and not durable; it is done."""


class SimulatedCrash(BaseException):
    """The process died here; nothing may catch it but a test."""


class SimulatedStore:
    """The contract of `Store`, with an exact account of what is durable.

    With `durability="power"` a file is durable when `create` returns, as on a disk that keeps what
    it was told to sync; what was deleted may come back. With "process" only `sweep` makes anything
    durable, and a file may be cut off.

    >>> store = SimulatedStore()
    >>> store.create("lease/1", b"x")
    >>> store.list("lease/"), store.calls
    (['lease/1'], 2)
    """

    def __init__(self, durability: Durability = "power") -> None:
        """Begin empty."""
        self.durability = durability
        self.calls = 0
        self.counts: Counter[str] = Counter()
        self._files: dict[str, bytes] = {}
        # Of each path with effects that are not durable: what it may be after a loss of power.
        self._states: dict[str, list[bytes | None]] = {}
        self._crash: tuple[int, Moment] | None = None
        self._dead = False

    @property
    def files(self) -> Mapping[str, bytes]:
        """All that is visible, without counting as a call."""
        return dict(self._files)

    def crash_at(self, call: int, moment: Moment = "before") -> None:
        """Die at the call of this number, counted from 1 and from when the store was made."""
        self._crash = (call, moment)

    def reopen(self, random: Random | None = None) -> None:
        """Begin a new process; given `random`, after a loss of power: some is kept, some is not."""
        self._dead, self._crash = False, None
        if random is None:
            return
        for path, states in sorted(self._states.items()):
            self._put(path, random.choice(states))
        self._states.clear()

    def create(self, path: str, data: bytes) -> None:
        """Make a file, durably, or raise `AlreadyThere`."""
        moment = self._call("create")
        if path in self._files:
            self._end(moment)
            raise AlreadyThere(path)
        torn = [data[: len(data) // 2]] if self.durability == "process" else []
        self._volatile(path, [*torn, bytes(data)])
        self._files[path] = bytes(data)
        self._die_if(moment == "within")
        if self.durability == "power":
            self._states.pop(path, None)
        self._end(moment)

    def read(self, path: str) -> bytes:
        """All of a file, or raise `Missing`."""
        self._end(self._call("read"))
        try:
            return self._files[path]
        except KeyError:
            raise Missing(path) from None

    def list(self, prefix: str) -> list[str]:
        """The paths of all files that begin with `prefix`, sorted."""
        self._end(self._call("list"))
        return sorted(path for path in self._files if path.startswith(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        """The bytes of all files that begin with `prefix`, by path."""
        self._end(self._call("sizes"))
        return {path: len(data) for path, data in self._files.items() if path.startswith(prefix)}

    def delete(self, path: str) -> None:
        """Remove a file if it is there; it may come back."""
        moment = self._call("delete")
        if path in self._files:
            self._volatile(path, [None])
            del self._files[path]
        self._end(moment)

    def exists(self, path: str) -> bool:
        """Whether a file is there."""
        self._end(self._call("exists"))
        return path in self._files

    def sweep(self) -> None:
        """Make durable what is there."""
        moment = self._call("sweep")
        self._die_if(moment == "within")
        self._states.clear()
        self._end(moment)

    def _volatile(self, path: str, states: Sequence[bytes | None]) -> None:
        self._states.setdefault(path, [self._files.get(path)]).extend(states)

    def _put(self, path: str, data: bytes | None) -> None:
        if data is None:
            self._files.pop(path, None)
        else:
            self._files[path] = data

    def _call(self, name: str) -> Moment | None:
        """Count a call; say when in it the crash comes, if it does."""
        self._die_if(self._dead)
        self.calls += 1
        self.counts[name] += 1
        if self._crash is None or self._crash[0] != self.calls:
            return None
        moment = self._crash[1]
        self._die_if(moment == "before")
        return moment

    def _end(self, moment: Moment | None) -> None:
        self._die_if(moment is not None)

    def _die_if(self, now: bool) -> None:  # noqa: FBT001 - reads as a sentence
        if now:
            self._dead = True
            raise SimulatedCrash
