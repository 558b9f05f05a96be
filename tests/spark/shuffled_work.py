"""What the tests run in lanes and heads whose rows go through a shuffle."""

import os
import signal
import threading

from anabranch.runtime.exchange import PartError
from anabranch.spark.shuffled import Unfit


def spread(plan, payload):
    """The payload says how many bytes each of two lanes gets."""
    if payload == b"fail":
        raise ValueError("as it should")
    if payload == b"unfit":
        raise Unfit("no such place", why="it is elsewhere", so="look there")
    return payload + plan.load(), {lane: [bytes([lane]) * int(payload)] for lane in range(2)}


def gather(plan, payload, pieces):
    """What it was given: how many pieces, of which bytes, of what size together."""
    if payload == b"fail":
        raise ValueError("as it should")
    if payload == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    if payload == b"hang":
        threading.Event().wait()
    if payload == b"lost":
        raise PartError("it is not there")
    size, values = sum(map(len, pieces)), sorted(set().union(*pieces))
    return f"{payload.decode()} {len(pieces)} {values} {size}".encode()
