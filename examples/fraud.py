"""Cards that are tried with a small payment and emptied with a large one within a minute.

    ./x python examples/fraud.py                        prints the alerts
    ./x python -m anabranch.cli run examples/fraud.py   runs it and says how many there are

Shows state a key, timers of event time, and what becomes of a record that cannot be handled.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

import anabranch as ab

SMALL, LARGE = 1.0, 500.0
MINUTE_MS = 60_000

PAYMENTS = [
    {"at": 1_000, "card": "A", "amount": 0.5},
    {"at": 9_000, "card": "B", "amount": 0.9},
    {"at": 21_000, "card": "A", "amount": 700.0},  # 20 s after the small one: an alert
    {"at": 30_000, "card": "C", "amount": None},  # cannot be compared: a dead letter
    {"at": 80_000, "card": "B", "amount": 900.0},  # 71 s after the small one: none
]


@ab.operator(out={"card": pl.String, "at": pl.Int64, "amount": pl.Float64})
class TriedCards(ab.KeyedOperator):
    """Remembers a card's small payment for a minute.

    The times of the records decide: a timer fires at the end of an epoch, so it can forget what no
    longer matters, but must not be what tells an alert from none.
    """

    def on_record(self, record: dict[str, Any], state: Any) -> Iterator[dict[str, Any]]:
        """Tell of a large payment that follows a small one."""
        if record["amount"] <= SMALL:
            state.value = record["at"]
            state.timer_at(record["at"] + MINUTE_MS)
        elif record["amount"] >= LARGE and state.value is not None:
            if record["at"] - state.value <= MINUTE_MS:
                yield {"card": state.key, "at": record["at"], "amount": record["amount"]}
            state.clear()

    def on_timer(self, at: int, state: Any) -> None:
        """Forget the small payment, unless a later one has taken its place."""
        if state.value is not None and state.value + MINUTE_MS <= at:
            state.clear()


program = ab.Program("tried-cards")
alerts = (
    program.read(ab.sources.Records(PAYMENTS), event_time="at", time_unit="ms")
    .key_by("card")
    .process(TriedCards, on_error="dead_letter")
)
alerts.write(ab.sinks.Memory("alerts"))
alerts.dead_letters.select("operator", "offset", "error", "record").write(
    ab.sinks.Memory("unreadable")
)


if __name__ == "__main__":
    for sink, rows in ab.testing.run_sequential(program).items():
        for row in rows:
            print(sink, row)
