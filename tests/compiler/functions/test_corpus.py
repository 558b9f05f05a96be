"""The corpus: what is said of each function is what is expected of it."""

import pytest

from anabranch.compiler.functions.analyse import analyse
from tests.compiler.functions.corpus import (
    called,
    counted,
    hostile,
    neighbours,
    reaching,
    rebuilt,
    stateful,
    subtle,
)
from tests.compiler.functions.corpus.case import CASES

MODULES = (called, counted, hostile, neighbours, reaching, rebuilt, stateful, subtle)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_verdict(case):
    verdict = analyse(case.call, takes_state=case.state)

    told = "\n".join(f"{reason.text} ({reason.site})" for reason in verdict.reasons)
    assert case.proved == verdict.proved, told
    assert "could not be looked through" not in told
    if case.selectivity is not None:
        assert case.selectivity == verdict.selectivity
    if case.forwards is not None:
        assert case.forwards == verdict.forwards


def test_corpus_is_large_and_a_third_of_it_hostile():
    names = [case.name for case in CASES]
    hostile_ones = [case for case in CASES if not case.proved]

    assert len(set(names)) == len(names) >= 150
    assert 3 * len(hostile_ones) >= len(CASES)


@pytest.mark.parametrize("case", [each for each in CASES if not each.proved], ids=str)
def test_every_obstacle_has_a_line(case):
    for reason in analyse(case.call, takes_state=case.state).reasons:
        assert reason.text
        if case.call is not called:
            assert reason.site is not None
            assert reason.site.line > 0
