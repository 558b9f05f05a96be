from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from dataclasses import replace

import polars as pl
import pytest

from bench.benches import kernels
from bench.benches import streambox as streambox_bench
from bench.harness.stand import Settings, Stand
from bench.kernels import cases, growth, single
from bench.kernels.tasks import Tasks
from bench.streambox import paced
from bench.workloads import streambox

STAND = Stand(Settings(runs=1, warmups=0, quick=True))
ROWS, SECONDS = 2_000, 3


@pytest.mark.parametrize(
    "case", [cases.STATELESS, cases.SLIDING, *cases.CASES], ids=lambda case: case.name
)
def test_tasks_give_the_rows_that_work_by_hand_gives(case):
    case.check(1_000)


def test_a_case_that_gives_other_rows_is_not_measured():
    def forgetful(frame):
        return cases.KEYED.by_hand()(frame)

    wrong = replace(cases.KEYED, by_hand=lambda: forgetful)

    with pytest.raises(AssertionError):
        wrong.check(1_000)


def test_the_contract_names_cases_and_what_they_are_compared_with(monkeypatch):
    monkeypatch.setattr(kernels, "ROWS", 1_000)
    monkeypatch.setattr(kernels, "SMALL", 100)
    monkeypatch.setattr(kernels, "KEYS", (50,))
    monkeypatch.setattr(growth, "measure", lambda stand: [])

    rows = kernels.cases(STAND)

    pairs = {(row.case, row.against) for row in rows if row.system == "anabranch"}
    wanted = ("stateless-200k", "stateless-1k", "window-count", "sliding", "rows", "keyed", "join")
    assert {(case, "by-hand") for case in wanted} | {("sliding", "tumbling")} <= pairs
    assert {"throughput"} == {row.metric for row in rows}


def test_idle_keys_have_state_and_are_in_no_batch():
    tasks = growth.filled(cases.keyed, 30)

    (out,) = tasks.epoch([cases.events(1, 100)])

    (whole,) = tasks.state.whole().values()
    assert 30 + out["name"].n_unique() == whole.height


def test_growth_is_told_against_the_least(monkeypatch):
    monkeypatch.setattr(growth, "BATCH", 100)

    rows = growth.idle_keys(STAND, "window", (10, 20))

    assert [("10 idle", None), ("20 idle", "10 idle")] == sorted(
        (row.system, row.against) for row in rows
    )
    assert all(row.metric == "seconds" for row in rows)


def test_bytes_are_told_of_a_key_and_of_an_open_window():
    rows = growth.memory(500)

    assert {"state of a key", "state of an open window"} == {row.case for row in rows}
    assert all(row.metric == "bytes" and row.value > 0 for row in rows)


def test_a_process_with_several_threads_is_refused(monkeypatch):
    monkeypatch.setattr(pl, "thread_pool_size", lambda: 2)

    with pytest.raises(RuntimeError, match=r"^Polars has 2 threads; set POLARS_MAX_THREADS=1$"):
        single.main("bench.benches.kernels", json.dumps({}))


def benchmark(name):
    return next(each for each in streambox.BENCHMARKS if each.name == name)


def played(name, rows=ROWS):
    """What comes out of some seconds, and the records that went in, by second."""
    chosen = benchmark(name)
    replay, tasks = chosen.replay(rows), Tasks(chosen.program())
    seconds = [list(replay.second(second)) for second in range(SECONDS)]
    found = [frame for second in seconds for frame in tasks.epoch(second)]
    found += tasks.epoch([seconds[0][0].clear()], last=True)
    return pl.concat(found), [pl.concat(second) for second in seconds]


def test_grep_finds_what_was_planted():
    found, given = played("grep")

    assert [ROWS // 10] * SECONDS == found["count"].to_list()
    expected = [re.findall(streambox.URL, text) for text in given[0]["text"]]
    assert [url for urls in expected for url in urls] == found["urls"][0].to_list()
    assert {1000} == set(given[0]["text"].str.len_bytes())


def test_words_are_counted():
    found, given = played("wordcount")

    second = given[1]["text"].str.to_uppercase()
    expected = Counter(word for text in second for word in text.split(" "))
    (start,) = given[1]["t"].dt.truncate("1s").unique()
    counts = found.filter(pl.col("window_start") == start)
    assert expected == dict(counts.select("word", "count").iter_rows())


def test_every_record_of_the_join_has_a_partner_once_the_first_second_is_over():
    found, given = played("join")

    half = ROWS // 2
    assert (SECONDS - 1) * half + half * 7 // 10 == found.height
    assert found["key"].n_unique() == half == given[0]["key"].n_unique()
    assert (found["one"] == ~found["two"]).all()


def test_urls_are_counted_once():
    found, given = played("distinct")

    assert [second["url"].n_unique() for second in given] == found["distinct"].to_list()
    assert {100} == set(given[0]["url"].str.len_bytes())


def test_round_trips_are_added_up_by_pair():
    found, given = played("netmon")

    expected = given[2].group_by("src", "dst").agg(total=pl.col("rtt").sum(), count=pl.len())
    last = found.filter(pl.col("window_start") == pl.col("window_start").max())
    columns = ["src", "dst", "total", "count"]
    assert sorted(expected.select(columns).rows()) == sorted(last.select(columns).rows())


def test_tweets_have_a_sentiment_and_ten_words():
    found, given = played("tweets", 300)

    words = Counter(word for text in given[0]["text"] for word in text.split(" "))
    score = dict(streambox.scores().iter_rows())
    most = sorted(words.items(), key=lambda each: (-each[1], each[0]))[: streambox.TOP]
    assert [sum(score.get(w, 0) * n for w, n in words.items())] * 3 == found["sentiment"].to_list()
    assert most == [(each["value"], each["count"]) for each in found["top"][0]]


def test_published_figures_stand_beside_ours(monkeypatch):
    small = replace(benchmark("netmon"), rows=1_000)
    monkeypatch.setattr(streambox_bench, "BENCHMARKS", (small,))
    monkeypatch.setattr(single, "measured", lambda _, stand: streambox_bench.cases(stand))

    ours, published = streambox_bench.measure(STAND)

    assert (streambox_bench.ALONE, streambox_bench.PUBLISHED) == (ours.system, ours.against)
    assert "throughput_per_core" == ours.metric
    assert 17_857 == published.value


def test_a_buffer_is_replayed_at_a_rate_and_its_rows_are_of_the_time_when_they_are_due(tmp_path):
    source = paced.Paced("netmon", 1_000, 3.0, tmp_path)
    assert {0: 0} == source.latest()
    source.go(100.0)
    ends = source.plan({0: 500}, {0: 2_500})
    found = pl.concat([source.frame(split) for split in ends])

    assert [(500, 1_500, 100.0), (1_500, 2_500, 100.0)] == ends
    times = found["t"].cast(pl.Int64)
    assert (100_500_000, 102_499_000) == (times[0], times[-1])
    assert times.is_sorted()
    again = source.frame((1_500, 1_600, 100.0)).drop("t")
    assert again.equals(source.frame((500, 600, 100.0)).drop("t")), "the buffer is a second long"


def test_rows_with_times_of_their_own_keep_them_second_by_second(tmp_path):
    source = paced.Paced("join", 1_000, 3.0, tmp_path)

    first, second = (source.frame((at, at + 1_000, 100.0)) for at in (0, 1_000))

    assert [1_000_000] * 1_000 == (second["t"] - first["t"]).dt.total_microseconds().to_list()


def test_latencies_are_from_the_time_of_a_result_until_it_is_seen(monkeypatch):
    sink = pickle.loads(pickle.dumps(paced.Late("at", early=True)))
    times = pl.DataFrame({"at": [7_000_000, 5_000_000]}).cast(pl.Datetime("us"))
    monkeypatch.setattr(paced.time, "time", lambda: 9.5)

    sink.publish([sink.write(times.to_arrow().to_batches(), 0, "a")], 0)

    assert [4.5] == sink.latencies(4.0, 6.0)
    assert [] == sink.latencies(6.0, 8.0)
    assert "early" == sink.visible
