"""Workers that are ready before Spark asks for them, and what happens where there are none."""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark.adoption import ask, fits, receive, send
from anabranch.spark.nursery import Nursery

CURRENT = "PYTEST_CURRENT_TEST"

EARLY = """
import sys
from anabranch.spark.daemon import load_before_fork
from anabranch.spark.nursery import has_threads, load_early

load_before_fork()
load_early()
print(has_threads(), {"polars", "pyarrow", "pandas"} & {*sys.modules})
"""

THREADS = """
import sys, threading
from anabranch.spark import nursery

for _ in range(int(sys.argv[2])):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
nursery.main(sys.argv[1], 1)
"""

# Three pools of workers, of which two find a child in the nursery. What is told of each: by whom it
# was started, and all that a function in it could tell it by.
THREE_POOLS = """
import json, os, sys
from anabranch.spark.private import Spark
from anabranch.spark.session import begin, spark_context

def told(_split, items):
    list(items)
    import signal
    names = ("SIGHUP", "SIGTERM", "SIGINT", "SIGCHLD", "SIGPIPE")
    facts = {
        "started by": sys.modules["__main__"].__spec__.name,
        "environment": dict(os.environ),
        "path": sys.path,
        "arguments": sys.argv,
        "directory": os.getcwd(),
        "input": os.readlink("/proc/self/fd/0"),
        "output": os.readlink("/proc/self/fd/1").partition(":")[0],
        "signals": {name: str(signal.getsignal(getattr(signal, name))) for name in names},
        "hash": hash("the same in all"),
        "group": os.getpgid(0) == os.getpid(),
    }
    print("said by a worker", flush=True)
    yield json.dumps(facts).encode()

chosen = dict(master="local[1]", conf={CONF})
begin(lanes=1, **chosen)
attached = spark_context(**chosen)
spark = Spark(attached.sc)
found = []
for pool in ("a", "b", "c"):
    run = spark.apply(spark.source([b""]), spark.function(told, {"ANABRANCH_POOL": pool}))
    found += [json.loads(each) for _ in range(2) for each in spark.collect(run)]
print(json.dumps(found))
attached.stop()
"""

GONE = """
import sys
from anabranch.spark import session

session.begin(master="local[2]")
nursery = session._shared.nursery
nursery.process.kill() if sys.argv[1] == "killed" else nursery.end()
attached = session.spark_context(master="local[2]")
print(attached.sc.parallelize(range(10), 2).map(lambda n: n + 1).sum())
attached.stop()
"""

LEFT_LANE = """
import os, select, sys
from pathlib import Path
from anabranch.spark import session
from anabranch.spark.lanes import Lanes

sys.path.append(sys.argv[1])
import lane_work

session.begin(master="local[1]", lanes=1)
attached = session.spark_context(master="local[1]")
lanes = Lanes(attached.sc, 1, lane=lane_work.count, head=lane_work.count)
lanes.run({0: b"1"})
pid = lanes.pids()[0]
print("nursery" in Path(f"/proc/{pid}/cmdline").read_text())
end = os.pidfd_open(pid)
lanes._processes.leave([0])
print(bool(select.select([end], [], [], 60)[0]))
attached.stop()
"""

TWICE = """
import sys
from anabranch.spark import session

for _ in range(2):
    session.begin(master="local[1]")
    place = session._shared.nursery.place
    assert place.parent.stat().st_mode & 0o077 == 0, "others could ask for a worker"
    attached = session.spark_context(master="local[1]")
    by = attached.sc.parallelize([0], 1).map(lambda _: sys.modules["__main__"].__spec__.name)
    print(by.collect())
    process = session._shared.nursery.process
    attached.stop()
    print(process.returncode, session._shared.nursery)
"""


def run(script, *arguments, **variables):
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )


@pytest.fixture
def nursery(tmp_path):
    """One child, for a daemon with the environment of this process."""
    environment = {name: value for name, value in os.environ.items() if name != CURRENT}
    found = Nursery.start(tmp_path, 1, sys.executable, environment)
    assert found is not None
    yield found
    found.end()


@pytest.fixture
def asked(nursery, monkeypatch):
    """Ask as a daemon does."""

    def asking(connection):
        monkeypatch.delenv(CURRENT)
        monkeypatch.setenv("PYTHON_UNIX_DOMAIN_ENABLED", "true")
        while not nursery.place.exists():
            assert nursery.process.poll() is None
        return ask(str(nursery.place), connection)

    return asking


@given(st.binary(max_size=300_000))
def test_what_is_sent_is_received_with_its_descriptors(message):
    ours, theirs = socket.socketpair()
    one, other = os.pipe()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        send(ours, message, (one, other))
        got, descriptors = receive(theirs)

        os.write(descriptors[1], b"x")
        assert (message, b"x") == (got, os.read(one, 1))
        ours.close()
        assert (b"", []) == receive(theirs)
    for descriptor in (one, other, *descriptors):
        os.close(descriptor)


def test_a_message_that_breaks_off_is_no_message():
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall((8).to_bytes(4, "big") + b"half")
        ours.close()

        with pytest.raises(EOFError):
            receive(theirs)


def test_variables_of_a_shell_and_of_spark_make_no_difference():
    mine = {"HOME": "/root", "SHLVL": "1"}

    assert fits(mine, {**mine, "SHLVL": "2", "_": "/bin/java", "SPARK_REUSE_WORKER": "1"})
    assert not fits(mine, {"HOME": "/elsewhere"})


def test_places_of_modules_that_are_not_there_make_no_difference(tmp_path):
    mine = {"PYTHONPATH": str(tmp_path)}

    assert fits(mine, {"PYTHONPATH": f"{tmp_path / 'pyspark.zip'}:{tmp_path}"})
    assert not fits(mine, {"PYTHONPATH": f"{tmp_path.parent}:{tmp_path}"})


@pytest.mark.slow
def test_nothing_that_starts_threads_is_loaded_before_the_fork():
    assert "False set()\n" == run(EARLY, OMP_NUM_THREADS="1").stdout


@pytest.mark.slow
def test_a_connection_is_served_by_the_child_until_it_is_closed(asked):
    ours, sparks = socket.socketpair()
    with ours:
        with sparks:
            assert asked(sparks)
        pid = int.from_bytes(ours.recv(4), "big")

        os.kill(pid, 0)
        ours.shutdown(socket.SHUT_WR)
        while ours.recv(100):
            pass


@pytest.mark.slow
@pytest.mark.parametrize("garbage", [b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 5000])
def test_who_says_what_no_daemon_says_gets_nothing_and_ends_nothing(garbage, asked, nursery):
    while not nursery.place.exists():
        assert nursery.process.poll() is None
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(nursery.place))
        with suppress(OSError):  # it may hang up at the first byte
            stranger.sendall(garbage)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(100) in (b"", b"n"), "no worker, at most a no"

    ours, sparks = socket.socketpair()
    with ours, sparks:
        assert asked(sparks)


@pytest.mark.slow
def test_there_are_no_more_than_were_asked_for(asked, nursery):
    one, other = socket.socketpair()
    with one, other:
        assert asked(other)
        assert not ask(str(nursery.place), other)


@pytest.mark.slow
def test_a_child_is_not_given_into_another_environment(asked, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    one, other = socket.socketpair()
    with one, other:
        assert not asked(other)


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "given"), [(0, True), (1, False)])
def test_a_process_with_threads_has_no_children(tmp_path, threads, given):
    place = tmp_path / "n"
    one, other = socket.socketpair()
    with (
        one,
        other,
        subprocess.Popen(
            [sys.executable, "-c", THREADS, str(place), str(threads)],
            stdin=subprocess.PIPE,
            env=dict(os.environ),  # libraries may have set more than it shows
        ) as process,
    ):
        while not place.exists() and process.poll() is None:
            pass
        assert given == ask(str(place), other)
        process.stdin.close()
    assert 0 == process.returncode


def test_where_nobody_listens_there_is_nobody(tmp_path):
    one, other = socket.socketpair()
    with one, other:
        assert not ask(str(tmp_path / "n"), other)


def test_a_place_that_is_too_long_for_a_socket_is_no_place(tmp_path):
    assert Nursery.start(tmp_path / ("x" * 100), 1, sys.executable, {}) is None


def test_python_that_is_not_there_is_left_to_spark_to_tell_of(tmp_path):
    assert Nursery.start(tmp_path, 1, "/nonexistent/python", {}) is None


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "conf",
    [
        "{}",
        '{"spark.python.unix.domain.socket.enabled": "false"}',
        '{"spark.python.worker.reuse": "false", "spark.executorEnv.MINE": "1"}',
    ],
)
def test_a_worker_from_the_nursery_is_as_one_that_spark_s_daemon_forks(conf):
    import json

    done = run(THREE_POOLS.replace("{CONF}", conf))

    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    kept = "reuse" not in conf
    by = [each.pop("started by").rpartition(".")[2] for each in found]
    # A worker that ends with its task leaves its daemon to take the next child.
    assert by == (["nursery"] * 4 if kept else ["nursery"] * 2 + ["daemon"] * 2) + ["daemon"] * 2
    for each in found:
        assert each["environment"].pop("ANABRANCH_POOL") in "abc"
        each["environment"].pop("PYTHON_WORKER_FACTORY_SECRET", None)
    assert [found[-1]] * 6 == found
    assert "said by a worker\n" * 6 == done.stderr


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("how", ["ended", pytest.param("killed", marks=pytest.mark.chaos)])
def test_without_its_nursery_spark_s_daemon_forks(how):
    done = run(GONE, how)

    assert ("55\n", "") == (done.stdout, done.stderr)


@pytest.mark.spark
@pytest.mark.slow
def test_a_lane_from_the_nursery_is_ended_when_it_is_left():
    done = run(LEFT_LANE, str(Path(__file__).parent))

    assert ("True\nTrue\n", "") == (done.stdout, done.stderr)


@pytest.mark.spark
@pytest.mark.slow
def test_every_context_has_its_own_and_it_ends_with_it():
    done = run(TWICE)

    assert "['anabranch.spark.nursery']\n0 None\n" * 2 == done.stdout
    assert "" == done.stderr
