"""A window by more columns than what follows it: one region, divided by what both share."""

import polars as pl
import pytest

import anabranch as ab

ROWS = [{"t": t, "s": s, "u": u} for t in (0, 1) for s in range(6) for u in range(4)]
PLACES = pl.DataFrame({"s": range(6), "place": [s % 3 for s in range(6)]})


def by_both(window, *, looked_up=False):
    program = ab.Program("fine")
    stream = program.read(ab.sources.Records(ROWS), name="in", event_time="t")
    first = "s"
    if looked_up:
        stream, first = stream.lookup(PLACES, on="s"), "place"
    return program, stream.window(window, by=[first, "u"]).agg(n=ab.count())


def counted(record, state):
    state.value = (state.value or 0) + record["n"]
    yield {"u": record["u"], "n": state.value}


FOLLOWING = {
    "window": lambda made: made.window(ab.tumbling("5 ms"), by="u").agg(n=ab.sum("n")),
    "process": lambda made: made.key_by("u").process(counted, out={"u": pl.Int64, "n": pl.Int64}),
    "deduplicate": lambda made: made.key_by("u").deduplicate(within="1 s"),
}


@pytest.mark.parametrize("looked_up", [False, True])
@pytest.mark.parametrize("window", [ab.tumbling("5 ms"), ab.sliding("4 ms", "2 ms")])
@pytest.mark.parametrize("following", FOLLOWING)
def test_what_follows_has_all_rows_of_its_key_in_one_lane(following, window, looked_up):
    program, made = by_both(window, looked_up=looked_up)
    FOLLOWING[following](made).write(ab.sinks.Memory("out"), name="out")

    ab.testing.assert_same_as_sequential(program, widths=(2, 3))
