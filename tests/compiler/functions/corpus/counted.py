# ruff: noqa: RET503, SIM107
# mypy: ignore-errors
"""Rows counted along every path."""

import contextlib

from tests.compiler.functions.corpus.case import all_but, case, exactly, pure


@pure("at-most-one", all_but())
def returns_or_not(r):
    if r["count"] > 3:
        return r
    return None


@pure("at-most-one", all_but())
def falls_off(r):
    if r["count"] > 3:
        return r


@pure("at-most-one", all_but())
def returns_nothing(r):
    return None


@pure("one", all_but())
def yields_once(r):
    yield r


@pure("at-most-one", all_but())
def yields_if(r):
    if r["flag"]:
        yield r


@pure("one", all_but("side"))
def yields_either(r):
    if r["flag"]:
        yield {**r, "side": "left"}
    else:
        yield {**r, "side": "right"}


@pure("any", all_but("n"))
def yields_twice(r):
    yield {**r, "n": 1}
    yield {**r, "n": 2}


@pure("any", exactly("id"))
def yields_words(r):
    for word in r["text"].split():
        yield {"id": r["id"], "word": word}


@pure("at-most-one", exactly("id"))
def yields_first_word(r):
    for word in r["text"].split():
        yield {"id": r["id"], "word": word}
        return


@pure("any", all_but())
def yields_then_breaks(r):
    for _ in range(3):
        if r["flag"]:
            yield r
            break
        yield r


@pure("at-most-one", all_but())
def early_return(r):
    if not r["text"]:
        return
    yield r


@pure("one", all_but("error"))
def try_else(r):
    try:
        n = int(r["text"])
    except ValueError:
        return {**r, "error": True}
    else:
        return {**r, "error": n < 0}


@pure("at-most-one", all_but("n"))
def try_skips(r):
    try:
        return {**r, "n": int(r["text"])}
    except ValueError:
        return None


@pure("any", all_but("n"))
def try_yields_twice(r):
    try:
        yield {**r, "n": 0}
        int(r["text"])
    except ValueError:
        yield {**r, "n": 1}


@pure("any", all_but("n"))
def finally_yields(r):
    try:
        yield {**r, "n": len(r["text"])}
    finally:
        yield {**r, "n": 0}


@pure("one", exactly())
def finally_overrides(r):
    try:
        return r
    finally:
        return {"id": 0}  # noqa: B012


@pure("any", all_but())
def finally_after_return(r):
    try:
        if r["flag"]:
            yield r
            return
    finally:
        yield r


@pure("at-most-one", all_but())
def suppressed(r):
    with contextlib.suppress(ValueError):
        int(r["text"])
        yield r


@pure("any", exactly())
def returns_list(r):
    return [{"tag": tag} for tag in r["tags"]]


@pure("one", all_but())
def returns_list_of_one(r):
    return [r]


@pure("any", all_but("n"))
def returns_list_of_two(r):
    return [{**r, "n": 1}, {**r, "n": 2}]


@pure("at-most-one", all_but())
def returns_empty_list(r):
    return []


@pure("any", all_but())
def returns_list_that_grew(r):
    out = [r]
    if r["flag"]:
        out.append(r)
    return out


@pure("any", exactly("id"))
def returns_generator(r):
    return ({"id": r["id"], "tag": tag} for tag in r["tags"])


def _inner(r):
    yield {**r, "n": 1}


def _several(r):
    for n in range(r["count"]):
        yield {**r, "n": n}


@pure("one", all_but("n"))
def delegates_to_one(r):
    yield from _inner(r)


@pure("any", all_but("n"))
def delegates_to_several(r):
    yield from _several(r)


@pure("any", all_but("n"))
def delegates_twice(r):
    yield from _inner(r)
    yield from _inner(r)


@pure("at-most-one", all_but("n"))
def delegates_used_up(r):
    rows = _inner(r)
    for _ in rows:
        pass
    yield from rows


@pure("at-most-one", all_but("n"))
def returns_inner_generator(r):
    rows = _inner(r)
    next(rows)
    return rows


@pure("any", all_but())
def while_loop(r):
    n = r["count"]
    while n > 0:
        yield r
        n -= 1


@pure("one", all_but("n"))
def while_true_returns(r):
    n = 0
    while True:
        n += 1
        if n > r["count"]:
            return {**r, "n": n}


@pure("one", all_but("kind"))
def match_all(r):
    match r["count"]:
        case 0:
            return {**r, "kind": "none"}
        case 1 | 2:
            return {**r, "kind": "few"}
        case n if n > 100:
            return {**r, "kind": str(n)}
        case _:
            return {**r, "kind": "many"}


@pure("at-most-one", all_but("kind"))
def match_some(r):
    match r:
        case {"flag": True, "user": name}:
            return {**r, "kind": name}
        case {"tags": [first, *rest]}:
            return {**r, "kind": first + str(len(rest))}


@pure("at-most-one", all_but())
def raises_or_returns(r):
    if r["count"] < 0:
        raise ValueError(r["id"])
    if r["count"] == 0:
        return None
    return r


@pure("one", all_but())
def for_else(r):
    for tag in r["tags"]:
        if tag == "stop":
            break
    else:
        return r
    return r


@pure("unknown")
def predicate(r):
    return r["price"] > 3 and r["flag"]


@pure("unknown")
def returns_column(r):
    return r["meta"]


case("lambda_filter", lambda r: r["count"] > 3, True, "unknown")
case("lambda_maybe", lambda r: r if r["flag"] else None, True, "at-most-one", all_but())
case("lambda_list", lambda r: [r, r], True, "any", all_but())
