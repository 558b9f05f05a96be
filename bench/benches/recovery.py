"""How long a query takes to recover from kill -9, of a lane or of the driver with its JVM."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare
from bench.recovery import driver
from bench.recovery.patient import Healed, Patient

KEYS, QUICK_KEYS = (10_000, 1_000_000), (1_000,)
RATE, QUICK_RATE = 5_000.0, 1_000.0
EVERY, MOST = "100 ms", 50_000
NOTES = (
    (
        "A count by key in a Python function on Spark, local[2], two lanes, durability 'process'; "
        f"{RATE:,.0f} rows a second, an epoch every {EVERY} of at most {MOST:,} rows. Rows keep "
        "coming while nothing is there to take them. State is one number a key."
    ),
    (
        "first commit: from the kill to the first commit with a row that came after it. caught up: "
        "to the first commit that leaves no more rows waiting than the worst of 20 before the "
        "kill. lane: one of two worker processes is killed under a living driver. driver: the "
        "driver's process and its JVM are killed together, and another process is started at "
        "once; it includes the start of Python, of Spark and of the lanes. Afterwards 16 keys' "
        "counts were read: none was lost or counted twice."
    ),
)


def measure(stand: Stand) -> list[Row]:
    """One query for each size of state; it lives through all kills."""
    quick = stand.settings.quick
    return [row for keys in (QUICK_KEYS if quick else KEYS) for row in _case(stand, keys)]


def _case(stand: Stand, keys: int) -> list[Row]:
    rounds = stand.settings.warmups + stand.settings.runs
    healed: dict[str, list[Healed]] = {"lane": [], "driver": []}
    with _patient(keys, QUICK_RATE if stand.settings.quick else RATE) as patient:
        stand.progress.begin(f"{keys:,} keys", 2 * rounds)
        for _ in range(rounds):
            for what, found in healed.items():
                found.append(_killed(patient, what))
                stand.progress.step(what)
        patient.stop()
        driver.check(Path(patient.options["home"]))
    return [
        row
        for what, found in healed.items()
        for row in _rows(f"{what}, {keys:,} keys", found[stand.settings.warmups :])
    ]


def _killed(patient: Patient, what: str) -> Healed:
    usual = patient.usual_lag()
    if what == "lane":
        return patient.heal(patient.kill_lane(), usual)
    fault = patient.kill_driver()
    patient.start()
    return patient.heal(fault, usual)


def _rows(case: str, found: list[Healed]) -> list[Row]:
    return [
        bare(Metric(case, "first commit", "s"), "anabranch", [each.first for each in found]),
        bare(Metric(case, "caught up", "s"), "anabranch", [each.caught_up for each in found]),
    ]


@contextmanager
def _patient(keys: int, rate: float) -> Iterator[Patient]:
    with tempfile.TemporaryDirectory() as home:
        options = {
            "home": home,
            "keys": keys,
            "rate": rate,
            "begun": time.time(),
            "every": EVERY,
            "most": MOST,
        }
        patient = Patient(options, Path(home) / "errors.txt")
        patient.start()
        try:
            yield patient
        finally:
            patient.end()
