"""Theorem 5.2 of Prasaad et al. 2018: whoever does what when, what leaves is what one alone makes."""

import random
from itertools import product

import pytest

from anabranch.engine.core import Core, Queueing, Reordering, Scheme
from tests.engine.works import Copied, Even, Mapped, Summed, Whole, cut, linked, sequentially
from tests.ordering.interleaving import Case, Notes, Steps, explore, step, wander

KINDS = [Mapped, Even, Copied, Summed, Whole]
SCHEMES = [
    Scheme(queueing, reordering, room)
    for queueing, reordering, room in product(Queueing, Reordering, (1, 3))
]


def working(make, bundles, scheme, workers, draw):
    """Workers who take any operator that has work, for any number of fragments."""
    expected = sequentially(make, bundles)

    def case():
        cells, notes, left = Steps(), Notes(), []
        works = linked(make())

        def leave(serial, bundle):
            notes("leaves", serial)
            left.append((serial, bundle[0]))

        core = Core(works, leave, scheme, cells)
        for rows in bundles:
            core.add(cut(rows, works[0].partitions))
        over = lambda: len(left) == len(bundles)  # noqa: E731

        def waiting():
            return [at for at, each in enumerate(core.operators) if len(each.worklist)]

        def work():
            while not over():
                ready = waiting()
                if not ready:
                    step(lambda: None, lambda: over() or waiting())
                    continue
                at = ready[draw(len(ready))]
                turns = iter([False] * (1 + draw(3)))
                took = False
                for fragment in core.fragments(at, lambda t=turns: next(t, True)):
                    took = True
                    bundle = core.operate(at, fragment)
                    if bundle is None:
                        continue
                    while not core.send(at, bundle):
                        buffer = core.operators[at].buffer
                        step(
                            lambda: None,
                            lambda b=buffer, s=fragment.serial: s < b._next.shown() + b._size,
                        )
                if not took:
                    step(lambda: None)

        def check(_):
            assert list(enumerate(expected)) == left, "not in order, or not what one alone makes"

        def hidden():
            return left, works, [each._made for each in core.operators]

        return Case([work] * workers, notes, check, cells, hidden)

    return case


def rows_of(chance, count):
    return [(chance.randrange(6), chance.randrange(9)) for _ in range(count)]


@pytest.mark.parametrize(
    "scheme",
    SCHEMES,
    ids=lambda each: "-".join((each.queueing.value, each.reordering.value, str(each.room))),
)
@pytest.mark.parametrize("seed", range(6))
def test_what_leaves_is_what_one_alone_makes(scheme, seed):
    chance = random.Random(f"{seed} {scheme}")
    kinds = [chance.choice(KINDS) for _ in range(chance.randint(1, 4))]
    bundles = [rows_of(chance, chance.choice([0, 1, 4])) for _ in range(chance.randint(1, 8))]

    wander(
        working(lambda: [kind() for kind in kinds], bundles, scheme, 3, chance.randrange),
        chance.randrange,
    )


@pytest.mark.chaos
def test_two_operators_in_every_interleaving():
    """Two workers who always take the last operator that has work."""
    bundles = [[(0, 1)], [(0, 2)]]

    ended, states = explore(
        working(
            lambda: [Mapped(), Summed(partitions=1)], bundles, Scheme(room=2), 2, lambda n: n - 1
        )
    )

    assert ended, states
    assert states > 100


@pytest.mark.parametrize("workers", [1, 3])
def test_an_operator_that_changes_what_others_do_is_seen(workers):
    """The check has teeth: state that is not divided as its worklist says gives something else."""

    class Careless(Mapped):
        calls = 0

        def operate(self, fragment):
            self.calls += 1
            step(lambda: None)
            return [(0, self.calls)]

    chance = random.Random(3)
    case = working(lambda: [Careless()], [[(0, 0)]] * 6, Scheme(), workers, chance.randrange)

    def wander_often():
        for _ in range(50):
            wander(case, chance.randrange)

    if workers == 1:
        wander_often()
    else:
        with pytest.raises(AssertionError, match="not what one alone makes"):
            wander_often()
