"""Whole queries, most of them of several lives: `./x test --quick` leaves them out."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
QUICK = {"test_chains.py", "test_warm_up.py"}
"""A few short queries, so that something of this room is run every time."""


@pytest.hookimpl(tryfirst=True)  # before it is chosen by marks
def pytest_collection_modifyitems(items):
    for item in items:  # all there are, of other directories as well
        if HERE in item.path.parents and item.path.name not in QUICK:
            item.add_marker(pytest.mark.slow)
