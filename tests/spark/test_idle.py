"""A query without rows for so long that Spark has ended its processes: scenario 25.

Spark ends Python workers a minute after the last one was given back. Nobody waits for that here: they
are ended as Spark does it, by a signal, with the processes that fork them or without.
"""

import os
import select
import signal

import pytest

import anabranch as ab
from tests.recovery.processes import _all, _group
from tests.spark.shaking import lanes_of
from tests.spark.test_spine import Growing, check, promptly

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def workers(query, *, daemons):
    """The processes of a query's lanes and heads: those that work, or those that fork them too."""
    token = lanes_of(query)._processes._token
    found = set(lanes_of(query).pids().values())
    for pid in _all():
        variables = _environment(_group(pid))
        if any(variables.get(name, "").startswith(token) for name in NAMES) and (
            daemons or pid != _group(pid)
        ):
            found.add(pid)
    return found


NAMES = ("ANABRANCH_LANE", "ANABRANCH_HEAD")


def _environment(pid):
    from tests.recovery.processes import _read

    return dict(
        each.partition("=")[::2] for each in _read(f"/proc/{pid}/environ").split("\0") if each
    )


@pytest.mark.parametrize("daemons", [False, True])
def test_the_first_epoch_after_a_long_silence_is_right(daemons, spark_context, tmp_path):
    growing = Growing(tmp_path)
    query = growing.program(tmp_path).start(
        spark_context, trigger=ab.epochs("20 ms", 5), checkpoint=tmp_path / "ckpt", parallelism=2
    )
    growing.add(20)
    promptly(query.process_all_available)
    assert 2 == len(lanes_of(query).pids())
    for pid in workers(query, daemons=daemons):
        end = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        assert select.select([end], [], [], 60)[0]
        os.close(end)
    before = lanes_of(query).pids()
    growing.add(20)
    promptly(query.process_all_available)
    after = lanes_of(query).pids()
    promptly(query.stop)

    assert not set(before.values()) & set(after.values()), "other processes have taken over"
    check(growing.program(tmp_path), tmp_path)
    assert any(each["anabranch"]["slicesFrom"]["checkpoint"] for each in query.recent_progress)
