"""How many rows leave with a return: None, lists, iterators, and what others return."""

from __future__ import annotations

import functools

from tests.compiler.independent.corpus.counts import falls_off_the_end
from tests.compiler.independent.labels import gives


def returns_a_map(r):
    return map(lambda tag: {"tag": tag}, r["tags"])


gives(returns_a_map, "any")


def returns_a_generator_expression(r):
    return ({"tag": tag} for tag in r["tags"])


gives(returns_a_generator_expression, "any")


def returns_a_list(r):
    return [r, r]


gives(returns_a_list, "any")


def returns_a_list_in_a_name(r):
    out = [r]
    out.append(r)
    return out


gives(returns_a_list_in_a_name, "any")


def returns_a_repeated_list(r):
    return [r] * 2


gives(returns_a_repeated_list, "any")


def returns_a_multiplied_list(r):
    return [r] * (r["x"] - 3)


gives(returns_a_multiplied_list, "at-most-one")


def returns_a_starred_list(r):
    return [*({"tag": tag} for tag in r["tags"])]


gives(returns_a_starred_list, "any")


def returns_a_filtered_list(r):
    return [row for row in (r,) if row["x"] > 100]


gives(returns_a_filtered_list, "at-most-one")


def returns_an_empty_list(r):
    return []


gives(returns_an_empty_list, "at-most-one")


def returns_and(r):
    return r["x"] > 100 and r or None


gives(returns_and, "at-most-one")


def returns_conditionally(r):
    return r if r["x"] > 100 else None


gives(returns_conditionally, "at-most-one")


def returns_a_list_or_a_row(r):
    return r if r["x"] > 100 else [r, r]


gives(returns_a_list_or_a_row, "any")


def returns_what_a_helper_may_not(r):
    return falls_off_the_end(r)


gives(returns_what_a_helper_may_not, "at-most-one")


def returns_get(r):
    return {"Bob": r}.get(r["name"])


gives(returns_get, "at-most-one")


def returns_update(r):
    # `update` returns None.
    return r.update(y=1)


gives(returns_update, "at-most-one")


def returns_a_name_set_on_a_path(r):
    out = None
    if r["x"] > 100:
        out = {**r}
    return out


gives(returns_a_name_set_on_a_path, "at-most-one")


def returns_a_name_deleted_by_except(r):
    row = r
    try:
        r["missing"]
    except KeyError:
        row = None
    return row


gives(returns_a_name_deleted_by_except, "at-most-one")


def returns_a_walrus(r):
    if (r := r if r["x"] > 100 else None) is None:
        pass
    return r


gives(returns_a_walrus, "at-most-one")


def returns_a_rebound_parameter(r):
    r = [r, r]
    return r


gives(returns_a_rebound_parameter, "any")


def returns_a_value_of_the_record(r):
    return r["rows"]


gives(returns_a_value_of_the_record, "any", {"rows": [{"a": 1}, {"a": 2}]})


def returns_a_popped_value(r):
    return r.pop("row", None)


gives(returns_a_popped_value, "at-most-one")


def twice_over(fn):
    @functools.wraps(fn)
    def wrapper(r):
        return [fn(r), fn(r)]

    return wrapper


@twice_over
def decorated_to_double(r):
    return r


gives(decorated_to_double, "any")


def dropping(fn):
    @functools.wraps(fn)
    def wrapper(r):
        row = fn(r)
        return row if row["x"] > 100 else None

    return wrapper


@dropping
def decorated_to_drop(r):
    return {**r}


gives(decorated_to_drop, "at-most-one")


class Splits:
    def __call__(self, r):
        return [{"tag": tag} for tag in r["tags"]]


gives(Splits(), "any", name="callable_that_splits")
gives(lambda r: [{"tag": t} for t in r["tags"]], "any", name="lambda_that_splits")
gives(lambda r: (yield from [r, r]), "any", name="lambda_generator")
gives(functools.partial(lambda n, r: [r] * n, 2), "any", name="partial_that_repeats")


def state_gives_no_first_row(r, state):
    previous, state.value = state.value, r
    if previous is not None:
        yield {"before": previous["id"], "id": r["id"]}


gives(state_gives_no_first_row, "at-most-one", state=True)


def state_gives_all_kept(r, state):
    state.list.extend(r["tags"])
    return [{"tag": tag} for tag in state.list]


gives(state_gives_all_kept, "any", state=True)


def continues_past_the_yield(r):
    for tag in (*r["tags"], "c"):
        if tag == "a":
            continue
        yield {"tag": tag}


gives(continues_past_the_yield, "any")


def raises_and_catches_around_a_yield(r):
    try:
        yield r
        raise ValueError
    except ValueError:
        yield r


gives(raises_and_catches_around_a_yield, "any")


def nested_function_returns(r):
    def inner():
        return r

    inner()


gives(nested_function_returns, "at-most-one")


def bare_return_after_work(r):
    r["x"] += 1
    return


gives(bare_return_after_work, "at-most-one")


class Swallow:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True


def swallowed_by_a_context_manager(r):
    with Swallow():
        return {"n": r["tags"][99]}


gives(swallowed_by_a_context_manager, "at-most-one")


def while_else_returns_nothing(r):
    while r["x"] > 0:
        r["x"] -= 1
    else:
        return None
    return r


gives(while_else_returns_nothing, "at-most-one")


def returns_a_dict_view(r):
    return list({tag: {"tag": tag} for tag in r["tags"]}.values())


gives(returns_a_dict_view, "any")


def returns_a_filtered_iterator(r):
    return filter(None, [r, r])


gives(returns_a_filtered_iterator, "any")


def returns_a_helper_chosen_by_the_record(r):
    return {"Ann": lambda x: [x, x]}.get(r["name"], lambda x: x)(r)


gives(returns_a_helper_chosen_by_the_record, "any")


def yields_in_a_nested_loop(r):
    for tag in r["tags"]:
        for _ in tag:
            yield {"tag": tag}
            break


gives(yields_in_a_nested_loop, "any")


def yields_until_an_error(r):
    try:
        for i in range(9):
            yield {"tag": r["tags"][i]}
    except IndexError:
        return


gives(yields_until_an_error, "any")


def stop_iteration_in_a_helper(r):
    row = next(({"tag": tag} for tag in r["tags"] if tag == "z"), None)
    return row


gives(stop_iteration_in_a_helper, "at-most-one")
