"""Why something is so, and where that can be seen."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import Site


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence of a proof, or what is missing for one."""

    text: str
    site: Site | None = None
