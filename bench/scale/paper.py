"""What Schneider et al. say of speed-ups, as far as their text has numbers.

Figures 6, 10 and 12 are plots; a figure here is one that the sections in words give. Of four of the
five kernels (all but Finance) the text has a range alone: the least of the four peaks and the
greatest, "at either 16 or 32 channels". Which kernel has which is in the plot, so each of the four
is held to the least with 16 channels and to the greatest with 32. "Near-perfect scaling up to 8" is
no number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench.harness.report import Row
from bench.harness.statistics import Metric, compared

OURS, THEIRS = "anabranch", "schneider-paper"


@dataclass(frozen=True, slots=True)
class Figure:
    """A speed-up beside one channel, and where it is said."""

    channels: int
    speedup: float
    where: str
    quote: str


_KERNELS, _LARGE = "section 5.3, figure 12", "section 5.1, figure 10"
_SCALABILITY = "section 5.1, figure 6"
_RANGE = (
    Figure(16, 11.4, f"{_KERNELS}, the least of four", "speedups between 11.4x and 21.1x"),
    Figure(32, 21.1, f"{_KERNELS}, the greatest of four", "speedups between 11.4x and 21.1x"),
)
FIGURES: Mapping[str, tuple[Figure, ...]] = {
    "stateless": (
        Figure(32, 32.0, _SCALABILITY, "linear scalability, up to 32 times the sequential case"),
    ),
    "stateful": (
        Figure(32, 31.3, _SCALABILITY, "31.3 times the sequential case for 32 parallel channels"),
        Figure(100, 93.0, _LARGE, "near linear scalability, maxing out at 93 times improvement"),
    ),
    "shuffle": (
        Figure(16, 15.3, _SCALABILITY, "a fully subscribed system, and it scales to 15.3 times"),
        Figure(32, 22.6, _SCALABILITY, "over-subscribed [...] it only scales to 22.6 times"),
        Figure(50, 42.0, _LARGE, "50 parallel channels [...] it maxes out at 42 times improvement"),
    ),
    "network": _RANGE,
    "network-one-rate": _RANGE,
    "pagerank": _RANGE,
    "pagerank-by-page": _RANGE,
    "twitter-nlp": _RANGE,
    "twitter-cep": _RANGE,
    "finance": (Figure(4, 3.2, _KERNELS, "tops out at a speedup of 3.2x with 4 channels"),),
}


def beside(case: str, ours: Mapping[int, float]) -> Iterator[Row]:
    """Speed-ups of ours by channels, with the paper's where its text has one."""
    theirs = {figure.channels: figure.speedup for figure in FIGURES[case]}
    for channels, speedup in ours.items():
        samples, both = {OURS: [speedup]}, channels in theirs
        if both:
            samples[THEIRS] = [theirs[channels]]
        metric = Metric(case, f"speedup_{channels}", "x")
        yield from compared(metric, samples, [(OURS, THEIRS)] if both else [])


def told(case: str) -> str:
    """Where the paper says so, in a line."""
    figures = "; ".join(
        f'{each.speedup:g} with {each.channels} channels ({each.where}: "{each.quote}")'
        for each in FIGURES[case]
    )
    return f"{THEIRS}, {case}: {figures}."
