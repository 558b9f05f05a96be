"""What differs between processes and threads, and what a function does to its own."""

from __future__ import annotations

import contextvars
import decimal
import gc
import inspect
import io
import locale
import logging
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import warnings

from tests.compiler.independent.labels import between, marks, per_process, touches, twice, unsafe

LOG = logging.getLogger(__name__)
LOG.propagate = False
HEARD: list = []


class Heard(logging.Handler):
    def emit(self, record):
        HEARD.append(record.getMessage())


LOG.addHandler(Heard())
CURRENT = contextvars.ContextVar("current", default=0)
OUT = io.StringIO()
STORE = pathlib.Path(tempfile.gettempdir()) / f"independent-{os.getpid()}"
LOCK = threading.Lock()
write = OUT.write
tell = print


def by_id(r):
    return {**r, "id": id(r)}


unsafe(by_id, per_process)


def by_hash(r):
    return {**r, "bucket": hash(r["name"])}


unsafe(by_hash, per_process)


def by_hash_of_a_tuple(r):
    return {**r, "bucket": hash((r["id"], r["name"]))}


unsafe(by_hash_of_a_tuple, per_process)


def by_hash_method(r):
    return {**r, "bucket": r["name"].__hash__()}


unsafe(by_hash_method, per_process)


def by_repr_of_an_object(r):
    return {"text": repr(object()), "texts": [str(object())]}


unsafe(by_repr_of_an_object, per_process)


def by_str_of_a_function(r):
    return {"text": str(by_id), "other": f"{(lambda: r)}"}


unsafe(by_str_of_a_function, per_process)


def by_process(r):
    return {**r, "by": os.getpid()}


unsafe(by_process, per_process)


def by_host(r):
    return {**r, "by": socket.gethostname()}


unsafe(by_host, "differs between machines")


def by_thread(r):
    return {**r, "by": threading.get_ident()}


def in_another_thread(call):
    got = []
    thread = threading.Thread(target=lambda: got.append(call({})))
    thread.start()
    thread.join()
    return got != [call({})]


unsafe(by_thread, in_another_thread)


def by_context_variable(r):
    CURRENT.set(CURRENT.get() + 1)
    return {**r, "n": CURRENT.get()}


unsafe(by_context_variable, twice())


def reads_a_context_variable(r):
    return {**r, "n": CURRENT.get()}


unsafe(reads_a_context_variable, between(lambda: CURRENT.set(CURRENT.get() + 1)))


def logs(r):
    LOG.warning("saw %s", r["id"])
    return r


unsafe(logs, touches(lambda: len(HEARD)))


def warns(r):
    warnings.warn(f"odd {r['id']}", UserWarning, stacklevel=1)
    return r


def warned(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call({"id": 1})
    return bool(caught)


unsafe(warns, warned)


def prints(r):
    tell("saw", r["id"], file=OUT)
    return r


unsafe(prints, touches(OUT.getvalue))


def writes_to_a_stream(r):
    write(f"{r['id']}\n")
    return r


unsafe(writes_to_a_stream, touches(OUT.getvalue))


def appends_to_a_file(r):
    with open(STORE, "a") as file:
        file.write(f"{r['id']}\n")
    size = STORE.stat().st_size
    return {**r, "size": size}


def and_removed(demo):
    def shown(call):
        try:
            return demo(call)
        finally:
            STORE.unlink(missing_ok=True)

    return shown


unsafe(appends_to_a_file, and_removed(twice()))


def path_touched(r):
    existed = STORE.exists()
    STORE.touch()
    return {**r, "existed": existed}


unsafe(path_touched, and_removed(twice()))


def reads_a_file(r):
    return {**r, "there": STORE.exists()}


unsafe(reads_a_file, and_removed(between(STORE.touch)))


def reads_the_directory(r):
    return {**r, "here": os.getcwd()}


unsafe(reads_the_directory, "the working directory differs between processes")


def runs_a_program(r):
    return {**r, "out": subprocess.run(["true"], check=True).returncode}


unsafe(runs_a_program, "starts a process; the effect is the program's")


def decimal_context(r):
    decimal.getcontext().prec = 20 + decimal.getcontext().prec % 7
    return {**r, "third": str(decimal.Decimal(1) / 3)}


unsafe(decimal_context, touches(lambda: decimal.getcontext().prec))


def decimal_flags(r):
    # Division sets a flag of the thread's context.
    seen = decimal.getcontext().flags[decimal.Inexact]
    return {**r, "n": str(decimal.Decimal(1) / 3), "seen": seen}


def flags_after_a_clear(call):
    decimal.getcontext().clear_flags()
    return twice()(call)


unsafe(decimal_flags, flags_after_a_clear)


def recursion_limit(r):
    sys.setrecursionlimit(sys.getrecursionlimit() + 1)
    return r


unsafe(recursion_limit, touches(sys.getrecursionlimit))


def reads_reference_counts(r, kept=[]):
    return {**r, "n": sys.getrefcount(kept)}


unsafe(reads_reference_counts, "counts references that others hold")


def reads_the_collector(r):
    return {**r, "n": len(gc.get_objects())}


unsafe(reads_the_collector, "what is alive differs between processes")


def reads_the_callers_frame(r):
    return {**r, "by": inspect.currentframe().f_back.f_lineno}


def called_from_two_lines(call):
    one = call({})
    return one != call({})


unsafe(reads_the_callers_frame, called_from_two_lines)


def tries_a_lock(r):
    return {**r, "taken": LOCK.acquire(blocking=False)}


def and_released(call):
    try:
        return twice()(call)
    finally:
        LOCK.release()


unsafe(tries_a_lock, and_released)


def by_locale(r):
    return {**r, "x": locale.format_string("%d", r["x"], grouping=True), "c": locale.localeconv()}


unsafe(by_locale, "follows the process's locale")


def reads_standard_input(r):
    return {**r, "line": sys.stdin.readline()}


unsafe(reads_standard_input, "reads what can be read once")


def starts_a_thread(r, seen=[]):
    thread = threading.Thread(target=seen.append, args=(r["id"],))
    thread.start()
    thread.join()
    return {**r, "n": len(seen)}


unsafe(starts_a_thread, twice())


def purges_a_cache(r):
    re.compile(f"{r['x']}+z").match("z")
    re.purge()
    return r


unsafe(purges_a_cache, "throws away the process's compiled patterns")


def path_searched(r):
    sys.path.append(f"/nowhere/{r['id']}")
    try:
        return r
    finally:
        HEARD.append(sys.path.pop())


unsafe(path_searched, marks(HEARD))
