"""The programs of the papers, as our users would write them.

Schneider et al., "Auto-Parallelizing Stateful Distributed Streaming Applications" (PACT 2012): figure
1, figure 5, the kernels of section 5.3. Prasaad et al., "Scaling Ordered Stream Processing on
Shared-Memory Multicores" (2018): the queries of table 1.
"""

from __future__ import annotations

import polars as pl

import anabranch as ab
from bench.workloads import fraud, tpcxbb, vwap, ysb

EVENTS = {"t": pl.Int64, "k": pl.String, "l": pl.String, "v": pl.Int64}
LOGS = {"t": pl.Int64, "uid": pl.Int64, "server": pl.String, "msg": pl.String}
TWEETS = {"t": pl.Int64, "author": pl.String, "text": pl.String}


def source(schema):
    return ab.sources.Records([], schema=schema)


# Figure 1


def figure_1():
    program = ab.Program("figure-1")
    (
        program.read(source(LOGS), name="ParSrc", event_time="t")
        .window(ab.tumbling("5 s"), by="uid")
        .agg(name="Aggregate", total=ab.count())
        .filter(pl.col("total") > 100, name="Filter")
        .write(ab.sinks.Memory("suspects"), name="FileSink")
    )
    return program


# Figure 5: the drawing is lost in the text, the prose tells enough of it


@ab.operator(out=EVENTS)
def not_parallelizable(record, state):
    state.value = record
    return record


def figure_5(fused=True):
    """Fourteen operators; `l` and `k` are keys, "n.p." is a state over the whole stream."""
    program = ab.Program("figure-5")

    def read(name):
        return program.read(source(EVENTS), name=name, event_time="t")

    def no(stream, name):
        return stream.process(not_parallelizable, name=name)

    def keyed(stream, name, *key):
        return stream.key_by(*key).deduplicate(name=name)

    def stateless(stream, name):
        return stream.filter(pl.col("v") > 0, name=name)

    o1, o2 = read("o1"), read("o2")
    o3 = no(o2, "o3")
    o4 = no(o3, "o4")
    o5 = stateless(o4, "o5")
    o6 = keyed(o5, "o6", "k")
    o7 = no(o6, "o7")
    o8 = o1.merge(o7, name="o8")
    o9 = keyed(o8, "o9", "k")
    o10 = keyed(o9, "o10", "k", "l")
    o11 = keyed(o10, "o11", "l")
    o12 = stateless(o11, "o12")
    o13 = o12.union(o4, name="o13")
    o14 = stateless(o13, "o14")
    if fused:
        o12.fuse_with(o14)
    return program


# Section 5.3


def network_monitoring():
    """Parallel sources and parallel sinks: nobody asks for an order."""
    program = ab.Program("network-monitoring")
    (
        program.read(source(LOGS), name="servers", event_time="t")
        .filter(pl.col("msg") != "ok", name="left")
        .window(ab.tumbling("5 s"), by="uid")
        .agg(name="users", total=ab.count())
        .filter(pl.col("total") > 100, name="right")
        .write(ab.sinks.Memory("suspects"), ordered=False)
    )
    return program


RANKS = {"page": pl.Int64, "rank": pl.Float64}


@ab.operator(out=RANKS)
def add(part, state):
    total = state.map.get(part["page"], 0.0) + part["rank"]
    state.map[part["page"]] = total
    return {"page": part["page"], "rank": total}


def pagerank():
    """Each iteration multiplies in parallel and assembles in one place."""
    links = pl.DataFrame(schema={"page": pl.Int64, "to": pl.Int64, "weight": pl.Float64})
    program = ab.Program("pagerank")
    ranks = program.feedback(RANKS, name="Iterate")
    added = (
        program.read(source(RANKS), name="Start")
        .union(ranks, name="Ranks")
        .lookup(links, on="page", many=True, name="Links")
        .select(page="to", rank=pl.col("rank") * pl.col("weight"), name="MulAdd")
        .process(add, name="Add")
    )
    ranks.close(added)
    added.write(ab.sinks.Memory("ranks"))
    return program


@ab.operator(
    out={"words": pl.List(pl.String()), "lengths": pl.List(pl.Int64()), "average": pl.Float64}
)
def analysed(tweet):
    words = tweet["text"].split()
    lengths = [len(word) for word in words]
    return {"words": words, "lengths": lengths, "average": sum(lengths) / max(1, len(lengths))}


def twitter_nlp():
    program = ab.Program("twitter-nlp")
    (
        program.read(source(TWEETS), event_time="t")
        .map(analysed, name="NLP")
        .write(ab.sinks.Memory("out"))
    )
    return program


@ab.operator(out={"t": pl.Int64, "author": pl.String, "tag": pl.String})
def parsed(tweet):
    tag = ""
    for word in tweet["text"].split():
        if word.startswith("#"):
            tag = word
    return {"t": tweet["t"], "author": tweet["author"], "tag": tag}


def twitter_cep():
    program = ab.Program("twitter-cep")
    (
        program.read(source(TWEETS), event_time="t")
        .map(parsed, name="Parse")
        .key_by("author")
        .match([ab.step("tagged", pl.col("tag") != "", times=5)], within="1 h", name="Match")
        .write(ab.sinks.Memory("out"))
    )
    return program


def finance():
    return vwap.bargains(source(vwap.TRADES), source(vwap.QUOTES))


# Prasaad et al., table 1


def clicks():
    return source({**tpcxbb.CLICKS, "tstamp": pl.Int64})


def sales():
    return source({**tpcxbb.SALES, "tstamp": pl.Int64})


def items():
    return pl.DataFrame(schema=tpcxbb.ITEMS)


def pages():
    return pl.DataFrame(schema=tpcxbb.PAGES)


ALL = {
    "figure 1": figure_1,
    "figure 5": figure_5,
    "network monitoring": network_monitoring,
    "PageRank": pagerank,
    "Twitter NLP": twitter_nlp,
    "Twitter CEP": twitter_cep,
    "finance": finance,
    "TPCx-BB 1": lambda: tpcxbb.q1(sales(), items()),
    "TPCx-BB 1, running": lambda: tpcxbb.q1(sales(), items(), running=True),
    "TPCx-BB 2": lambda: tpcxbb.q2(clicks()),
    "TPCx-BB 3": lambda: tpcxbb.q3(clicks(), items()),
    "TPCx-BB 4": lambda: tpcxbb.q4(clicks(), pages()),
    "TPCx-BB 15": lambda: tpcxbb.q15(sales(), items()),
    "YSB": lambda: ysb.campaign_views(source(ysb.SCHEMA)),
    "fraud": lambda: fraud.high_mobility(source(fraud.CALLS), area_codes=["044"]),
}
