"""What a source promises, a rule a line."""

from __future__ import annotations

from enum import Enum


class SourceRule(Enum):
    """What a source promises."""

    SCHEMA = "schema is a Polars schema with at least one column"
    PARTITIONS = "partitions() gives different names, in the same order each time"
    LATEST = "latest() has an offset for each partition"
    OFFSETS = "offsets are JSON values, and the same when they come back from JSON"
    BATCHES = "read() gives record batches of the source's schema"
    UNREAD = "a row that could not be read is told in the column `unread`, and null in all others"
    REPEATED = "a range of offsets is the same records each time"
    UNDISTURBED = "reads do not disturb each other, nor does one that is given up"
    NOTHING = "a range that ends where it begins holds nothing"
    JOINED = "ranges that meet join without a gap and without an overlap"
    LIMIT_BETWEEN = "limit() lies between the start and the end"
    LIMIT_ROWS = "limit() goes at most so many rows from the start"
    LIMIT_GOES_ON = "limit() gets to the end, by as many rows as it may at a time"
    LIMIT_GROWS = "limit() of more rows goes at least as far"
    PLANNED = "plan() gives splits in the order of partitions, and of offsets in each"
    TRAVELS = "a copy can travel to a task"
    TRAVELS_LATER = "a copy that has been looked at can travel to a task"
    SPLITS_TRAVEL = "splits can be pickled"
    COPIES = "a copy in a task reads the same records"
    FRAMES = "frame() gives what read() gives, of the columns that are asked for"
    MEMORY = "memory() is a JSON value"
    RECALLED = "after recall(memory()) a range is the same records in a new process"
    RESUMED = "after recall(memory()) a new process goes on at every offset"
    NOT_BACK = "latest() never goes back"
    NEW_PARTITIONS = "a new partition goes to the end"
    END = "end() has for each partition where it will end, at latest() or behind it, or None"
    FINISHED = "a partition is finished when all it will ever hold is there"
    FINISHED_FOR_EVER = "nothing follows in a partition that is finished"
    HINTED = "no record comes below the hint"
