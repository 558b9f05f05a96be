"""The test kit: the sequential meaning of a program; sources, clocks and strategies for tests."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.program.log import Cut
    from anabranch.testing.clock import MockClock
    from anabranch.testing.compare import assert_same_rows
    from anabranch.testing.equivalence import assert_same_as_sequential
    from anabranch.testing.oracle import run_sequential
    from anabranch.testing.policy_contract import check_policy
    from anabranch.testing.sink_contract import check_sink
    from anabranch.testing.source_contract import check_source
    from anabranch.testing.sources import ABORT, EOF, PAUSE, TestingSource
    from anabranch.testing.strategies import cuts, programs, streams

# Resolved on first use: the strategies need Hypothesis, which users of the rest may not have.
_HOMES = {
    "anabranch.program.log": "Cut",
    "anabranch.testing.clock": "MockClock",
    "anabranch.testing.compare": "assert_same_rows",
    "anabranch.testing.equivalence": "assert_same_as_sequential",
    "anabranch.testing.oracle": "run_sequential",
    "anabranch.testing.policy_contract": "check_policy",
    "anabranch.testing.sink_contract": "check_sink",
    "anabranch.testing.source_contract": "check_source",
    "anabranch.testing.sources": "ABORT EOF PAUSE TestingSource",
    "anabranch.testing.strategies": "cuts programs streams",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "ABORT",
    "EOF",
    "PAUSE",
    "Cut",
    "MockClock",
    "TestingSource",
    "assert_same_as_sequential",
    "assert_same_rows",
    "check_policy",
    "check_sink",
    "check_source",
    "cuts",
    "programs",
    "run_sequential",
    "streams",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        message = f"module 'anabranch.testing' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return __all__
