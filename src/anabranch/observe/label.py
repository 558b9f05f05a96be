"""What Spark's pages call a cycle's jobs."""

from __future__ import annotations

from collections.abc import Iterable


def label(program: str, epochs: Iterable[int], tickets: Iterable[int], *, placed: bool) -> str:
    """A query's name, and the epochs of a cycle.

    `tickets` are those of its heads; `placed` says whether they are epochs' numbers as well, as
    they are where there is one source.

    >>> label("campaign-views", [17], [18, 19], placed=True)
    'campaign-views epochs 17-19'
    >>> label("campaign-views", [17, 18], [22], placed=False)
    'campaign-views epochs 17-18, reading ticket 22'
    >>> label("campaign-views", [], [], placed=True)
    'campaign-views'
    """
    lanes, heads = set(epochs), set(tickets)
    if placed:
        lanes, heads = lanes | heads, set()
    parts = [f"epoch{_range(lanes)}"] if lanes else []
    parts += [f"reading ticket{_range(heads)}"] if heads else []
    return f"{program} {', '.join(parts)}".rstrip()


def _range(numbers: set[int]) -> str:
    first, last = min(numbers), max(numbers)
    return f" {first}" if first == last else f"s {first}-{last}"
