"""Each function that is proved, with one impurity in it: not one of these may be proved."""

import pytest

from anabranch.compiler.functions.analyse import analyse
from tests.compiler.functions import test_corpus
from tests.compiler.functions.corpus.case import CASES
from tests.compiler.functions.mutants import EXPRESSIONS, HARMLESS, STATEMENTS, mutants

PURE = [case for case in CASES if case.proved]


def test_there_are_pure_functions_and_many_ways_to_spoil_them():
    assert test_corpus.MODULES
    assert len(PURE) >= 100
    assert len(EXPRESSIONS) + len(STATEMENTS) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("case", PURE, ids=str)
def test_no_mutant_is_proved(case):
    made = [*mutants(case)]

    missed = [str(each) for each in made if analyse(each.call, takes_state=each.state).proved]

    assert missed == []
    assert len(made) >= 8


@pytest.mark.parametrize("case", PURE, ids=str)
def test_harmless_mutant_is_still_proved(case):
    for each in mutants(case, HARMLESS, {}):
        verdict = analyse(each.call, takes_state=each.state)

        assert verdict.proved, [reason.text for reason in verdict.reasons]
