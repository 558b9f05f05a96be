from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from anabranch.ordering.splitters import Strategy
from bench.benches import ordering
from bench.harness.stand import Settings, Stand

REGION = ordering.Region(bundles=6, passes=3, run_length=32)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_every_strategy_gives_the_rows_in_order(strategy):
    region = replace(REGION, strategy=strategy)

    output = np.concatenate(ordering._played(region, np.arange(region.rows)))

    assert region.expected().tolist() == output.tolist()


@pytest.mark.parametrize("strategy", [Strategy.SEQUENCE, Strategy.PULSES])
def test_rows_routed_by_key_come_back_in_order(strategy):
    region = replace(REGION, strategy=strategy, keyed=True)

    output = np.concatenate(ordering._played(region, np.arange(region.rows)))

    assert region.expected().tolist() == output.tolist()


@pytest.mark.parametrize("kept", [4, 32])
def test_what_is_kept_comes_in_order(kept):
    region = replace(REGION, strategy=Strategy.PULSES, kept=kept)

    output = np.concatenate(ordering._played(region, np.arange(region.rows)))

    assert REGION.rows // kept == len(output)
    assert region.expected().tolist() == output.tolist()


def test_a_wrong_order_is_no_measurement():
    """Runs passed on as they come are in the wrong order every second bundle."""
    region = replace(REGION, ordered=False)
    found = np.concatenate(ordering._played(region, np.arange(region.rows)))

    assert region.expected().tolist() != found.tolist()
    assert sorted(region.expected().tolist()) == sorted(found.tolist())


def test_a_lost_row_is_no_measurement(monkeypatch):
    played = ordering._played
    monkeypatch.setattr(ordering, "_played", lambda region, rows: played(region, rows)[1:])

    with pytest.raises(AssertionError, match="wrong rows or order"):
        ordering._timed(Stand(), REGION)()


def test_the_contract_names_cases_sequence_and_pulses_with_an_overhead(monkeypatch):
    monkeypatch.setattr(ordering, "_region", lambda stand: REGION)
    stand = Stand(Settings(runs=1, warmups=0, quick=True))

    rows = ordering._strategies(stand)

    found = [row for row in rows if row.metric == "overhead"]
    assert ["sequence", "pulses"] == [row.case for row in found]
    assert all(row.against is None and row.ratio is None and row.value < 1 for row in found)
    for row in found:
        ours = next(r for r in rows if r.case == row.case and r.against == "round-robin")
        assert row.value == pytest.approx(1 - ours.ratio)
