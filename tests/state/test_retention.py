"""What is kept: the last commits, and the deltas they need, across snapshots and changes of owners."""

import random
from dataclasses import replace

import pytest

from anabranch.state.layout import Commit, DeltaName
from anabranch.state.retention import Retention, needed_links


def path(number, lane, *, snapshot=False):
    return DeltaName("n", number, 1, lane, "a", snapshot).path


def made(number, owners, deltas=(), snapshots=()):
    lanes = {lane: path(number, lane, snapshot=lane in snapshots) for lane in (*deltas, *snapshots)}
    return Commit(
        number,
        number,
        owners=owners,
        lanes=max(owners, default=-1) + 1,
        deltas={"n": lanes} if lanes else {},
        number=number,
        plans=(f"epochs/{number:010d}_1.plan",),
    )


def needed(history):
    return [(link.number, link.lane) for link in needed_links(history)]


def test_without_snapshots_all_are_needed():
    history = [made(n, (0, 1), deltas=(0, 1)) for n in range(3)]

    assert [(2, 0), (2, 1), (1, 0), (1, 1), (0, 0), (0, 1)] == needed(history)


def test_a_snapshot_ends_its_lanes_chain_alone():
    history = [
        made(0, (0, 1), deltas=(0, 1)),
        made(1, (0, 1), snapshots=(1,), deltas=(0,)),
        made(2, (0, 1), deltas=(0, 1)),
    ]

    assert [(2, 0), (2, 1), (1, 0), (1, 1), (0, 0)] == needed(history)


def test_after_a_change_of_owners_a_snapshot_ends_the_chains_of_its_slices():
    history = [
        made(0, (0, 0, 1, 1), deltas=(0, 1)),
        made(1, (0, 1, 1, 1), deltas=(0,)),
        made(2, (0, 1, 1, 1), snapshots=(1,)),
    ]

    # Slice 1 was lane 0's in commit 0 and is in the snapshot now; slice 0 is not.
    assert [(2, 1), (1, 0), (0, 0)] == needed(history)


def test_a_lane_that_had_nothing_left_to_say_is_not_needed():
    history = [made(0, (0, 0), deltas=(0,)), made(1, (1, 1), snapshots=(1,))]

    assert [(1, 1)] == needed(history)


def test_a_snapshot_of_the_one_lane_of_an_undivided_operator_ends_its_chain_at_any_width():
    """At width 3 its lane owns fewer slices than at width 2, and has all of the state all the same."""
    history = [
        made(0, (0, 0, 1, 1), deltas=(0,)),
        made(1, (0, 1, 2, 2), snapshots=(0,)),
        made(2, (0, 1, 2, 2), deltas=(0,)),
    ]

    assert [(2, 0), (1, 0)] == needed([replace(each, undivided=("n",)) for each in history])
    assert [(2, 0), (1, 0), (0, 0)] == needed(history)


def test_what_is_not_published_is_kept():
    retention = Retention(keep=1)
    for number in range(4):
        retention.add(made(number, ()))

    assert ("commits/0000000000", "epochs/0000000000_1.plan") == retention.expire(published=0)
    assert () == retention.expire(published=0)
    assert 4 == len(retention.expire(published=9))
    assert [3] == [each.number for each in retention.commits]


def test_with_none_everything_is_kept():
    retention = Retention(keep=None)
    for number in range(4):
        retention.add(made(number, ()))

    assert () == retention.expire(published=9)


def test_a_long_chain_keeps_commits_and_lets_plans_go():
    retention = Retention(keep=2)
    for number in range(5):
        retention.add(made(number, (0,), deltas=(0,)))

    assert [f"epochs/{n:010d}_1.plan" for n in range(3)] == [*retention.expire(published=9)]
    assert 5 == len(retention.commits)


def test_commits_without_epochs_do_not_push_out_those_with():
    retention = Retention(keep=1)
    retention.add(made(0, ()))
    for number in range(1, 9):
        retention.add(Commit(1, 0, number=number))

    assert () == retention.expire(published=9)


def test_none_is_no_number_of_commits_to_keep():
    with pytest.raises(ValueError, match="at least one"):
        Retention(keep=0)


def test_what_was_dropped_is_needed_no_more():
    history = [made(n, (0, 1), deltas=(0, 1)) for n in range(4)]
    history[2] = replace(history[2], dropped=("n",))

    # The commit that drops an operator may be the first of one that begins anew.
    assert [(3, 0), (3, 1), (2, 0), (2, 1)] == needed(history)
    assert [(1, 0), (1, 1), (0, 0), (0, 1)] == needed(history[:2])


def test_where_all_was_dropped_there_is_no_state():
    retention = Retention(keep=1)
    first = replace(made(1, (0,), deltas=(0,)), state_from=1)
    retention.add(first)
    second = replace(made(2, ()), dropped=("n",))

    assert retention.state_from(second) is None

    retention.add(second)
    assert {first.path, path(1, 0), *first.plans} == set(retention.expire(published=9))


def test_the_newest_plan_of_a_silent_source_is_kept_for_as_long_as_it_is_that():
    retention = Retention(keep=2)
    silent = "epochs/0000000000_1.plan"
    gone = []
    for number in range(6):
        one = made(number, ())
        latest = {"silent": silent if number < 4 else one.plans[0], "loud": one.plans[0]}
        retention.add(replace(one, latest=latest))
        gone.append([each for each in retention.expire(published=9) if "epochs" in each])
        assert silent in retention.referenced() or number > 4

    plan = "epochs/{:010d}_1.plan".format
    # It goes when the oldest commit that can be gone back to has a newer one.
    assert [[], [], [], [plan(1)], [plan(2)], [plan(3), silent]] == gone


@pytest.mark.parametrize("seed", range(40))
def test_the_last_commits_can_always_be_gone_back_to(seed):
    """Against all commits ever made: what any of the last needs was not let go of."""
    rng = random.Random(seed)
    keep = rng.randint(1, 4)
    retention, everything, gone = Retention(keep), [], set()
    owners: tuple[int, ...] = (0, 0, 1, 1)
    for number in range(1, 60):
        if rng.random() < 0.1:
            owners = tuple(rng.randrange(rng.randint(1, 3)) for _ in range(4))
        lanes = sorted(set(owners))
        snapshots = lanes if rng.random() < 0.2 else [x for x in lanes if rng.random() < 0.2]
        deltas = [x for x in lanes if x not in snapshots and rng.random() < 0.7]
        one = made(number, owners, deltas, snapshots)
        one = replace(one, dropped=("n",) if rng.random() < 0.05 else ())
        one = Commit(**{**_values(one), "state_from": retention.state_from(one)})
        retention.add(one)
        everything.append(one)
        gone.update(retention.expire(published=number - rng.randint(0, 2)))
        for back in range(min(keep, len(everything))):
            upto = everything[: len(everything) - back]
            links = list(needed_links(upto))
            assert not gone & {link.path for link in links}
            assert not gone & {f"commits/{link.number:010d}" for link in links}
            assert not gone & set(upto[-1].plans)
        links = list(needed_links(everything))
        assert one.state_from == min((link.number for link in links), default=None)
        assert not gone & retention.referenced()
    assert gone


def _values(commit):
    return {name: getattr(commit, name) for name in Commit.__slots__}
