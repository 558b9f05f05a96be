from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import bench

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(bench.__path__, "bench.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

    assert 0 == doctest.testmod(importlib.import_module(name), optionflags=flags).failed
