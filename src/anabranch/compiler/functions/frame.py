"""One call of one function while it is looked through, and what all these calls share."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CellType
from typing import Any

from anabranch.compiler.functions.heap import MANY, Heap
from anabranch.compiler.functions.neighbours import Neighbours, Write
from anabranch.compiler.functions.scope import Names
from anabranch.compiler.functions.source import Scope
from anabranch.compiler.functions.values import NOTHING, UNKNOWN, Obj, Value
from anabranch.compiler.reason import Reason
from anabranch.errors import Site

MOST_STEPS = 40_000
"""Expressions looked at, all calls and repetitions together, before it is too much."""


class TooMuch(Exception):
    """There is more code behind the function than is looked through."""


@dataclass(slots=True)
class Flow:
    """What holds at one point of the code: the variables, and the rows given so far."""

    variables: dict[str, Value]
    least: int = 0
    most: int = 0
    filled: dict[Obj, frozenset[str]] = field(default_factory=dict)
    """Columns of the record that have been put into a dict on every way that leads here."""

    def copy(self) -> Flow:
        """The same, to go on differently."""
        return Flow(dict(self.variables), self.least, self.most, dict(self.filled))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Flow):
            return NotImplemented
        same = self.variables == other.variables and self.filled == other.filled
        return same and (self.least, self.most) == (other.least, other.most)

    __hash__ = None  # type: ignore[assignment]


def join(one: Flow | None, other: Flow | None) -> Flow | None:
    """What holds where two ways meet; None: no way leads here."""
    if one is None or other is None:
        return one or other
    variables = dict(one.variables)
    for name, value in other.variables.items():
        variables[name] = variables.get(name, NOTHING) | value
    filled = {**one.filled, **other.filled}
    for made in one.filled.keys() & other.filled.keys():
        filled[made] = one.filled[made] & other.filled[made]
    return Flow(variables, min(one.least, other.least), max(one.most, other.most), filled)


@dataclass(frozen=True, slots=True)
class Callee:
    """A function that can be looked through: its tree and what it finds around it."""

    identity: Any
    """Equal for the same function made at the same place."""
    name: str
    node: Scope
    names: Names
    file: str
    within: str | None
    home: Mapping[str, Any]
    """Its globals."""
    key: str
    """The digest of the code object that is looked at again when a task starts."""
    cells: Mapping[str, CellType] = field(default_factory=dict)
    parent: Frame | None = None
    around: Mapping[str, Value] = field(default_factory=dict)
    """Variables of comprehensions that it was made in."""
    defaults: tuple[Value, ...] = ()
    named_defaults: Mapping[str, Value] = field(default_factory=dict)
    scopes: tuple[Scope, ...] = ()
    """The functions that it is written in and that have run before the call."""


@dataclass(slots=True)
class Outcome:
    """What a call comes to."""

    returned: set[Value] = field(default_factory=set)
    yielded: set[Value] = field(default_factory=set)
    least: int | None = None
    most: int = 0

    def end(self, flow: Flow) -> None:
        """Note one way in which it ends."""
        self.least = flow.least if self.least is None else min(self.least, flow.least)
        self.most = max(self.most, flow.most)


class Analysis:
    """What is shared by all calls below one function."""

    def __init__(self) -> None:
        self.heap = Heap()
        self.reasons: dict[tuple[str, str, int], Reason] = {}
        self.globals: dict[str, set[str]] = {}
        self.modules: dict[str, set[str]] = {}
        self.attributes: dict[str, set[str]] = {}
        self.neighbours = Neighbours()
        self.data: dict[int, tuple[str, Any]] = {}
        self.callees: dict[Any, Callee | None] = {}
        self.filled: dict[Obj, frozenset[str]] = {}
        """Columns that dicts surely have, each time they are given out as rows."""
        self.steps = 0
        self.running: list[Any] = []
        self.outcomes: dict[Any, Outcome] = {}
        self.contexts: dict[Any, int] = {}
        self.variants: dict[Any, int] = {}
        self.recursive: dict[Any, dict[str, Value]] = {}
        self.results: dict[Any, Value] = {}

    def begin(self) -> None:
        """Look through everything once more, with what the heap holds by now.

        Reasons stay: what was refused may have come back to where it was refused as unknown.
        """
        self.filled.clear()
        self.outcomes.clear()

    def report(self, text: str, file: str, line: int) -> None:
        """Note something that stands in the way of a proof."""
        place = (text, file, line)
        if place not in self.reasons:
            site = Site(file, line, linecache.getline(file, line).strip())
            self.reasons[place] = Reason(text, site)

    def rely(self, key: str, name: str) -> None:
        """Note that a function reads a global."""
        self.globals.setdefault(key, set()).add(name)

    def rely_on_module(self, module: str, name: str) -> None:
        """Note that an attribute of a module was read."""
        self.modules.setdefault(module, set()).add(name)

    def rely_on(self, kind: type, name: str) -> None:
        """Note that an attribute of a class or of its instances was read."""
        self.attributes.setdefault(class_name(kind), set()).add(name)

    def reads(self, what: str, *holders: Any) -> None:
        """Note data that exists before the call, and what it is read from."""
        for each in holders:
            self.data.setdefault(id(each), (what, each))

    def context(self, where: Any) -> int:
        """A number for a function with its arguments."""
        return self.contexts.setdefault(where, len(self.contexts))


class Frame:
    """One call: where it is in the code and what its variables hold."""

    def __init__(self, analysis: Analysis, callee: Callee, context: int) -> None:
        self.analysis, self.callee, self.context = analysis, callee, context
        self.heap = analysis.heap
        self.flow: Flow | None = Flow({})
        self.outcome = Outcome()
        self.line: int | None = None
        """Where to report everything, for a frame that has no code of its own."""
        self.overlays: list[dict[str, Value]] = []
        self.sinks: list[list[Flow | None]] = []
        """One for each `try` around here: what holds where an exception may be raised."""
        self.loops: list[Loop] = []
        self.finals: list[tuple[Sequence[ast.stmt], int]] = []
        """The `finally` parts around here, each with the number of loops around it."""

    def report(self, node: ast.AST, text: str) -> Value:
        """Note what stands in the way, at a line of the user's; the value is unknown."""
        line = self.line or getattr(node, "lineno", None) or self.callee.node.lineno
        self.analysis.report(text, self.callee.file, line)
        return UNKNOWN

    def must_stay(self, node: ast.AST, label: str, write: Write | None) -> bool:
        """Note that something read is written by somebody else; whether it is not.

        What the function itself writes is found where it does.
        """
        root = root_of(self.callee)
        if write is None or write.is_within(root.file, root.node):
            return True
        text = f"reads `{label}`, which {write} changes"
        self.report(node, f"{text}: pass it in the record, or keep it in `state.value`")
        return False

    def step(self) -> None:
        """Count, so that a look through everything ends."""
        self.analysis.steps += 1
        if self.analysis.steps > MOST_STEPS:
            raise TooMuch

    def make(self, node: ast.AST, kind: Any, tag: str = "", made_of: Any = None) -> Obj:
        """The object made here."""
        return self.heap.make((self.context, id(node), tag), kind, made_of)

    def cell(self, name: str) -> Obj:
        """The place of a variable that functions inside share."""
        return self.heap.make((self.context, "cell", name), "cell")

    def bind(self, node: ast.AST, name: str, value: Value) -> None:
        """Let a name hold something, whichever kind of statement binds it."""
        names, spelt = self.callee.names, mangled(name, self.callee.within)
        if not names.declared_global.isdisjoint({name, spelt}):
            text = f"writes the global `{name}`: return it in the row, or keep it in `state.value`"
            self.report(node, text)
        elif names.declared_nonlocal.isdisjoint({name, spelt}):
            self.hold(spelt, value)
        elif (owner := self._owner(name)) is not None:
            owner.heap.add(owner.heap.item(owner.cell(name)), value)
        else:
            text = f"writes `{name}` of the function around it, which outlives the call"
            self.report(node, f"{text}: keep it in `state.value` of .key_by(...).process(...)")

    def _owner(self, name: str) -> Frame | None:
        """The call around this one, of those looked through, that a variable belongs to."""
        parent = self.callee.parent
        while parent is not None and name not in parent.callee.names.local:
            parent = parent.callee.parent
        return parent

    def hold(self, name: str, value: Value) -> None:
        """Let a variable of this function hold something."""
        if self.flow is None:
            return
        if name in self.callee.names.shared:
            self.heap.add(self.heap.item(self.cell(name)), value)
        self.flow.variables[name] = value
        self.may_raise()

    def may_raise(self) -> None:
        """Note that an exception may leave from here with what holds now."""
        if self.flow is not None:
            for sink in self.sinks:
                sink[0] = join(sink[0], self.flow.copy())

    def made_once(self, made: Obj) -> None:
        """Begin to note what a dict is filled with, if there is but one of it in the call."""
        first = len(self.analysis.running) == 1 and not self.analysis.recursive
        if self.flow is not None:
            if first and not self.loops and not self.overlays:
                self.flow.filled[made] = frozenset()
            else:
                self.flow.filled.pop(made, None)

    def give(self, value: Value) -> None:
        """Note with what the dicts given out here are filled."""
        if self.flow is not None and len(self.analysis.running) == 1:
            for atom in value:
                if isinstance(atom, Obj):
                    now = self.flow.filled.get(atom, frozenset())
                    self.analysis.filled[atom] = self.analysis.filled.get(atom, now) & now

    def gave(self, value: Value, least: int = 1, most: int = 1) -> None:
        """Note rows that are given out here."""
        if self.flow is not None:
            self.outcome.yielded.add(value)
            self.give(value)
            self.flow.least = min(MANY, self.flow.least + least)
            self.flow.most = min(MANY, self.flow.most + most)
            self.may_raise()


@dataclass(slots=True)
class Loop:
    """What leads out of a loop's body other than its end."""

    broken: Flow | None = None
    continued: Flow | None = None


def class_name(kind: type) -> str:
    """The name by which a class is known in every process."""
    return f"{kind.__module__}.{kind.__qualname__}"


def mangled(name: str, within: str | None) -> str:
    """A private name as the language spells it inside a class."""
    private = name.startswith("__") and not name.endswith("__")
    stripped = within.lstrip("_") if within else ""
    return f"_{stripped}{name}" if private and stripped else name


def root_of(callee: Callee) -> Callee:
    """The function that exists outside, within which this one is made."""
    while callee.parent is not None:
        callee = callee.parent.callee
    return callee
