"""Overloaded operators: expressions that read like arithmetic and call somebody's code."""

from __future__ import annotations

from tests.compiler.independent.labels import touches, unsafe

SEEN: list = []


class Loud:
    """Every operation on it leaves a mark."""

    def _mark(self, *_):
        SEEN.append(1)
        return len(SEEN)

    __add__ = __radd__ = __index__ = __len__ = __getitem__ = __neg__ = __int__ = _mark
    __round__ = __matmul__ = __abs__ = _mark

    def __bool__(self):
        return bool(self._mark())

    def __eq__(self, other):
        return bool(self._mark())

    def __lt__(self, other):
        return bool(self._mark())

    __gt__ = __lt__

    def __hash__(self):
        return self._mark()

    def __contains__(self, item):
        return bool(self._mark())

    def __iter__(self):
        return iter([self._mark()])

    def __str__(self):
        return str(self._mark())

    __repr__ = __str__

    def __format__(self, spec):
        return str(self._mark())

    def __fspath__(self):
        return str(self._mark())

    def __float__(self):
        return float(self._mark())

    def __enter__(self):
        return self._mark()

    def __exit__(self, *error):
        return None


LOUD = Loud()


def loud_add(r):
    r["x"] = r["x"] + LOUD
    return r


def loud_negative(r):
    r["x"] = -LOUD
    return r


def loud_matmul(r):
    r["x"] = LOUD @ r["x"]
    return r


def loud_equal(r):
    r["ok"] = r["x"] == LOUD
    return r


def loud_less(r):
    r["ok"] = LOUD < r["x"]
    return r


def loud_between(r):
    r["ok"] = 0 < LOUD < 10
    return r


def loud_truth(r):
    if LOUD:
        r["ok"] = True
    return r


def loud_not(r):
    r["ok"] = not LOUD
    return r


def loud_and(r):
    r["ok"] = 1 if (LOUD and r["x"]) else 0
    return r


def loud_contains(r):
    r["ok"] = r["x"] in LOUD
    return r


def loud_iter(r):
    for n in LOUD:
        r["n"] = n
    return r


def loud_unpack(r):
    (r["n"],) = LOUD
    return r


def loud_star(r):
    r["n"] = [*LOUD]
    return r


def loud_comprehension(r):
    r["n"] = [n for n in LOUD]
    return r


def loud_subscript(r):
    r["n"] = LOUD[0]
    return r


def loud_index(r):
    r["n"] = list(range(100_000))[LOUD]
    return r


def loud_slice(r):
    r["tags"] = r["tags"][:LOUD]
    return r


def loud_fstring(r):
    r["name"] = f"{LOUD}"
    return r


def loud_fstring_repr(r):
    r["name"] = f"{LOUD!r}"
    return r


def loud_percent(r):
    r["name"] = "%s" % LOUD
    return r


def loud_format(r):
    r["name"] = "{}".format(LOUD)
    return r


def loud_format_map(r):
    r["name"] = "{name} {a[0]}".format(name=r["name"], a=LOUD)
    return r


def loud_str(r):
    r["name"] = str(LOUD)
    return r


def loud_len(r):
    r["n"] = len(LOUD)
    return r


def loud_float(r):
    r["n"] = float(LOUD)
    return r


def loud_round(r):
    r["n"] = round(LOUD)
    return r


def loud_sum(r):
    r["n"] = sum([1, LOUD])
    return r


def loud_max(r):
    r["n"] = max(5, LOUD) is LOUD
    return r


def loud_sorted(r):
    r["n"] = len(sorted([LOUD, LOUD]))
    return r


def loud_dict_key(r):
    r["n"] = {LOUD: 1}.get(r["x"])
    return r


def loud_set_member(r):
    r["n"] = len({LOUD, r["x"]})
    return r


def loud_match(r):
    match r["x"]:
        case Holder.loud:
            r["ok"] = True
    return r


class Holder:
    loud = LOUD


def loud_with(r):
    with LOUD as r["n"]:
        return r


def loud_raise_message(r):
    try:
        raise ValueError(LOUD)
    except ValueError as error:
        r["name"] = str(error)
    return r


def loud_list_index(r):
    r["n"] = [LOUD, 1].index(r["x"])
    return r


for each in [each for name, each in list(globals().items()) if name.startswith("loud_")]:
    unsafe(each, touches(lambda: len(SEEN)))
