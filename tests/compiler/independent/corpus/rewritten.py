"""Columns deleted, written by another name, or of another record under the same name."""

from __future__ import annotations

import functools
import operator

from tests.compiler.independent.labels import RECORD, changes

EXTRA = {"x": 9}
COLUMN = "x"


def deleted_conditionally(r):
    if r["x"] < 100:
        del r["name"]
    return r


changes(deleted_conditionally, "name")


def deleted_by_a_loop(r):
    for key in list(r):
        if len(key) == 1:
            del r[key]
    return r


changes(deleted_by_a_loop, "x")


def deleted_by_a_computed_name(r):
    del r[COLUMN]
    return r


changes(deleted_by_a_computed_name, "x")


def popped_item(r):
    r.popitem()
    return r


changes(popped_item, "at")


def cleared(r):
    r.clear()
    return r


changes(cleared, "id", "x")


def written_by_a_computed_name(r):
    r["na" + "me"] = "other"
    return r


changes(written_by_a_computed_name, "name")


def written_by_a_name_of_the_record(r):
    r[r["column"]] = 0
    return r


changes(written_by_a_name_of_the_record, "x", record={"x": 1, "column": "x"})


def written_by_setitem(r):
    r.__setitem__("x", 0)
    return r


changes(written_by_setitem, "x")


def written_by_operator(r):
    operator.setitem(r, "x", 0)
    return r


changes(written_by_operator, "x")


def written_by_dict(r):
    dict.update(r, x=0)
    return r


changes(written_by_dict, "x")


def written_by_a_bound_method(r):
    put = r.__setitem__
    put("x", 0)
    return r


changes(written_by_a_bound_method, "x")


def written_through_an_alias(r):
    same = r
    same["x"] = 0
    return r


changes(written_through_an_alias, "x")


def written_through_a_tuple(r):
    (same, *_) = (r, 1)
    same["x"] = 0
    return r


changes(written_through_a_tuple, "x")


def written_through_a_list(r):
    rows = [r]
    for row in rows:
        row["x"] = 0
    return r


changes(written_through_a_list, "x")


def written_by_a_closure(r):
    def fix():
        r["x"] = 0

    fix()
    return r


changes(written_by_a_closure, "x")


def written_by_a_loop_target(r):
    for r["x"] in range(2):
        pass
    return r


changes(written_by_a_loop_target, "x")


def written_by_a_match(r):
    match r:
        case {"id": key, **rest}:
            return {"id": -key, **rest}


changes(written_by_a_match, "id")


def rest_of_a_match(r):
    match r:
        case {"id": _, **rest}:
            return rest


changes(rest_of_a_match, "id")


def written_in_a_condition(r):
    if r.update(x=0) is None:
        return r


changes(written_in_a_condition, "x")


def written_in_finally(r):
    try:
        return r
    finally:
        r["x"] = 0


changes(written_in_finally, "x")


def another_dict_returned(r):
    r = {"id": 1, "x": r["id"]}
    return {**r}


changes(another_dict_returned, "id", "x")


def rebound_on_a_path(r):
    if r["x"] < 100:
        r = {"id": 0, **EXTRA}
    return r


changes(rebound_on_a_path, "id", "x", "name")


def rebound_by_a_loop(r):
    for r in ({"id": 1, "x": 1}, {"id": 2, "x": 2}):
        yield r


changes(rebound_by_a_loop, "id", "x")


def rebound_by_a_comprehension_walrus(r):
    [r := {"id": i} for i in range(2)]
    return r


changes(rebound_by_a_comprehension_walrus, "id", "x")


def order_of_unpacking(r):
    # What stands last counts.
    return {"x": r["x"], **EXTRA}


changes(order_of_unpacking, "x")


def written_twice_in_a_display(r):
    return {"x": r["x"], "id": r["id"], "x": 0}


changes(written_twice_in_a_display, "x")


def default_instead_of_null(r):
    return {"name": r["name"] or "nobody", "x": r.get("x", 0)}


changes(default_instead_of_null, "name", record={"name": "", "x": None})


def from_another_column(r):
    return {"id": r["x"], "x": r["x"]}


changes(from_another_column, "id")


def previous_record_out(r, state):
    previous, state.value = state.value or {"id": 0, "x": 0}, r
    return {**previous}


changes(previous_record_out, "id", "x", state=True)


def previous_column_out(r, state):
    r, state.value = state.value or {"id": 0}, r
    yield {"id": r["id"]}


changes(previous_column_out, "id", state=True)


def selected_columns(r):
    return {k: r[k] for k in ("id", "name")}


changes(selected_columns, "x", "tags")


def sliced_items(r):
    return dict(list(r.items())[1:])


changes(sliced_items, "id")


def doubling(fn):
    @functools.wraps(fn)
    def wrapper(r):
        return fn({**r, "x": r["x"] * 2})

    return wrapper


@doubling
def decorated_to_change_the_record(r):
    return r


changes(decorated_to_change_the_record, "x")

changes(lambda r: {**r, "x": r["x"] or 0.0}, "x", record={**RECORD, "x": 0}, name="lambda_or")
changes(lambda r, **more: {**r, "x": more.get("x")}, "x", name="lambda_with_keywords")


def star_arguments(*rows):
    return {**rows[0], "x": 0}


changes(star_arguments, "x")


def column_emptied_by_split(r):
    return [{**r, "tags": tag} for tag in r["tags"]]


changes(column_emptied_by_split, "tags")


def made_from_json_like_text(r):
    return {k: str(v) for k, v in r.items()}


changes(made_from_json_like_text, "id", "x", "tags")


def copied_list(r):
    r["tags"] = tuple(r["tags"])
    return r


changes(copied_list, "tags")


def sorted_copy(r):
    return {**r, "tags": sorted(r["tags"], reverse=True)}


changes(sorted_copy, "tags")


def written_through_the_state(r, state):
    state.value = r
    state.value["x"] = 0
    return r


changes(written_through_the_state, "x", state=True)


def written_through_the_list_of_the_state(r, state):
    state.list.append(r)
    for row in state.list:
        row["x"] += 1
    yield r


changes(written_through_the_list_of_the_state, "x", state=True)


def nested_value_written_through_the_state(r, state):
    state.map["tags"] = r["tags"]
    state.map["tags"].append("c")
    return {"tags": r["tags"]}


changes(nested_value_written_through_the_state, "tags", state=True)


def changed_in_the_second_round(r):
    row = {"x": 0}
    for _ in range(2):
        row["x"] = -1
        row = r
    return r


changes(changed_in_the_second_round, "x")


def copy_is_shallow(r):
    out = r.copy()
    out["tags"].append("c")
    return {**r}


changes(copy_is_shallow, "tags")


def slice_of_a_nested_value(r):
    r["rows"][:1][0]["n"] = 0
    return r


changes(slice_of_a_nested_value, "rows", record={"rows": [{"n": 1}]})


def same_name_in_a_nested_dict(r):
    return {**r, **r["user"]}


changes(same_name_in_a_nested_dict, "id", record={"id": 1, "user": {"id": 2}})


def keywords_take_the_record(r):
    return _made(**r)


def _made(x, **rest):
    return {"x": x + 1, **rest}


changes(keywords_take_the_record, "x")


def missing_column_is_another(r):
    return {"name": r.get("nick", r["name"]), "x": r.get("id")}


changes(missing_column_is_another, "name", "x", record={"id": 1, "x": 2, "name": "a", "nick": "b"})


def error_changes_the_row(r):
    try:
        return {**r, "n": r["tags"][99]}
    except IndexError:
        r["x"] = None
    return r


changes(error_changes_the_row, "x")
