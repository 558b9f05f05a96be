"""Where records come from: `ab.sources`."""

from __future__ import annotations

import importlib
from typing import Any

from anabranch.connectors.base import Source
from anabranch.connectors.file_source import Files
from anabranch.connectors.generator import Generator
from anabranch.connectors.rate import Rate
from anabranch.connectors.records import Records

__all__ = ["Files", "Generator", "Rate", "Records", "Source", "Spark"]

# Its module is above this one and loads PySpark: it is looked up when it is first asked for.
Spark: Any


def __getattr__(name: str) -> Any:
    if name == "Spark":
        return importlib.import_module("anabranch.spark.spark_source").Spark
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
