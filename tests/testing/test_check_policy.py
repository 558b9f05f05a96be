"""Policies that break their contract are told which rule, and those that are shipped keep it."""

from itertools import count

import pytest

from anabranch.scheduling.query_policies import QUERY_POLICIES
from anabranch.testing import check_policy
from anabranch.testing.policy_contract import PolicyRule


@pytest.mark.parametrize("name", QUERY_POLICIES)
def test_what_is_shipped_keeps_the_contract(name):
    check_policy(QUERY_POLICIES[name])


asked = count()
BROKEN = [
    (lambda query: query.slack, PolicyRule.RANKS),
    (lambda query: (query.slack - 1.0, query.place), PolicyRule.RANKS),
    (lambda query: (float("nan"), query.place), PolicyRule.RANKS),
    (lambda query: (0.0,) if query.due is None else (0.0, query.place), PolicyRule.COMPARES),
    (lambda query: (query.rows,), PolicyRule.APART),
    (lambda query: (next(asked), query.place), PolicyRule.PURE),
]


@pytest.mark.parametrize(("policy", "rule"), BROKEN, ids=range(len(BROKEN)))
def test_the_rule_that_is_broken_is_named(policy, rule):
    with pytest.raises(AssertionError, match=rule.value):
        check_policy(policy)
