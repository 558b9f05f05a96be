"""State goes with its slices, whatever the widths of the runs before were."""

import pytest

from anabranch.testing import assert_same_rows, run_sequential
from tests.runtime.programs import PROGRAMS
from tests.runtime.test_inline import made, run, widths_of, written


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    "widths", [(1, 4, 4), (4, 1, 1), (2, 4, 4), (4, 2, 2), (1, 2, 2, 1, 1), (2, 1, 2, 1)], ids=str
)
def test_state_is_whole_after_runs_of_other_widths(name, widths, tmp_path):
    for width in widths[:-1]:
        # Two commits each: all a lane has, where its slices have moved, and what changed since.
        life = {"lanes": width, "rows": 3, "stop_after": 8, "in_flight": 2}
        assert 8 == run(made(name, tmp_path), tmp_path / "ckpt", **life)
    run(made(name, tmp_path), tmp_path / "ckpt", lanes=widths[-1], rows=3, stop_after=500)

    expected = run_sequential(made(name, tmp_path), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("widths", [(1, 4), (1, 2), (4, 2), (2, 1)], ids=str)
def test_state_is_whole_in_a_run_after_a_rescale(name, widths, tmp_path):
    before, after = widths
    life = {"lanes": before, "rows": 3, "stop_after": 9, "in_flight": 2}
    assert 9 == run(made(name, tmp_path), tmp_path / "ckpt", rescale=((4, after),), **life)
    assert [before, after] == widths_of(tmp_path / "ckpt")
    run(made(name, tmp_path), tmp_path / "ckpt", lanes=after, rows=3, stop_after=500)

    expected = run_sequential(made(name, tmp_path), log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_at_its_end_ends_again_at_once(name, tmp_path):
    run(made(name, tmp_path), tmp_path / "ckpt", lanes=2)

    assert 3 > run(made(name, tmp_path), tmp_path / "ckpt", lanes=1, stop_after=20)
