"""Where regions begin and end, and what fuse_with makes of them."""

import polars as pl
import pytest

import anabranch as ab
from anabranch.compiler.plan import Joint
from anabranch.errors import ProgramError

EVENTS = {"t": pl.Int64, "k": pl.String, "l": pl.String, "n": pl.Int64}


class Chain:
    """Streams with short names, for shapes."""

    def __init__(self):
        self.program = ab.Program("shapes")

    def read(self, name="in"):
        source = ab.sources.Records([], schema=EVENTS)
        return self.program.read(source, name=name, event_time="t")

    @property
    def plan(self):
        return self.program.compile()

    @property
    def regions(self):
        plan = self.plan
        return [" ".join(op.name for op in plan.operators(region)) for region in plan.regions]


@pytest.fixture
def chain():
    return Chain()


def keyed(stream, name, *key):
    return stream.key_by(*key).deduplicate(name=name)


def stateless(stream, name):
    return stream.filter(pl.col("n") > 0, name=name)


def sequential(stream, name):
    return stream.in_time_order(name=name)


def sink(stream, name="out", *, ordered=True):
    stream.write(ab.sinks.Memory(name), ordered=ordered)


def parallel(plan):
    return [region.parallel for region in plan.regions]


def joints(plan):
    return [(each.before, each.behind, each.kind, each.strategy) for each in plan.joints]


def test_an_ordered_sink_is_a_region_behind_a_parallel_one(chain):
    sink(stateless(chain.read(), "a"))
    assert ["in a", "out"] == chain.regions
    assert [
        (None, 0, "parallel-source", "splits"),
        (0, 1, "merge", "sequence+pulses"),
    ] == joints(chain.plan)


def test_an_unordered_sink_is_in_the_region_before_it(chain):
    sink(keyed(chain.read(), "a", "k"), ordered=False)
    plan = chain.plan
    assert ["in", "a out"] == chain.regions
    assert (1, None, "parallel-sink", "none") == joints(plan)[-1]
    # A key's records come in order (M11), though nobody asks for the order of what becomes of them.
    assert ["round-robin", "none"] == [region.ordering for region in plan.regions]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_sink_behind_a_sequential_operator_is_in_its_region(chain, ordered):
    sink(sequential(chain.read(), "a"), ordered=ordered)
    assert ["in", "a out"] == chain.regions
    assert "merge" == chain.plan.joints[-1].kind


def test_a_keyed_operator_does_not_join_a_source(chain):
    sink(keyed(stateless(chain.read(), "a"), "b", "k"))
    assert ["in a", "b", "out"] == chain.regions


def test_behind_a_sequential_operator_stateless_ones_wait_for_a_key(chain):
    stream = stateless(sequential(chain.read(), "a"), "b")
    sink(keyed(stream, "c", "k"))
    assert ["in", "a", "b c", "out"] == chain.regions
    assert ("k",) == chain.plan.regions[2].key
    assert (1, 2, "split", "hash") in joints(chain.plan)


def test_a_key_that_is_changed_on_the_way_ends_the_region(chain):
    stream = sequential(chain.read(), "a").with_columns(k=pl.col("l"), name="b")
    sink(keyed(stream, "c", "k"))
    assert ["in", "a", "b", "c", "out"] == chain.regions
    assert ["c is by k, and b does not forward k"] == [e.text for e in chain.plan.regions[2].ends]


def test_a_key_that_was_not_at_the_entry_ends_the_region(chain):
    stream = sequential(chain.read(), "a").with_columns(m=pl.col("n") % 7, name="b")
    sink(keyed(stream, "c", "m"))
    assert ["in", "a", "b", "c", "out"] == chain.regions


def test_the_key_of_a_region_is_what_its_operators_share(chain):
    stream = keyed(keyed(chain.read(), "a", "k", "l"), "b", "l", "n")
    sink(keyed(stream, "c", "l", "k"))
    assert ["in", "a b c", "out"] == chain.regions
    assert ("l",) == chain.plan.regions[1].key


def test_part_of_a_key_is_enough_where_the_rest_is_not_forwarded(chain):
    stream = keyed(chain.read(), "a", "k", "l").with_columns(k=pl.lit("x"), name="b")
    sink(keyed(stream, "c", "k", "l"))
    assert ["in", "a b c", "out"] == chain.regions
    assert ("l",) == chain.plan.regions[1].key


def test_operators_behind_a_keyed_window_are_in_its_region(chain):
    stream = chain.read().window(ab.tumbling("1 s"), by=["k", "l"]).agg(m=ab.count(), name="a")
    stream = stream.filter(pl.col("m") > 1, name="b")
    sink(stream.window(ab.tumbling("1 min"), by="k").agg(m=ab.count(), name="c"))
    assert ["in", "a b c", "out"] == chain.regions
    assert ("k",) == chain.plan.regions[1].key


def test_a_join_begins_a_region_with_two_entries_by_its_key(chain):
    left, right = stateless(chain.read("left"), "a"), chain.read("right")
    sink(keyed(left.join(right, on="k", within="1 s", name="b"), "c", "k", "l"))
    assert ["left a", "right", "b c", "out"] == chain.regions
    shuffles = [each for each in joints(chain.plan) if each[2] == "shuffle"]
    assert [
        (0, 2, "shuffle", "hash, sequence+pulses"),
        (1, 2, "shuffle", "hash, sequence+pulses"),
    ] == shuffles


def test_a_union_is_parallel_and_may_be_by_a_key(chain):
    stream = chain.read("a").union(chain.read("b"), name="c")
    sink(keyed(stream, "d", "k"))
    assert ["a", "b", "c d", "out"] == chain.regions
    assert [True, True, True, False] == parallel(chain.plan)


def test_the_branches_of_a_split_begin_regions(chain):
    parts = stateless(chain.read(), "a").split(name="b", big=pl.col("n") > 9)
    sink(stateless(parts.big, "c"), "x", ordered=False)
    sink(parts.rest, "y", ordered=False)
    assert ["in a b", "c x", "y"] == chain.regions
    assert [True, True, True] == parallel(chain.plan)
    assert {"none"} == {region.ordering for region in chain.plan.regions}


def test_one_ordered_branch_is_enough_for_an_order(chain):
    parts = chain.read().split(name="b", big=pl.col("n") > 9)
    sink(parts.big, "x", ordered=False)
    sink(parts.rest, "y")
    assert ["sequence+pulses", "none", "none"] == [each.ordering for each in chain.plan.regions]


@pytest.mark.parametrize("side", ["late", "dead_letters"])
def test_late_records_and_dead_letters_begin_regions(chain, side):
    stream = chain.read()
    if side == "late":
        other = stream.window(ab.tumbling("1 s"), by="k")
        late = other.late
        other.agg(m=ab.count(), name="a")
    else:
        made = stream.with_event_time("n", on_error="dead_letter", name="a")
        late = made.dead_letters
    sink(late, ordered=False)
    assert chain.regions[-1] == "out"


def test_a_global_window_of_mergeable_aggregates_takes_partials(chain):
    stream = stateless(chain.read(), "a").window(ab.tumbling("1 s"))
    sink(stream.agg(n=ab.count(), x=ab.first("n"), name="b"))
    assert ["in a", "b out"] == chain.regions
    assert (0, 1, "merge", "partials") in joints(chain.plan)


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.window(ab.tumbling("1 s")).agg(n=ab.collect("n")),
        lambda s: s.window(ab.tumbling("1 s")).agg(n=pl.col("n").sum()),
        lambda s: s.window(ab.session("1 s")).agg(n=ab.count()),
        lambda s: s.window(ab.rows(3)).agg(n=ab.count()),
        lambda s: sequential(s, "a").window(ab.tumbling("1 s")).agg(n=ab.count()),
    ],
)
def test_other_global_windows_take_rows(chain, build):
    sink(build(stateless(chain.read(), "b")))
    assert "partials" not in [each.strategy for each in chain.plan.joints]


def test_where_late_records_are_read_rows_come_whole(chain):
    windows = stateless(chain.read(), "a").window(ab.tumbling("1 s"))
    sink(windows.agg(n=ab.count()))
    sink(windows.late, "late")
    assert "partials" not in [each.strategy for each in chain.plan.joints]


@pytest.mark.parametrize(
    ("aggregate", "ordering"),
    [
        (ab.count(), "none"),
        (ab.sum("n"), "none"),
        (ab.sum(pl.col("n") / 2), "round-robin"),
        (ab.mean("n"), "round-robin"),
        (ab.first("n"), "round-robin"),
        (ab.collect("n"), "round-robin"),
    ],
)
def test_windows_care_for_order_if_an_aggregate_does(chain, aggregate, ordering):
    sink(chain.read().window(ab.tumbling("1 s"), by="k").agg(x=aggregate), ordered=False)
    assert ordering == chain.plan.regions[0].ordering


def counted(stream, name, *, key="k"):
    """One row of one, by a key."""
    return stream.key_by(key).reduce(add, name=name)


@ab.operator(pure=True, forwards=["k", "l"])
def add(value, record):
    return {**record, "n": value["n"] + record["n"]}


def merged(chain):
    return [each[3] for each in joints(chain.plan) if each[2] == "merge"]


def test_every_number_is_waited_for_if_nothing_was_dropped_since_the_entry(chain):
    sink(counted(chain.read(), "a"))
    assert ["sequence"] == merged(chain)


def test_what_a_region_before_dropped_is_missing_behind_the_shuffle_too(chain):
    sink(counted(stateless(chain.read(), "a"), "b"))
    assert "sequence" == chain.plan.regions[1].ordering
    assert ["sequence+pulses"] == merged(chain)


def test_rows_that_were_shuffled_do_not_come_in_turn(chain):
    start = chain.read().select("t", "k", "l", "n", name="a")
    sink(start.select("t", "k", name="b"), "x")
    sink(start.select("t", "l", name="c"), "y")
    assert ["in a", "b", "x", "c", "y"] == chain.regions
    assert {"round-robin"} == {each.ordering for each in chain.plan.regions if each.parallel}
    assert ["sequence", "sequence"] == merged(chain)


def test_rows_of_one_splitter_come_in_turn(chain):
    sink(sequential(chain.read(), "a").select("t", name="b"))
    assert [(1, 2, "split", "round-robin"), (2, 3, "merge", "round-robin")] == joints(chain.plan)[
        2:
    ]


def test_the_numbers_of_two_streams_are_no_one_sequence(chain):
    sink(chain.read("a").union(chain.read("b"), name="c"))
    assert ["sequence+pulses"] == merged(chain)


def test_a_feedback_is_sequential_and_its_closing_a_joint(chain):
    loop = chain.program.feedback(EVENTS, name="loop", event_time="t")
    stream = chain.read().union(loop, name="both")
    loop.close(stateless(stream, "again"))
    sink(stream)
    plan = chain.plan
    assert ["loop", "in", "both", "again", "out"] == chain.regions
    assert Joint("merge", 3, 0, "sequence+pulses") in plan.joints


def test_what_may_be_parallel_and_is_in_a_loop_is_told_to_be_in_one_lane(chain):
    loop = chain.program.feedback(EVENTS, name="loop", event_time="t")
    kept = keyed(chain.read().union(loop, name="both"), "kept", "k")
    loop.close(kept)
    sink(keyed(kept, "behind", "k"))
    because = {
        chain.plan.graph[each.operators[-1]].name: each.because for each in chain.plan.regions
    }
    in_one = "it runs in one lane all the same, since it is in a loop"
    assert {"kept"} == {name for name, text in because.items() if in_one in text}
    assert because["kept"].startswith(
        "parallel by k, since kept keeps nothing beyond one k; it runs"
    )


def test_two_sequential_regions_are_joined_by_a_merge_of_one(chain):
    stream = sequential(chain.read(), "a")
    sink(stream, "x")
    sink(stream, "y")
    assert ["in", "a", "x", "y"] == chain.regions
    assert [(1, 2, "merge", "none"), (1, 3, "merge", "none")] == joints(chain.plan)[2:]


# fuse_with


def test_fusing_what_is_in_one_region_changes_nothing(chain):
    a = stateless(chain.read(), "a")
    b = stateless(a, "b")
    sink(b)
    a.fuse_with(b)
    assert ["in a b", "out"] == chain.regions


def test_a_region_may_begin_later_to_hold_what_is_fused(chain):
    """Figure 5's other safe choice: by k and l, then by l, instead of by k, then by k and l."""
    a = keyed(chain.read(), "a", "k")
    b = keyed(a, "b", "k", "l")
    c = keyed(b, "c", "l")
    sink(c)
    assert ["in", "a b", "c", "out"] == chain.regions
    b.fuse_with(c)
    assert ["in", "a", "b c", "out"] == chain.regions
    assert [True, True, True, False] == parallel(chain.plan)
    assert ("l",) == chain.plan.regions[2].key


def test_what_no_parallel_region_can_hold_is_sequential_with_all_between(chain):
    a = stateless(chain.read(), "a")
    c = keyed(keyed(a, "b", "k"), "c", "l")
    sink(stateless(c, "d"))
    a.fuse_with(c)
    assert ["in", "a b c", "d", "out"] == chain.regions
    assert [True, False, True, False] == parallel(chain.plan)


def test_a_source_may_be_fused_with_what_has_a_key(chain):
    start = chain.read()
    kept = keyed(stateless(start, "a"), "b", "k")
    sink(kept)
    start.fuse_with(kept)
    assert ["in a b out"] == chain.regions
    assert [] == joints(chain.plan)


def test_fused_branches_are_in_one_place_with_what_joins_them(chain):
    start = chain.read()
    a, b = stateless(start, "a"), stateless(start, "b")
    sink(a.union(b, name="c"))
    a.fuse_with(b)
    assert ["in", "a b", "c", "out"] == chain.regions


def test_fusions_that_share_an_operator_are_one(chain):
    a = stateless(chain.read("one"), "a")
    b = stateless(chain.read("two"), "b")
    c = stateless(chain.read("three"), "c")
    for stream in (a, b, c):
        sink(stream, f"out-{stream._made.name}")
    a.fuse_with(b)
    b.fuse_with(c)
    assert "a b c" in " / ".join(chain.regions)


def test_regions_that_would_wait_for_each_other_are_refused(chain):
    left, right = chain.read("left"), chain.read("right")
    a, b = stateless(left, "a"), stateless(right, "b")
    c, d = stateless(a, "c"), stateless(b, "d")
    sink(c, "x")
    sink(d, "y")
    a.fuse_with(d)
    b.fuse_with(c)
    with pytest.raises(ProgramError, match="cannot be kept in one region") as refused:
        chain.program.compile()
    assert __file__ == refused.value.file
    assert refused.value.have.count("test_regions.py") == 2


def test_a_loop_over_epochs_is_no_waiting(chain):
    loop = chain.program.feedback(EVENTS, name="loop", event_time="t")
    both = chain.read().union(loop, name="both")
    kept = keyed(both, "kept", "k")
    loop.close(kept)
    sink(kept)
    loop.fuse_with(kept)
    assert ["loop both kept", "in", "out"] == chain.regions


def test_because_is_one_sentence_that_says_what_to_change(chain):
    sink(stateless(chain.read(), "a"))
    assert (
        "parallel, since no operator in it keeps anything from one row to the next; "
        "it ends since out takes its rows in order; to move that, pass ordered=False to write"
    ) == chain.plan.regions[0].because
