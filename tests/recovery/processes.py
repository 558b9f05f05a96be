"""Drivers as processes of their own, to be watched, stopped, killed and looked into."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120
"""What takes longer is taken to hang; a starved machine is slow."""


class Driver:
    """A driver process; a context: whatever happens, it is gone at the end, with its Spark."""

    def __init__(self, home, name="fraud", **options):
        given = json.dumps({"home": str(home), "name": name, **options})
        self.lines = []
        self._queue = queue.Queue()
        self._errors = open(Path(home) / f"stderr-{os.urandom(3).hex()}", "w+")  # noqa: SIM115, PTH123
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "recovery" / "driver.py"), given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**_environment(), "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self._reader.join(PATIENCE_S)
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            stream.close()

    def _read(self):
        for line in self.process.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def until(self, *wanted):
        """Wait for a line that begins with one of these; a driver that says it no more is an error."""
        while True:
            try:
                line = self._queue.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise AssertionError(f"it hangs, waiting for {wanted}:\n{self.story()}") from None
            if line is None:
                raise AssertionError(f"it ended without {wanted}:\n{self.story()}")
            self.lines.append(line)
            if line.startswith(wanted):
                return line

    def outcome(self):
        """How it ended: "ended", or the text of its error."""
        line = self.until("ended", "failed")
        return "ended" if line == "ended" else json.loads(line.removeprefix("failed "))

    def go(self):
        """Let it go on from where it holds."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def send(self, number):
        os.kill(self.process.pid, number)

    def kill(self):
        """End the driver as a power switch would, and wait until it is gone; its Spark follows."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)

    def story(self):
        self._errors.flush()
        self._errors.seek(0)
        return "\n".join(
            [*self.lines[-30:], f"exit {self.process.poll()}", self._errors.read()[-3000:]]
        )

    # Its processes

    def children(self, command):
        """Processes below it whose command line has this text."""
        parents = {pid: _parent(pid) for pid in _all()}
        return [pid for pid in parents if self._is_above(pid, parents) and command in _command(pid)]

    def workers(self, variable):
        """Python workers below it whose daemon has this variable: they are in its process group."""
        found = {pid: _group(pid) for pid in self.children("")}
        return sorted(
            pid for pid, group in found.items() if pid != group and variable in _variables(group)
        )

    def _is_above(self, pid, parents):
        while pid in parents:
            pid = parents[pid]
            if pid == self.process.pid:
                return True
        return False


def kill(*pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _environment():
    found = dict(os.environ)
    if found.get("JAVA_HOME") == "/nonexistent":
        del found["JAVA_HOME"]
    return found


def _all():
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def _read(path):
    try:
        return Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _parent(pid):
    found = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(found[1]) if found else 0


def _group(pid):
    found = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(found[2]) if found else 0


def _command(pid):
    return _read(f"/proc/{pid}/cmdline").replace("\0", " ")


def _variables(pid):
    return {each.partition("=")[0] for each in _read(f"/proc/{pid}/environ").split("\0")}
