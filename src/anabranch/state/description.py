"""What a run keeps state for, in words that are compared with what a later program keeps.

The description of an operator is a list of facts, each a label and some lines of text: what kind it
is, its key, what divides its state, what is in it. State may be gone on with when the facts are
equal. A label that one side does not have is not compared: versions may learn to say more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from anabranch.state.envelope import (
    Fields,
    as_text,
    mapping_of,
    object_of,
    pairs,
    seal,
    tuple_of,
    unseal,
)

Facts: TypeAlias = Mapping[str, tuple[str, ...]]
"""By label, in the order in which they are told."""


@dataclass(frozen=True, slots=True)
class Description:
    """The operators with state, the sources with their kinds, and the sinks of a program.

    >>> views = Description({"views": {"kind": ("window",)}}, {"events": "Files"}, ("out",))
    >>> Description.from_bytes("program/1", views.to_bytes()) == views
    True
    """

    operators: Mapping[str, Facts] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    sinks: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The file's content."""
        return seal(
            {
                "operators": {
                    name: pairs({label: list(lines) for label, lines in facts.items()})
                    for name, facts in self.operators.items()
                },
                "sources": dict(self.sources),
                "sinks": list(self.sinks),
            }
        )

    @classmethod
    def from_bytes(cls, path: str, data: bytes) -> Description:
        """Read the file's content."""
        fields = Fields(path, unseal(path, data))
        found = cls(
            operators=fields.take("operators", object_of(mapping_of(as_text, tuple_of(as_text)))),
            sources=fields.take("sources", object_of(as_text)),
            sinks=fields.take("sinks", tuple_of(as_text)),
        )
        fields.finish()
        return found
