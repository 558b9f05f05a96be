"""Columns that look forwarded and are not."""

from __future__ import annotations

from tests.compiler.independent.labels import RECORD, changes

EXTRA = {"x": 9}
RENAMES = {"id": "id", "x": "name", "name": "x"}
COLUMN = "x"
WHOLE = {**RECORD, "x": 3.5, "flag": True}


def to_float(r):
    r["x"] = float(r["x"])
    return r


changes(to_float, "x")


def to_int(r):
    return {**r, "flag": int(r["flag"])}


changes(to_int, "flag", record=WHOLE)


def added_to_zero(r):
    r["x"] = r["x"] + 0.0
    return r


changes(added_to_zero, "x")


def times_one(r):
    r["flag"] *= 1
    return r


changes(times_one, "flag", record=WHOLE)


def stripped(r):
    return {**r, "name": r["name"].strip()}


changes(stripped, "name", record={**RECORD, "name": " Ann "})


def swapped(r):
    r["id"], r["x"] = r["x"], r["id"]
    return r


changes(swapped, "id", "x")


def swapped_by_name(r):
    x, id = r["id"], r["x"]
    return {"id": id, "x": x}


changes(swapped_by_name, "id", "x")


def renamed_and_back_after_a_change(r):
    r["y"] = r.pop("x")
    r["y"] += 1
    r["x"] = r.pop("y")
    return r


changes(renamed_and_back_after_a_change, "x")


def forwarded_on_one_path(r):
    if r["x"] > 100:
        return {"id": r["id"], "x": r["x"]}
    return {"id": r["id"], "x": 0}


changes(forwarded_on_one_path, "x")


def forwarded_in_one_row(r):
    yield r
    yield {"id": r["id"] + 1}


changes(forwarded_in_one_row, "id", "x", "name")


def changed_between_yields(r):
    yield r
    r["x"] += 1
    yield r


changes(changed_between_yields, "x")


def changed_in_a_loop(r):
    for _ in range(2):
        yield {**r}
        r["id"] = 0


changes(changed_in_a_loop, "id")


def nested_value_changed(r):
    out = {**r}
    r["tags"].append("c")
    return out


changes(nested_value_changed, "tags")


def nested_value_changed_through_a_name(r):
    tags = r["tags"]
    tags += ["c"]
    return {"id": r["id"], "tags": r["tags"]}


changes(nested_value_changed_through_a_name, "tags")


def nested_value_sorted(r):
    r["tags"].sort(reverse=True)
    return r


changes(nested_value_sorted, "tags")


def nested_value_popped(r):
    return {**r, "last": r["tags"].pop()}


changes(nested_value_popped, "tags")


def nested_value_changed_by_a_helper(r):
    _clear(r["tags"])
    return r


def _clear(tags):
    tags.clear()


changes(nested_value_changed_by_a_helper, "tags")


def record_changed_by_a_helper(r):
    _double(r)
    return r


def _double(row):
    row["x"] *= 2


changes(record_changed_by_a_helper, "x")


def nested_value_changed_by_a_loop(r):
    for value in r.values():
        if isinstance(value, list):
            value.reverse()
    return r


changes(nested_value_changed_by_a_loop, "tags")


def nested_value_shared_with_another(r):
    r["labels"] = r["tags"]
    r["labels"].append("c")
    return r


changes(nested_value_shared_with_another, "tags")


def nested_value_deleted(r):
    del r["tags"][0]
    return r


changes(nested_value_deleted, "tags")


def nested_value_unpacked(r):
    first, *r["tags"] = r["tags"]
    return r


changes(nested_value_unpacked, "tags")


def nested_value_mapped(r):
    list(map(r["tags"].remove, list(r["tags"])))
    return r


changes(nested_value_mapped, "tags")


def updated_by_a_table(r):
    r.update(EXTRA)
    return r


changes(updated_by_a_table, "x")


def updated_by_keywords(r):
    r.update(name="Bob", **EXTRA)
    return r


changes(updated_by_keywords, "name", "x")


def updated_by_pairs(r):
    r.update([("x", 0)])
    return r


changes(updated_by_pairs, "x")


def updated_by_its_own_value(r):
    r.update(r["more"])
    return r


changes(updated_by_its_own_value, "x", record={"x": 1, "more": {"x": 2}})


def dict_with_extra(r):
    return dict(r, **EXTRA)


changes(dict_with_extra, "x")


def merged_with_extra(r):
    return {**r, **EXTRA}


changes(merged_with_extra, "x")


def merged_by_or(r):
    return r | EXTRA


changes(merged_by_or, "x")


def merged_in_place(r):
    r |= EXTRA
    return r


changes(merged_in_place, "x")


def merged_with_state(r, state):
    if state.value is None:
        state.value = {"x": 0}
    return {**r, **state.value}


changes(merged_with_state, "x", state=True)


def merged_under_state(r, state):
    state.value = state.value or {"id": 0}
    return r | state.value


changes(merged_under_state, "id", state=True)


def filtered_by_a_comprehension(r):
    return {k: v for k, v in r.items() if v != 3}


changes(filtered_by_a_comprehension, "x")


def mapped_by_a_comprehension(r):
    return {k: v * 2 if isinstance(v, int) else v for k, v in r.items()}


changes(mapped_by_a_comprehension, "id", "x")


def renamed_by_a_comprehension(r):
    return {RENAMES[k]: v for k, v in r.items() if k in RENAMES}


changes(renamed_by_a_comprehension, "x", "name", "tags")


def zipped_in_another_order(r):
    return dict(zip(r.keys(), reversed(list(r.values())), strict=True))


changes(zipped_in_another_order, "id", "x")


def from_keys(r):
    return dict.fromkeys(r)


changes(from_keys, "id", "x")


def popped_and_put_back(r):
    x = r.pop("x")
    r["x"] = str(x)
    return r


changes(popped_and_put_back, "x")
