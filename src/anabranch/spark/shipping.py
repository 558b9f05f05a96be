"""A deployment on its way to workers."""

from __future__ import annotations

import pickle
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from anabranch.program.functions import Function
from anabranch.program.graph import Graph


def shipped(what: object, graph: Graph) -> bytes:
    """A deployment, or more, as bytes, with the code of functions that workers cannot import."""
    from pyspark import cloudpickle

    with _by_value(_modules(graph), cloudpickle):
        data: bytes = cloudpickle.dumps(what)
    return data


def travelled(value: Any) -> Any:
    """A value as a task has it, to see whether it can be sent to one."""
    from pyspark import cloudpickle

    return pickle.loads(cloudpickle.dumps(value))  # noqa: S301 - made one call before


@contextmanager
def _by_value(modules: Sequence[ModuleType], cloudpickle: Any) -> Iterator[None]:
    """Ship the code of these modules itself: workers may not be able to import them."""
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _modules(graph: Graph) -> list[ModuleType]:
    """The modules of users' functions that are not installed packages."""
    calls = [
        found.call
        for op in graph.operators
        for found in (getattr(op, "function", None), getattr(op, "predicate", None))
        if isinstance(found, Function)
    ]
    names = {getattr(call, "__module__", None) or type(call).__module__ for call in calls}
    modules = [sys.modules[name] for name in names if name in sys.modules and name != "__main__"]
    return [module for module in modules if not _is_installed(module)]


def _is_installed(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return True
    homes = [Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")]
    homes.append(Path(__file__).resolve().parents[1])
    return any(Path(file).resolve().is_relative_to(home) for home in homes)
