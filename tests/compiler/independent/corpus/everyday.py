"""What data engineers write: these should be proved, so that the analyser is of use."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.compiler.independent.labels import safe

COUNTRIES = {"de": "Germany", "fr": "France"}
RATES = {"EUR": 1.0, "USD": 0.92}
STOP_WORDS = frozenset({"the", "a", "of"})
WORD = re.compile(r"[a-z']+")
LOG_LINE = re.compile(r"(?P<ip>\S+) \S+ \S+ \[(?P<at>[^\]]+)\] \"(?P<verb>\w+) (?P<path>\S+)")
EARTH_KM = 6371.0
BANDS = [(0, "low"), (10, "mid"), (100, "high")]
MAX_AMOUNT = 10_000

TEXT = {"text": "The state of the art's a thing"}
LINE = {"line": '10.0.0.1 - - [01/Jan/2024:00:00:00] "GET /a?b=1 HTTP/1.1" 200 12'}
PLACE = {"lat": 52.5, "lon": 13.4, "lat2": 48.1, "lon2": 11.6, "at": 10, "phone": "1"}
ORDER = {"id": 1, "amount": "12.50", "currency": "USD", "items": [{"sku": "a", "n": 2}], "c": "DE "}
USER = {"user": {"name": " Ann ", "email": "ANN@X.ORG"}, "age": "31"}


def parse_json(r):
    return {**r, **json.loads(r["body"])}


safe(parse_json, {"body": '{"a": 1}'})


def parse_log(r):
    found = LOG_LINE.match(r["line"])
    if found is None:
        return None
    return found.groupdict()


safe(parse_log, LINE)


def parse_csv_line(r):
    name, amount, *_ = r["line"].split(",")
    return {"name": name.strip(), "amount": float(amount)}


safe(parse_csv_line, {"line": "a, 1.5,x"})


def parse_url(r):
    parts = urlsplit(r["url"])
    query = parse_qs(parts.query)
    return {**r, "host": parts.hostname, "campaign": query.get("c", [None])[0]}


safe(parse_url, {"url": "http://a.org/b?c=d"})


def parse_time(r):
    r["day"] = dt.datetime.strptime(r["at"], "%Y-%m-%d").date()
    return r


safe(parse_time, {"at": "2024-01-02"})


def parse_iso(r):
    at = dt.datetime.fromisoformat(r["at"])
    return {**r, "hour": at.hour, "weekday": at.weekday()}


safe(parse_iso, {"at": "2024-01-02T03:04:05"})


def clean_user(r):
    user = r["user"]
    return {
        "name": user["name"].strip().title(),
        "email": user["email"].lower(),
        "age": int(r["age"]),
    }


safe(clean_user, USER)


def clean_in_place(r):
    r["c"] = r["c"].strip().lower()
    r["amount"] = float(r["amount"])
    return r


safe(clean_in_place, ORDER)


def enrich(r):
    r["country"] = COUNTRIES.get(r["c"].strip().lower(), "unknown")
    return r


safe(enrich, ORDER)


def convert(r):
    rate = RATES[r["currency"]]
    return {**r, "eur": round(float(r["amount"]) * rate, 2)}


safe(convert, ORDER)


def convert_exactly(r):
    return {**r, "amount": str(Decimal(r["amount"]).quantize(Decimal("0.1")))}


safe(convert_exactly, ORDER)


def band(r):
    label = "none"
    for least, name in BANDS:
        if r["x"] >= least:
            label = name
    return {**r, "band": label}


safe(band)


def tokenise(r):
    for word in WORD.findall(r["text"].lower()):
        if word not in STOP_WORDS:
            yield {"word": word}


safe(tokenise, TEXT)


def split_words(r):
    return [{"word": w} for w in r["text"].split()]


safe(split_words, TEXT)


def explode_items(r):
    for item in r["items"]:
        yield {"id": r["id"], **item}


safe(explode_items, ORDER)


def bigrams(r):
    words = r["text"].split()
    for left, right in zip(words, words[1:], strict=False):
        yield {"pair": f"{left} {right}"}


safe(bigrams, TEXT)


def word_counts(r):
    counts = Counter(r["text"].lower().split())
    return [{"word": word, "n": n} for word, n in sorted(counts.items())]


safe(word_counts, TEXT)


def group_items(r):
    groups = defaultdict(list)
    for item in r["items"]:
        groups[item["sku"]].append(item["n"])
    return {"id": r["id"], "groups": {sku: sum(ns) for sku, ns in groups.items()}}


safe(group_items, ORDER)


def total(r):
    return {"id": r["id"], "n": sum(item["n"] for item in r["items"])}


safe(total, ORDER)


def haversine(lat, lon, lat2, lon2):
    a, b = math.radians(lat), math.radians(lat2)
    d = math.radians(lon2 - lon)
    h = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(d / 2) ** 2
    return 2 * EARTH_KM * math.asin(math.sqrt(h))


def distance(r):
    return {**r, "km": haversine(r["lat"], r["lon"], r["lat2"], r["lon2"])}


safe(distance, PLACE)


def validate(r):
    errors = []
    if not r.get("id"):
        errors.append("no id")
    if float(r["amount"]) > MAX_AMOUNT:
        errors.append("too much")
    return {**r, "errors": errors, "ok": not errors}


safe(validate, ORDER)


def keep_valid(r):
    try:
        amount = float(r["amount"])
    except ValueError:
        return None
    return {**r, "amount": amount} if amount > 0 else None


safe(keep_valid, ORDER)


def mask(r):
    user, _, domain = r["user"]["email"].partition("@")
    return {"email": f"{user[0]}***@{domain.lower()}"}


safe(mask, USER)


def fingerprint(r):
    return {**r, "key": hashlib.sha256(r["name"].encode()).hexdigest()[:8]}


safe(fingerprint)


def rename(r):
    return {"user_id": r["id"], "label": r["name"]}


safe(rename)


def drop_columns(r):
    return {k: v for k, v in r.items() if k not in ("tags", "at")}


safe(drop_columns)


def flatten(r):
    out = {}
    for key, value in r.items():
        if isinstance(value, dict):
            for inner, deep in value.items():
                out[f"{key}_{inner}"] = deep
        else:
            out[key] = value
    return out


safe(flatten, USER)


def classify(r):
    match r["x"]:
        case 0:
            kind = "zero"
        case int() | float() if r["x"] < 0:
            kind = "negative"
        case _:
            kind = "positive"
    return {**r, "kind": kind}


safe(classify)


def bucket(r):
    return {**r, "minute": r["at"] // 60 * 60}


safe(bucket)


def rank_tags(r):
    ranked = sorted(r["tags"], key=lambda tag: (-len(tag), tag))
    return [{"rank": i, "tag": tag} for i, tag in enumerate(ranked)]


safe(rank_tags)

safe(lambda r: {**r, "double": r["x"] * 2}, name="doubled")
safe(lambda r: r | {"long": len(r["name"]) > 5}, name="flagged")


def scaled(factor):
    def scale(r):
        return {**r, "x": r["x"] * factor}

    return scale


safe(scaled(3), name="scaled_by_a_closure")


def add_vat(r, rate=0.19):
    return {**r, "gross": float(r["amount"]) * (1 + rate)}


safe(add_vat, ORDER)
safe(functools.partial(add_vat, rate=0.07), ORDER, name="partial_add_vat")


@dataclass(frozen=True)
class Threshold:
    column: str
    least: float

    def __call__(self, r):
        return r if r[self.column] >= self.least else None


safe(Threshold("x", 2), name="threshold")


class Point(NamedTuple):
    lat: float
    lon: float


def to_point(r):
    here = Point(r["lat"], r["lon"])
    return {**r, "lat": round(here.lat, 1), "lon": round(here.lon, 1)}


safe(to_point, PLACE)


def luhn(number):
    digits = [int(d) for d in reversed(number)]
    odd = sum(digits[0::2])
    even = sum(sum(divmod(2 * d, 10)) for d in digits[1::2])
    return (odd + even) % 10 == 0


def check_card(r):
    return {**r, "valid": luhn(r["card"])}


safe(check_card, {"card": "4539578763621486"})


def unique_tags(r):
    return {**r, "tags": sorted(set(r["tags"]))}


safe(unique_tags)
