"""Deltas name the one before them: the chain holds from run to run, so that a gap would be noticed."""

from anabranch.state.recovery import read_chain, recover
from anabranch.state.store import LocalStore
from tests.runtime.test_inline import made, run


def test_deltas_follow_each_other_also_where_one_run_goes_on_behind_another(tmp_path):
    for stop in (4, 4, 500):
        run(made("fraud", tmp_path), tmp_path / "ckpt", lanes=2, rows=3, stop_after=stop)
    store = LocalStore(tmp_path / "ckpt")
    found = recover(store)

    lengths = [len(read_chain(store, found.chain("process-1", lane))) for lane in (0, 1)]

    assert min(lengths) > 3
