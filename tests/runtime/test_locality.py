"""Parts say on which node they were made, and tasks prefer their own; output never shows it."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.epoch.triggers import available_now
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.exchange import FileExchange
from anabranch.runtime.locality import NODE, Topology, made_on, own_first
from anabranch.simulate.inline import KIND, UNKIND, InlineExecutor
from anabranch.state.slices import Owners
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from tests.runtime.test_inline import made, written

TWO = Topology(lanes={0: "a", 1: "b"}, slots=("a", "a", "b", "b"))


class Watched(InlineExecutor):
    """Notes in which order tasks read what was made on which node, and what merges got."""

    def __init__(self, topology, seed=0, mischief=KIND):
        super().__init__(seed, mischief, topology=topology)
        self.reads, self.merged, self.nodes = [], Counter(), Counter()

    def _done(self, lane, payload):
        self.reads.append([])
        return super()._done(lane, payload)

    def _process(self, lane):
        worker = super()._process(lane)
        worker._exchange = _Noting(worker._exchange, worker, self)
        return worker

    def run(self, heads, lanes, merges=()):
        done = super().run(heads, lanes, merges)
        for each in done.merges:
            self.merged.update(each.fetched)
        self.nodes.update(made_on(part) for head in done.heads for part in head.parts.values())
        return done


class _Noting:
    def __init__(self, inner, worker, executor):
        self._inner, self._worker, self._executor = (
            getattr(inner, "_inner", inner),
            worker,
            executor,
        )

    def write(self, name, parts):
        return self._inner.write(name, parts)

    def read(self, part, lane):
        self._executor.reads[-1].append((self._worker.node, made_on(part)))
        return self._inner.read(part, lane)


def run(program, checkpoint, executor, *, lanes=2, merge_above=0, rescale=(), rows=7):
    chosen = Settings(
        available_now(rows), checkpoint, lanes, slices=8, keep=None, merge_above=merge_above
    )
    assembled, told = assemble(program.freeze(), chosen, executor, MockClock()), []
    assembled.loop.on_progress = told.append
    steps, widths = 0, dict(rescale)
    while not assembled.loop.over:
        if steps in widths:
            assembled.loop.rescale(widths[steps], lambda: None)
        assembled.loop.step()
        steps += 1
    assembled.loop.close()
    assembled.close()
    return [each["anabranch"]["bytesFrom"] for each in told]


def check(program, tmp_path):
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert expected
    assert_same_rows(expected, written(tmp_path / "out"))


def test_a_lane_fetches_its_own_nodes_parts_first_and_takes_rows_in_their_order(tmp_path):
    program, executor = made("fraud", tmp_path, partitions=4), Watched(TWO)
    run(program, tmp_path / "ckpt", executor, rows=20)

    check(program, tmp_path)
    assert {"a", "b"} == set(executor.nodes)
    mixed = [reads for reads in executor.reads if len({from_ for _, from_ in reads}) == 2]
    # One epoch a job, one entry: what a task read is one list of parts.
    assert mixed
    for reads in mixed:
        near = [node == from_ for node, from_ in reads]
        assert sorted(near, reverse=True) == near


def test_progress_tells_how_much_came_from_where(tmp_path):
    program = made("fraud", tmp_path, partitions=4)
    told = run(program, tmp_path / "ckpt", InlineExecutor(topology=TWO))
    assert all(each["ownNode"] > 0 for each in told)
    assert any(each["otherNodes"] > 0 for each in told)

    again = made("fraud", tmp_path / "again", partitions=4)
    alone = run(again, tmp_path / "again" / "ckpt", InlineExecutor())
    assert all(each["otherNodes"] == 0 for each in alone)
    assert sum(map(_all, told)) == sum(map(_all, alone))


def _all(told):
    return told["ownNode"] + told["otherNodes"]


def test_rows_are_put_in_order_where_most_of_them_are(tmp_path):
    """All but one of eight slices are on node b, whose slot is the last: there merges run."""
    topology = Topology(lanes={0: "a", 1: "b", 2: "b", 3: "b"}, slots=("a", "a", "b"))
    program, executor = made("fraud", tmp_path, count=120), Watched(topology)
    run(program, tmp_path / "ckpt", executor, lanes=4, rows=40)

    check(program, tmp_path)
    assert executor.merged["ownNode"] > executor.merged["otherNodes"] > 0


def test_slices_of_a_lane_that_goes_stay_on_their_node_where_it_is_as_good():
    before = Owners.spread(slices=16, lanes=4)
    nodes = {0: "a", 1: "b", 2: "a", 3: "b"}

    near, anywhere = before.moved_to(3, nodes=nodes), before.moved_to(3)
    assert [4, 4] == [len(each.moves(before)) for each in (near, anywhere)]
    assert _within(near, before, nodes) > _within(anywhere, before, nodes)


def _within(after, before, nodes):
    return sum(nodes[from_] == nodes[to] for from_, to in after.moves(before).values())


@given(
    st.integers(1, 6).flatmap(lambda n: st.lists(st.integers(0, n - 1), min_size=6, max_size=40)),
    st.integers(1, 6),
    st.dictionaries(st.integers(0, 5), st.sampled_from(["", "a", "b"])),
)
def test_to_stay_on_a_node_costs_neither_moves_nor_balance(of, lanes, nodes):
    owners = Owners(len(of), max(of) + 1, tuple(of))
    near, anywhere = owners.moved_to(lanes, nodes=nodes), owners.moved_to(lanes)
    assert sorted(Counter(near.of).values()) == sorted(Counter(anywhere.of).values())
    assert len(near.moves(owners)) == len(anywhere.moves(owners))


@given(st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=8), st.sampled_from("ab"))
def test_each_part_is_fetched_once(nodes, mine):
    parts = [{NODE: node} for node in nodes]
    assert list(range(len(parts))) == sorted(own_first(parts, mine))


NODES = st.sampled_from(["", "a", "b", "c"])


@pytest.mark.slow
@settings(max_examples=12)
@given(
    st.dictionaries(st.integers(0, 3), NODES, max_size=4),
    st.lists(NODES, min_size=1, max_size=3),
    st.integers(0, 99),
)
def test_whatever_the_topology_the_output_is_the_same(tmp_path_factory, lanes, slots, seed):
    home = tmp_path_factory.mktemp("any")
    program = made("fraud", home, count=45, partitions=2)
    executor = InlineExecutor(seed, UNKIND, topology=Topology(lanes, slots))
    run(program, home / "ckpt", executor, rescale=((2, 3), (6, 1)))
    check(program, home)


def test_a_reference_keeps_its_node(tmp_path):
    from anabranch.runtime.carried import CarriedReference
    from anabranch.runtime.exchange import PartName, Reference

    part = FileExchange(tmp_path).write(PartName("run", 1, 0, "a"), {0: b"x"})
    assert "b" == Reference.from_json({**part, NODE: "b"}).node
    carried = CarriedReference("s", "run", 1, 0, "a", {0: (1, 2)}, node="b")
    assert carried == CarriedReference.from_json(carried.as_json())
