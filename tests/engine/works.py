"""Small operators on lists of (key, value), and what they give one behind the other, in one go."""

from dataclasses import dataclass, field


@dataclass
class Mapped:
    """Each value one more; stateless."""

    name: str = "mapped"
    partitions: int | None = None
    to: int | None = None
    """The partitions of the operator behind it."""

    def operate(self, fragment):
        return [(key, value + 1) for key, value in fragment.content]

    def together(self, serial, made):
        return [row for at in sorted(made) for row in made[at]]

    def onward(self, serial, bundle):
        return cut(bundle, self.to)


@dataclass
class Even(Mapped):
    """Those with an even value; stateless, and may give nothing."""

    name: str = "even"

    def operate(self, fragment):
        return [row for row in fragment.content if row[1] % 2 == 0]


@dataclass
class Copied(Mapped):
    """Each as often as its key says; stateless and prolific."""

    name: str = "copied"

    def operate(self, fragment):
        return [(key, value) for key, value in fragment.content for _ in range(key % 4)]


@dataclass
class Summed(Mapped):
    """The sum of each key so far; its state is divided by key."""

    name: str = "summed"
    partitions: int | None = 3
    sums: dict = field(default_factory=dict)

    def operate(self, fragment):
        found = []
        for place, (key, value) in fragment.content:
            assert fragment.partition == key % self.partitions
            self.sums[key] = self.sums.get(key, 0) + value
            found.append((place, (key, self.sums[key])))
        return found

    def together(self, serial, made):
        # Rows of several partitions are put back by their places in the bundle.
        return [row for _, row in sorted(row for part in made.values() for row in part)]


@dataclass
class Whole(Summed):
    """The sum of all so far; one worker at a time."""

    name: str = "whole"
    partitions: int | None = 1

    def operate(self, fragment):
        found = []
        for place, (key, value) in fragment.content:
            self.sums[0] = self.sums.get(0, 0) + value
            found.append((place, (key, self.sums[0])))
        return found


def cut(rows, partitions):
    """A bundle for an operator with so many partitions; one that has no rows is a bundle too."""
    if partitions is None:
        return {0: rows}
    parts = {}
    for place, row in enumerate(rows):
        parts.setdefault(row[0] % partitions, []).append((place, row))
    return parts or {0: []}


def linked(works):
    """The same operators, each knowing the one behind it."""
    for work, behind in zip(works, [*works[1:], None], strict=True):
        work.to = None if behind is None else behind.partitions
    return works


def sequentially(make, bundles):
    """What leaves behind all operators, bundle by bundle, with nobody else at work."""
    works, left = linked(make()), []
    for serial, rows in enumerate(bundles):
        parts = cut(rows, works[0].partitions)
        for work in works:
            made = {
                at: work.operate(_Fragment(at, content)) for at, content in sorted(parts.items())
            }
            parts = work.onward(serial, work.together(serial, made))
        left.append(parts[0])
    return left


@dataclass
class _Fragment:
    partition: int
    content: list
