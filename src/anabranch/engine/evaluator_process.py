"""One evaluator process as its parent holds it: started, asked, found dead, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from anabranch.clock import SystemClock
from anabranch.engine.requests import Failure, unpacked
from anabranch.engine.ring import RingClosed, new_ring
from anabranch.errors import RunError

START_S = 120.0
"""How long an evaluator may take to load: half a second on an idle core, and cores may be busy."""
GRACE_S = 2.0
"""How long an evaluator may take to end: it does so at once, unless C code keeps the lock."""


class EvaluatorDied(RunError):
    """An evaluator process has ended, and with it what it had of the state."""


class EvaluatorFailed(RunError):
    """An evaluator could not do what it was asked, and the user's program is not to blame."""


class EvaluatorProcess:
    """One process, from start to `close`."""

    def __init__(self, number: int, room: int, variables: Mapping[str, str]) -> None:
        """Start it, with rings of so many bytes and in this environment."""
        self.turn = threading.Lock()
        """Held by who asks."""
        self._number = number
        self._why: str | None = None
        """Why this process has ended it, if it has."""
        with ExitStack() as theirs, ExitStack() as ours:
            requests, asked = new_ring(room)
            ours.callback(requests.close)
            theirs.callback(asked.close)
            answered, answers = new_ring(room)
            ours.callback(answers.close)
            theirs.callback(answered.close)
            life, living = os.pipe()
            theirs.callback(os.close, life)
            self._life = ours.enter_context(os.fdopen(living, "wb", buffering=0))
            given = (asked.memory, asked.bell, answered.memory, answered.bell, life)
            self._process = _started(given, variables)
            ours.pop_all()
        self._gone = _ended(self._process)
        self._requests = requests.sender(self._gone)
        self._answers = answers.receiver(self._gone)

    @property
    def id(self) -> int:
        """The system's number of the process."""
        return self._process.pid

    def load(self, tasks: bytes) -> None:
        """Send the program."""
        with self.turn, self._telling("load the program"):
            self._requests.send(tasks, SystemClock().elapsed() + START_S)

    def wait_loaded(self) -> None:
        """Wait until it is ready to be asked."""
        with self.turn, self._telling("load the program"):
            answer = unpacked(self._answers.receive(SystemClock().elapsed() + START_S))
        if isinstance(answer, Failure):
            what = f"evaluator process {self._number} could not load the program: {answer.text}"
            died = EvaluatorDied(what, so="see that a new Python process can import all it needs")
            died.add_note(answer.traceback)
            raise died

    def exchange(self, message: bytes) -> bytearray:
        """Send a request and wait for the answer; who calls holds `turn`."""
        with self._telling("answer"):
            self._requests.send(message)
            return self._answers.receive()

    def known(self, answer: bytearray) -> Any:
        """What an answer says; raises `EvaluatorFailed` where that is a failure."""
        found = unpacked(answer)
        if isinstance(found, Failure):
            failed = EvaluatorFailed(f"evaluator process {self._number} failed: {found.text}")
            failed.add_note(found.traceback)
            raise failed
        return found

    def end(self) -> None:
        """Have it end, whatever it is at; who waits for an answer is told."""
        self._why = self._why or "was closed"
        self._life.close()

    def close(self) -> None:
        """Wait for its end, and let go of all that it took; behind `end`."""
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # Who waits for an answer is gone first: a descriptor that is closed may be another's soon.
        with self.turn:
            self._requests.close()
            self._answers.close()
            if self._gone is not None:
                os.close(self._gone)
                self._gone = None

    @contextmanager
    def _telling(self, when: str) -> Iterator[None]:
        """Tell the process's end in words; if anything else goes wrong, end it."""
        if self._why is not None:
            raise self._died()
        try:
            yield
        except RingClosed:
            died = self._died(when)
        except TimeoutError:
            self._why = f"was ended, since it took more than {START_S:.0f} s to {when}"
            self._process.kill()
            died = self._died()
        except BaseException:
            # A part of a request or of its answer is under way, which the next one would take for
            # its own.
            self._why = "was ended, since one who waited for its answer was interrupted"
            self._process.kill()
            raise
        else:
            return
        raise died

    def _died(self, when: str = "") -> EvaluatorDied:
        """How it has ended; its rings are closed, so it has or is about to."""
        if self._why is None:
            try:
                code = self._process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                self._why = "has closed its descriptors and was ended"
                self._process.kill()
            else:
                self._why = f"{in_words(code)} while it had to {when}"
        return EvaluatorDied(
            f"evaluator process {self._number} {self._why}",
            so="start again from the last commit; what it printed before may tell more",
        )


def in_words(code: int) -> str:
    """How a process has ended, by its return code.

    >>> in_words(3)
    'ended with exit code 3'
    >>> in_words(-9)
    'was killed by SIGKILL (signal 9)'
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name} (signal {-code})"
    except ValueError:
        return f"was killed by signal {-code}"


def _started(descriptors: Sequence[int], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the process; not by a fork, since threads of this one may hold locks."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "anabranch.engine.evaluator", *map(str, descriptors)],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        # What users print goes where it harms nobody: standard output may be read by a program.
        stdout=2,
        env={
            # There are as many evaluators as cores; each with a thread for each core is too many.
            "POLARS_MAX_THREADS": "1",
            **variables,
            # What can be imported here can be there; sources may be on no other path.
            "PYTHONPATH": os.pathsep.join(each or str(Path.cwd()) for each in sys.path),
        },
        process_group=0,  # Ctrl-C is for this process alone
    )


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """A descriptor that is readable when the process has ended, where the system has such."""
    if hasattr(os, "pidfd_open"):
        try:
            return os.pidfd_open(process.pid)
        except OSError:
            return None  # an old kernel, or one that is told not to
    return None
