"""A width that cannot be is refused to who asks for it, and the query goes on."""

import pytest

from anabranch.api.starting import start
from anabranch.epoch.triggers import available_now
from anabranch.errors import RunError
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import assert_same_rows, run_sequential
from tests.runtime.test_inline import made, written

PATIENCE_S = 60


@pytest.mark.parametrize(
    ("lanes", "told"),
    [(0, "at least 1, got 0"), (True, "got True"), (9, "9 lanes cannot share 8 slices")],
)
def test_a_width_that_cannot_be_is_refused_and_nothing_ends(lanes, told, tmp_path):
    program = made("fraud", tmp_path)
    settings = Settings(available_now(7), tmp_path / "ckpt", 2, slices=8)
    query = start(program.freeze(), settings, InlineExecutor())

    with pytest.raises(RunError, match=told):
        query.rescale(lanes)

    assert query.await_termination(PATIENCE_S)
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))
