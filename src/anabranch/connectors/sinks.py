"""Where rows go: `ab.sinks`."""

from __future__ import annotations

import importlib
from typing import Any

from anabranch.connectors.base import Sink
from anabranch.connectors.callback import Callback
from anabranch.connectors.console import Console
from anabranch.connectors.file_sink import Files
from anabranch.connectors.memory import Memory

__all__ = ["Callback", "Console", "Files", "Memory", "Sink", "Spark"]

# Its module is above this one and loads PySpark: it is looked up when it is first asked for.
Spark: Any


def __getattr__(name: str) -> Any:
    if name == "Spark":
        return importlib.import_module("anabranch.spark.spark_sink").Spark
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
