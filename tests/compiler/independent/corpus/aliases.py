"""Captured containers, reached by another name or from inside another value."""

from __future__ import annotations

import copy
import types
from collections import ChainMap, Counter, defaultdict, deque, namedtuple

from tests.compiler.independent.labels import marks, twice, unsafe

SEEN: list = []
ROWS: list = [[], []]
TABLE: dict = {"Ann": {"n": 0}, "Bob": {"n": 0}}
SHARED: list = []
TOTALS: dict = {}
RECENT: deque = deque(maxlen=3)
GROUPS: dict = defaultdict(list)
VIEW = types.MappingProxyType(TABLE)
Config = namedtuple("Config", "limit seen")
CONFIG = Config(3, [])


def augmented_alias(r):
    x = SEEN
    x += [r["id"]]
    return r


unsafe(augmented_alias, marks(SEEN))


def alias_in_a_tuple(r):
    pair = (r, SEEN)
    pair[1].append(r["id"])
    return pair[0]


unsafe(alias_in_a_tuple, marks(SEEN))


def alias_by_star(r):
    first, *rest = [r, SEEN]
    rest[0].append(first["id"])
    return first


unsafe(alias_by_star, marks(SEEN))


def alias_by_walrus(r):
    if (x := SEEN) is not None:
        x.append(r["id"])
    return r


unsafe(alias_by_walrus, marks(SEEN))


def alias_by_loop(r):
    for x in (SEEN,):
        x.append(r["id"])
    return r


unsafe(alias_by_loop, marks(SEEN))


def alias_by_match(r):
    match (r, SEEN):
        case ({"id": key}, x):
            x.append(key)
    return r


unsafe(alias_by_match, marks(SEEN))


def alias_by_condition(r):
    target = [] if r["x"] > 100 else SEEN
    target.append(r["id"])
    return r


unsafe(alias_by_condition, marks(SEEN))


def alias_by_or(r):
    target = r.get("history") or SHARED
    target.append(r["id"])
    r["n"] = len(target)
    return r


unsafe(alias_by_or, twice())


def alias_by_get_default(r):
    r.get("history", SHARED).append(r["id"])
    return r


unsafe(alias_by_get_default, marks(SHARED))


def alias_by_setdefault_on_record(r):
    r.setdefault("history", SHARED).append(r["id"])
    return r


unsafe(alias_by_setdefault_on_record, twice())


def alias_put_in_the_record(r):
    r["history"] = SHARED
    r["history"].append(r["id"])
    return r


unsafe(alias_put_in_the_record, twice())


def alias_in_a_rebuilt_record(r):
    out = {**r, "history": SHARED}
    out["history"] += [r["id"]]
    return out


unsafe(alias_in_a_rebuilt_record, twice())


def alias_in_a_comprehension(r):
    out = {k: SHARED for k in ("a", "b")}
    out["a"].append(r["id"])
    return {"n": len(out["b"])}


unsafe(alias_in_a_comprehension, twice())


def default_argument(r, seen=[]):
    seen.append(r["id"])
    return {"n": len(seen)}


unsafe(default_argument, twice())


def keyword_default(r, *, seen={}):
    n = seen[r["id"]] = seen.get(r["id"], 0) + 1
    return {"n": n}


unsafe(keyword_default, twice())


def default_alias(r, sink=SEEN.append):
    sink(r["id"])
    return r


unsafe(default_alias, marks(SEEN))


def row_of_a_table(r):
    row = TABLE[r["name"]]
    row["n"] += 1
    return {**r, "n": row["n"]}


unsafe(row_of_a_table, twice())


def row_of_a_copied_table(r):
    table = TABLE.copy()
    table["Ann"]["n"] += 1
    return {"n": table["Ann"]["n"]}


unsafe(row_of_a_copied_table, twice())


def row_of_a_rebuilt_table(r):
    table = {**TABLE, "Eve": {"n": 0}}
    table["Ann"]["n"] += 1
    return {"n": table["Ann"]["n"]}


unsafe(row_of_a_rebuilt_table, twice())


def row_of_a_shallow_copy(r):
    rows = copy.copy(ROWS)
    rows[0].append(r["id"])
    return {"n": len(rows[0])}


unsafe(row_of_a_shallow_copy, twice())


def row_of_a_slice(r):
    ROWS[:][0].append(r["id"])
    return r


unsafe(row_of_a_slice, marks(ROWS))


def row_by_star(r):
    [*ROWS][0].append(r["id"])
    return r


unsafe(row_by_star, marks(ROWS))


def row_by_max(r):
    max(ROWS, key=len).append(r["id"])
    return r


unsafe(row_by_max, marks(ROWS))


def row_by_sorted(r):
    sorted(ROWS, key=len)[-1].append(r["id"])
    return r


unsafe(row_by_sorted, marks(ROWS))


def row_by_next_iter(r):
    next(iter(ROWS)).append(r["id"])
    return r


unsafe(row_by_next_iter, marks(ROWS))


def row_by_enumerate(r):
    for i, row in enumerate(ROWS):
        row.insert(i, r["id"])
    return r


unsafe(row_by_enumerate, marks(ROWS))


def row_by_zip(r):
    for row, tag in zip(ROWS, r["tags"], strict=True):
        row.append(tag)
    return r


unsafe(row_by_zip, marks(ROWS))


def row_by_values(r):
    for row in TABLE.values():
        row.update(last=r["id"])
    return {"Ann": TABLE["Ann"].get("last")}


unsafe(row_by_values, marks(TABLE, record={"id": 8}))


def row_by_unpacking(r):
    (_, row), *_ = TABLE.items()
    row["n"] += 1
    return r


unsafe(row_by_unpacking, marks(TABLE))


def row_of_a_proxy(r):
    VIEW["Ann"]["n"] += 1
    return r


unsafe(row_of_a_proxy, marks(TABLE))


def row_of_a_namedtuple(r):
    CONFIG.seen.append(r["id"])
    return r


unsafe(row_of_a_namedtuple, marks(CONFIG))


def field_of_an_unpacked_namedtuple(r):
    limit, seen = CONFIG
    seen.append(limit)
    return r


unsafe(field_of_an_unpacked_namedtuple, marks(CONFIG))


def chain_map_writes_through(r):
    ChainMap(TOTALS, {"n": 0})["n"] = r["id"] + len(TOTALS)
    TOTALS[len(TOTALS)] = 0
    return r


unsafe(chain_map_writes_through, marks(TOTALS))


def chain_map_alone(r):
    seen = ChainMap(TOTALS)
    seen[r["at"]] = seen.get(r["at"], 0) + 1
    return {"n": seen[r["at"]]}


unsafe(chain_map_alone, twice())


def bounded_deque(r):
    RECENT.appendleft(r["x"])
    return {"n": len(RECENT)}


unsafe(bounded_deque, twice())


def defaultdict_read(r):
    # Reading a missing key writes it.
    return {"known": len(GROUPS), "rows": len(GROUPS[r["name"]])}


unsafe(defaultdict_read, twice())


def slice_assigned(r):
    SEEN[len(SEEN) :] = [r["id"]]
    return r


unsafe(slice_assigned, marks(SEEN))


def starred_target(r):
    TOTALS["first"], *TOTALS["rest"] = (len(TOTALS.get("rest", ())), *TOTALS.get("rest", ()), 1)
    return r


unsafe(starred_target, marks(TOTALS))


def loop_target_is_an_item(r):
    for TOTALS["last"] in (*r["tags"], TOTALS.get("runs", 0) + 1):
        pass
    TOTALS["runs"] = TOTALS["last"]
    return r


unsafe(loop_target_is_an_item, marks(TOTALS))


def only_a_loop_target(r):
    for TOTALS["only"] in range(TOTALS.get("only", 0) + 2):
        pass
    return {"only": TOTALS["only"]}


unsafe(only_a_loop_target, twice())


def counter_update(r, counts=Counter()):
    counts.update(r["tags"])
    return {"most": counts.most_common(1)[0][1]}


unsafe(counter_update, twice())


def make_counter():
    n = 0

    def count(r):
        nonlocal n
        n += 1
        return {**r, "n": n}

    return count


unsafe(make_counter(), twice(), name="nonlocal_counter")


def make_nested_counter():
    n = 0

    def count(r):
        def step():
            nonlocal n
            n += 1
            return n

        return {**r, "n": step()}

    return count


unsafe(make_nested_counter(), twice(), name="nonlocal_in_a_helper")


def make_cell():
    box = [0]

    def bump(by):
        box[0] += by
        return box[0]

    return lambda r: {**r, "n": bump(r["x"])}


unsafe(make_cell(), twice(), name="closure_over_a_helper_over_a_list")


def union_in_place(r, known=set()):
    alias = known
    alias |= {r["at"] + len(known)}
    return {"n": len(known)}


unsafe(union_in_place, twice())


def dict_or_in_place(r):
    alias = TOTALS
    alias |= {"seen": alias.get("seen", 0) + 1}
    return r


unsafe(dict_or_in_place, marks(TOTALS))
