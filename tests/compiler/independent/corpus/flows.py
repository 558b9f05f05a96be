"""Where a captured container flows within one call: rebinding, loops, boxes, closures."""

from __future__ import annotations

import functools
import itertools
import operator

from tests.compiler.independent.labels import marks, unsafe

SEEN: list = []
ROWS: list = [[], []]
TABLE: dict = {"Ann": {"n": 0}}


def flow_by_a_chain(r):
    x = y = SEEN
    y = x
    y.append(r["id"])
    return r


def flow_by_a_swap(r):
    a, b = SEEN, []
    b, a = a, b
    b.append(r["id"])
    return r


def flow_by_the_second_round(r):
    target = []
    for tag in r["tags"]:
        target.append(tag)
        target = SEEN
    return r


def flow_by_a_long_chain_of_rounds(r):
    a, b, c, d = [], [], [], SEEN
    for _ in range(4):
        a.append(1)
        a, b, c = b, c, d
    return r


def flow_by_while(r):
    target, n = [], 0
    while n < 2:
        target.append(n)
        target, n = SEEN, n + 1
    return r


def flow_by_except(r):
    target = []
    try:
        target = SEEN
        r["missing"]
    except KeyError:
        target.append(r["id"])
    return r


def flow_by_nonlocal(r):
    target = []

    def point():
        nonlocal target
        target = SEEN

    point()
    target.append(r["id"])
    return r


def flow_by_late_binding(r):
    target = []
    add = lambda x: target.append(x)
    target = SEEN
    add(r["id"])
    return r


def flow_by_a_nested_dict(r):
    box = {"a": {"b": SEEN}}
    box["a"]["b"].append(r["id"])
    return r


def flow_by_an_item(r):
    box = [[]]
    box[0] = SEEN
    for each in box:
        each.append(r["id"])
    return r


def flow_by_append(r):
    box = []
    box.append(SEEN)
    box[0].append(r["id"])
    return r


def flow_by_extend(r):
    box = []
    box.extend([SEEN])
    box.pop().append(r["id"])
    return r


def flow_by_in_place_addition(r):
    box = []
    box += [SEEN]
    box[-1].append(r["id"])
    return r


def flow_by_update(r):
    box = {}
    box.update(a=SEEN)
    box["a"].append(r["id"])
    return r


def flow_by_setdefault(r):
    box = {}
    box.setdefault("a", SEEN)
    box["a"].append(r["id"])
    return r


def fill(box):
    box["a"] = SEEN


def flow_by_a_helper_that_fills(r):
    box = {"a": []}
    fill(box)
    box["a"].append(r["id"])
    return r


def flow_by_a_record_filled(r):
    fill(r)
    r["a"].append(r["id"])
    return {"id": r["id"]}


def flow_by_dict_call(r):
    dict(a=SEEN)["a"].append(r["id"])
    return r


def flow_by_fromkeys(r):
    dict.fromkeys(r["tags"], SEEN)["a"].append(r["id"])
    return r


def flow_by_repetition(r):
    ([SEEN] * 2)[1].append(r["id"])
    return r


def flow_by_concatenation(r):
    (ROWS + [])[0].append(r["id"])
    return r


def flow_by_a_list_comprehension(r):
    [row for row in ROWS][0].append(r["id"])
    return r


def flow_by_a_dict_comprehension(r):
    copy = {k: v for k, v in TABLE.items()}
    copy["Ann"]["n"] += 1
    return r


def flow_by_tuple(r):
    tuple(ROWS)[0].append(r["id"])
    return r


def flow_by_list_of_values(r):
    [*TABLE.values()][0]["n"] += 1
    return r


def flow_by_map(r):
    next(map(lambda row: row, ROWS)).append(r["id"])
    return r


def flow_by_filter(r):
    list(filter(lambda row: row is not None, ROWS))[0].append(r["id"])
    return r


def flow_by_chain(r):
    next(itertools.chain(ROWS)).append(r["id"])
    return r


def flow_by_reduce(r):
    functools.reduce(lambda left, right: right, ROWS).append(r["id"])
    return r


def flow_by_itemgetter(r):
    operator.itemgetter(0)(ROWS).append(r["id"])
    return r


def flow_by_dunder_getitem(r):
    ROWS.__getitem__(0).append(r["id"])
    return r


def flow_by_a_lambda_called(r):
    (lambda: SEEN)().append(r["id"])
    return r


def flow_by_a_lambda_default(r):
    (lambda x=SEEN: x)().append(r["id"])
    return r


def flow_by_star_parameters(r):
    def last(*rows):
        return rows[-1]

    last(1, SEEN).append(r["id"])
    return r


def flow_by_keyword_parameters(r):
    def named(**rows):
        return rows["x"]

    named(x=SEEN).append(r["id"])
    return r


def flow_by_a_local_generator(r):
    def each():
        yield SEEN

    for target in each():
        target.append(r["id"])
    return r


def flow_by_locals(r):
    target = SEEN
    locals()["target"].append(r["id"])
    return r


def flow_by_min_with_a_default(r):
    min([], default=SEEN).append(r["id"])
    return r


def flow_by_next_with_a_default(r):
    next(iter(()), SEEN).append(r["id"])
    return r


def flow_by_pop_with_a_default(r):
    r.pop("missing", SEEN).append(r["id"])
    return r


def flow_by_match_of_a_sequence(r):
    match ROWS:
        case [first, *_]:
            first.append(r["id"])
    return r


def flow_by_match_of_a_mapping(r):
    match TABLE:
        case {"Ann": found}:
            found["n"] += 1
    return r


def flow_by_match_as(r):
    match SEEN:
        case list() as found:
            found.append(r["id"])
    return r


class Box:
    def __init__(self, items=SEEN):
        self.items = items

    def add(self, item):
        self.items.append(item)
        return self


def flow_by_a_constructor(r):
    Box(SEEN).items.append(r["id"])
    return r


def flow_by_a_constructors_default(r):
    Box().add(r["id"])
    return r


class Given:
    def __new__(cls):
        return SEEN


def flow_by_new(r):
    Given().append(r["id"])
    return r


def flow_by_a_local_class(r):
    class Local:
        rows = SEEN

    Local.rows.append(r["id"])
    return r


def flow_by_a_local_instance(r):
    class Local:
        pass

    local = Local()
    local.rows = SEEN
    local.rows.append(r["id"])
    return r


def flow_by_sorted_pairs(r):
    pairs = sorted([(0, SEEN), (1, [])], key=operator.itemgetter(0))
    pairs[0][1].append(r["id"])
    return r


def flow_by_dict_or(r):
    ({"a": []} | {"a": SEEN})["a"].append(r["id"])
    return r


def flow_by_conditional_callee(r):
    (SEEN.append if r["x"] else len)(r["tags"])
    return r


def flow_by_a_list_of_callees(r):
    [len, SEEN.append][1](r["id"])
    return r


def flow_by_a_callee_argument(r):
    (lambda call: call(r["id"]))(SEEN.append)
    return r


def flow_by_a_partial_here(r):
    functools.partial(SEEN.append, r["id"])()
    return r


def flow_by_the_type(r):
    type(SEEN).append(SEEN, r["id"])
    return r


def flow_by_dunder_call(r):
    SEEN.append.__call__(r["id"])
    return r


def flow_by_dunder_iadd(r):
    SEEN.__iadd__([r["id"]])
    return r


def flow_by_dunder_getattribute(r):
    SEEN.__getattribute__("append")(r["id"])
    return r


def flow_by_the_types_dict(r):
    vars(list)["append"](SEEN, r["id"])
    return r


def flow_by_self_of_a_method(r):
    SEEN.append.__self__.append(r["id"])
    return r


def flow_by_a_closure_cell(r):
    keep.__closure__[0].cell_contents.append(r["id"])
    return r


def flow_by_globals_of_a_function(r):
    fill.__globals__["SEEN"].append(r["id"])
    return r


def flow_by_a_default_of_a_function(r):
    Box.__init__.__defaults__[0].append(r["id"])
    return r


def _keep(target):
    return lambda: target


keep = _keep(SEEN)


def flow_by_a_recursive_helper(r):
    def walk(target, depth):
        if depth == 0:
            target.append(r["id"])
        else:
            walk(SEEN, depth - 1)

    walk([], 1)
    return r


def flow_by_deletion(r):
    SEEN.extend("ab")
    del SEEN[-1]
    return r


for each in [each for name, each in list(globals().items()) if name.startswith("flow_")]:
    unsafe(each, marks(SEEN, ROWS, TABLE))
