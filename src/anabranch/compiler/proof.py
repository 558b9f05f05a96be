"""That a function may run in parallel, and what has to be as it was for that to hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from anabranch.compiler.functions.fingerprint import Fingerprint


@dataclass(frozen=True, slots=True)
class Proof:
    """One operator's function, as it was when it was looked into."""

    operator: str
    function: str
    call: Any = field(repr=False)
    fingerprint: Fingerprint = field(repr=False)

    def changed(self) -> str | None:
        """What is no longer as it was, in a sentence; None: the proof holds."""
        return self.fingerprint.check(self.call)
