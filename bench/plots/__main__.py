"""Draw all pictures of the results files into `docs/plots`: `python -m bench.plots`."""

from __future__ import annotations

import sys

from bench.harness.machine import ROOT
from bench.plots.pictures import PICTURES, Results

FOLDER = ROOT / "docs" / "plots"


def main() -> None:
    """Write one file a picture."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        file = FOLDER / f"{name}.svg"
        file.write_text(draw(Results()))
        sys.stderr.write(f"plots: wrote {file.name}\n")


if __name__ == "__main__":
    main()
