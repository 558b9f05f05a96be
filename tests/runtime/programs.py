"""The three programs of the spine, and a loop, small, over sources that tests choose."""

import polars as pl

import anabranch as ab

ADS = pl.DataFrame({"ad": list(range(20)), "campaign": [f"c{ad // 5}" for ad in range(20)]})
EVENTS = {"t": pl.Int64, "ad": pl.Int64, "kind": pl.String, "price": pl.Int64}
CALLS = {"t": pl.Int64, "caller": pl.String, "callee": pl.String, "x": pl.Int64}
TEXTS = {"t": pl.Int64, "text": pl.String}


def events(count):
    return [
        {"t": i * 37 % 5000 + i * 20, "ad": i * 7 % 23, "kind": "vcp"[i * 5 % 3], "price": i % 11}
        for i in range(count)
    ]


def calls(count):
    return [
        {"t": i * 50, "caller": f"p{i * i % 7}", "callee": f"p{(i * 3 + 1) % 7}", "x": i * 13 % 97}
        for i in range(count)
    ]


def texts(count):
    words = ["a", "rose", "is", "not", "é", ""]
    return [
        {"t": i * 90, "text": " ".join(words[(i * k) % 6] for k in range(1, 2 + i % 4))}
        for i in range(count)
    ]


def campaign_views(source, sink, *, ordered=True):
    program = ab.Program("campaign-views")
    (
        program.read(source, name="events", event_time="t", lateness="2 s")
        .filter(pl.col("kind") == "v")
        .lookup(ADS, on="ad")
        .window(ab.tumbling("1 s"), by="campaign")
        .agg(views=ab.count(), spent=ab.sum("price"))
        .write(sink, name="out", ordered=ordered)
    )
    return program


def places(call):
    yield {"phone": call["caller"], "t": call["t"], "x": call["x"]}
    yield {"phone": call["callee"], "t": call["t"], "x": call["x"] + 40}


def speed(place, state):
    before, state.value = state.value, (place["t"], place["x"])
    if before is not None:
        hours = max(place["t"] - before[0], 1)
        yield {
            "phone": place["phone"],
            "t": place["t"],
            "v": (place["x"] - before[1]) * 100 // hours,
        }


def fraud(source, sink, *, ordered=True):
    program = ab.Program("fraud")
    (
        program.read(source, name="calls", event_time="t")
        .flat_map(places, out={"phone": pl.String, "t": pl.Int64, "x": pl.Int64})
        .key_by("phone")
        .process(speed, out={"phone": pl.String, "t": pl.Int64, "v": pl.Int64})
        .filter(pl.col("v").abs() > 3)
        .write(sink, name="out", ordered=ordered)
    )
    return program


def word_count(source, sink, *, ordered=True):
    program = ab.Program("word-count")
    (
        program.read(source, name="texts", event_time="t")
        .with_columns(word=pl.col("text").str.split(" "))
        .explode("word")
        .filter(pl.col("word") != "")
        .window(ab.tumbling("2 s"), by="word")
        .agg(n=ab.count())
        .write(sink, name="out", ordered=ordered)
    )
    return program


def forwarded(source, sink, *, ordered=True):
    """Calls are forwarded, phone by phone, an epoch each; what a phone had is counted behind it."""
    program = ab.Program("forwarded")
    back = program.feedback(CALLS, event_time="t", name="again")
    first = program.read(source, name="calls", event_time="t").key_by("caller").reduce(_farther)
    rung = first.union(back, name="rung")
    back.close(rung.filter(pl.col("x") > 30).with_columns(x=pl.col("x") - 30, caller="callee"))
    (
        rung.window(ab.tumbling("1 s"), by="caller")
        .agg(n=ab.count(), x=ab.sum("x"))
        .write(sink, name="out", ordered=ordered)
    )
    return program


def _farther(value, call):
    return {**call, "x": (value["x"] + call["x"]) % 97}


PROGRAMS = {
    "campaign_views": (campaign_views, events, EVENTS),
    "fraud": (fraud, calls, CALLS),
    "word_count": (word_count, texts, TEXTS),
}
LOOPS = {"forwarded": (forwarded, calls, CALLS)}
"""Programs whose output depends on how the log is cut, which some tests are not for."""
