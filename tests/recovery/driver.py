"""A driver to be killed: runs one of the programs and says on standard output where it is.

`python driver.py '<options as JSON>'`. Each file that the driver, or a task in its process, makes in
the checkpoint, and each publication, is a moment: "before commits 3" is when the third file in
`commits` is about to be made by this process. At the moment `hold` it says "held" and waits for a
line on its standard input; elsewhere it only says the moment's name. After `rescale[0]` files in
`commits`, of which the first is made before the query runs, it asks for `rescale[1]` lanes, and says
"rescaled" behind the first commit with them. At last it says "ended", or "failed" and why.

At most `in_flight` epochs are under way, so that there are many commits however slow the machine is:
a commit takes all epochs that are ready, and a moment that is waited for has to come.
"""

import json
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import anabranch as ab
from anabranch.api.starting import start, start_on_spark
from anabranch.connectors.base import Sink
from anabranch.errors import AnabranchError
from anabranch.runtime import assembly, tasks
from anabranch.runtime.assembly import Settings
from anabranch.simulate.inline import InlineExecutor
from anabranch.spark.session import begin
from anabranch.state.store import LocalStore
from tests.recovery.bank import TRANSFERS, bank, transfers
from tests.runtime.programs import PROGRAMS

COUNT = 60
IN_FLIGHT = 3
RUN_HERE = {**PROGRAMS, "bank": (bank, transfers, TRANSFERS)}


def program(name, home, sink=None):
    """The program that a driver with this home runs; the rows are always the same."""
    make, rows, schema = RUN_HERE[name]
    source = ab.sources.Records(rows(COUNT), schema=schema)
    return make(source, sink or ab.sinks.Files(Path(home) / "out", format="parquet"))


class Moments:
    """Says what happens, and waits where it was told to."""

    def __init__(self, hold, rescale):
        self._hold, self._rescale, self._seen = hold, rescale, Counter()
        self._lock = threading.Lock()
        self.query = None
        self.started = threading.Event()

    def reach(self, when, what):
        with self._lock:
            self._seen[when, what] += 1
            moment = f"{when} {what} {self._seen[when, what]}"
        say(moment)
        if moment == self._hold:
            say("held")
            sys.stdin.readline()
        if self._rescale and moment == f"after commits {self._rescale[0]}":
            # In the loop's own thread: what it commits next is decided, however slow others are.
            self.started.wait()
            self.query._loop.rescale(self._rescale[1], lambda: say("rescaled"))


class TellingSink(Sink):
    """Files, whose publications are moments; it goes to tasks without them."""

    def __init__(self, inner, moments):
        self._inner, self._moments = inner, moments

    def __reduce__(self):
        return (_alone, (self._inner,))

    def write(self, batches, epoch, attempt):
        return self._inner.write(batches, epoch, attempt)

    def publish(self, messages, epoch):
        self._moments.reach("before", "publish")
        self._inner.publish(messages, epoch)
        self._moments.reach("after", "publish")

    def abort(self, messages, epoch):
        self._inner.abort(messages, epoch)

    def sweep(self, keep):
        self._inner.sweep(keep)

    def with_durability(self, durability):
        return TellingSink(self._inner.with_durability(durability), self._moments)


def _alone(sink):
    return sink


def telling_store(moments):
    class TellingStore(LocalStore):
        def create(self, path, data):
            folder = path.partition("/")[0]
            moments.reach("before", folder)
            super().create(path, data)
            moments.reach("after", folder)

    return TellingStore


def say(text):
    # One write a line: several threads speak.
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(options):
    home, moments = Path(options["home"]), Moments(options.get("hold"), options.get("rescale"))
    vars(assembly)["store_at"] = telling_store(moments)
    sink = TellingSink(ab.sinks.Files(home / "out", format="parquet"), moments)
    made, lanes = program(options["name"], home, sink), options.get("lanes", 2)
    settings = Settings(
        ab.available_now(options.get("rows", 3)),
        home / "ckpt",
        lanes,
        slices=16,
        in_flight=options.get("in_flight", IN_FLIGHT),
    )
    if options.get("master"):
        begin(master=options["master"], lanes=lanes)
        query = start_on_spark(made.freeze(), settings, None, options["master"], {}, "")
    else:
        vars(tasks)["store_at"] = telling_store(moments)
        settings = replace(settings, keep=None)
        query = start(made.freeze(), settings, InlineExecutor(options.get("seed", 0)))
    moments.query = query
    moments.started.set()
    say(f"exchange {query._loop._deployment.exchange}")
    try:
        query.await_termination()
    except AnabranchError as error:
        say(f"failed {json.dumps(f'{type(error).__name__}: {error}')}")
    else:
        say("ended")


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except AnabranchError as error:
        say(f"failed {json.dumps(f'{type(error).__name__}: {error}')}")
