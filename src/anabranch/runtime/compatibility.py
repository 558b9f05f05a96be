"""Whether a program may go on with a checkpoint that another one wrote, and what becomes of state.

Operators with state are matched by name. What is stateless, or a sink, may come, go and change.

- The same name and the same facts: its state is gone on with.
- A new name: it begins empty, and that is noted.
- A name that is gone: what was kept of it is no longer state, and that is noted. There is no flag
  to ask for it, so it is refused where it could be a mistake: when something else has its name now,
  or when a new operator is just like it, as happens when names are counted and one is put before.
- The same name and other facts: refused, with what was and what is.

Watermarks are a fact as well. A window that left is still in the files it came in with, and that it
left is known by the watermark alone; so an operator that reads watermarks keeps the sources that
its own is the least of. A source that is at its end holds nothing back and may go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from anabranch.errors import CheckpointError
from anabranch.runtime.facts import DIVIDED, FUNCTION, KIND, STATE, TIMERS, WATERMARK
from anabranch.state.description import Description, Facts


@dataclass(frozen=True, slots=True)
class Before:
    """What a checkpoint says of the program that wrote it."""

    program: Description
    ended: frozenset[str] = frozenset()
    """Sources that are at their end."""
    planned: Mapping[str, int] = field(default_factory=dict)
    """Of each source the first epoch that is planned and not committed."""
    slices: int | None = None
    """How many slices its state is divided into, if there is state."""


@dataclass(frozen=True, slots=True)
class Now:
    """The program that is to go on."""

    program: Description
    kinds: Mapping[str, str]
    """The kind of every operator by its name, those without state too."""
    slices: int


@dataclass(frozen=True, slots=True)
class Change:
    """What going on means."""

    kept: frozenset[str] = frozenset()
    """Operators that go on with their state."""
    notes: tuple[str, ...] = ()
    """What the user should know of, a sentence each."""


def compare(before: Before, now: Now) -> Change:
    """What becomes of a checkpoint under a program, or a CheckpointError that says why it cannot.

    >>> window = {"kind": ("window",), "window": ("tumbling 10 s",)}
    >>> then = Before(Description({"views": window}, {"events": "Files"}))
    >>> compare(then, Now(Description({}, {"events": "Files"}), {"events": "read"}, 128)).notes
    ('views is no longer in the program: the window state it kept is left behind',)
    """
    refused = [*_refused(before, now)]
    if refused:
        names = ", ".join(dict.fromkeys(each.who for each in refused))
        message = f"the program cannot go on from this checkpoint because of {names}"
        why, so = (_lines(each.why for each in refused), _lines(each.so for each in refused))
        raise CheckpointError(message, why=why, so=so)
    kept = before.program.operators.keys() & now.program.operators.keys()
    return Change(frozenset(kept), tuple(_notes(before, now)))


@dataclass(frozen=True, slots=True)
class _Refusal:
    """One thing that does not fit."""

    who: str
    why: str
    so: str


def _lines(told: Iterable[str]) -> str:
    return "\n        ".join(dict.fromkeys(told))


_UNDO = "undo the change, or begin with another checkpoint="


def _refused(before: Before, now: Now) -> Iterator[_Refusal]:
    if before.slices is not None and before.slices != now.slices:
        why = f"its state is divided into {before.slices} slices, this start asks for {now.slices}"
        yield _Refusal("its slices", why, f"pass slices={before.slices}")
    yield from _other_sources(before, now)
    then, this = before.program.operators, now.program.operators
    for name, facts in then.items():
        if name in this:
            yield from _differences(name, facts, this[name], before.ended)
        elif name in now.kinds:
            was, kind = _kind(facts), now.kinds[name]
            so = f"give the {kind} another name=, or begin with another checkpoint="
            yield _Refusal(name, f"{name} was a {was} with state, and is a {kind} without", so)
        else:
            yield from _renamed(name, facts, before, now)


def _other_sources(before: Before, now: Now) -> Iterator[_Refusal]:
    then, this = before.program.sources, now.program.sources
    for name, kind in then.items():
        if kind and this.get(name, kind) != kind:
            why = f"source {name} was {kind} and is {this[name]}, whose offsets are others"
            so = f"give the new source another name=, to begin at its beginning; or {_UNDO}"
            yield _Refusal(f"source {name}", why, so)
    for name, epoch in before.planned.items():
        if name not in this:
            why = f"epoch {epoch} of source {name} is planned and not committed"
            so = "run the old program once more: query.stop() finishes what is planned"
            yield _Refusal(f"source {name}", why, so)


def _differences(name: str, then: Facts, this: Facts, ended: Collection[str]) -> Iterator[_Refusal]:
    """What is another fact now; the columns of the state only where nothing else explains them."""
    so = f"undo the change, or give {name} another name= to begin empty"
    differ = [label for label in then if label in this and not _same(label, then, this, ended)]
    if differ != [STATE]:
        differ = [label for label in differ if label != STATE]
    for label in differ:
        was, is_ = (", ".join(each[label]) or "nothing" for each in (then, this))
        why = f"{name}: {label} was {was}, is {is_}"
        if label == DIVIDED:
            why = (
                f"the state of {name} in the checkpoint is divided by {was}, "
                f"and the program now divides it by {is_}: see program.explain()"
            )
        yield _Refusal(name, why, so)


def _same(label: str, then: Facts, this: Facts, ended: Collection[str]) -> bool:
    if label == FUNCTION:
        return True
    if label == TIMERS:
        # Timers may come; if they went, those that wait would never fire.
        return then[label] == this[label] or then[label] == ("no",)
    if label == WATERMARK:
        was, is_ = ({x for x in facts[label] if not _is_of(x, ended)} for facts in (then, this))
        return was == is_
    return then[label] == this[label]


def _is_of(watermark: str, sources: Collection[str]) -> bool:
    return any(watermark == each or watermark.startswith(f"{each} less ") for each in sources)


def _renamed(name: str, facts: Facts, before: Before, now: Now) -> Iterator[_Refusal]:
    """Refuse to forget state of which a new operator looks like the owner."""
    for new, others in now.program.operators.items():
        if new in before.program.operators or others.get(STATE) is None:
            continue
        if facts == others:
            why = f"{name} is no longer in the program, and {new} is new and just like it"
            so = (
                f"give {new} the name={name!r} to go on with that state; to begin empty, run "
                f"the program once without {new}"
            )
            yield _Refusal(name, why, so)


def _notes(before: Before, now: Now) -> Iterator[str]:
    then, this = before.program, now.program
    yield from _operator_notes(then.operators, this.operators)
    for name in _more(this.sources, then.sources):
        yield f"source {name} is new: it begins at its beginning"
    for name in _more(then.sources, this.sources):
        yield f"source {name} is no longer read: if it comes back, it begins at its beginning"
    if then.sinks:
        yield from (f"sink {name} is new" for name in _more(this.sinks, then.sinks))
        yield from (
            f"sink {name} is no longer written to" for name in _more(then.sinks, this.sinks)
        )


def _operator_notes(then: Mapping[str, Facts], this: Mapping[str, Facts]) -> Iterator[str]:
    for name in _more(this, then):
        yield f"{name} is new: its state begins empty"
    for name in _more(then, this):
        kind = _kind(then[name])
        yield f"{name} is no longer in the program: the {kind} state it kept is left behind"
    for name in (each for each in this if each in then):
        was, is_ = (" ".join(each[name].get(FUNCTION, ())) for each in (then, this))
        if was and was != is_:
            yield f"{name} goes on with its state, though its function was {was} and is {is_}"


def _more(these: Collection[str], those: Collection[str]) -> list[str]:
    return [name for name in these if name not in those]


def _kind(facts: Facts) -> str:
    return " ".join(facts.get(KIND, ("operator's",)))
