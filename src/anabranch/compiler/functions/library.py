"""Library functions that pass on what they are given, or call it."""

from __future__ import annotations

import ast

from anabranch.compiler.functions import methods, outside
from anabranch.compiler.functions.calls import Arguments, call
from anabranch.compiler.functions.containers import (
    changed,
    iterated,
    looked_up,
    new,
    refuse,
    textual,
)
from anabranch.compiler.functions.dicts import is_mapping, made_dict, spread_values
from anabranch.compiler.functions.frame import Frame
from anabranch.compiler.functions.heap import EVERY, MANY, Kind, Layer
from anabranch.compiler.functions.iteration import (
    Special,
    accumulated,
    called_on_elements,
    extreme,
    flattened,
    grouped,
    in_order,
    matches,
    next_of,
    numbers,
    pass_on,
    passed_through,
    ranked,
    reduced,
    refused,
    repeated,
    summed,
    truth,
    unordered_elements,
)
from anabranch.compiler.functions.operators import keyable
from anabranch.compiler.functions.values import (
    NONE,
    NOTHING,
    PLAIN,
    SCALAR,
    UNKNOWN,
    Const,
    Field,
    Known,
    Obj,
    Out,
    Part,
    Plain,
    TypeOf,
    Value,
    constant,
)


def _container(kind: Kind) -> Special:
    def made(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
        elements = iterated(frame, node, given.every())
        return new(frame, node, kind, elements, tag=name)

    return made


def _set(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    elements = unordered_elements(frame, node, given.every())
    if refused(frame, node, name, elements, ordered=False):
        return UNKNOWN
    return new(frame, node, "set", elements, tag=name)


def _dict(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    layers: list[Layer] = []
    extra: tuple[Value, Value] = (NOTHING, NOTHING)
    for each in given.positional:
        if all(is_mapping(frame, atom) or isinstance(atom, Plain | Field | Part) for atom in each):
            layers.append((None, each))
        else:
            pairs = iterated(frame, node, each)
            inside = iterated(frame, node, pairs)
            if not keyable(frame, node, _not_by_identity(frame, inside)):
                return UNKNOWN
            extra = (extra[0] | inside, extra[1] | inside | SCALAR)
    if given.more is not None:
        extra = (extra[0] | UNKNOWN, extra[1] | UNKNOWN)
        frame.report(node, f"`{name}` is made of a number of arguments that is not known")
    layers += given.named.items()
    if given.more_named is not None:
        layers.append((EVERY, given.more_named))
        extra = (extra[0] | given.more_named, extra[1] | SCALAR)
    return made_dict(frame, node, tuple(layers), extra)


def _not_by_identity(frame: Frame, value: Value) -> Value:
    """What has a hash of its own: functions and objects made in a call have none (`classes.py`)."""
    return frozenset(
        atom
        for atom in value
        if not (isinstance(atom, Obj) and frame.heap.item(atom).kind in ("instance", "closure"))
        and not (isinstance(atom, Known) and isinstance(atom.real, outside.CALLABLES))
    )


def _defaultdict(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    factory = given.first(0) or NONE
    rest = Arguments(given.positional[1:], given.named, given.more, given.more_named)
    made = _dict(frame, node, name, rest)
    default = call(frame, node, factory - NONE, Arguments())
    for atom in made:
        if isinstance(atom, Obj):
            frame.heap.add(frame.heap.item(atom), default, SCALAR)
            frame.heap.set_attribute(frame.heap.item(atom), EVERY, default)
            frame.heap.write(frame.heap.item(atom), {EVERY})
    return made


def _counter(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    keys = iterated(frame, node, given.every())
    if refused(frame, node, name, keys, ordered=True):
        return UNKNOWN
    mappings = frozenset(a for a in given.every() if is_mapping(frame, a))
    values = spread_values(frame, node, mappings) | NOTHING.union(*given.named.values())
    made = new(frame, node, "dict", SCALAR | values, keys | SCALAR, tag=name)
    for atom in made:
        if isinstance(atom, Obj):
            frame.heap.write(frame.heap.item(atom), {EVERY})
    return made


def _scalar(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    return UNKNOWN if refused(frame, node, name, given.every(), ordered=True) else SCALAR


def _plain(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    return UNKNOWN if refused(frame, node, name, given.every(), ordered=True) else PLAIN


def _isinstance(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    kinds = given.first(1) or NOTHING
    several = frozenset(
        a for a in kinds if isinstance(a, Obj) or isinstance(getattr(a, "real", None), tuple)
    )
    kinds = (kinds - several) | iterated(frame, node, several)
    for atom in kinds:
        real = getattr(atom, "real", None)
        if not isinstance(atom, TypeOf) and not (isinstance(real, type) and _plain_meta(real)):
            return frame.report(node, f"`{name}` asks a class that is not understood")
    for atom in given.first(0) or NOTHING:
        kind = type(atom.real) if isinstance(atom, Out) else None
        kind = frame.heap.item(atom).made_of if isinstance(atom, Obj) else kind
        if isinstance(kind, type) and outside.defines(kind, "__class__", "__getattribute__"):
            return frame.report(node, f"`{name}` asks an object that hides its class")
    return SCALAR


def _plain_meta(kind: type) -> bool:
    found = "__instancecheck__" in vars(type(kind)) and type(kind) is not type
    return not found or kind.__module__ in ("collections.abc", "numbers", "typing")


def _type(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    if len(given.positional) != 1 or given.named or given.more is not None:
        return frame.report(node, "makes a class")
    found: Value = NOTHING
    for atom in given.positional[0]:
        item = frame.heap.item(atom) if isinstance(atom, Obj) else None
        if item is not None and item.kind == "instance":
            found |= frozenset({Known(item.made_of)})
        elif isinstance(atom, Out) or (isinstance(atom, Known) and not isinstance(atom.real, type)):
            found |= frozenset({Known(type(atom.real))})
        else:
            found |= frozenset({TypeOf()})
    del name
    return found


def _getattr(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    from anabranch.compiler.functions.attributes import read

    wanted = constant(given.first(1) or NOTHING)
    if wanted is None or not isinstance(wanted.value, str):
        return frame.report(node, f"`{name}` reads an attribute whose name is not written here")
    found = given.first(2) or NOTHING
    for atom in given.first(0) or NOTHING:
        found |= read(frame, node, atom, wanted.value)
    return found


def _copy(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    found: Value = NOTHING
    if name == "copy.deepcopy" and refused(frame, node, name, given.every(), ordered=False):
        return UNKNOWN  # it asks whatever is inside, at any depth, how it is copied
    for atom in given.first(0) or NOTHING:
        if isinstance(atom, Const | Plain):
            found |= frozenset({atom})
        elif is_mapping(frame, atom):
            found |= made_dict(frame, node, ((None, frozenset({atom})),))
        elif isinstance(atom, Field | Part):
            # A deep copy is equal and nobody else's; a shallow one shares what it holds.
            found |= frozenset({atom}) if name == "copy.copy" else PLAIN
        elif refused(frame, node, name, frozenset({atom}), ordered=False):
            return UNKNOWN
        else:
            found |= _copied(frame, node, atom)
    return found


def _copied(frame: Frame, node: ast.AST, atom: object) -> Value:
    if isinstance(atom, Obj):
        item = frame.heap.item(atom)
        if item.kind in ("list", "tuple", "set", "deque"):
            return new(frame, node, item.kind, frame.heap.elements(atom), tag="copy")
    if isinstance(atom, Known):
        return frozenset({atom})
    if isinstance(atom, Out):
        kind: Kind = "set" if isinstance(atom.real, set | frozenset) else "list"
        look = unordered_elements if kind == "set" else iterated
        return new(frame, node, kind, look(frame, node, frozenset({atom})), tag="copy")
    return PLAIN


def _heap(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`heapq` and `bisect.insort`: they change their first argument, a list."""
    target, rest = given.first(0) or NOTHING, NOTHING.union(*given.positional[1:])
    inside: Value = NOTHING
    for atom in target:
        if isinstance(atom, Known | Out):
            return changed(frame, node, atom, f"changes (`{name}`)")
        inside |= frame.heap.elements(atom)
        if isinstance(atom, Obj):
            frame.heap.add(frame.heap.item(atom), rest)
            frame.heap.count(frame.heap.item(atom), 0, MANY)
        else:
            frame.heap.pour(rest)
        if isinstance(atom, Field | Part):
            frame.heap.touch(atom.column)
    if refused(frame, node, name, inside | rest, ordered=True):
        return UNKNOWN
    return inside | rest | NONE


def _substitute(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    replacement = given.first(1, "repl") or NOTHING
    functions = frozenset(a for a in replacement if isinstance(a, Known | Obj))
    others = given.every() - functions
    if functions and refused(
        frame, node, name, call(frame, node, functions, Arguments([SCALAR])), ordered=True
    ):
        return UNKNOWN
    if refused(frame, node, name, others, ordered=True):
        return UNKNOWN
    return SCALAR if not name.endswith("subn") else PLAIN


def _json(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    hooks = given.named.keys() - {"indent", "separators", "sort_keys", "ensure_ascii", "allow_nan"}
    if hooks or given.more_named is not None:
        return frame.report(node, f"`{name}` is given {', '.join(sorted(hooks))}")
    return (_scalar if name.endswith("dumps") else _plain)(frame, node, name, given)


def _format(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    spec = given.first(1)
    text = constant(spec) if spec is not None else None
    if spec is not None and (text is None or not methods.safe_spec(str(text.value))):
        return frame.report(node, "formats in a way that may depend on the machine's locale")
    why = textual(frame, given.every())
    return refuse(frame, node, f"`{name}`", why) if why is not None else SCALAR


def _operator(op: ast.operator) -> Special:
    def made(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
        from anabranch.compiler.functions.operators import combined

        if len(given.positional) != 2:
            return frame.report(node, f"`{name}` is given arguments that are not understood")
        return combined(frame, node, given.positional[0], given.positional[1], op)

    return made


def _itemgetter(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    made = frame.make(node, "closure", name, "itemgetter")
    frame.heap.set_attribute(frame.heap.item(made), "keys", given.every())
    return frozenset({made})


def _getitem(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    del name
    return looked_up(frame, node, given.first(0) or NOTHING, given.first(1) or NOTHING, part=False)


def _cast(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    del frame, node, name
    return given.first(1) or NOTHING


def _as_plain(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`asdict`: deep copies of the fields of a dataclass made here."""
    for atom in given.first(0) or NOTHING:
        item = frame.heap.item(atom) if isinstance(atom, Obj) else None
        if item is None or item.kind != "instance" or len(given.positional) != 1 or given.named:
            return frame.report(node, f"`{name}` of something that is not a dataclass made here")
        if refused(frame, node, name, NOTHING.union(*item.attributes.values()), ordered=True):
            return UNKNOWN
    return PLAIN


SPECIAL: dict[str, Special] = {
    "builtins.all": truth,
    "builtins.any": truth,
    "builtins.dict": _dict,
    "builtins.enumerate": pass_on("iterator"),
    "builtins.filter": called_on_elements,
    "builtins.format": _format,
    "builtins.frozenset": _set,
    "builtins.getattr": _getattr,
    "builtins.isinstance": _isinstance,
    "builtins.iter": passed_through,
    "builtins.list": _container("list"),
    "builtins.map": called_on_elements,
    "builtins.max": extreme,
    "builtins.min": extreme,
    "builtins.next": next_of,
    "builtins.range": numbers,
    "builtins.reversed": passed_through,
    "builtins.set": _set,
    "builtins.slice": _scalar,
    "builtins.sorted": in_order,
    "builtins.sum": summed,
    "builtins.tuple": _container("tuple"),
    "builtins.type": _type,
    "builtins.zip": pass_on("iterator"),
    "collections.Counter": _counter,
    "collections.OrderedDict": _dict,
    "collections.defaultdict": _defaultdict,
    "collections.deque": lambda frame, node, name, given: new(
        frame, node, "deque", iterated(frame, node, given.first(0) or NOTHING), tag=name
    ),
    "copy.copy": _copy,
    "copy.deepcopy": _copy,
    "dataclasses.asdict": _as_plain,
    "dataclasses.astuple": _as_plain,
    "functools.reduce": reduced,
    "heapq.heapify": _heap,
    "heapq.heappop": _heap,
    "heapq.heappush": _heap,
    "heapq.heappushpop": _heap,
    "heapq.heapreplace": _heap,
    "heapq.merge": passed_through,
    "heapq.nlargest": ranked,
    "heapq.nsmallest": ranked,
    "bisect.insort": _heap,
    "bisect.insort_left": _heap,
    "bisect.insort_right": _heap,
    "itertools.accumulate": accumulated,
    "itertools.batched": pass_on("iterator"),
    "itertools.chain": flattened,
    "itertools.combinations": pass_on("iterator"),
    "itertools.combinations_with_replacement": pass_on("iterator"),
    "itertools.compress": flattened,
    "itertools.count": numbers,
    "itertools.cycle": passed_through,
    "itertools.dropwhile": called_on_elements,
    "itertools.filterfalse": called_on_elements,
    "itertools.groupby": grouped,
    "itertools.islice": flattened,
    "itertools.pairwise": pass_on("iterator"),
    "itertools.permutations": pass_on("iterator"),
    "itertools.product": pass_on("iterator"),
    "itertools.repeat": repeated,
    "itertools.starmap": called_on_elements,
    "itertools.takewhile": called_on_elements,
    "itertools.zip_longest": pass_on("iterator"),
    "json.dumps": _json,
    "json.loads": _json,
    "operator.add": _operator(ast.Add()),
    "operator.and_": _operator(ast.BitAnd()),
    "operator.concat": _operator(ast.Add()),
    "operator.mod": _operator(ast.Mod()),
    "operator.mul": _operator(ast.Mult()),
    "operator.or_": _operator(ast.BitOr()),
    "operator.sub": _operator(ast.Sub()),
    "operator.xor": _operator(ast.BitXor()),
    "operator.getitem": _getitem,
    "operator.itemgetter": _itemgetter,
    "re.finditer": matches,
    "re.sub": _substitute,
    "re.subn": _substitute,
    "statistics.median_high": _scalar,
    "statistics.median_low": _scalar,
    "statistics.mode": _scalar,
    "typing.cast": _cast,
}
