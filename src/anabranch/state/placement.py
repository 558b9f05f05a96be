"""Where backups of slices are, by ChronoStream's chained backup (III-B), and who takes them over.

The l-th backup of the m-th slice of an executor with N peers is on its peer number (m + l) mod N.
So the backups of one executor are spread over all its peers, and when it is lost all of them take a
part of its slices at once (III-E). The paper does not say which peer is the first: here peers stand
in a ring, by name, and the first is the next after the executor itself. With one order for all, the
first peers in it would get the odd backup of everybody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence


def backups(
    slices_of: Mapping[str, Sequence[int]], factor: int = 1
) -> Mapping[int, tuple[str, ...]]:
    """The executors that hold a backup of each slice, the first backup's first.

    `slices_of` has every executor with the slices on it, maybe none. Backups of a slice are on as
    many different executors as `factor` says, or on all others where there are fewer: with one
    executor there is no backup.

    Of the l-th backups of an executor's slices, each of its peers has as many as any other, give or
    take one; so of all its backups, give or take `factor`.

    Figure 8 of the paper: of the slices on node 2, two have their backup on node 1, two on node 3.

    >>> backups({"node1": [], "node2": [4, 5, 6, 7], "node3": []})
    {4: ('node1',), 5: ('node3',), 6: ('node1',), 7: ('node3',)}
    >>> backups({"a": [0], "b": [1]}, factor=3)
    {0: ('b',), 1: ('a',)}
    >>> backups({"a": [0, 1]})
    {0: (), 1: ()}
    """
    if factor < 0:
        message = f"backups of a slice are 0 or more, got {factor}"
        raise ValueError(message)
    ring = sorted(slices_of)
    found: dict[int, tuple[str, ...]] = {}
    for place, executor in enumerate(ring):
        peers = [*ring[place + 1 :], *ring[:place]]
        for number, slice_ in enumerate(slices_of[executor]):
            if slice_ in found:
                message = f"slice {slice_} is on two executors"
                raise ValueError(message)
            found[slice_] = tuple(
                peers[(number + each) % len(peers)]
                for each in range(1, min(factor, len(peers)) + 1)
            )
    return dict(sorted(found.items()))


def recovery(
    lost: Iterable[int], placement: Mapping[int, Sequence[str]], survivors: Iterable[str]
) -> Mapping[str, tuple[int, ...]]:
    """Which survivor takes over which of the lost slices; every survivor is named.

    A slice goes to a survivor that holds a backup of it, by `placement`, and among these so that no
    other choice has a smaller greatest part. Slices without a backup left (all that held one
    are lost too) must be made from the checkpoint, wherever that is: they go where least is.

    >>> placed = backups({"node1": [1, 2, 3], "node2": [4, 5, 6, 7], "node3": [8]})
    >>> recovery([4, 5, 6, 7], placed, ["node1", "node3"])
    {'node1': (4, 6), 'node3': (5, 7)}
    >>> recovery([4, 5, 6, 7], placed, ["node3"])
    {'node3': (4, 5, 6, 7)}
    """
    parts: dict[str, list[int]] = {name: [] for name in sorted(survivors)}
    if not parts:
        message = "nobody is left to take over slices"
        raise ValueError(message)
    lost = sorted(lost)
    holders = {
        slice_: [name for name in placement.get(slice_, ()) if name in parts] for slice_ in lost
    }
    for slice_ in filter(holders.__getitem__, lost):
        parts[holders[slice_][0]].append(slice_)
    while _shift(parts, holders):
        pass
    for slice_ in lost:
        if not holders[slice_]:
            min(parts.values(), key=len).append(slice_)
    return {name: tuple(sorted(slices)) for name, slices in parts.items()}


def _shift(parts: dict[str, list[int]], holders: Mapping[int, Sequence[str]]) -> bool:
    """Pass slices on from the longest part, from holder to holder, to one that is shorter by two.

    Where there is no such way the greatest part cannot be smaller (Harvey, Ladner, Lovasz, Tamir:
    "Semi-matchings for bipartite graphs and load balancing", 2003).
    """
    longest = max(parts, key=lambda name: len(parts[name]))
    came: dict[str, tuple[str, int]] = {}
    waiting = deque([longest])
    while waiting:
        name = waiting.popleft()
        if len(parts[name]) <= len(parts[longest]) - 2:
            _pass_on(parts, came, longest, name)
            return True
        for slice_ in parts[name]:
            for other in holders[slice_]:
                if other != longest and other not in came:
                    came[other] = name, slice_
                    waiting.append(other)
    return False


def _pass_on(
    parts: dict[str, list[int]], came: Mapping[str, tuple[str, int]], first: str, last: str
) -> None:
    while last != first:
        giver, slice_ = came[last]
        parts[giver].remove(slice_)
        parts[last].append(slice_)
        last = giver
