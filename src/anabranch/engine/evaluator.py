"""A process that evaluates plain Python operators, and has their states.

Run as `python -m anabranch.engine.evaluator DESCRIPTOR...` by `evaluators`, with the descriptors of
the ring of requests, of the ring of answers, and of a pipe that is closed when the parent is gone.
The first message is the program; every other is a request, and each gets an answer.

It ends when its parent does, also in the middle of a user's function.
"""

from __future__ import annotations

import gc
import os
import select
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from anabranch.engine.home import LocalHome
from anabranch.engine.requests import (
    Answer,
    Changed,
    Failure,
    Head,
    Request,
    Restore,
    Take,
    Tasks,
    Whole,
    packed,
    unpacked,
)
from anabranch.engine.ring import Descriptors, Receiver, RingClosed, Sender

LOOK_MS = 1000
"""How often an evaluator looks whose child it is."""


class Evaluator:
    """Does what requests ask for. The state of a partition is at home here once it is asked for."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._homes: dict[tuple[int, int], LocalHome] = {}

    def answer(self, request: Request) -> Answer:
        """What is asked for, or the error of the user's program."""
        if isinstance(request, Head):
            task = self._tasks.heads[request.source]
            return task.run(request.frame, request.partition, request.first)
        home = self._home(request.stage, request.partition)
        match request:
            case Take():
                return home.take(request.given)
            case Changed():
                return home.changed()
            case Whole():
                return home.whole(request.slices)
            case Restore():
                return home.restore(request.deltas)

    def _home(self, stage: int, partition: int) -> LocalHome:
        place = (stage, partition)
        if place not in self._homes:
            self._homes[place] = LocalHome(self._tasks.stages[stage], self._tasks.owners)
        return self._homes[place]


def serve(requests: Receiver, answers: Sender) -> int:
    """Answer requests until nobody asks any more; the code to exit with."""
    with suppress(RingClosed):
        try:
            evaluator = Evaluator(unpacked(requests.receive()))
        except Exception as error:  # noqa: BLE001 - the parent tells it
            answers.send(packed(_failure(error)))
            return 1
        answers.send(packed(None))
        # What is loaded stays: to look through it for garbage takes longer than an epoch does.
        gc.collect()
        gc.freeze()
        while True:
            answers.send(_answered(evaluator, requests.receive()))
    return 0


def _answered(evaluator: Evaluator, message: bytearray) -> bytes:
    try:
        return packed(evaluator.answer(unpacked(message)))
    except Exception as error:  # noqa: BLE001 - the parent tells it
        return packed(_failure(error))
    finally:
        flush()


def _failure(error: Exception) -> Failure:
    text = "".join(traceback.format_exception_only(error)).strip()
    return Failure(text, "".join(traceback.format_exception(error)))


def flush() -> None:
    """Let what the user printed be seen, if there is anybody to see it."""
    for stream in (sys.stdout, sys.stderr):
        # Users may have closed it, or put anything in its place.
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


def end_with(life: int, parent: int) -> None:
    """Wait for the parent's end, and end.

    The pipe tells, and at once; but not where a process that the parent has forked keeps it open.
    """
    waiting = select.poll()
    waiting.register(life, select.POLLIN)
    while not waiting.poll(LOOK_MS) and os.getppid() == parent:
        pass
    _exit(0)


def main(descriptors: Sequence[int]) -> int:
    """Open what the parent gave, and serve."""
    for each in descriptors:
        # A program that a user's function starts must not keep them open when this process ends.
        os.set_inheritable(each, False)  # noqa: FBT003 - the function takes no keyword
    *rings, life = descriptors
    watch = (life, os.getppid())
    threading.Thread(target=end_with, args=watch, name="anabranch-life", daemon=True).start()
    return serve(Descriptors(*rings[:2]).receiver(), Descriptors(*rings[2:]).sender())


def _exit(code: int) -> NoReturn:
    """End, whatever threads users have started."""
    flush()
    os._exit(code)


if __name__ == "__main__":
    try:
        _exit(main([int(each) for each in sys.argv[1:]]))
    except SystemExit as left:
        # A user's function has asked for it.
        _exit(left.code if isinstance(left.code, int) else int(left.code is not None))
    except BaseException:  # noqa: BLE001 - it is the end
        traceback.print_exc()
        _exit(1)
