"""An unrelated program on the same machine: says, a line each, when it has done a piece of work.

`python -m bench.elastic.neighbour`. The monotonic clock is the machine's: whoever reads the lines
can tell how many pieces fell into a stretch of time.
"""

from __future__ import annotations

import time

import numpy as np

NUMBERS = 200_000


def main() -> None:
    """Sort for ever."""
    random = np.random.default_rng(7)
    numbers = random.integers(0, 1 << 40, NUMBERS)
    while True:
        np.sort(numbers)
        print(time.monotonic(), flush=True)


if __name__ == "__main__":
    main()
