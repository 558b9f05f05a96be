"""M5: the order key of a row is (epoch position, phase, major, sub...)."""

import polars as pl
import pytest

import anabranch as ab

Cut = ab.testing.Cut
NEVER = frozenset()
X = {"x": pl.String}


def numbered(times=(0, 0), **how):
    """A program that reads rows n = 0, 1, ... at these times; returns it and the stream."""
    program = ab.Program("case")
    rows = [{"t": t, "n": n} for n, t in enumerate(times)]
    source = ab.sources.Records(rows, **how)
    return program, program.read(source, name="in", event_time="t")


def tag(letter):
    """A function that makes x = the letter and the row's x or n."""

    def tagged(record):
        return {"x": f"{letter}{record['x'] if 'x' in record else record['n']}"}

    return tagged


def twice(letter):
    """A function that makes two rows of one: `-0`, `-1` behind the tag."""

    def both(record):
        for sub in range(2):
            yield {"x": f"{tag(letter)(record)['x']}-{sub}"}

    return both


def written(program, stream, **how):
    """The x of the rows of a stream, in order."""
    stream.write(ab.sinks.Memory("out"))
    return [row["x"] for row in ab.testing.run_sequential(program, **how)["out"]]


def test_rows_caused_by_records_precede_those_caused_by_the_epochs_watermark():
    """Phase 0 before phase 1 within an epoch; the epoch comes before both.

    Epoch 0: records 1, 12: both rows pass (phase 0), then w = 12 lets [0, 10) leave (phase 1).
    Epoch 1: record 13 passes, then the end of time lets [10, 20) leave. The union takes them in
    the order of their keys, though the windows are its first input.
    """
    program, stream = numbered([1, 12, 13])
    rows = stream.select(x=pl.format("row {}", "n"))
    windows = stream.window(ab.tumbling("10 ms")).agg(n=ab.count())
    ends = windows.select(x=pl.format("end {}", "window_end"))
    log = [Cut("in", {0: (0, 2)}), Cut("in", {0: (2, 3)})]
    assert written(program, ends.union(rows), log=log) == [
        "row 0",
        "row 1",
        "end 10",
        "row 2",
        "end 20",
    ]


def test_several_rows_of_one_stand_together_in_the_order_they_were_made():
    """`sub` is behind the record's own key: a record's rows before the next record's.

    Partition 0 holds rows 0, 2, partition 1 row 1; one epoch: records 0, 2, 1, each made two.
    """
    program, stream = numbered([0] * 3, partitions=2)
    made = stream.flat_map(twice("f"), out=X)
    assert written(program, made) == ["f0-0", "f0-1", "f2-0", "f2-1", "f1-0", "f1-1"]


def test_flat_maps_in_a_row_order_by_all_their_subs():
    """(sub of the first, sub of the second), compared left to right.

    Record 0 gives a0-0, a0-1; each of these gives two: the first's two before the second's two.
    """
    program, stream = numbered([0])
    made = stream.flat_map(twice("a"), out=X).flat_map(twice("b"), out=X)
    assert written(program, made) == ["ba0-0-0", "ba0-0-1", "ba0-1-0", "ba0-1-1"]


def test_a_diamond_gives_the_first_inputs_row_then_the_seconds_of_each_record():
    """Both branches' rows have the record's key and the branch number behind it.

    Records 0, 1: of 0 the row of branch `a`, then of `b`; then of 1.
    """
    program, stream = numbered()
    a, b = stream.map(tag("a"), out=X), stream.map(tag("b"), out=X)
    assert written(program, a.union(b)) == ["a0", "b0", "a1", "b1"]


def test_a_diamond_closed_the_other_way_round_gives_the_other_order():
    """Branches are numbered by the input at which they meet, not by the order of writing.

    `a` is written first, but b.union(a) has `b` at input 0: of each record b's row, then a's.
    """
    program, stream = numbered()
    a, b = stream.map(tag("a"), out=X), stream.map(tag("b"), out=X)
    assert written(program, b.union(a)) == ["b0", "a0", "b1", "a1"]


@pytest.mark.parametrize(
    ("reverse", "expected"),
    [
        (False, ["f0-0", "f0-1", "m0", "f1-0", "f1-1", "m1"]),
        (True, ["m0", "f0-0", "f0-1", "m1", "f1-0", "f1-1"]),
    ],
)
def test_a_branch_number_stands_before_the_subs_behind_the_fork(reverse, expected):
    """The fork appends the branch number, then the flat_map its sub: (branch, sub).

    f.union(m): both rows of f have branch 0 and come before m's row, branch 1. m.union(f): m has
    branch 0.
    """
    program, stream = numbered()
    f, m = stream.flat_map(twice("f"), out=X), stream.map(tag("m"), out=X)
    assert written(program, m.union(f) if reverse else f.union(m)) == expected


def test_two_flat_maps_of_a_diamond_do_not_interleave():
    """(branch, sub): all of branch 0 before all of branch 1, record by record."""
    program, stream = numbered()
    f, g = stream.flat_map(twice("f"), out=X), stream.flat_map(twice("g"), out=X)
    assert written(program, f.union(g)) == [
        "f0-0", "f0-1", "g0-0", "g0-1",
        "f1-0", "f1-1", "g1-0", "g1-1",
    ]  # fmt: skip


def test_a_diamond_behind_a_flat_map_goes_through_row_by_row():
    """(sub, branch): the fork is behind the flat_map, so its number is behind the sub.

    Record 0 gives f0-0 and f0-1; of f0-0 branch a, then b; then of f0-1.
    """
    program, stream = numbered([0])
    rows = stream.flat_map(twice("f"), out=X)
    a, b = rows.map(tag("a"), out=X), rows.map(tag("b"), out=X)
    assert written(program, a.union(b)) == ["af0-0", "bf0-0", "af0-1", "bf0-1"]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_diamond_behind_a_window_goes_through_result_by_result(reverse):
    """Results of phase 1 fork like records: (window end, key), then branch.

    Keys 0 and 1 in [0, 10) leave at the end of time in order of the key; of each a's and b's row,
    in the order of the union's inputs.
    """
    program, stream = numbered([3, 4])
    results = stream.window(ab.tumbling("10 ms"), by="n").agg(c=ab.count())
    a, b = results.map(tag("a"), out=X), results.map(tag("b"), out=X)
    expected = ["b0", "a0", "b1", "a1"] if reverse else ["a0", "b0", "a1", "b1"]
    assert written(program, b.union(a) if reverse else a.union(b)) == expected


def test_a_stream_united_with_itself_gives_each_row_twice_running():
    """The smallest diamond has no operator in its branches: (key, 0), (key, 1)."""
    program, stream = numbered()
    rows = stream.map(tag("r"), out=X)
    assert written(program, rows.union(rows)) == ["r0", "r0", "r1", "r1"]


def test_a_diamond_in_a_diamond():
    """Each fork appends its number: (outer branch, inner branch).

    Outer branches: `a` (0) and `b` (1). `a` forks again into c (0) and d (1), which unite first.
    Of each record: c of a, d of a, then b.
    """
    program, stream = numbered()
    a, b = stream.map(tag("a"), out=X), stream.map(tag("b"), out=X)
    c, d = a.map(tag("c"), out=X), a.map(tag("d"), out=X)
    assert written(program, c.union(d).union(b)) == ["ca0", "da0", "b0", "ca1", "da1", "b1"]


def test_diamonds_that_cross_follow_the_outer_fork():
    """Keys decide and not the shape of the unions.

    `a` and `b` meet first in c(a).union(b): a is branch 0, b branch 1. c and d fork from `a` and
    meet in the second union: c 0, d 1. Keys of one record: c (0, 0), d (0, 1), b (1): although
    the second union has c and b at input 0 and d at input 1, d comes between them.
    """
    program, stream = numbered()
    a, b = stream.map(tag("a"), out=X), stream.map(tag("b"), out=X)
    c, d = a.map(tag("c"), out=X), a.map(tag("d"), out=X)
    assert written(program, c.union(b).union(d)) == ["ca0", "da0", "b0", "ca1", "da1", "b1"]


def test_a_diamond_whose_branches_drop_rows():
    """A branch that gives nothing of a record leaves no gap.

    evens passes 0 and 2, all passes everything: 0 twice (evens first), 1 once, 2 twice, 3 once.
    """
    program, stream = numbered([0] * 4)
    evens = stream.filter(pl.col("n") % 2 == 0).map(tag("even"), out=X)
    every = stream.map(tag("all"), out=X)
    assert written(program, evens.union(every)) == [
        "even0", "all0", "all1", "even2", "all2", "all3",
    ]  # fmt: skip


@pytest.mark.parametrize("reverse", [False, True])
def test_branches_of_a_split_reunited_are_in_the_order_of_the_records(reverse):
    """A record goes to one branch only, and keeps its key: no branch overtakes another.

    Records 0..3; n % 3 == 0 goes to `three` (0, 3), the others to rest. In whatever order the
    branches are united, the rows are in the order of their records.
    """
    program, stream = numbered([0] * 4)
    parts = stream.split(three=pl.col("n") % 3 == 0)
    three, rest = parts.three.map(tag("three"), out=X), parts.rest.flat_map(twice("rest"), out=X)
    united = rest.union(three) if reverse else three.union(rest)
    assert written(program, united) == [
        "three0", "rest1-0", "rest1-1", "rest2-0", "rest2-1", "three3",
    ]  # fmt: skip


def test_a_split_beside_its_own_input():
    """The fork is before the split: (branch) orders the split's row and the input's own row.

    all.union(part): all is input 0. Record 0 is in the split's branch `low`: all0, low0. Record 1
    is in the rest, which nobody reads: all1 alone.
    """
    program, stream = numbered()
    low = stream.split(low=pl.col("n") < 1).low.map(tag("low"), out=X)
    every = stream.map(tag("all"), out=X)
    assert written(program, every.union(low)) == ["all0", "low0", "all1"]


@pytest.mark.parametrize("reverse", [False, True])
def test_windows_that_feed_a_union_go_by_their_topological_number(reverse):
    """Phase 1: the operator's number stands before the window end.

    The first written counts windows of 20 ms, the second those of 10 ms. Records 1, 12, w = end of
    time: of the first operator [0, 20), then of the second [0, 10), [10, 20), although [0, 10) ends
    earlier than [0, 20), and whatever the order of the union's inputs.
    """
    program, stream = numbered([1, 12])
    text = pl.format("{}-{}", "window_start", "window_end")
    long = stream.window(ab.tumbling("20 ms")).agg(c=ab.count()).select(x=text)
    short = stream.window(ab.tumbling("10 ms")).agg(c=ab.count()).select(x=text)
    united = short.union(long) if reverse else long.union(short)
    assert written(program, united) == ["0-20", "0-10", "10-20"]


def test_windows_of_two_epochs_go_by_the_epoch_first():
    """The epoch's position stands before the operator's number.

    As above, but cut behind the record 12: w = 12 lets [0, 10) of the second operator leave in
    epoch 0; [0, 20) of the first waits for epoch 1's end of time, then [10, 20).
    """
    program, stream = numbered([1, 12, 13])
    text = pl.format("{}-{}", "window_start", "window_end")
    long = stream.window(ab.tumbling("20 ms")).agg(c=ab.count()).select(x=text)
    short = stream.window(ab.tumbling("10 ms")).agg(c=ab.count()).select(x=text)
    log = [Cut("in", {0: (0, 2)}), Cut("in", {0: (2, 3)})]
    assert written(program, long.union(short), log=log) == ["0-10", "0-20", "10-20"]


def test_windows_behind_a_window_come_after_it_in_the_same_epoch():
    """The second window's number is greater, so all the first's rows precede all its rows.

    Records 1, 12, 23, then the end of time. First (number less): ends 10, 20, 30, one row each.
    Second, of 20 ms over the first's results at 9.999, 19.999, 29.999: [0, 20) with two results,
    [20, 40) with one. In the union first.. then second.., though [0, 20) could have left early.
    """
    program, stream = numbered([1, 12, 23])
    one = stream.window(ab.tumbling("10 ms")).agg(c=ab.count())
    two = one.window(ab.tumbling("20 ms")).agg(c=ab.count())
    first = one.select(x=pl.format("one {}: {}", "window_end", "c"))
    second = two.select(x=pl.format("two {}: {}", "window_end", "c"))
    assert written(program, second.union(first)) == [
        "one 10: 1", "one 20: 1", "one 30: 1", "two 20: 2", "two 40: 1",
    ]  # fmt: skip


def test_late_records_are_of_phase_0_and_precede_the_results_of_their_epoch():
    """A late record is caused by a record, a result by a watermark.

    Epoch 0: records 1, 12, w = 12: [0, 10) leaves. Epoch 1: record 5 is late, at once; record 25
    is not; the end of time lets [10, 20) and [20, 30) leave.
    """
    program, stream = numbered([1, 12, 5, 25])
    windows = stream.window(ab.tumbling("10 ms"))
    late = windows.late.select(x=pl.format("late {}", "n"))
    ends = windows.agg(c=ab.count()).select(x=pl.format("end {}", "window_end"))
    log = [Cut("in", {0: (0, 2)}), Cut("in", {0: (2, 4)})]
    assert written(program, ends.union(late), log=log) == ["end 10", "late 2", "end 20", "end 30"]


def test_the_rows_of_a_batch_follow_the_epochs_records():
    """A batch is complete at the epoch's end, so what it gives is of phase 1.

    One epoch of two records. batch.union(rows): the rows r0, r1 of phase 0, then b0, b1.
    """
    program, stream = numbered()
    batch = stream.map_batches(lambda frame: frame.select(x=pl.format("b{}", "n")), out=X)
    rows = stream.select(x=pl.format("r{}", "n"))
    assert written(program, batch.union(rows)) == ["r0", "r1", "b0", "b1"]


def test_a_pairs_key_is_the_later_records_and_its_sub_the_partners_arrival():
    """A record's pairs leave when it arrives, its partners in the order of their arrival.

    Epoch 0, left: l0 (t 5), l1 (t 3), no partner yet. Epoch 1, right: r0 (t 4) pairs with l0, then
    l1: by arrival, not by time. r1 (t 5) likewise. Epoch 2, left: l2 (t 4) pairs with r0, r1.
    """
    program = ab.Program("case")
    sides = [
        program.read(
            ab.sources.Records([{"k": 1, "t": t, name: f"{name}{n}"} for n, t in enumerate(times)]),
            name=name,
            event_time="t",
        )
        for name, times in (("l", (5, 3, 4)), ("r", (4, 5)))
    ]
    pairs = sides[0].join(sides[1].select("k", "r"), on="k", within="5 ms")
    log = [
        Cut("l", {0: (0, 2)}, finished=NEVER),
        Cut("r", {0: (0, 2)}, finished=NEVER),
        Cut("l", {0: (2, 3)}),
    ]
    assert written(program, pairs.select(x=pl.col("l") + pl.col("r")), log=log) == [
        "l0r0", "l1r0", "l0r1", "l1r1", "l2r0", "l2r1",
    ]  # fmt: skip


def test_a_stream_joined_with_itself_is_a_diamond():
    """Each record comes at input 0, then at input 1, before the next record.

    Record 0 left: no partner; right: partner left 0: (0, 0). Record 1 left: partner right 0:
    (1, 0); right: partners left 0 and left 1, by arrival: (0, 1), (1, 1). Pairs are (left, right).
    """
    program, stream = numbered([1, 2])
    keyed = stream.with_columns(k=pl.lit(1))
    pairs = keyed.join(keyed, on="k", within="5 ms")
    assert written(program, pairs.select(x=pl.format("{}{}", "n", "n_right"))) == [
        "00", "10", "01", "11",
    ]  # fmt: skip


def test_three_branches_of_which_two_meet_first():
    """x and y meet in the first union, z joins them at the second one's input 1.

    Of each record: x (0), y (1), z (2), as the inputs say at both unions.
    """
    program, stream = numbered()
    z, y, x = (stream.map(tag(letter), out=X) for letter in "zyx")
    assert written(program, x.union(y).union(z)) == ["x0", "y0", "z0", "x1", "y1", "z1"]


def test_three_branches_of_which_the_third_is_the_first_input_of_the_last_union():
    """z meets x and y in z.union(...) at input 0: M14, log order and then position of the inputs.

    x.union(y) puts x before y; z.union(that) puts z before both. No numbering of the three
    branches but z, x, y agrees with the inputs of both unions.
    """
    program, stream = numbered()
    x, y, z = (stream.map(tag(letter), out=X) for letter in "xyz")
    assert written(program, z.union(x.union(y))) == ["z0", "x0", "y0", "z1", "x1", "y1"]


def test_two_diamonds_of_one_stream_do_not_disturb_each_other():
    """Where other readers of a stream meet says nothing about where these meet.

    b.union(a) gives b before a of each record. The other diamond of the same stream, c.union(d),
    written to another sink, gives c before d, and changes nothing about a and b: neither before
    the first union nor behind it.
    """
    program, stream = numbered()
    a, b, c, d = (stream.map(tag(letter), out=X) for letter in "abcd")
    c.union(d).write(ab.sinks.Memory("other"))
    b.union(a).write(ab.sinks.Memory("out"))
    rows = ab.testing.run_sequential(program)
    assert {name: [row["x"] for row in found] for name, found in rows.items()} == {
        "other": ["c0", "d0", "c1", "d1"],
        "out": ["b0", "a0", "b1", "a1"],
    }


def test_a_reader_between_two_branches_that_meets_neither_changes_nothing():
    """A third reader of the stream, written between the two, goes to a sink of its own.

    b.union(a) has `b` at input 0: of each record b, then a, as if x were not there.
    """
    program, stream = numbered()
    a, x, b = (stream.map(tag(letter), out=X) for letter in "axb")
    x.write(ab.sinks.Memory("x"))
    assert written(program, b.union(a)) == ["b0", "a0", "b1", "a1"]


def test_branches_in_reverse_with_readers_of_their_own_between():
    """Six readers: three meet, c before b before a; behind each stands one that meets nobody."""
    program, stream = numbered([0])
    a, x, b, y, c, z = (stream.map(tag(letter), out=X) for letter in "axbycz")
    for name, lonely in zip("xyz", (x, y, z), strict=True):
        lonely.write(ab.sinks.Memory(name))
    assert written(program, c.union(b).union(a)) == ["c0", "b0", "a0"]


def test_branches_that_meet_twice_in_different_order_have_the_order_of_the_first_meeting():
    """A branch has one number; what is written first decides it.

    a.union(b) is written before b.union(a): a is 0 and b is 1, and the second union takes its rows
    in the order of their keys too.
    """
    program, stream = numbered()
    a, b = stream.map(tag("a"), out=X), stream.map(tag("b"), out=X)
    a.union(b).write(ab.sinks.Memory("first"))
    b.union(a).write(ab.sinks.Memory("second"))
    rows = [{"x": x} for x in ("a0", "b0", "a1", "b1")]
    assert ab.testing.run_sequential(program) == {"first": rows, "second": rows}


def test_four_branches_that_meet_two_by_two():
    """(b, a) and (d, c) meet pairwise, then both pairs, the second pair as first input.

    Each union says the order of its inputs: d before c, b before a, and the pair d, c (input 0 of
    the last union) before the pair b, a.
    """
    program, stream = numbered([0])
    a, b, c, d = (stream.map(tag(letter), out=X) for letter in "abcd")
    first, second = b.union(a), d.union(c)
    assert written(program, second.union(first)) == ["d0", "c0", "b0", "a0"]


def test_rows_of_several_partitions_keep_their_place_through_a_keyed_operator():
    """A keyed operator groups nothing: its rows are in the order of their causes.

    Partition 0 holds rows 0, 2, 4 and partition 1 rows 1, 3: they come 0, 2, 4, 1, 3. Their keys,
    n % 3, are 0, 2, 1, 1, 0, so the counts of the keys are 1, 1, 1, 2 (key 1), 2 (key 0).
    """
    program, stream = numbered([0] * 5, partitions=2)

    def count(record, state):
        state.value = (state.value or 0) + 1
        return {"x": f"{record['n']}: {state.value}"}

    keyed = stream.with_columns(k=pl.col("n") % 3).key_by("k").process(count, out=X)
    assert written(program, keyed) == ["0: 1", "2: 1", "4: 1", "1: 2", "3: 2"]
