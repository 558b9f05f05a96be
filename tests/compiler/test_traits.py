"""What is known of an operator: by its kind, by its expressions, by its author."""

import polars as pl
import polars.selectors as cs
import pytest

import anabranch as ab

EVENTS = {"t": pl.Int64, "k": pl.String, "n": pl.Int64, "words": pl.List(pl.String())}


def traits(build, name=None):
    program = ab.Program("traits")
    stream = program.read(ab.sources.Records([], schema=EVENTS), event_time="t")
    build(stream).write(ab.sinks.Memory("out"))
    plan = program.compile()
    at = -2 if name is None else [op.name for op in plan.graph.operators].index(name)
    return plan.traits[at]


TABLE = pl.DataFrame({"k": ["a"], "n": [1]})

FORWARDED = {
    "filter": (lambda s: s.filter(pl.col("n") > 0), "t k n words"),
    "select": (lambda s: s.select("k", pl.col("n"), t=pl.col("t")), "t k n"),
    "select under another name": (lambda s: s.select("t", b=pl.col("k")), "t"),
    "select another under its name": (lambda s: s.select("t", k=pl.lit("a")), "t"),
    "select of a changed column": (lambda s: s.select("t", pl.col("n") + 1), "t"),
    "select of a cast column": (lambda s: s.select("t", pl.col("n").cast(pl.Int64)), "t"),
    "select of several": (lambda s: s.select(pl.col("k", "n")), "k n"),
    "select by a selector": (lambda s: s.select(cs.integer()), "t n"),
    "select of all": (lambda s: s.select(pl.all()), "t k n words"),
    "select of a changed selector": (lambda s: s.select("k", cs.integer() + 1), "k"),
    "select of swapped columns": (lambda s: s.select(t="n", n="t", k="k"), "k"),
    "with_columns": (lambda s: s.with_columns(m=pl.col("n") + 1), "t k n words"),
    "with_columns over one": (lambda s: s.with_columns(n=pl.col("n") + 1), "t k words"),
    "with_columns over one by its name": (lambda s: s.with_columns(pl.col("n") + 1), "t k words"),
    "with_columns as it is": (lambda s: s.with_columns(pl.col("n"), k="k"), "t k n words"),
    "with_columns over many": (lambda s: s.with_columns(cs.integer() + 1), "k words"),
    "with_columns with a suffix": (
        lambda s: s.with_columns(pl.col("n").name.suffix("_1")),
        "t k n words",
    ),
    "drop": (lambda s: s.drop("n"), "t k words"),
    "rename": (lambda s: s.rename({"k": "key"}), "t n words"),
    "rename in a circle": (lambda s: s.rename({"t": "n", "n": "t"}), "k words"),
    "explode": (lambda s: s.explode("words"), "t k n"),
    "with_event_time": (lambda s: s.with_event_time("n"), "t k n words"),
    "lookup": (lambda s: s.lookup(TABLE, on="k"), "t k n words"),
    "union": (lambda s: s.union(s), "t k n words"),
    "join": (lambda s: s.join(s, on="k", within="1 s"), "k"),
    "deduplicate": (lambda s: s.key_by("k").deduplicate(), "t k n words"),
    "window": (lambda s: s.window(ab.tumbling("1 s"), by="k").agg(t=ab.max("t")), "k"),
    "global window": (lambda s: s.window(ab.tumbling("1 s")).agg(k=ab.first("k")), ""),
    "in_time_order": (lambda s: s.in_time_order(), "t k n words"),
    "match": (
        lambda s: s.key_by("k").match([ab.step("a", pl.col("n") > 0)], within="1 s"),
        "k",
    ),
}


@pytest.mark.parametrize("kind", FORWARDED)
def test_a_column_is_forwarded_if_it_leaves_as_it_came(kind):
    build, names = FORWARDED[kind]
    assert names.split() == list(traits(build).forwards)


KNOWN = {
    "filter": (lambda s: s.filter(pl.col("n") > 0), "stateless", "at-most-one", None),
    "with_event_time": (lambda s: s.with_event_time("n"), "stateless", "one", None),
    "with_event_time that skips": (
        lambda s: s.with_event_time("n", on_error="skip"),
        "stateless",
        "at-most-one",
        None,
    ),
    "explode": (lambda s: s.explode("words"), "stateless", "any", None),
    "lookup": (lambda s: s.lookup(TABLE, on="k"), "stateless", "at-most-one", None),
    "left lookup": (lambda s: s.lookup(TABLE, on="k", how="left"), "stateless", "one", None),
    "lookup of many": (lambda s: s.lookup(TABLE, on="k", many=True), "stateless", "any", None),
    "union": (lambda s: s.union(s), "stateless", "one", None),
    "join": (lambda s: s.join(s, on="k", within="1 s"), "keyed", "any", ("k",)),
    "deduplicate": (lambda s: s.key_by("k").deduplicate(), "keyed", "at-most-one", ("k",)),
    "window": (
        lambda s: s.window(ab.tumbling("1 s"), by="k").agg(n=ab.count()),
        "keyed",
        "any",
        ("k",),
    ),
    "rows": (
        lambda s: s.window(ab.rows(2), by="k").agg(n=ab.count()),
        "keyed",
        "at-most-one",
        ("k",),
    ),
    "rows of all": (
        lambda s: s.window(ab.rows(2)).agg(n=ab.count()),
        "whole",
        "at-most-one",
        None,
    ),
    "merge": (lambda s: s.merge(s), "whole", "any", None),
    "in_time_order": (lambda s: s.in_time_order(), "whole", "any", None),
}


@pytest.mark.parametrize("kind", KNOWN)
def test_kinds_of_operators_are_known(kind):
    build, *expected = KNOWN[kind]
    found = traits(build)
    assert expected == [found.state, found.selectivity, found.key]
    assert found.pure
    assert not found.declared
    assert found.reasons


# What authors declare. `opaque` is a function that nothing can be proved of.

SEEN = []


def opaque(record, state=None):
    SEEN.append(record)
    return record


def said(**facts):
    def fn(record, state=None):
        SEEN.append(record)
        return record

    return ab.operator(out=EVENTS, **facts)(fn)


def test_what_is_not_proved_is_unknown():
    found = traits(lambda s: s.map(opaque, out=EVENTS))
    assert ("unknown", "one", (), False) == (
        found.state,
        found.selectivity,
        found.forwards,
        found.pure,
    )
    assert "SEEN" in found.reasons[0].text
    assert __file__ == found.reasons[0].site.file


@pytest.mark.parametrize(
    ("facts", "state", "pure"),
    [
        ({"pure": True}, "stateless", True),
        ({"state": "stateless"}, "stateless", False),
        ({"state": "whole"}, "whole", False),
        ({"state": "whole", "pure": True}, "whole", True),
        ({"pure": False}, "unknown", False),
        ({"selectivity": "one"}, "unknown", False),
    ],
)
def test_what_is_declared_holds_and_is_marked(facts, state, pure):
    found = traits(lambda s: s.flat_map(said(**facts)))
    assert (state, pure, tuple(facts)) == (found.state, found.pure, found.declared)
    assert "is declared" in found.reasons[0].text


def test_declared_columns_are_forwarded_if_they_leave_at_all():
    found = traits(lambda s: s.map(said(forwards=["k", "nothing"])))
    assert ("k",) == found.forwards
    assert ("forwards",) == found.declared


def test_a_pure_function_takes_its_proof_back_if_its_author_does():
    @ab.operator(out=EVENTS, pure=False)
    def same(record):
        return record

    assert "unknown" == traits(lambda s: s.map(same)).state


@pytest.mark.parametrize(
    ("facts", "state", "parallelisable"),
    [
        ({"pure": True}, "keyed", True),
        ({"state": "keyed"}, "keyed", True),
        ({"state": "stateless"}, "keyed", True),
        ({"state": "whole"}, "whole", False),
        ({}, "unknown", False),
    ],
)
def test_a_keyed_process_is_keyed_if_it_is_proved_or_declared(facts, state, parallelisable):
    found = traits(lambda s: s.key_by("k").process(said(**facts)))
    assert (state, parallelisable) == (found.state, found.parallelisable)


def test_a_process_without_a_key_is_sequential_whatever_is_declared():
    found = traits(lambda s: s.process(said(state="stateless", pure=True)))
    assert "whole" == found.state


@pytest.mark.parametrize("on_error", ["skip", "dead_letter"])
def test_a_record_that_may_vanish_is_at_most_one(on_error):
    found = traits(lambda s: s.map(said(pure=True), on_error=on_error))
    assert "at-most-one" == found.selectivity


def test_elementwise_is_declared():
    found = traits(lambda s: s.map_batches(lambda f: f, out=EVENTS, elementwise=True))
    assert ("stateless", "any") == (found.state, found.selectivity)
    assert "elementwise" in found.declared


def test_batches_are_of_the_whole_stream():
    assert "whole" == traits(lambda s: s.map_batches(lambda f: f, out=EVENTS)).state


def test_one_opaque_step_makes_a_pattern_unknown():
    steps = [ab.step("a", pl.col("n") > 0), ab.step("b", opaque)]
    found = traits(lambda s: s.key_by("k").match(steps, within="1 s"))
    assert ("unknown", False) == (found.state, found.pure)


def moved(value, record):
    return {**record, "k": record["words"][0], "n": value["n"]}


def summed(value, record):
    value["n"] += record["n"]
    return value


def latest(value, record):
    return {**record, "n": value["n"] if record["n"] is None else record["n"]}


def counted(value, record):
    SEEN.append(record)
    return value


@pytest.mark.parametrize(
    ("fn", "state", "forwards"),
    [
        (summed, "keyed", ("k",)),
        (latest, "keyed", ("k",)),
        (moved, "keyed", ()),
        (counted, "unknown", ()),
    ],
)
def test_the_value_of_a_reduce_is_a_record_of_the_same_key(fn, state, forwards):
    found = traits(lambda s: s.key_by("k").reduce(fn))
    assert (state, "one", forwards) == (found.state, found.selectivity, found.forwards)
    assert {__file__} == {reason.site.file for reason in found.reasons}


def test_a_window_that_writes_over_its_group_does_not_forward_it():
    @ab.operator(pure=True)
    def fn(key, frame):
        return SEEN

    def build(out):
        return lambda s: s.window(ab.tumbling("1 s"), by=["k", "n"]).apply(fn, out=out)

    assert ("k", "n") == traits(build({"x": pl.Int64})).forwards
    found = traits(build({"k": pl.String}))
    assert ("keyed", ("n",)) == (found.state, found.forwards)


def test_one_function_in_many_operators_is_looked_into_once(monkeypatch):
    from anabranch.compiler import traits as module

    analyse, seen = module._analyser(), []

    def counting(call, *, takes_state):
        seen.append(call)
        return analyse(call, takes_state=takes_state)

    monkeypatch.setattr(module, "_analyser", lambda: counting)
    traits(lambda s: s.map(opaque, out=EVENTS).map(opaque, out=EVENTS))
    assert [opaque] == seen


RATE = 2
SHARED: dict[str, int] = {"a": 1}


def reads_a_global(r):
    return {**r, "n": r["n"] * RATE}


def reads_nothing(r):
    return {**r, "n": r["n"] * 2}


def scaled_by(rate):
    return lambda r: {**r, "n": r["n"] * rate}


def looking_into(table):
    return lambda r: {**r, "n": table.get(r["k"], 0)}


def printing(table):
    # Made of its text, so that it shares no globals with the functions here.
    home = {"table": table, "print": print}
    exec("def show(r):\n    print(table)\n    return r", home)
    return home["show"]


def state_beside(proved, other):
    def build(stream):
        return stream.map(proved, out=EVENTS, name="proved").map(other, out=EVENTS)

    return traits(build, "proved")


@pytest.mark.parametrize(
    ("proved", "state"),
    [
        (reads_a_global, "unknown"),
        (looking_into(SHARED), "unknown"),
        (reads_nothing, "stateless"),
        (scaled_by(3), "stateless"),
        (looking_into({"a": 1}), "stateless"),
    ],
)
def test_a_proof_does_not_hold_for_data_that_an_opaque_function_reaches(proved, state):
    assert state == state_beside(proved, opaque).state
    assert state_beside(proved, reads_nothing).state == "stateless"


def test_an_object_is_shared_whatever_it_is_reached_by():
    table = {"a": 1}

    assert state_beside(looking_into(table), printing(table)).state == "unknown"
    assert state_beside(looking_into(table), printing({"a": 1})).state == "stateless"


def test_a_variable_is_shared_by_the_functions_around_which_it_is():
    def pair():
        rate = 2

        def show(r):
            SEEN.append(rate)
            return r

        return lambda r: {**r, "n": r["n"] * rate}, show

    (proved, other), (_, apart) = pair(), pair()

    assert state_beside(proved, other).state == "unknown"
    assert state_beside(proved, apart).state == "stateless"


def test_the_reason_names_what_is_read_and_who_may_change_it():
    reasons = state_beside(reads_a_global, opaque).reasons

    assert "reads the global `RATE`, which opaque of " in reasons[0].text


def test_what_is_declared_is_trusted_to_change_nothing():
    @ab.operator(pure=True)
    def trusted(r):
        SEEN.append(r)
        return r

    assert state_beside(reads_a_global, trusted).state == "stateless"
