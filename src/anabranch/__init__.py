"""Stream programs in Python, run in parallel on Spark, with the sequential program's output."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch import testing
    from anabranch.api.program import Program
    from anabranch.api.session import Session
    from anabranch.connectors import sinks, sources
    from anabranch.epoch.triggers import available_now, continuous, epochs
    from anabranch.errors import AnabranchError, CheckpointError, ProgramError, RunError
    from anabranch.program.aggregates import (
        approx_distinct,
        approx_quantile,
        collect,
        count,
        count_distinct,
        first,
        last,
        max,  # noqa: A004
        mean,
        min,  # noqa: A004
        quantile,
        sum,  # noqa: A004
        top_k,
        var,
    )
    from anabranch.program.functions import KeyedOperator, operator
    from anabranch.program.pattern import step
    from anabranch.program.windows import rows, session, sliding, tumbling

# Resolved on first use: `import anabranch` must cost next to nothing beside `import polars`.
_HOMES = {
    "anabranch.api.program": "Program",
    "anabranch.api.session": "Session",
    "anabranch.connectors": "sinks sources",
    "anabranch.epoch.triggers": "available_now continuous epochs",
    "anabranch.errors": "AnabranchError CheckpointError ProgramError RunError",
    "anabranch.program.aggregates": (
        "approx_distinct approx_quantile collect count count_distinct first last max mean min "
        "quantile sum top_k var"
    ),
    "anabranch.program.functions": "KeyedOperator operator",
    "anabranch.program.pattern": "step",
    "anabranch.program.windows": "rows session sliding tumbling",
    "anabranch": "testing",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__version__ = "0.1.0"

__all__ = [
    "AnabranchError",
    "CheckpointError",
    "KeyedOperator",
    "Program",
    "ProgramError",
    "RunError",
    "Session",
    "approx_distinct",
    "approx_quantile",
    "available_now",
    "collect",
    "continuous",
    "count",
    "count_distinct",
    "epochs",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "operator",
    "quantile",
    "rows",
    "session",
    "sinks",
    "sliding",
    "sources",
    "step",
    "sum",
    "testing",
    "top_k",
    "tumbling",
    "var",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        message = f"module 'anabranch' has no attribute {name!r}"
        raise AttributeError(message)
    if name in ("sinks", "sources", "testing"):
        found: Any = importlib.import_module(f"{home}.{name}")
    else:
        found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
