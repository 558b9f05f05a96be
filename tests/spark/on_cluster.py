"""Queries on executors that come and go, and whose width changes meanwhile; in a process of its own.

`python on_cluster.py <kind> <directory> <scenario> ...`, where the kind is "standalone" or a Spark master
such as "local-cluster[2,1,1024]". Says of each scenario, as a line of JSON, what went wrong, and what
was found. On a standalone master a scenario starts the nodes that it needs: those of the one before
it may be there, or not.
"""

import json
import random
import sys
import threading
import traceback
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import anabranch as ab
from anabranch.spark.private import Spark
from anabranch.spark.session import begin, spark_context
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import assert_same_as_sequential
from tests.runtime.programs import PROGRAMS
from tests.spark.held import Gate, gone, holding
from tests.spark.shaking import Shaking, kill_lanes, lanes_of
from tests.spark.standalone import Standalone
from tests.spark.test_spine import Growing, check, promptly

PATIENCE_S = 400
"""What asks a node for something that sleeps has 120 s of patience itself, by Spark's default."""
ROUNDS = 20
WORKER_TIMEOUT_S = 10
"""After so long, or twice that, the Master takes a node for lost that says nothing."""


class Place:
    """A Spark, the cluster that it is on, if it is one of ours, and where scenarios write."""

    def __init__(self, sc, home, cluster=None):
        self.sc, self.home, self.cluster = sc, home, cluster
        self.spark = Spark(sc)

    def there(self):
        """The executors there are, by id."""
        return {each for each in self.spark.executor_ids().split(",") if each}

    def until(self, holds, what):
        """Wait for something that Spark or a process will do in its own time."""
        moment = threading.Event()
        for _ in range(PATIENCE_S * 50):
            if found := holds():
                return found
            moment.wait(0.02)
        raise AssertionError(f"{what} did not come about")

    def join(self):
        """Have a node more, with its executor at hand."""
        before, node = self.there(), self.cluster.add()
        self.until(lambda: self.there() - before, "an executor on the node that joined")
        return node

    def nodes(self, count):
        """Have so many nodes, each with its executor at hand: of those there are, or new ones."""
        for node in self.cluster.nodes:
            node.thaw()  # a scenario that went wrong may have left it asleep
        living = [node for node in self.cluster.nodes if node.executors()]
        for node in self.cluster.nodes:
            if node not in living[:count] and node.processes():
                node.kill()
        self.until(lambda: len(self.there()) <= count, "the end of other executors")
        return living[:count] + [self.join() for _ in range(count - len(living))]


class Story:
    """A query on rows that come in, compared with its log whenever all of them are taken."""

    def __init__(self, place, home, lanes, name="fraud", program=None):
        self.place, self.home, self.growing = place, home, Growing(home, name)
        self._program = program or self.growing.program
        self.query = self._program(home).start(
            place.sc,
            trigger=ab.epochs("20 ms", 5),
            checkpoint=home / "ckpt",
            parallelism=lanes,
            slices=16,
        )

    def rows(self, count=20):
        """So many more, of which nobody waits for the end."""
        self.growing.add(count)

    def settled(self):
        """All rows that came are taken, and what came out is what the log means."""
        promptly(self.query.process_all_available, patience=PATIENCE_S)
        check(self._program(self.home), self.home)

    def at_work_on(self, *nodes):
        """Have rows taken until every lane's last task was on its node, in a process that lives.

        Where lanes go is decided from what Spark says of executors, which lags behind, and one that
        lost its process may have nothing to do for an epoch: its slices went to another lane, and
        come back later. So it is no single look that counts, but that they get there, and that
        it takes a bounded number of rounds of rows.
        """
        for _ in range(ROUNDS):
            if Counter(self.nodes_of_lanes()) == Counter(nodes):
                return
            self.rows()
            self.settled()
        raise AssertionError(
            f"after {ROUNDS} rounds lanes are on {self.nodes_of_lanes()}, not on {nodes}; "
            f"executors {self.place.there()}, lanes want to be on {lanes_of(self.query).executors()}"
        )

    def nodes_of_lanes(self):
        """The node of each lane that has a process, by its last task."""
        pids = lanes_of(self.query).pids().values()
        at = {pid: node for node in self.place.cluster.nodes for pid in node.processes()}
        return [at.get(pid) for pid in pids]

    def rescale(self, width):
        promptly(self.query.rescale, width, patience=PATIENCE_S)
        assert width == self.query.last_progress["anabranch"]["lanes"]

    def stop(self):
        promptly(self.query.stop, patience=PATIENCE_S)
        check(self._program(self.home), self.home)
        epochs = committed(self.home)
        assert list(range(len(epochs))) == epochs, "each epoch is committed once, in order"
        return epochs


def committed(home):
    history = recover(LocalStore(home / "ckpt")).history
    return [epoch for each in history for epoch in range(each.first, each.last + 1)]


@contextmanager
def story(place, home, lanes, **options):
    told = Story(place, home, lanes, **options)
    try:
        yield told
    finally:
        told.query.stop(drain=False)


# --- on a standalone master -----------------------------------------------------------------------


def members(place, home):
    """One query while a node joins, one is stopped, one loses its power and one is decommissioned."""
    (first,) = place.nodes(1)
    with story(place, home, 1) as told:
        told.rows()
        told.settled()
        second = place.join()
        told.rescale(2)
        told.rows()
        told.settled()
        told.at_work_on(first, second)  # the executor that came is used
        told.rows()
        second.stop()
        told.rows()
        told.settled()
        told.at_work_on(first, first)
        third = place.join()
        told.rows()
        first.kill()
        told.rows()
        told.settled()
        told.at_work_on(third, third)
        fourth = place.join()
        before = place.there()
        third.decommission()
        told.rows()
        told.settled()
        place.until(lambda: place.there() < before, "the end of the decommissioned executor")
        told.rows()
        told.settled()
        told.rescale(1)
        told.at_work_on(fourth)
        return {"epochs": len(told.stop())}


def amid(place, home):
    """A node is lost while slices are made ready to move to it, and from it; and two in a row are."""
    first, second = place.nodes(2)
    with story(place, home, 1) as told:
        told.rows()
        told.settled()
        (there,) = told.nodes_of_lanes()
        other = second if there is first else first
        with Shaking(told.query) as shaking:
            shaking.at(2, other.kill)  # where the second lane is to go
            told.rows(30)
            told.rescale(2)
            shaking.done(PATIENCE_S)
        told.settled()
        third = place.join()
        with Shaking(told.query) as shaking:
            shaking.at(2, there.kill)  # where both are
            told.rows(30)
            told.rescale(4)
            shaking.done(PATIENCE_S)
        told.settled()
        told.at_work_on(*[third] * 4)
        place.join()
        widths = [threading.Thread(target=told.query.rescale, args=(n,)) for n in (1, 3)]
        with Shaking(told.query) as shaking:
            shaking.at(1, third.kill)
            for each in widths:
                each.start()
            told.rows(30)
            for each in widths:
                each.join(PATIENCE_S)
                assert not each.is_alive(), "a change of width is waited for, and never comes"
            shaking.done(PATIENCE_S)
        told.settled()
        return {"epochs": len(told.stop())}


def zombie(place, home):
    """A node sleeps within a lane's task until Spark has given it up, and then goes on with it."""
    first, second = place.nodes(2)
    gate = Gate(home)
    with story(place, home, 2, program=lambda at: holding(gate, home, at)) as told:
        told.rows()
        told.settled()
        gate.shut()
        told.rows()
        pid = place.until(gate.who, "a task that waits")
        (frozen,) = [node for node in (first, second) if pid in node.processes()]
        frozen.freeze()
        told.settled()  # Spark notices, and what was under way is done elsewhere
        epochs, named = committed(home), state_files(home)
        assert len(place.there()) == 1
        # The task first: when the executor wakes up it will be told to end, with all that it has.
        frozen.thaw(pid)
        place.until(gate.open, "a task that wakes up")
        written = place.until(lambda: state_files(home) - named or gone(pid), "what it writes")
        frozen.thaw()
        place.until(lambda: gone(pid), "the end of a task that nobody wants")
        told.rows()
        told.settled()
        after = told.stop()
        assert epochs == after[: len(epochs)]
        winners = {each.removeprefix("state/") for each in named_by_commits(home)}
        late = set() if written is True else {each for each in written if each.endswith(".delta")}
        assert not late & winners, "what it wrote counts for nothing"
        return {"late": len(late)}


def state_files(home):
    state = home / "ckpt" / "state"
    return {str(each.relative_to(state)) for each in state.rglob("*") if each.is_file()}


def named_by_commits(home):
    history = recover(LocalStore(home / "ckpt")).history
    return {path for each in history for of in each.deltas.values() for path in of.values()}


# --- on any master --------------------------------------------------------------------------------


def schedule(place, home, seed):
    """Changes of width and crashes of the driver, as a seed draws them."""
    draw = random.Random(f"cluster {seed}")
    name = list(PROGRAMS)[seed % len(PROGRAMS)]
    make, rows, schema = PROGRAMS[name]
    source = ab.sources.Records(rows(60), schema=schema, partitions=draw.choice((1, 2)))
    first = draw.randrange(1, 4)
    widths = [draw.choice((1, 2, 3, 4)) for _ in range(3)]
    crashes = draw.sample([first, "after job", "after delta", "after commit", "publish"], 2)
    assert_same_as_sequential(
        make(source, ab.sinks.Callback(lambda rows, epoch: 1 // 0)),
        widths=(draw.choice((1, 2)),),
        # The second is asked for when the first has just come about, or is about to.
        rescale_at={first: widths[0], first + 1: widths[1], first + 3: widths[2]},
        crash_at=crashes,
        trigger=ab.available_now(8),
        spark=place.sc,
        seed=seed,
    )


def shaken(place, home, changes=((2, (1,)), (1, (0, 1)))):
    """Lanes die while the width changes, just before it is asked for, and in the job after that."""
    with story(place, home, 1) as told:
        told.rows()
        told.settled()
        for width, kills in changes:
            with Shaking(told.query) as shaking:
                for job in kills:
                    shaking.at(job, kill_lanes(told.query))
                told.rows(30)
                told.rescale(width)
                told.rows()
                shaking.done(PATIENCE_S)
            told.settled()
        return {"epochs": len(told.stop())}


def shaken_more(place, home):
    """The same for more widths, and more deaths in a row."""
    return shaken(place, home, ((3, (1, 2)), (2, (0, 1)), (4, (0, 2, 3)), (1, (1,))))


SCENARIOS = {
    "members": members,
    "amid": amid,
    "zombie": zombie,
    "shaken": shaken,
    "shaken-more": shaken_more,
}


def run(place, home, name):
    what, _, seed = name.partition(" ")
    if what == "schedule":
        return schedule(place, home, int(seed))
    return SCENARIOS[what](place, home)


def stacks():
    """Where all threads are: who hangs does not say why."""
    frames = sys._current_frames().values()
    return "".join("\n" + "".join(traceback.format_stack(frame)[-6:]) for frame in frames)


def tell(place, home, names):
    for at, name in enumerate(names):
        here = home / str(at)
        here.mkdir()
        told = {"name": name, "wrong": None, "found": None}
        try:
            told["found"] = run(place, here, name)
        except Exception:
            told["wrong"] = traceback.format_exc() + stacks()
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


def main(kind, home, names):
    if kind != "standalone":
        attached = spark_context(master=kind)
        tell(Place(attached.sc, home), home, names)
        attached.stop()
        return
    with Standalone(home / "cluster", worker_timeout=WORKER_TIMEOUT_S) as cluster:
        begin(master=cluster.url, conf=cluster.conf())
        cluster.add()
        attached = spark_context(master=cluster.url, conf=cluster.conf())
        place = Place(attached.sc, home, cluster)
        place.until(place.there, "the first executor")
        tell(place, home, names)
        attached.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
