"""Every private call into PySpark and Py4J, each behind a small typed method.

Nothing else in Anabranch touches an attribute of PySpark that begins with an underscore, or the
JVM. `conformance.py` checks on a real Spark that each of them still does what is said here.

What is handed around is opaque: a `Function` is a Python function as Spark sees it, an `Rdd` a
JVM RDD of bytes. Both are made once and used for any number of jobs.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NewType, TypeAlias

from anabranch.errors import RunError

TaskFunction: TypeAlias = Callable[[int, Iterator[bytes]], Iterator[bytes]]
"""What runs in a worker: takes the partition's number and its items, and must take all of them."""

Function = NewType("Function", object)
Rdd = NewType("Rdd", object)
Pick = NewType("Pick", object)
Broadcast = NewType("Broadcast", object)

# How Spark says that the process, not the code in it, came to an end.
_DEATHS = re.compile(
    r"Python worker exited unexpectedly|ExecutorLostFailure|Python worker failed to connect"
    r"|PYTHON_WORKER_EXITED|worker killed|EOFException|Connection reset|Broken pipe"
)
_CLIENT = "org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend"
_CALLS = {
    "decommissionExecutor": 4,
    "executorsPendingDecommission": 0,
    "executorsPendingToRemove": 0,
    "isExecutorActive": 1,
    "killExecutors": 4,
}
"""With how many parameters each: Scala's defaults are nothing to Java."""
_UNUSED = "not needed any more"
_CANCELLED = re.compile(r"SPARK_JOB_CANCELLED|cancelled", re.IGNORECASE)
_PYTHON_ERROR = re.compile(
    r"(?:PythonException: |thrown from the Python worker)"
    r".*?(Traceback \(most recent call last\):.*?)(?=\n\s+at \w+\.|\Z)",
    re.DOTALL,
)


class JobFailed(RunError):
    """A Spark job that came to no result.

    `text` is what there is of a reason; `died` says that a process ended, so that the same work
    may well succeed in another; `cancelled` that somebody asked for it.
    """

    def __init__(self, text: str, *, died: bool = False, cancelled: bool = False) -> None:
        """Compose the message."""
        self.text, self.died, self.cancelled = text, died, cancelled
        what = "a worker process died" if died else "a Spark job failed"
        super().__init__("a Spark job was cancelled" if cancelled else what, why=text)


@dataclass(frozen=True, slots=True)
class Executor:
    """Where tasks can be sent to."""

    id: str
    host: str

    @property
    def location(self) -> str:
        """As Spark's scheduler wants to read it.

        >>> Executor("0", "localhost").location
        'executor_localhost_0'
        """
        return f"executor_{self.host}_{self.id}"


class Spark:
    """Builds jobs from JVM objects that are made once, and runs them.

    Any number of threads may run jobs at once. A call that waits for a job holds no lock and not
    the interpreter: it waits for a socket.
    """

    def __init__(self, sc: Any) -> None:
        from pyspark.serializers import CloudPickleSerializer, NoOpSerializer

        self.sc = sc
        self._jvm = sc._jvm
        self._jsc = sc._jsc
        self._dumps = CloudPickleSerializer().dumps
        self._raw = NoOpSerializer
        self._as_scala = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala
        self._bytes = self._jvm.scala.reflect.ClassTag.apply(
            self._jvm.java.lang.Class.forName("[B")
        )
        self._java_rdd = self._jvm.org.apache.spark.api.java.JavaRDD
        self._python_rdd = self._jvm.PythonRDD
        self._scala_context = self._jsc.sc()
        self._selections: dict[tuple[int, ...], Any] = {}
        self._set_up = threading.local()
        shown = (("spark.ui.enabled", "true"), ("spark.eventLog.enabled", "false"))
        self._pictured = any(sc.getConf().get(*each) == "true" for each in shown)

    # --- making ----------------------------------------------------------------------------------

    def function(
        self,
        run: TaskFunction,
        environment: Mapping[str, str],
        broadcasts: Sequence[Broadcast] = (),
    ) -> Function:
        """A Python function as Spark sees it, with the broadcasts that its tasks may look at.

        Workers are kept apart by their environment: functions with equal ones share processes,
        others never do. Without an accumulator, the last argument, Spark's scheduler need not call
        back into this process after each task.
        """
        command = bytearray(self._dumps((run, None, self._raw(), self._raw())))
        sc = self.sc
        return self._jvm.SimplePythonFunction(
            command,
            {**sc.environment, **environment},
            sc._python_includes,
            sc.pythonExec,
            sc.pythonVer,
            [each._jbroadcast for each in broadcasts],  # type: ignore[attr-defined]
            None,
        )

    def broadcast(self, value: bytes) -> tuple[Broadcast, int]:
        """Bytes for every host, fetched once by each; a task finds them by their number."""
        made = self.sc.broadcast(value)
        return made, int(made._jbroadcast.id())

    def forget_broadcast(self, broadcast: Broadcast) -> None:
        """Remove it everywhere; no task may want it any more."""
        broadcast.destroy()  # type: ignore[attr-defined]

    def source(self, items: Sequence[bytes]) -> Rdd:
        """One partition an item; the bytes travel inside the task."""
        self._unpictured()
        rows = self._jvm.java.util.ArrayList()
        for item in items:
            rows.add(bytearray(item))
        return self._jsc.parallelize(rows, len(items)).rdd()

    def source_at(self, item: bytes, executor: Executor) -> Rdd:
        """One partition, which would rather be on that executor."""
        self._unpictured()
        where = self._as_scala(self._jvm.java.util.Collections.singletonList(executor.location))
        rows = self._jvm.java.util.ArrayList()
        rows.add(self._jvm.scala.Tuple2(bytearray(item), where.toSeq()))
        return self._scala_context.makeRDD(self._as_scala(rows).toSeq(), self._bytes)

    def apply(self, parent: Rdd, function: Function) -> Rdd:
        """The partitions of `parent`, each handed to the function in a worker."""
        return self._jvm.PythonRDD(parent, function, True, False)  # noqa: FBT003 - Java knows no keywords

    def union(self, rdds: Sequence[Rdd]) -> Rdd:
        """All partitions of all of them, in order: one stage of one job."""
        kind = getattr(self._jvm, "org.apache.spark.api.java.JavaRDD")
        parts = self.sc._gateway.new_array(kind, len(rdds))
        for at, rdd in enumerate(rdds):
            parts[at] = self._as_java(rdd)
        return self._jsc.union(parts).rdd()

    def pick(self, *partitions: int) -> Pick:
        """What picks partitions: a Scala Set, which is also a function from number to bool."""
        some = self._jvm.java.util.HashSet()
        for each in partitions:
            some.add(each)
        return self._as_scala(some).toSet()

    def only(self, rdd: Rdd, pick: Pick) -> Rdd:
        """Some partitions of an RDD, as an RDD of their own."""
        return self._jvm.org.apache.spark.rdd.PartitionPruningRDD.create(rdd, pick)

    def together(self, rdds: Sequence[Rdd]) -> Rdd:
        """All items of all of them as one partition, in no order; executors are not preferred."""
        return self._as_java(self.union(rdds)).coalesce(1).rdd()

    def beside(self, pin: Rdd, rdd: Rdd) -> Rdd:
        """The items of a one-partition `rdd`, with the location of the one-item `pin`.

        Holds behind a shuffle only with spark.shuffle.reduceLocality.enabled=false.
        """
        return self._as_java(pin).cartesian(self._as_java(rdd)).values().rdd()

    def shuffle(self, pairs: Rdd, partitions: int) -> Rdd:
        """Blobs moved to the partition that was yielded before each: `pack_partition(p)`, blob, ...

        To be made anew for every job: Spark does not run again what a shuffle has stored.
        """
        paired = self._jvm.PairwiseRDD(pairs).asJavaPairRDD()
        moved = paired.partitionBy(self._jvm.PythonPartitioner(partitions, 0))
        return self._python_rdd.valueOfPair(moved).rdd()

    def forget_shuffles(self, rdd: Rdd) -> None:
        """Remove the files of the shuffles behind an RDD."""
        self._as_java(rdd).rdd().cleanShuffleDependencies(False)  # noqa: FBT003 - do not wait

    # --- running ---------------------------------------------------------------------------------

    def collect(self, rdd: Rdd, partitions: Sequence[int] | None = None) -> list[bytes]:
        """Run a job and return what its tasks yielded, in the order of partitions.

        Results come through a socket: Py4J would decode bytes one by one (20 kB: 50 ms).

        Raises:
            JobFailed: A task failed, its worker died, or the job was cancelled.
        """
        from pyspark.util import _load_from_socket

        try:
            if partitions is None:
                served = self._python_rdd.collectAndServe(rdd)
            else:
                chosen = self._selection(tuple(partitions))
                served = self._python_rdd.runJob(self._scala_context, self._as_java(rdd), chosen)
        except Exception as error:
            raise _job_failed(error) from error
        with _load_from_socket(served, self._raw()) as found:
            return list(found)

    def submit(self, rdd: Rdd) -> Pending:
        """Start a job whose results nobody wants; many may be under way from one thread."""
        return Pending(self._as_java(rdd).countAsync())

    def set_property(self, name: str, value: str | None) -> None:
        """Give a value to all tasks of jobs that this thread starts from now on."""
        known = self._set_up.__dict__.setdefault("properties", {})
        if known.get(name, "") != value:
            self._jsc.setLocalProperty(name, value)
            known[name] = value

    def label(self, tag: str, description: str) -> None:
        """Name the jobs of this thread: the tag to cancel them by, the description for people."""
        if getattr(self._set_up, "label", None) != (tag, description):
            self.sc.addJobTag(tag)
            self.sc.setJobDescription(description)
            self._set_up.label = (tag, description)

    def cancel(self, tag: str) -> None:
        """Cancel all jobs under way with this tag; to be called from another thread."""
        self.sc.cancelJobsWithTag(tag)

    # --- asking ----------------------------------------------------------------------------------

    @property
    def local(self) -> bool:
        """Whether everything runs in the driver's own JVM."""
        return self.sc.master == "local" or self.sc.master.startswith("local[")

    def executors(self) -> tuple[Executor, ...]:
        """Who is there now, by id; nobody but the driver in local mode."""
        if self.local:
            return ()
        # What the status store says is as old as the last event that has reached it.
        self._scala_context.listenerBus().waitUntilEmpty()
        listed = self._scala_context.statusStore().executorList(True)  # noqa: FBT003 - alive ones
        found = [listed.apply(at) for at in range(listed.size())]
        there = [
            Executor(each.id(), each.hostPort().rpartition(":")[0])
            for each in found
            if each.id() != "driver"
        ]
        return tuple(sorted(there, key=lambda each: (len(each.id), each.id)))

    def executor_ids(self) -> str:
        """Those who are there to stay: not those whom Spark, or we, are letting go.

        Changes whenever one comes or goes; cheap enough to be asked before each job.
        """
        if self.local:
            return ""
        found = str(self._scala_context.getExecutorIds().mkString(","))
        # A decommissioned executor gets no more tasks, but is there until its last one is done: a
        # lane that wants to be there would be kept waiting.
        if not self._client or not self._anyone_going():
            return found
        backend = self._scala_context.schedulerBackend()
        return ",".join(each for each in found.split(",") if backend.isExecutorActive(each))

    def slots(self) -> int:
        """How many tasks can run at once, on those who are there to stay."""
        if self.local:
            return int(self.sc.defaultParallelism)
        profile = self._scala_context.resourceProfileManager().defaultResourceProfile()
        return int(self._scala_context.maxNumConcurrentTasks(profile) or self.sc.defaultParallelism)

    def slots_by_executor(self) -> dict[str, int]:
        """How many tasks can run at once on each, by id; what is known of them lags behind."""
        listed = self._scala_context.statusStore().executorList(True)  # noqa: FBT003 - alive ones
        found = [listed.apply(at) for at in range(listed.size())]
        return {each.id(): int(each.maxTasks()) for each in found if each.id() != "driver"}

    # --- asking for executors --------------------------------------------------------------------

    @property
    def grants(self) -> bool:
        """Whether the master can be asked for executors, and to take them back: not a local one."""
        return not self.local and self._client

    @property
    def allocates(self) -> bool:
        """Whether Spark asks by itself, for as many as there are tasks: dynamic allocation."""
        return bool(self._scala_context.executorAllocationManager().isDefined())

    def request(self, executors: int) -> bool:
        """Ask the master for so many in all; says whether it was told, not whether they come.

        They come when there is room; one that dies is replaced. Fewer than there are: nobody is
        sent away, but nobody who goes is replaced. May wait for the master, for minutes if it is
        not there.
        """
        nowhere = self._jvm.PythonUtils.toScalaMap(self._jvm.java.util.HashMap())
        return bool(self._scala_context.requestTotalExecutors(executors, 0, nowhere))

    def let_go(self, ids: Sequence[str]) -> bool:
        """Send these away; how many are wanted does not change. Says whether Spark will.

        With `spark.decommission.enabled` each goes when its tasks are done; else at once.
        """
        backend = self._scala_context.schedulerBackend()
        if self.sc.getConf().get("spark.decommission.enabled", "false") == "true":
            # Not by scale-down's own call, which would lower what is wanted once more.
            nobody = getattr(getattr(self._jvm.scala, "None$"), "MODULE$")
            info = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(_UNUSED, nobody)
            return all([backend.decommissionExecutor(each, info, False, False) for each in ids])  # noqa: C419, FBT003 - each of them
        named = self._jvm.java.util.ArrayList()
        for each in ids:
            named.add(each)
        gone = backend.killExecutors(self._as_scala(named).toSeq(), False, False, True)  # noqa: FBT003 - Java knows no keywords
        return int(gone.size()) == len(ids)

    def lacking(self) -> list[str]:
        """Which of the calls that let executors go this Spark does not have; on any master."""
        kind = self._jvm.java.lang.Class.forName(_CLIENT)
        there = {(each.getName(), each.getParameterCount()) for each in kind.getMethods()}
        return [name for name, given in _CALLS.items() if (name, given) not in there]

    @cached_property
    def _client(self) -> bool:
        """Whether this scheduler has executors of its own: standalone, YARN, Kubernetes."""
        from py4j.java_gateway import is_instance_of

        backend = self._scala_context.schedulerBackend()
        return bool(is_instance_of(self.sc._gateway, backend, _CLIENT))

    def _anyone_going(self) -> bool:
        backend = self._scala_context.schedulerBackend()
        going = backend.executorsPendingDecommission(), backend.executorsPendingToRemove()
        return any(each.size() for each in going)

    def _unpictured(self) -> None:
        """Let Spark describe no RDD of this thread, as it does for pages, where there are none.

        It would load a library for that: 80 ms.
        """
        if not self._pictured:
            self.set_property("spark.rdd.scope.noOverride", "true")

    def _selection(self, partitions: tuple[int, ...]) -> Any:
        if partitions not in self._selections:
            chosen = self._jvm.java.util.ArrayList()
            for each in partitions:
                chosen.add(each)
            self._selections[partitions] = chosen
        return self._selections[partitions]

    def _as_java(self, rdd: Rdd) -> Any:
        return self._java_rdd(rdd, self._bytes)


@dataclass(frozen=True, slots=True)
class Pending:
    """A job under way."""

    _future: Any

    def wait(self) -> None:
        """Wait for its end.

        Raises:
            JobFailed: It came to no result.
        """
        try:
            self._future.get()
        except Exception as error:
            raise _job_failed(error) from error

    def done(self) -> bool:
        """Whether it has ended."""
        return bool(self._future.isDone())

    def cancel(self) -> None:
        """Ask for its end."""
        self._future.cancel(True)  # noqa: FBT003 - Java knows no keywords


def pack_partition(partition: int) -> bytes:
    r"""A partition's number, as `Spark.shuffle` wants it before each blob.

    >>> pack_partition(1)
    b'\x00\x00\x00\x00\x00\x00\x00\x01'
    """
    return partition.to_bytes(8, "big")


def task_property(name: str) -> str | None:
    """The value that the driver gave to this task's job; to be called in a worker."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def broadcast_value(number: int) -> bytes:
    """What the driver broadcast under this number; to be called in a worker."""
    from pyspark.core.broadcast import _from_id

    value: bytes = _from_id(number).value
    return value


def is_repeated() -> bool:
    """Whether Spark has tried this task before, in the same stage; to be called in a worker."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def connect(port: int, secret: str) -> Any:
    """A gateway to a JVM that `session.py` has started, as PySpark itself would make it."""
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
    from py4j.java_gateway import java_import

    gateway = ClientServer(
        java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    for name in _IMPORTED:
        java_import(gateway.jvm, name)
    return gateway


# As in pyspark.java_gateway.launch_gateway: a user may make a SparkSession of our context.
_IMPORTED = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)


def forget_gateway() -> None:
    """Make PySpark forget a JVM that is gone, so that another can be started."""
    from pyspark import SparkContext

    with SparkContext._lock:
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkContext._active_spark_context = None


def stop(sc: Any) -> None:
    """Stop a SparkContext.

    PySpark then waits for a server of its own, which looks up every half second: it is left to a
    thread, since it holds nothing but itself.
    """
    server, sc._accumulatorServer = getattr(sc, "_accumulatorServer", None), None
    try:
        sc.stop()
    finally:
        if server is not None:
            threading.Thread(target=server.shutdown, name="anabranch-stop", daemon=True).start()


def active_context() -> Any | None:
    """The SparkContext of this process, if there is one."""
    if "pyspark" not in sys.modules:  # then there is none, and to load it takes 0.1 s
        return None
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def has_gateway() -> bool:
    """Whether this process has a JVM already; it keeps it until its end."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def _job_failed(error: Exception) -> JobFailed:
    # Once Spark SQL is in use, PySpark raises exceptions of its own, with Java's inside or not.
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    text = str(error) if java is None else str(java.toString())
    cause = None if java is None else java.getCause()
    if cause is not None:
        text = f"{text}\n{cause.toString()}"
    cancelled = bool(_CANCELLED.search(text.partition("\n")[0]))
    python = _PYTHON_ERROR.search(text)
    if python:
        return JobFailed(python[1].strip(), cancelled=cancelled)
    died = java is None or bool(_DEATHS.search(text))
    return JobFailed(_first_lines(text), died=died and not cancelled, cancelled=cancelled)


def _first_lines(text: str) -> str:
    """What is worth reading of an exception of Spark's.

    >>> _first_lines("Job aborted: most recent failure: Lost task 0 (TID 1) (h): x: No.")
    'x: No.'
    """
    recent = re.search(r"most recent failure: .*?\(TID \d+\) \([^)]*\): ([^\n]*)", text)
    if recent:
        return recent[1].strip()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("at ")]
    return "\n".join(lines[:8]).strip()
