"""Methods that a stream does not have, and what those who come from elsewhere meant by them."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.errors import ProgramError, nearest

_ELSEWHERE: Mapping[str, str] = {
    "agg": "group into windows first: .window(ab.tumbling(...), by=...).agg(...)",
    "groupBy": "use .window(..., by=...).agg(...), or .key_by(...) for state of your own",
    "group_by": "use .window(..., by=...).agg(...), or .key_by(...) for state of your own",
    "keyBy": "use .key_by(...)",
    "key_on": "use .key_by(...)",
    "where": "use .filter(...)",
    "withColumn": "use .with_columns(name=expression)",
    "withColumnRenamed": "use .rename({...})",
    "withWatermark": "say event_time= and lateness= where the source is read",
    "with_watermark": "say event_time= and lateness= where the source is read",
    "assignTimestampsAndWatermarks": "say event_time= and lateness= where the source is read",
    "flatMap": "use .flat_map(...)",
    "dropDuplicates": "use .key_by(...).deduplicate(within=...)",
    "unique": "use .key_by(...).deduplicate(within=...)",
    "writeStream": "use .write(sink), then program.start(...)",
    "sink_parquet": 'use .write(ab.sinks.Files(path, format="parquet"))',
    "addSink": "use .write(sink)",
    "sort": "use .in_time_order(), or sort where windows are given: .window(...).apply(...)",
    "orderBy": "use .in_time_order(), or sort where windows are given: .window(...).apply(...)",
    "collect": "write to ab.sinks.Memory(...), or see ab.testing.run_sequential(program)",
    "start": "streams are written, programs started: .write(sink), then program.start(...)",
}
_FIRST: Mapping[str, str] = {
    "WindowedStream": "say what becomes of each window first: .agg(...) or .apply(...)",
    "KeyedStream": "say what becomes of each key first, by one of these",
}
"""What makes a stream of what is not one yet."""


class NoSuchMethodError(ProgramError, AttributeError):
    """A method that is not there, at the line that calls it."""


def missing(handle: object, name: str, stream: type) -> AttributeError:
    """The error for a name that a handle on a stream does not have."""
    kind = type(handle).__name__
    message = f"{kind} has no {name!r}"
    if name.startswith("_"):  # Python's own protocols ask for many
        return AttributeError(message)
    have = sorted(each for each in dir(type(handle)) if not each.startswith("_"))
    so = _FIRST.get(kind) if hasattr(stream, name) else None
    so = so or _ELSEWHERE.get(name) or nearest(name, have)
    return NoSuchMethodError(message, have=", ".join(have), so=so)
