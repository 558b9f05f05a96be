"""What a function reads of, or does to, the process and the machine it runs in."""

from __future__ import annotations

import datetime
import os
import random
import secrets
import time
import uuid
from datetime import date

from tests.compiler.independent.labels import between, touches, twice, unsafe

RNG = random.Random(1)
clock = time.perf_counter_ns


def by_random(r):
    return {**r, "sample": random.random()}


unsafe(by_random, twice())


def by_own_generator(r):
    return {**r, "sample": RNG.random()}


unsafe(by_own_generator, twice())


def by_random_choice_alias(r, pick=random.choice):
    return {**r, "picks": [pick(range(1000)) for _ in range(9)]}


unsafe(by_random_choice_alias, twice())


def shuffled(r):
    rows = list(range(99))
    random.shuffle(rows)
    return {**r, "rows": rows}


unsafe(shuffled, twice())


def seeds_the_generator(r):
    random.seed(r["id"])
    return {**r, "sample": random.random()}


unsafe(seeds_the_generator, touches(random.getstate))


def unseeded_generator(r):
    return {**r, "sample": random.Random().random()}


unsafe(unseeded_generator, twice())


def by_uuid(r):
    return {**r, "id": str(uuid.uuid4())}


unsafe(by_uuid, twice())


def by_uuid1(r):
    return {**r, "id": uuid.uuid1().hex}


unsafe(by_uuid1, twice())


def by_secrets(r):
    return {**r, "token": secrets.token_hex()}


unsafe(by_secrets, twice())


def by_urandom(r):
    return {**r, "token": os.urandom(8)}


unsafe(by_urandom, twice())


def by_time(r):
    return {**r, "seen_at": time.time_ns() + time.perf_counter_ns()}


unsafe(by_time, twice())


def by_clock_alias(r):
    return {**r, "seen_at": clock()}


unsafe(by_clock_alias, twice())


def by_now(r):
    return {**r, "seen_at": datetime.datetime.now(datetime.UTC).isoformat()}


unsafe(by_now, "reads the clock; two calls may fall in one tick")


def by_today(r):
    return {**r, "age": (date.today() - date(2000, 1, 1)).days}


unsafe(by_today, "differs from day to day")


def by_formatted_now(r):
    return {**r, "seen": time.strftime("%Y-%m-%d %H:%M:%S")}


unsafe(by_formatted_now, "strftime without a time is the clock's")


def by_local_zone(r):
    return {**r, "hour": datetime.datetime.fromtimestamp(r["at"]).hour}


def other_zone():
    os.environ["TZ"] = "Asia/Tokyo" if os.environ.get("TZ") != "Asia/Tokyo" else "UTC"
    time.tzset()


unsafe(by_local_zone, between(other_zone))


def by_localtime(r):
    return {**r, "hour": time.localtime(r["at"]).tm_hour}


unsafe(by_localtime, between(other_zone))


def by_naive_timestamp(r):
    return {**r, "at": datetime.datetime(2024, 1, 1).timestamp()}


unsafe(by_naive_timestamp, between(other_zone))


def by_astimezone(r):
    return {**r, "h": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC).astimezone().hour}


unsafe(by_astimezone, between(other_zone))


def by_environment(r):
    return {**r, "stage": os.environ.get("INDEPENDENT_STAGE", "")}


def other_stage():
    os.environ["INDEPENDENT_STAGE"] = os.environ.get("INDEPENDENT_STAGE", "") + "x"


unsafe(by_environment, between(other_stage))


def by_getenv(r):
    return {**r, "stage": os.getenv("INDEPENDENT_STAGE")}


unsafe(by_getenv, between(other_stage))


def by_expanded_path(r):
    return {**r, "stage": os.path.expandvars("$INDEPENDENT_STAGE")}


unsafe(by_expanded_path, between(other_stage))


def writes_the_environment(r):
    os.environ["INDEPENDENT_LAST"] = f"{r['id']}{os.environ.get('INDEPENDENT_LAST', '')}"
    return r


unsafe(writes_the_environment, touches(lambda: os.environ.get("INDEPENDENT_LAST")))
