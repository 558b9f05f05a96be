"""How often each word has been said so far: one line in, one row a word out.

    ./x python examples/word_count.py                        prints the rows
    ./x python -m anabranch.cli run examples/word_count.py   runs it and says how many there are

A word's state is its own, and its records come one at a time, in order.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

import anabranch as ab

LINES = [
    {"line": "the river leaves the plain"},
    {"line": "an arm leaves the river"},
    {"line": "the arm joins the river"},
]


@ab.operator(out={"word": pl.String})
def words(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each word of a line, from left to right."""
    for word in record["line"].split():
        yield {"word": word}


@ab.operator(out={"word": pl.String, "count": pl.Int64})
def count(record: dict[str, Any], state: Any) -> dict[str, Any]:
    """Add one to what this word has had; `state` is the word's own."""
    state.value = (state.value or 0) + 1
    return {"word": record["word"], "count": state.value}


program = ab.Program("word-count")
(
    program.read(ab.sources.Records(LINES))
    .flat_map(words)
    .key_by("word")
    .process(count)
    .write(ab.sinks.Memory("counts"))
)


if __name__ == "__main__":
    for row in ab.testing.run_sequential(program)["counts"]:
        print(row)
