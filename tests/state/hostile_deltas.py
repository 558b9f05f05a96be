"""Reads Arrow that somebody wrote with malice: other bytes, and checksums that are right for them.

In a process of its own, since what is wrong with such a file may end the process that reads it. The
arguments are where it is (a delta, the message of a sink, the version of a table), the first seed
and how many; says, as JSON, what became of them.
"""

import base64
import io
import json
import random
import sys
from collections import Counter

import polars as pl
from crc32c import crc32c

from anabranch.connectors.messages import from_message
from anabranch.errors import CheckpointError
from anabranch.runtime.tables import from_bytes, to_bytes
from anabranch.state.delta import _FOOTER, _HEADER, _MAGIC, Delta, _divide, pack, unpack
from anabranch.state.envelope import as_line

FRAME = pl.DataFrame(
    {
        "slice": pl.Series([0, 0, 1, 3], dtype=pl.UInt16),
        "key": ["a", "a text that is too long to stand in its view", "", None],
        "value": [b"x" * 50, b"", None, b"y"],
        "list": [[1, 2], [], None, [3]],
        "texts": [["a" * 20, None], [], None, ["b"]],
        "number": [1, 2, None, 4],
    }
)
LENGTHS = [b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\x10", b"\0\0\0\0"]


def spoilt(body, seed):
    """Some bytes of the Arrow stream are others; lengths and offsets are favourites."""
    draw, found = random.Random(seed), bytearray(body)
    for _ in range(draw.choice([1, 1, 2, 4])):
        at = draw.randrange(len(_HEADER), len(body))
        if draw.random() < 0.5:
            found[at] = draw.randrange(256)
        else:
            found[at : at + 4] = draw.choice(LENGTHS)
    return bytes(found[: len(body)])


def sealed(body, trailer):
    """A file of this body that is right in every checksum."""
    line = as_line({**trailer, "length": len(body), "crc32c": crc32c(body)})
    return body + line + _FOOTER.pack(len(line), crc32c(line), _MAGIC)


def deltas():
    """A delta's stream, and how a file of such a stream is read."""
    body, line = _divide("", pack(Delta("op", 0, 1, 0, 3, "abc", FRAME)))
    trailer = json.loads(line)
    return body, lambda body: unpack(sealed(body, trailer)).frame


def messages():
    """What a commit holds for a `Memory` sink."""
    stream = io.BytesIO()
    FRAME.write_ipc_stream(stream)
    return stream.getvalue(), lambda body: from_message(base64.b64encode(body).decode(), "Memory")


def tables():
    """A version of a lookup's table."""
    return to_bytes(FRAME), from_bytes


PLACES = {"delta": deltas, "message": messages, "table": tables}


def outcome(read, body):
    try:
        frame = read(body)
    except CheckpointError:
        return "refused"
    frame.rows()
    return "read"


def main(place, first, count):
    (body, read), found = PLACES[place](), Counter()
    assert "read" == outcome(read, body)
    for seed in range(first, first + count):
        try:
            found[outcome(read, spoilt(body, seed))] += 1
        except BaseException as error:
            found[f"{type(error).__name__} with seed {seed}"] += 1
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
