"""A program that is full of one secret: in options, URLs, what its functions capture, its environment.

Run as `python canary.py DIRECTORY` it does so on Spark, with the secret in Spark's settings too and
Spark's pages open, and leaves in the directory all that could be read of it meanwhile.
"""

import json
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import polars as pl

import anabranch as ab

CANARY = "kanarienvogel" + "-7f3a"
"""In two parts, so that the line itself does not have it."""

SETTINGS = {"spark.hadoop.fs.s3a.secret.key": CANARY, "spark.x.password": CANARY}
ENVIRONMENT = {"ORDERS_PASSWORD": CANARY, "AWS_SECRET_ACCESS_KEY": CANARY}


class Orders(ab.sources.Source):
    """A source of a user's own, which has to know a password."""

    def __init__(self, url, *, password):
        self.url, self.password = url, password
        self.records = ab.sources.Records([{"n": n, "at": n} for n in range(20)])
        self.schema = self.records.schema

    def partitions(self):
        return self.records.partitions()

    def latest(self):
        return self.records.latest()

    def plan(self, start, end):
        return self.records.plan(start, end)

    def read(self, split):
        return self.records.read(split)

    def finished(self, partition):
        return True


def program(directory):
    """Reads with a password, fails on some rows with one in hand, and writes files."""
    made, secret = ab.Program("canary"), CANARY
    source = Orders(f"https://me:{CANARY}@example.org/orders", password=secret)
    read = made.read(source, name="orders", event_time="at")

    def priced(record):
        if record["n"] % 5 == 0:
            raise ConnectionError(f"no price of {record['n']}")
        return {"n": record["n"], "price": len(secret)}

    def failing(record):
        return {"n": record["n"], "price": {"password": secret}["user"]}

    out = {"n": pl.Int64, "price": pl.Int64}
    mapped = read.map(priced, out=out, on_error="dead_letter", name="priced")
    mapped.write(ab.sinks.Files(directory / "out", format="parquet"), name="out")
    mapped.dead_letters.write(ab.sinks.Files(directory / "letters", format="jsonl"), name="letters")
    mapped.write(ab.sinks.Memory("seen"))
    read.map(failing, out=out, on_error="skip", name="failing").write(ab.sinks.Memory("none"))
    return made


def failing_program():
    """Fails with the secret in the function's hands, and not in its words."""
    made, secret = ab.Program("failing"), CANARY

    def lookup(record):
        return {"n": {"token": secret}["missing"]}

    read = made.read(Orders("s3://x", password=secret), name="orders")
    read.map(lookup, out={"n": pl.Int64}, name="lookup").write(ab.sinks.Memory("out"))
    return made


def listening(pid):
    """The addresses at which a process listens, as /proc writes them."""
    mine = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            mine.add(str(each.readlink()))
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A" and f"socket:[{parts[9]}]" in mine:
                found.add(parts[1].partition(":")[0])
    return sorted(found)


def page(url, method="GET"):
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def main(directory):
    held, begun = threading.Event(), threading.Event()

    def hold(rows, epoch):
        begun.set()
        assert held.wait(100)

    made = program(directory)
    made.read(ab.sources.Records([{"n": 1}]), name="one").write(
        ab.sinks.Callback(hold), name="hold"
    )
    query = made.start(
        master="local[1]",
        conf={**SETTINGS, "spark.ui.enabled": "true", "spark.ui.port": "0"},
        trigger=ab.available_now(7),
        checkpoint=directory / "ckpt",
        parallelism=1,
    )
    assert begun.wait(100)
    from pyspark import SparkContext

    from anabranch.spark.session import _shared

    sc = SparkContext._active_spark_context
    rest = f"api/v1/applications/{sc.applicationId}"
    places = (f"{rest}/environment", "environment/", "jobs/")
    pages = [page(f"{sc.uiWebUrl}/{each}") for each in places]
    killed = page(f"{sc.uiWebUrl}/jobs/job/kill/?id=0")
    told = {
        "pages": [status for status, _ in pages],
        "kill": killed[0],
        "settings": "spark.x.password" in pages[0][1],
        "bound": listening(_shared._jvm.process.pid),
        "killing": sc.getConf().get("spark.ui.killEnabled"),
    }
    (directory / "pages.txt").write_text("\n".join(text for _, text in pages))
    (directory / "shown.txt").write_text(
        "\n".join(
            [query.explain(), query.why(), repr(query), query._repr_html_(), str(query.status)]
        )
    )
    held.set()
    query.await_termination(100)
    (directory / "progress.txt").write_text(json.dumps(query.recent_progress))
    (directory / "spark.log").write_bytes((_shared._jvm.directory.path / "spark.log").read_bytes())
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
