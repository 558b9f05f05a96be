"""Another program under a checkpoint: what may change goes on, what may not is refused and told."""

import polars as pl
import pytest

import anabranch as ab
from anabranch.epoch.triggers import available_now
from anabranch.errors import CheckpointError
from anabranch.runtime import under_way
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import InlineExecutor
from anabranch.state.description import Description
from anabranch.state.layout import Acknowledgement, number_of, published_path
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from anabranch.testing.sequential.checkpoint import log_of
from tests.runtime.test_inline import written

ROWS = [{"t": i * 40, "k": f"k{i * 7 % 23}", "v": i * 13 % 17} for i in range(300)]
OTHERS = [{"t": i * 60, "k": f"k{i % 19}", "w": i} for i in range(200)]


def count(record, state):
    state.value = (state.value or 0) + 1
    yield {"k": record["k"], "n": state.value}


def recount(record, state):
    state.value = (state.value or 0) + 1
    yield {"k": record["k"], "n": state.value}


COUNTED = {"k": pl.String, "n": pl.Int64}


class Counting(ab.KeyedOperator):
    """Counts, and says so when a timer fires."""

    out = COUNTED

    def on_record(self, record, state):
        state.value = (state.value or 0) + 1
        state.timer_at(record["t"] + 500)

    def on_timer(self, at, state):
        yield {"k": "timer", "n": state.value}


class Shop:
    """A program that is written anew for every run, with a sink for every stream that is asked for."""

    def __init__(self, tmp_path):
        self.tmp_path = tmp_path
        self.program = ab.Program("shop")

    def clicks(self, name="clicks"):
        source = ab.sources.Records(ROWS)
        return self.program.read(source, name=name, event_time="t")

    def others(self, name="others"):
        source = ab.sources.Records(OTHERS)
        return self.program.read(source, name=name, event_time="t")

    def write(self, stream, name="out", to=None):
        stream.write(ab.sinks.Files(self.tmp_path / (to or name), format="parquet"), name=name)
        return self


def live(shop, *, stop=None, drain=False, lanes=2, keep=None, slices=8):
    """Run a program to its end, or for so many steps; what it said of the checkpoint.

    With `drain` it is asked to stop then, and finishes what is planned; else it is cut off.
    """
    settings = Settings(
        available_now(7), shop.tmp_path / "ckpt", lanes, slices, keep=keep, in_flight=16
    )
    assembled = assemble(shop.program.freeze(), settings, InlineExecutor(), MockClock())
    try:
        steps = 0
        while not assembled.loop.over and (stop is None or steps < stop):
            assembled.loop.step()
            steps += 1
        if drain:
            assembled.loop.stop(drain=True)
        while drain and not assembled.loop.over:
            assembled.loop.step()
        return list(assembled.notes)
    finally:
        assembled.loop.close()
        assembled.close()


def committed(tmp_path):
    """How many epochs are."""
    return recover(LocalStore(tmp_path / "ckpt")).commit.last + 1


def refused(shop, **options):
    """What is said of the checkpoint, whose directory it begins with."""
    with pytest.raises(CheckpointError) as caught:
        live(shop, **options)
    where, said = str(caught.value).split(": ", 1)
    assert str(shop.tmp_path / "ckpt") == where
    return said


def behind(shop, epochs, sink="out"):
    """What a program gives for a whole log, behind what it gives for its first epochs."""
    log = log_of(shop.tmp_path / "ckpt", shop.program.freeze())
    whole, before = (run_sequential(shop.program, log=each)[sink] for each in (log, log[:epochs]))
    return whole[len(before) :]


def anew(shop, epochs, sink="out"):
    """What a program gives that begins empty behind some epochs."""
    log = log_of(shop.tmp_path / "ckpt", shop.program.freeze())
    return run_sequential(shop.program, log=log[epochs:])[sink]


def windowed(shop, stream=None, **options):
    stream = shop.clicks() if stream is None else stream
    size = options.pop("size", "1 s")
    by, name = options.pop("by", "k"), options.pop("name", "views")
    aggregates = options or {"n": ab.count(), "v": ab.sum("v")}
    return stream.window(ab.tumbling(size), by=by).agg(**aggregates, name=name)


# What may change


def test_the_same_program_has_nothing_to_say(tmp_path):
    def shop():
        shop = Shop(tmp_path)
        return shop.write(windowed(shop))

    assert [] == live(shop(), stop=4)
    assert [] == live(shop())
    assert_same_rows(
        run_sequential(shop().program, log=tmp_path / "ckpt")["out"], written(tmp_path / "out")
    )


def _behind_it(shop):
    return windowed(shop).with_columns(double=pl.col("n") * 2).filter(pl.col("n") > 1)


def _before_it(shop):
    stream = shop.clicks().filter(pl.col("v") >= 0).with_columns(x=pl.col("v") + 1).drop("x")
    return windowed(shop, stream)


def _renamed_result(shop):
    return windowed(shop, m=ab.count(), w=ab.sum("v"))


@pytest.mark.parametrize("changed", [_behind_it, _before_it, _renamed_result])
@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_what_is_stateless_may_come_and_go(changed, lanes, tmp_path):
    old, new = Shop(tmp_path), Shop(tmp_path)
    live(old.write(windowed(old)), stop=4)
    epochs = committed(tmp_path)

    assert [] == live(new.write(changed(new), to="there"), lanes=lanes)

    expected = behind(new, epochs)
    assert expected
    assert_same_rows(expected, written(tmp_path / "there"))
    again = Shop(tmp_path)
    assert [] == live(again.write(windowed(again)))


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_the_numbers_of_operators_are_no_part_of_the_state(how, tmp_path):
    """Rows that wait for a partner keep their order, though operators before them are counted anew."""

    def twice(record):
        yield record
        yield {**record, "v": record["v"] + 100}

    schema = {"t": pl.Int64, "k": pl.String, "v": pl.Int64}

    def joined(shop, *, changed):
        left, right = shop.clicks(), shop.others()
        if changed:
            left, right = left.filter(pl.col("v") >= 0), right.filter(pl.col("w") >= 0)
        left = left.flat_map(twice, out=schema)
        if changed:
            left = left.with_columns(x=pl.col("v")).drop("x")
        pairs = left.join(right, on="k", within="300 ms", how=how, name="pairs")
        return pairs.filter(pl.lit(value=True)) if changed else pairs

    old, new = Shop(tmp_path), Shop(tmp_path)
    live(old.write(joined(old, changed=False)), stop=4)
    epochs = committed(tmp_path)

    assert [] == live(new.write(joined(new, changed=True)))

    expected = behind(new, epochs)
    assert len(expected) > 20
    assert_same_rows(expected, written(tmp_path / "out")[-len(expected) :])


def test_a_function_may_change_and_that_is_noted(tmp_path):
    def shop(function):
        shop = Shop(tmp_path)
        return shop.write(shop.clicks().key_by("k").process(function, out=COUNTED, name="seen"))

    live(shop(count), stop=4)

    assert ["seen goes on with its state, though its function was count and is recount"] == live(
        shop(recount)
    )

    expected = run_sequential(shop(recount).program, log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


def test_a_new_operator_begins_empty_and_the_old_ones_go_on(tmp_path):
    old, new = Shop(tmp_path), Shop(tmp_path)
    live(old.write(windowed(old)), stop=4)
    epochs = committed(tmp_path)
    clicks = new.clicks()
    new.write(windowed(new, clicks))
    new.write(clicks.key_by("k").process(count, out=COUNTED, name="seen"), name="counts")

    assert ["seen is new: its state begins empty", "sink counts is new"] == live(new, stop=4)
    live(_both(tmp_path), lanes=1)

    assert_same_rows(behind(new, epochs), written(tmp_path / "out")[-len(behind(new, epochs)) :])
    assert_same_rows(anew(new, epochs, "counts"), written(tmp_path / "counts"))


def _both(tmp_path, *, seen=True, views=True):
    shop = Shop(tmp_path)
    clicks = shop.clicks()
    if views:
        shop.write(windowed(shop, clicks))
    if seen:
        shop.write(clicks.key_by("k").process(count, out=COUNTED, name="seen"), name="counts")
    return shop


LEFT = [
    "seen is no longer in the program: the process state it kept is left behind",
    "sink counts is no longer written to",
]


def test_an_operator_that_is_gone_and_comes_back_begins_anew(tmp_path):
    live(_both(tmp_path), stop=4)
    gone = committed(tmp_path)
    before = written(tmp_path / "counts")

    assert LEFT == live(_both(tmp_path, seen=False), stop=4)

    back = committed(tmp_path)
    assert back > gone
    assert ["seen is new: its state begins empty", "sink counts is new"] == live(
        _both(tmp_path), stop=3
    )
    assert [] == live(_both(tmp_path), lanes=3)
    assert_same_rows(
        anew(_both(tmp_path), back, "counts"), written(tmp_path / "counts")[len(before) :]
    )
    expected = run_sequential(_both(tmp_path).program, log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


def test_a_change_that_is_undone_before_it_committed_anything_lost_nothing(tmp_path):
    live(_both(tmp_path), stop=4)

    assert LEFT == live(_both(tmp_path, seen=False), stop=0)
    assert [] == live(_both(tmp_path))

    for sink in ("out", "counts"):
        expected = run_sequential(_both(tmp_path).program, log=tmp_path / "ckpt")[sink]
        assert_same_rows(expected, written(tmp_path / sink))


def test_state_that_is_left_behind_goes_with_the_commits_that_are_kept(tmp_path, monkeypatch):
    # All slices are written anew with every delta, so that no older one is needed for others.
    monkeypatch.setattr(under_way, "ROUND", 1)
    monkeypatch.setattr(under_way, "LONGEST_ROUND", 1)
    live(_both(tmp_path), stop=4, keep=2)
    folder = tmp_path / "ckpt" / "state" / "seen"
    assert list(folder.iterdir())

    live(_both(tmp_path, seen=False), stop=4, keep=2)
    live(_both(tmp_path, seen=False), keep=2, lanes=3)

    assert [] == list(folder.iterdir())


def test_an_operator_without_state_gives_its_name_to_one_with_it(tmp_path):
    """A union runs in lanes and has files, in which nothing is."""

    def shop(*, united):
        shop = Shop(tmp_path)
        clicks = shop.clicks()
        if united:
            both = clicks.filter(pl.col("v") > 3).union(clicks.filter(pl.col("v") <= 3), name="x")
            return shop.write(both.key_by("k").reduce(more, name="y"))
        found = clicks.key_by("k").process(count, out=COUNTED, name="x")
        return shop.write(found, name="counts").write(clicks.key_by("k").reduce(more, name="y"))

    live(shop(united=True), stop=4)
    epochs = committed(tmp_path)

    assert ["x is new: its state begins empty", "sink counts is new"] == live(shop(united=False))

    assert_same_rows(anew(shop(united=False), epochs, "counts"), written(tmp_path / "counts"))


def more(value, record):
    return {**record, "v": value["v"] + record["v"]}


# Sources and sinks


def _sources(tmp_path, *, clicks=True, others=True):
    shop = Shop(tmp_path)
    if clicks:
        shop.write(shop.clicks().key_by("k").process(count, out=COUNTED, name="seen"))
    if others:
        shop.write(shop.others().filter(pl.col("w") >= 0), name="others out")
    return shop


def test_a_new_source_begins_at_its_beginning_and_so_does_one_that_comes_back(tmp_path):
    live(_sources(tmp_path, others=False))

    assert [
        "source others is new: it begins at its beginning",
        "sink others out is new",
    ] == live(_sources(tmp_path))
    assert [] == live(_sources(tmp_path))
    assert OTHERS == written(tmp_path / "others out")

    assert [
        "source others is no longer read: if it comes back, it begins at its beginning",
        "sink others out is no longer written to",
    ] == live(_sources(tmp_path, others=False))
    # Nothing was committed without it: it goes on where it was, which is at its end.
    assert [] == live(_sources(tmp_path))
    assert OTHERS == written(tmp_path / "others out")


def test_a_source_whose_epochs_are_planned_cannot_go(tmp_path):
    live(_sources(tmp_path), stop=4)
    planned = recover(LocalStore(tmp_path / "ckpt")).plans
    epoch = min(plan.epoch for plan in planned if plan.source == "others")

    text = refused(_sources(tmp_path, others=False))

    assert text == (
        "the program cannot go on from this checkpoint because of source others\n"
        f"  since epoch {epoch} of source others is planned and not committed\n"
        "  so    run the old program once more: query.stop() finishes what is planned"
    )
    live(_sources(tmp_path))
    live(_sources(tmp_path, others=False))


def test_a_source_that_was_not_read_for_a_while_begins_at_its_beginning(tmp_path):
    live(_sources(tmp_path), stop=4, drain=True)
    before = len(written(tmp_path / "others out"))
    assert 0 < before < len(OTHERS)

    live(_sources(tmp_path, others=False), stop=3)
    assert "source others is new: it begins at its beginning" in live(_sources(tmp_path))

    assert [*OTHERS[:before], *OTHERS] == written(tmp_path / "others out")
    log = log_of(tmp_path / "ckpt", _sources(tmp_path).program.freeze())
    clicks = [cut for cut in log if cut.source == "clicks"]
    expected = run_sequential(_sources(tmp_path, others=False).program, log=clicks)["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


def test_output_of_a_sink_that_is_gone_is_not_forgotten(tmp_path):
    live(_both(tmp_path), stop=4)
    (marker,) = (tmp_path / "ckpt" / "published").iterdir()
    number = number_of(str(marker))
    marker.unlink()
    (tmp_path / "ckpt" / published_path(number - 1)).write_bytes(
        Acknowledgement(number - 1, 1).to_bytes()
    )

    text = refused(_both(tmp_path, seen=False))

    assert "the program no longer writes to sink 'counts'" in text
    assert "run the old program once more to its end" in text


# What may not


def _seen(tmp_path, **options):
    shop = Shop(tmp_path)
    clicks = options.pop("of", lambda s: s.clicks())(shop)
    key = options.pop("key", ("k",))
    function = options.pop("function", count)
    options |= {} if isinstance(function, type) else {"out": COUNTED}
    return shop.write(clicks.key_by(*key).process(function, name="seen", **options))


def _views(tmp_path, of=None, **options):
    shop = Shop(tmp_path)
    return shop.write(windowed(shop, None if of is None else of(shop), **options))


def _apply(tmp_path, **more):
    shop = Shop(tmp_path)
    clicks = shop.clicks().with_columns(**more) if more else shop.clicks()
    window = clicks.window(ab.tumbling("1 s"), by="k")
    return shop.write(window.apply(tallest, out={"v": pl.Int64}, name="tallest"))


def tallest(key, frame):
    del key
    return {"v": frame["v"].max()}


def _pairs(tmp_path, **options):
    shop = Shop(tmp_path)
    right = shop.others() if not options.pop("more", False) else shop.others().with_columns(z=1)
    options = {"on": "k", "within": "300 ms", "how": "inner"} | options
    return shop.write(shop.clicks().join(right, name="pairs", **options))


def _distinct(tmp_path, within):
    shop = Shop(tmp_path)
    return shop.write(shop.clicks().key_by("k").deduplicate(within, name="once"))


def _in_set(numbers):
    return {"n": ab.sum(pl.col("v").is_in(numbers).cast(pl.Int64))}


def _text(who, *since, name=None):
    why = "\n        ".join(since)
    return (
        f"the program cannot go on from this checkpoint because of {who}\n"
        f"  since {why}\n"
        f"  so    undo the change, or give {name or who} another name= to begin empty"
    )


def _as_int(shop):
    return shop.clicks().with_columns(k=pl.col("k").str.slice(1).cast(pl.Int64))


def _united(shop):
    return shop.clicks().union(shop.others().select("t", "k", v=pl.col("w")))


CHANGES = {
    "window": (
        _views,
        {},
        {"size": "2 s"},
        _text("views", "views: window was tumbling 1 s, is tumbling 2 s"),
    ),
    "aggregates": (
        _views,
        {},
        {"n": ab.count(), "v": ab.sum(pl.col("v") + 1)},
        _text(
            "views",
            'views: aggregates was count(), sum(col("v")), '
            'is count(), sum([(col("v")) + (dyn int: 1)])',
        ),
    ),
    "type of key": (
        _views,
        {},
        {"of": _as_int},
        _text("views", "views: key was k: String, is k: Int64"),
    ),
    "another source": (
        _views,
        {},
        {"of": _united},
        _text("views", "views: watermark was clicks, is clicks, others"),
    ),
    "key": (
        _seen,
        {},
        {"key": ("k", "v")},
        _text(
            "seen",
            "seen: key was k: String, is k: String, v: Int64",
            "the state of seen in the checkpoint is divided by k, "
            "and the program now divides it by k, v: see program.explain()",
        ),
    ),
    "time to live": (
        _seen,
        {},
        {"ttl": "1 h"},
        _text("seen", "seen: ttl was none, is 1 h"),
    ),
    "timers": (
        _seen,
        {"function": Counting},
        {},
        _text("seen", "seen: timers was yes, is no"),
    ),
    "columns that are kept": (
        _apply,
        {},
        {"z": pl.lit(1)},
        _text(
            "tallest",
            "tallest: columns was t: Int64, k: String, v: Int64, "
            "is t: Int64, k: String, v: Int64, z: Int32",
        ),
    ),
    "side of a join": (
        _pairs,
        {},
        {"how": "left", "within": "1 s", "more": True},
        _text(
            "pairs",
            "pairs: within was 300 ms, is 1 s",
            "pairs: how was inner, is left",
            "pairs: right columns was t: Int64, k: String, w: Int64, "
            "is t: Int64, k: String, w: Int64, z: Int32",
        ),
    ),
    "within": (
        _distinct,
        {"within": "100 ms"},
        {"within": None},
        _text(
            "once",
            "once: within was 100 ms, is ever",
        ),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_state_means_may_not_change(what, tmp_path):
    make, before, after, text = CHANGES[what]
    live(make(tmp_path, **before), stop=4)

    assert text == refused(make(tmp_path, **after))

    # What was refused has changed nothing.
    assert [] == live(make(tmp_path, **before))
    expected = run_sequential(make(tmp_path, **before).program, log=tmp_path / "ckpt")["out"]
    assert_same_rows(expected, written(tmp_path / "out"))


def test_timers_may_come(tmp_path):
    live(_seen(tmp_path), stop=4)

    assert ["seen goes on with its state, though its function was count and is Counting"] == live(
        _seen(tmp_path, function=Counting)
    )

    assert any(row["k"] == "timer" for row in written(tmp_path / "out"))


def test_what_polars_does_not_write_out_is_compared_as_well(tmp_path):
    live(_views(tmp_path, **_in_set(list(range(20)))), stop=4)

    text = refused(_views(tmp_path, **_in_set([*range(10), 99, *range(11, 20)])))

    assert "views: aggregates was" in text
    assert [] == live(_views(tmp_path, **_in_set(list(range(20)))))


def test_another_kind_under_a_name_is_refused(tmp_path):
    live(_seen(tmp_path), stop=4)
    shop = Shop(tmp_path)

    text = refused(shop.write(windowed(shop, name="seen", n=ab.count())))

    assert "because of seen\n  since seen: kind was process, is window with agg\n" in text


def test_a_name_that_something_stateless_has_taken_is_refused(tmp_path):
    live(_both(tmp_path), stop=4)
    shop = Shop(tmp_path)
    clicks = shop.clicks()
    shop.write(windowed(shop, clicks)).write(
        clicks.filter(pl.col("v") > 3, name="seen"), name="few"
    )

    assert refused(shop) == (
        "the program cannot go on from this checkpoint because of seen\n"
        "  since seen was a process with state, and is a filter without\n"
        "  so    give the filter another name=, or begin with another checkpoint="
    )


def test_names_that_are_counted_do_not_lose_state_when_another_is_written_before(tmp_path):
    def shop(*, one_more):
        shop = Shop(tmp_path)
        clicks = shop.clicks()
        if one_more:
            shop.write(clicks.key_by("v").deduplicate(), name="other")
        return shop.write(clicks.key_by("k").deduplicate())

    live(shop(one_more=True), stop=4)

    # deduplicate-1 was by v and is by k; deduplicate-2 is gone.
    text = refused(shop(one_more=False))
    assert "deduplicate-1: key was v: Int64, is k: String" in text


def test_an_operator_that_was_only_renamed_is_not_begun_anew(tmp_path):
    live(_seen(tmp_path), stop=4)
    shop = Shop(tmp_path)
    clicks = shop.clicks().key_by("k")

    assert refused(shop.write(clicks.process(count, out=COUNTED, name="counted"))) == (
        "the program cannot go on from this checkpoint because of seen\n"
        "  since seen is no longer in the program, and counted is new and just like it\n"
        "  so    give counted the name='seen' to go on with that state; "
        "to begin empty, run the program once without counted"
    )


def test_another_kind_of_source_under_a_name_is_refused(tmp_path):
    live(_both(tmp_path), stop=4)
    shop = Shop(tmp_path)
    pl.DataFrame(ROWS).write_parquet(tmp_path / "in.parquet")
    read = shop.program.read(
        ab.sources.Files(tmp_path / "in.parquet"), name="clicks", event_time="t"
    )
    shop.write(windowed(shop, read)).write(
        read.key_by("k").process(count, out=COUNTED, name="seen"), name="counts"
    )

    assert refused(shop) == (
        "the program cannot go on from this checkpoint because of source clicks\n"
        "  since source clicks was Records and is Files, whose offsets are others\n"
        "  so    give the new source another name=, to begin at its beginning; "
        "or undo the change, or begin with another checkpoint="
    )


def test_another_number_of_slices_is_refused(tmp_path):
    live(_seen(tmp_path), stop=4)

    assert refused(_seen(tmp_path), slices=16) == (
        "the program cannot go on from this checkpoint because of its slices\n"
        "  since its state is divided into 8 slices, this start asks for 16\n"
        "  so    pass slices=8"
    )


def test_a_source_that_is_at_its_end_may_leave_a_window(tmp_path):
    """It held nothing back any more, so the window's watermark is the same without it."""
    first = Shop(tmp_path)
    live(first.write(windowed(first, _united(first))))
    alone = Shop(tmp_path)

    assert [
        "source others is no longer read: if it comes back, it begins at its beginning"
    ] == live(alone.write(windowed(alone)))


# Checkpoints that say less, or what is not understood


def test_a_checkpoint_of_a_version_that_did_not_describe_opens(tmp_path):
    live(_both(tmp_path), stop=4)
    for file in (tmp_path / "ckpt" / "program").iterdir():
        file.unlink()

    assert [] == live(_both(tmp_path))

    for sink in ("out", "counts"):
        expected = run_sequential(_both(tmp_path).program, log=tmp_path / "ckpt")[sink]
        assert_same_rows(expected, written(tmp_path / sink))


def test_of_a_version_that_did_not_describe_the_slice_key_is_known(tmp_path):
    live(_both(tmp_path), stop=4)
    for file in (tmp_path / "ckpt" / "program").iterdir():
        file.unlink()

    text = refused(_seen(tmp_path, key=("k", "v")))

    assert "the state of seen in the checkpoint is divided by k" in text
    assert ["views is no longer in the program: the operator's state it kept is left behind"] == [
        note for note in live(_seen(tmp_path)) if "views" in note
    ]


@pytest.mark.parametrize("damage", ["newer", "cut", "key"])
def test_a_description_that_is_not_understood_is_refused(damage, tmp_path):
    live(_both(tmp_path), stop=4)
    (file,) = (tmp_path / "ckpt" / "program").iterdir()
    data = file.read_bytes()
    match damage:
        case "newer":
            file.write_bytes(b"v2" + data[2:])
            text = "was written by a newer version of Anabranch"
        case "cut":
            file.write_bytes(data[:-20])
            text = "checkpoint file program/0000000001 cannot be read"
        case "key":
            from anabranch.state.envelope import seal

            file.write_bytes(seal({"operators": {}, "sources": {}, "sinks": [], "lamps": 3}))
            text = "unknown key 'lamps'"

    assert text in refused(_both(tmp_path))


def test_descriptions_of_runs_long_gone_are_cleared_away(tmp_path):
    for _ in range(5):
        live(_both(tmp_path), stop=3, keep=1)
    live(_both(tmp_path), keep=1)
    live(_both(tmp_path), keep=1)

    files = sorted((tmp_path / "ckpt" / "program").iterdir())
    runs = {commit.run for commit in recover(LocalStore(tmp_path / "ckpt")).history}
    assert {number_of(str(file)) for file in files} <= runs | {7}
    found = Description.from_bytes("program", files[-1].read_bytes())
    assert {"views", "seen"} == found.operators.keys()
    assert {"clicks": "Records"} == found.sources
