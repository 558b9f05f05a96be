"""Functions written at random: dicts and lists copied, shared, filled and changed in every order."""

from __future__ import annotations

import random

OUTSIDE = """
SEEN, TABLE, NAMES = [1], {"k": [2], "a": 3}, ("a", "b")

def changes(row, value):
    row["a"] = value
    return row

def collects(items, value):
    items.append(value)
    return items

def builds(row):
    return {**row, "b": 0}

def rows(row):
    yield row
    yield {"a": row.get("a")}

class Box:
    def __init__(self, held):
        self.held = held
"""

DICTS = (
    "r", "out", "d", "{**%D}", '{**%D, "a": %V}', '{"b": %V, **%D}', '(%D | {"b": %V})', "dict(%D)",
    "dict(%D, a=%V)", "%D.copy()", '{"a": %V, "b": %V}', "{}", "{k: v for k, v in %D.items()}",
    '{k: v for k, v in %D.items() if k != "a"}', '{k: r[k] for k in ("a", "b")}', "builds(%D)",
    "changes(%D, %V)", "(%D if r['c'] else %D)", "Box(%D).held", "[%D][0]", "TABLE", "next(rows(%D))",
)  # fmt: skip
VALUES = (
    'r["a"]', 'r["b"]', 'r.get("a")', 'r.get("b", 0)', 'out.get("a")', "d.get('b')", "x", "1", "l",
    "[x]", "SEEN", 'TABLE["k"]', 'TABLE.get("a")', 'r["t"]', "len(l)", 'r["c"]', "str(x)", "(x, 1)",
    'r.pop("a", None)', "list(SEEN)",
)  # fmt: skip
LISTS = (
    "l", 'r["t"]', "[%V]", "[%V, %V]", "(l + [%V])", "list(%L)", "%L[:]", "SEEN", "[*%L]", "collects(%L, %V)",
    "list(out.values())", "[y for y in %L]", "(%L or %L)", "Box(%L).held", 'TABLE["k"]',
)  # fmt: skip
STATEMENTS = (
    "x = %V", "l = %L", "out = %D", "d = %D", "r = %D", '%D["a"] = %V', '%D["b"] = %V', '%D[x] = %V',
    'del %D["a"]', '%D.pop("a", None)', "%D.update(a=%V)", "%D.update(%D)", '%D.setdefault("a", %V)',
    "%L.append(%V)", "l += %L", "x, l = l, [x]", "out |= %D", "%D.clear()", "changes(%D, %V)",
    "collects(%L, %V)", "l.extend(%L)", "l[0:1] = %L", "box = Box(%L); box.held.append(%V)",
    "box = Box([]); box.held = %L; l = box.held", "l *= 2", "out, d = d, out",
)  # fmt: skip
BLOCKS = (
    ("if r.get('c'):", "else:"),
    ("for x in list(%L)[:3]:", None),
    ("try:", "except Exception:"),
    ("for _ in (1, 2):", None),
    ("while n < 2:", None),
    ("def inner(row=d):", None),
)


def written_at_random(seed: int) -> str:
    """The text of a function `f(r)`."""
    draw = random.Random(seed)
    generator = draw.random() < 0.5
    lines = ["def f(r):", "    x, l, out, d, n = 0, [], {}, {}, 0"]
    lines += _block(draw, 1, draw.randrange(2, 7), generator=generator)
    lines.append("    " + _last(draw, generator=generator))
    return "\n".join(lines) + "\n"


def _last(draw: random.Random, *, generator: bool) -> str:
    if generator:
        return _filled(draw, draw.choice(("yield %D", "yield from [%D]", "pass")), 3)
    return _filled(draw, draw.choice(("return %D", "return [%D]", "return None")), 3)


def _block(draw: random.Random, depth: int, count: int, *, generator: bool) -> list[str]:
    found: list[str] = []
    pad = "    " * depth
    for _ in range(count):
        kind = draw.random()
        if kind < 0.2 and depth < 3:
            head, other = draw.choice(BLOCKS)
            inside = generator and "def" not in head
            found.append(pad + _filled(draw, head, 2))
            if "while" in head:
                found.append(pad + "    n += 1")
            found += _block(draw, depth + 1, draw.randrange(1, 4), generator=inside)
            if other is not None:
                found.append(pad + other)
                found += _block(draw, depth + 1, draw.randrange(1, 3), generator=inside)
            if "def" in head:
                found += [pad + "    return row", pad + "out = inner()"]
        elif kind < 0.35 and generator:
            found.append(pad + _filled(draw, "yield %D", 3))
        else:
            found.append(pad + _filled(draw, draw.choice(STATEMENTS), 3))
    return found


def _filled(draw: random.Random, form: str, depth: int) -> str:
    """Put parts in the place of their names, simple ones once it is deep."""
    for mark, parts, simple in (("%D", DICTS, 3), ("%L", LISTS, 2), ("%V", VALUES, 8)):
        while mark in form:
            choice = draw.choice(parts if depth > 0 else parts[:simple])
            form = form.replace(mark, _filled(draw, choice, depth - 1), 1)
    return form
