"""How many rows leave: paths that are easily miscounted."""

from __future__ import annotations

import contextlib

from tests.compiler.independent.labels import RECORD, gives

TAGLESS = {**RECORD, "tags": []}


def finally_overrides_the_return(r):
    try:
        return r
    finally:
        if r["x"] == 3:
            return None


gives(finally_overrides_the_return, "at-most-one")


def finally_yields_again(r):
    try:
        yield r
    finally:
        yield r


gives(finally_yields_again, "any")


def falls_off_the_end(r):
    if r["x"] > 100:
        return r


gives(falls_off_the_end, "at-most-one")


def falls_off_a_match(r):
    match r["name"]:
        case "Bob":
            return r
        case str() if r["x"] > 5:
            return {"id": 1}


gives(falls_off_a_match, "at-most-one")


def except_passes(r):
    try:
        return {"n": r["tags"][99]}
    except IndexError:
        pass


gives(except_passes, "at-most-one")


def suppressed(r):
    with contextlib.suppress(IndexError):
        return {"n": r["tags"][99]}


gives(suppressed, "at-most-one")


def suppressed_before_a_yield(r):
    with contextlib.suppress(KeyError):
        n = r["missing"]
        yield {"n": n}


gives(suppressed_before_a_yield, "at-most-one")


def returns_early_in_a_generator(r):
    if r["x"] == 3:
        return
    yield r


gives(returns_early_in_a_generator, "at-most-one")


def generator_returning_a_row(r):
    # What a generator returns is no row.
    return r
    yield


gives(generator_returning_a_row, "at-most-one")


def unreachable_yield_makes_a_generator(r):
    if False:
        yield r
    return r


gives(unreachable_yield_makes_a_generator, "at-most-one")


def loop_may_not_run(r):
    for tag in r["tags"]:
        return {"tag": tag}


gives(loop_may_not_run, "at-most-one", TAGLESS)


def loop_yields(r):
    for tag in r["tags"]:
        yield {"tag": tag}


gives(loop_yields, "any")


def loop_breaks_late(r):
    for tag in r["tags"]:
        yield {"tag": tag}
        if tag == "b":
            break


gives(loop_breaks_late, "any")


def loop_else_yields_too(r):
    for tag in r["tags"]:
        if tag == "a":
            yield {"tag": tag}
    else:
        yield {"tag": "none"}


gives(loop_else_yields_too, "any")


def loop_else_missed(r):
    for tag in r["tags"]:
        if tag == "b":
            break
    else:
        return r


gives(loop_else_missed, "at-most-one")


def while_yields(r):
    while r["x"]:
        r["x"] -= 1
        yield r


gives(while_yields, "any")


def while_never_runs(r):
    while r["x"] > 100:
        return r


gives(while_never_runs, "at-most-one")


def yields_twice(r):
    yield r
    if r["x"]:
        yield r


gives(yields_twice, "any")


def yields_as_an_argument(r):
    print((yield r), (yield r), sep="", end="", file=_Nowhere())


class _Nowhere:
    def write(self, text):
        return None


gives(yields_as_an_argument, "any")


def yields_in_an_expression(r):
    return [(yield r), (yield r)]


gives(yields_in_an_expression, "any")


def yields_in_a_condition(r):
    if (yield r) is None:
        yield r


gives(yields_in_a_condition, "any")


def yields_in_an_fstring(r):
    f"{(yield r)}{(yield r)}"


gives(yields_in_an_fstring, "any")


def yields_by_or(r):
    (yield r) or (yield r)


gives(yields_by_or, "any")


def yields_by_and(r):
    r["x"] > 100 and (yield r)


gives(yields_by_and, "at-most-one")


def yield_in_a_default(r):
    def inner(x=(yield r)):
        return x

    yield {"x": inner()}


gives(yield_in_a_default, "any")


def yield_in_a_lambda(r):
    # The lambda is the generator; this function gives one row at most: none.
    rows = lambda: (yield r)
    return list(rows()) if r["x"] > 100 else []


gives(yield_in_a_lambda, "at-most-one")


def yields_from_a_list(r):
    yield from ({"tag": tag} for tag in r["tags"])


gives(yields_from_a_list, "any")


def yields_from_nothing(r):
    yield from [] if r["x"] == 3 else [r]


gives(yields_from_nothing, "at-most-one")


def pairs(r):
    yield {"n": 1}
    yield {"n": 2}


def yields_from_a_helper(r):
    yield from pairs(r)


gives(yields_from_a_helper, "any")


def returns_a_generator(r):
    return pairs(r)


gives(returns_a_generator, "any")
