"""PageRank against power iteration with a dense matrix in NumPy."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import anabranch as ab
from bench.workloads import disorder, pagerank

slow = pytest.mark.slow

PAGES, EACH, VECTORS = 30, 3, 3
L1 = 1e-9

DISORDERS = {
    "none": lambda frame: frame,
    "block shuffle": lambda frame: disorder.block_shuffle(frame, 20),
    "uniform delay": lambda frame: disorder.delayed(frame, bound_ms=1000, seed=1, time="time"),
    "zipf delay": lambda frame: disorder.delayed(
        frame, bound_ms=1000, seed=1, kind="zipf", time="time"
    ),
    "held back": lambda frame: disorder.held_back(frame, epoch_rows=40, share=0.4, seed=1),
}


def web(pages=PAGES, each=EACH):
    return pagerank.links(pages, each, seed=5)


def starts(vectors=VECTORS, pages=PAGES):
    numbers = pl.int_range(vectors * pages, dtype=pl.UInt64, eager=True)
    return pagerank.starts(numbers, pages=pages, seed=5)


def by_power_iteration(linked, rank, iterations):
    """The ranks by a matrix of all pages times all pages; `linked` are pairs, without weights."""
    handed_on = np.zeros((len(rank), len(rank)))
    for page, to in linked:
        handed_on[to, page] += 1 / sum(1 for other, _ in linked if other == page)
    for _ in range(iterations):
        rank = 0.15 / len(rank) + 0.85 * handed_on @ rank
    return rank


def pairs(links):
    """A web's links but for those of no weight."""
    return links.filter(pl.col("weight") > 0).select("page", "to").rows()


def iterated(links, iterations, epoch_rows=1, more_rounds=0):
    source = pagerank.rounds(iterations + more_rounds)
    program = pagerank.iterated(source, links, iterations=iterations)
    return ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]


def ranks(rows, pages):
    """The ranks in order of pages; each page has one."""
    found = {row["page"]: row["rank"] for row in rows}
    assert len(rows) == len(found) == pages
    return np.array([found[page] for page in range(pages)])


def error(expected, actual):
    return float(np.abs(expected - actual).sum())


@slow
@pytest.mark.parametrize("iterations", [1, 20])
def test_ranks_with_a_loop_are_those_of_power_iteration(iterations):
    links = web()

    found = ranks(iterated(links, iterations), PAGES)

    equal = np.full(PAGES, 1 / PAGES)
    expected = by_power_iteration(pairs(links), equal, iterations)
    assert error(expected, found) < L1
    assert error(expected, equal) > 0.1, "iterating must make a difference"
    assert 1.0 == pytest.approx(found.sum())


@pytest.mark.parametrize("kind", DISORDERS)
@pytest.mark.parametrize("epoch_rows", [None, 40])
def test_unrolled_ranks_are_those_of_power_iteration(kind, epoch_rows):
    links, given = web(), starts()
    source = ab.sources.Records(DISORDERS[kind](given))
    program = pagerank.unrolled(source, links, iterations=2, lateness="1 s")

    found = ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]

    assert sorted(found, key=lambda row: (row["window_start"], row["page"])) == found
    for second in range(VECTORS):
        vector = given["rank"].to_numpy()[second * PAGES : (second + 1) * PAGES]
        expected = by_power_iteration(pairs(links), vector, 2)
        of_second = [row for row in found if row["window_start"] == 1000 * second]
        assert error(expected, ranks(of_second, PAGES)) < L1


def vectors(given, pages=PAGES):
    """The ranks of each second as a row."""
    ranks = [part["rank"].to_list() for part in given.iter_slices(pages)]
    times = [1000 * second for second in range(len(ranks))]
    return pl.DataFrame({"time": times, "ranks": ranks}, pagerank.VECTORS)


@pytest.mark.parametrize("count", [1, 4, 7, PAGES])
@pytest.mark.parametrize("epoch_rows", [None, 1])
def test_ranks_by_blocks_are_those_of_power_iteration(tmp_path, count, epoch_rows):
    links, given = web(), starts()
    matrix = pagerank.Matrix.kept(links, tmp_path)
    source = ab.sources.Records(vectors(given))
    program = pagerank.blocks(source, matrix, count=count, iterations=2)

    found = ab.testing.run_sequential(program, epoch_rows=epoch_rows)["out"]

    assert VECTORS == len(found)
    for second, row in enumerate(found):
        vector = given["rank"].to_numpy()[second * PAGES : (second + 1) * PAGES]
        assert error(by_power_iteration(pairs(links), vector, 2), np.array(row["ranks"])) < L1


@pytest.mark.parametrize("kind", [kind for kind in DISORDERS if kind != "block shuffle"])
def test_vectors_that_come_late_come_out_in_their_order(tmp_path, kind):
    """Three vectors are no block to shuffle; none comes more than a second late, which is waited for."""
    matrix, given = pagerank.Matrix.kept(web(), tmp_path), vectors(starts())
    program = pagerank.blocks(
        ab.sources.Records(DISORDERS[kind](given)), matrix, count=4, iterations=1, lateness="3 s"
    )
    in_order = pagerank.blocks(ab.sources.Records(given), matrix, count=4, iterations=1)

    found = ab.testing.run_sequential(program, epoch_rows=1)["out"]

    assert ab.testing.run_sequential(in_order, epoch_rows=1)["out"] == found


def test_the_vectors_of_a_source_are_the_ranks_of_the_other(tmp_path):
    numbers = pl.int_range(VECTORS, dtype=pl.UInt64, eager=True)

    assert_frame_equal(vectors(starts()), pagerank.vectors(numbers, pages=PAGES, seed=5))


def test_a_page_to_which_nobody_links_is_handed_nothing(tmp_path):
    """Pages 0 and 1 link to each other, 2 links to 0."""
    links = [(0, 1, 1.0), (1, 0, 1.0), (2, 0, 1.0), *((page, page, 0.0) for page in range(3))]
    frame = pl.DataFrame(links, schema=pagerank.LINKS, orient="row")
    matrix = pagerank.Matrix.kept(frame, tmp_path)

    ranks = np.array([0.5, 0.3, 0.2])

    assert pytest.approx([0.5, 0.5, 0.0]) == matrix.times(ranks, 0, 3)
    assert [0.0] == matrix.times(ranks, 2, 3).tolist()


def test_links_of_several_weights_are_refused(tmp_path):
    frame = pl.DataFrame([(0, 1, 1.0), (1, 0, 0.5)], schema=pagerank.LINKS, orient="row")

    with pytest.raises(ValueError, match="one weight for all links"):
        pagerank.Matrix.kept(frame, tmp_path)


@slow
@pytest.mark.parametrize("trigger", [None, ab.continuous()])
def test_any_width_gives_the_same_by_blocks(tmp_path, trigger):
    matrix = pagerank.Matrix.kept(web(12), tmp_path)
    source = pagerank.vector_source(4, pages=12, seed=5, partitions=2)
    program = pagerank.blocks(source, matrix, count=5, iterations=2)

    ab.testing.assert_same_as_sequential(program, trigger=trigger)


@slow
def test_unrolled_and_with_a_loop_are_the_same():
    links = web(pages=12)
    equal = pl.DataFrame({"time": 0, "page": range(12), "rank": 1 / 12}, pagerank.STARTS)
    unrolled = pagerank.unrolled(ab.sources.Records(equal), links, iterations=20)

    found = ab.testing.run_sequential(unrolled)["out"]

    assert error(ranks(iterated(links, 20), 12), ranks(found, 12)) < L1


def test_a_page_to_which_nobody_links_has_a_rank():
    """Pages 0 and 1 link to each other, 2 links to 0; from a third each.

    Handed on: 2/3 to page 0, 1/3 to page 1, nothing to page 2.
    """
    links = [(0, 1, 1.0), (1, 0, 1.0), (2, 0, 1.0), *((page, page, 0.0) for page in range(3))]
    frame = pl.DataFrame(links, schema=pagerank.LINKS, orient="row")

    found = ranks(iterated(frame, 1), 3)

    expected = [0.05 + 0.85 * 2 / 3, 0.05 + 0.85 / 3, 0.05]
    assert pytest.approx(expected, rel=1e-12) == found


def test_the_loop_ends_after_its_iterations():
    """Rounds that come after give nothing, and start nothing."""
    assert iterated(web(8), 3) == iterated(web(8), 3, more_rounds=4)


def test_an_iteration_is_an_epoch():
    """Four rounds in two epochs are two iterations: what is asked for never comes."""
    assert [] == iterated(web(8), 4, epoch_rows=2)


@slow
def test_any_width_gives_the_same_unrolled():
    program = pagerank.unrolled(pagerank.source(2, pages=12, seed=5), web(12), iterations=3)

    ab.testing.assert_same_as_sequential(program)


@slow
def test_any_width_gives_the_same_with_a_loop():
    program = pagerank.iterated(pagerank.rounds(5), web(12), iterations=4)

    ab.testing.assert_same_as_sequential(
        program, trigger=ab.available_now(max_rows=1), crash_at=[2], rescale_at={3: 3}
    )


@slow
def test_a_resident_loop_gives_the_same():
    program = pagerank.iterated(pagerank.rounds(3), web(12), iterations=3)

    ab.testing.assert_same_as_sequential(program, trigger=ab.continuous())


def regions(program):
    """What the compiler says, and of it each operator's region."""
    facts = json.loads(program.explain("json"))
    return facts, {name: region for region in facts["regions"] for name in region["operators"]}


def test_links_are_multiplied_in_parallel_and_added_in_one_place():
    """The paper: the channels of a parallel MulAdd, an Add, and back."""
    facts, region = regions(pagerank.iterated(pagerank.rounds(3), web(8)))

    assert region["multiply"] is region["links"]
    assert (True, None) == (region["multiply"]["parallel"], region["multiply"]["key"])
    assert not region["add"]["parallel"]
    assert not region["iterate"]["parallel"]
    joints = {(each["from"], each["to"]): each["kind"] for each in facts["joints"]}
    assert "split" == joints[region["iterate"]["id"], region["multiply"]["id"]]
    assert "merge" == joints[region["multiply"]["id"], region["add"]["id"]]


def test_blocks_are_multiplied_in_parallel_and_added_in_one_place(tmp_path):
    """The paper: some rows of the matrix in each channel, an Add for all of them."""
    matrix = pagerank.Matrix.kept(web(8), tmp_path)
    source = pagerank.vector_source(pages=8)
    _, region = regions(pagerank.blocks(source, matrix, count=4, iterations=2))

    for number in (1, 2):
        assert ["block"] == region[f"multiply-{number}"]["key"]
        assert region[f"multiply-{number}"]["parallel"]
        assert not region[f"add-{number}"]["parallel"]


def test_unrolled_every_iteration_is_parallel():
    """A stage adds by page, and what it adds is multiplied for the next where it is."""
    program = pagerank.unrolled(pagerank.source(pages=8), web(8), iterations=3)
    facts, region = regions(program)

    assert ["out"] == [name for name, each in region.items() if not each["parallel"]], (
        "all but the sink, which takes its rows in order"
    )
    for number in (1, 2, 3):
        assert ["page"] == region[f"add-{number}"]["key"]
    assert region["add-1"] is region["multiply-2"]
    assert region["add-2"] is region["multiply-3"]
    assert ["shuffle"] * 3 == [
        each["kind"] for each in facts["joints"] if each["kind"] == "shuffle"
    ]


def test_links_are_uniform_and_as_many_of_each_page():
    links = pagerank.links(1_000, 20, seed=5).filter(pl.col("weight") > 0)

    assert {20} == set(links.group_by("page").len()["len"])
    assert {0.05} == set(links["weight"])
    incoming = links.group_by("to").len()["len"]
    # Poisson: the variance is the mean.
    assert 20 == pytest.approx(incoming.var(), rel=0.15)


def test_any_part_of_the_web_is_made_alone():
    whole = web(100)

    part = pagerank.edges(pl.Series([290, 17], dtype=pl.UInt64), pages=100, each=EACH, seed=5)

    assert_frame_equal(whole[[290, 17]], part)
