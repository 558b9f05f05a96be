# ruff: noqa: B905, RET504
# mypy: ignore-errors
"""Records rebuilt: copies, changes in place, new rows of old columns."""

import copy

from tests.compiler.functions.corpus.case import all_but, case, exactly, pure


@pure("one", all_but())
def same(r):
    return r


@pure("one", all_but("total"))
def spread_with_total(r):
    return {**r, "total": r["price"] * r["count"]}


@pure("one", all_but())
def total_under_spread(r):
    return {"total": 0, **r}


@pure("one", all_but("total"))
def merged_by_operator(r):
    return r | {"total": r["price"] * 2}


@pure("one", all_but())
def merged_other_way_round(r):
    return {"total": 1} | r


@pure("one", all_but("total"))
def dict_with_keyword(r):
    return dict(r, total=r["price"])


@pure("one", all_but("user"))
def copy_then_set(r):
    out = r.copy()
    out["user"] = r["user"].upper()
    return out


@pure("one", all_but("user"))
def copy_module(r):
    out = copy.copy(r)
    out["user"] = "x"
    return out


@pure("one", all_but("user", "tags"))
def deep_copy(r):
    out = copy.deepcopy(r)
    out["user"] = "x"
    out["tags"].append("y")
    return out


@pure("one", all_but("user"))
def in_place(r):
    r["user"] = r["user"].strip()
    return r


@pure("one", all_but("user"))
def in_place_through_alias(r):
    other = r
    other["user"] = ""
    return r


@pure("one", all_but("text"))
def deleted(r):
    del r["text"]
    return r


@pure("one", all_but("text"))
def popped(r):
    r.pop("text")
    return r


@pure("one", all_but("n", "count"))
def popped_into(r):
    r["n"] = r.pop("count")
    return r


@pure("one", all_but("price", "count"))
def updated_by_keyword(r):
    r.update(price=1.0, count=2)
    return r


@pure("one", all_but("price"))
def updated_by_dict(r):
    r.update({"price": 2.0})
    return r


@pure("one", all_but("price"))
def updated_in_place_operator(r):
    r |= {"price": 2.0}
    return r


@pure("one", exactly("id", "user"))
def projected(r):
    return {"id": r["id"], "user": r["user"]}


@pure("one", exactly("id"))
def projected_with_get(r):
    return {"id": r.get("id"), "name": r.get("user", "nobody")}


@pure("one", exactly())
def renamed(r):
    return {"key": r["id"], "name": r["user"]}


@pure("one", exactly())
def swapped(r):
    return {"id": r["count"], "count": r["id"]}


@pure("one", exactly())
def read_after_write(r):
    r["id"] = 7
    return {"id": r["id"]}


@pure("one", exactly())
def read_after_pop(r):
    r.pop("id")
    return {"id": r.get("id")}


@pure("one", exactly())
def read_after_clear(r):
    r.clear()
    return {"id": r.get("id")}


@pure("one", all_but("tags"))
def nested_changed(r):
    r["tags"].append("seen")
    return r


@pure("one", all_but("tags"))
def nested_changed_through_copy(r):
    out = dict(r)
    out["tags"].sort()
    return {**out, "id": r["id"]}


@pure("one", all_but("meta", "id"))
def nested_dict_changed(r):
    meta = r["meta"]
    meta["k"] = 1
    return {**r, "id": 1}


@pure("one", exactly())
def nested_changed_in_loop(r):
    for value in r.values():
        if isinstance(value, list):
            value.append("x")
    return r


@pure("one", all_but("text"))
def without_by_comprehension(r):
    return {k: v for k, v in r.items() if k != "text"}


@pure("one", all_but("text", "tags"))
def without_several(r):
    return {k: v for k, v in r.items() if k not in ("text", "tags")}


@pure("one", exactly())
def values_changed_by_comprehension(r):
    return {k: str(v) for k, v in r.items()}


@pure("one", exactly())
def written_by_unknown_key(r):
    r[r["user"]] = 1
    return r


@pure("one", all_but("user"))
def branches_agree(r):
    if r["count"] > 2:
        return {**r, "user": "many"}
    r["user"] = "few"
    return r


@pure("one", exactly("id"))
def branches_differ(r):
    if r["count"] > 2:
        return {**r, "user": "many"}
    return {"id": r["id"]}


@pure("one", all_but("user"))
def conditional_expression(r):
    return r if r["flag"] else {**r, "user": ""}


@pure("one", all_but("a", "b"))
def layers(r):
    first = {**r, "a": 1}
    second = {**first, "b": 2}
    return second


@pure("one", exactly())
def rebuilt_from_strings(r):
    return dict(zip(["id", "user"], [r["id"], r["user"]]))


@pure("one", all_but("user"))
def set_default(r):
    r.setdefault("user", "x")
    return r


@pure("one", all_but("price"))
def in_place_arithmetic(r):
    r["price"] += 1
    return r


@pure("one", all_but("count"))
def alias_in_tuple(r):
    pair = (r, 1)
    pair[0]["count"] = 0
    return r


@pure("one", all_but("count"))
def alias_in_list(r):
    rows = [r]
    for row in rows:
        row["count"] = 0
    return r


case("lambda_spread", lambda r: {**r, "x": 1}, True, "one", all_but("x"))
case("lambda_project", lambda r: {"id": r["id"]}, True, "one", exactly("id"))
case("lambda_pick", lambda r: {k: r[k] for k in ("id", "user")}, True, "one", exactly())
case(
    "two_lambdas_a",
    (lambda r: {**r, "a": 1}, lambda r: {**r, "b": 1})[0],
    True,
    "one",
    all_but("a"),
)
case(
    "two_lambdas_b",
    (lambda r: {**r, "a": 1}, lambda r: {**r, "b": 1})[1],
    True,
    "one",
    all_but("b"),
)
