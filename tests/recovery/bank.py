"""A bank: transfers between accounts, so that the sum of all balances is 0 after every one of them.

A transfer's two sides go different ways (two branches, two keys, two lanes) and meet again. Whoever
shows one side in an epoch and the other in the next shows money that does not exist: so this program
tells an engine whose outputs are consistent (each of exactly the inputs before it) from one whose are
only right in the end.
"""

import polars as pl

import anabranch as ab

TRANSFERS = {"t": pl.Int64, "payer": pl.Int64, "payee": pl.Int64, "amount": pl.Int64}
BALANCE = {"account": pl.Int64, "balance": pl.Int64}
TOTAL = {"total": pl.Int64}
ACCOUNTS = 7


def transfers(count):
    return [
        {
            "t": i * 40,
            "payer": i * i % ACCOUNTS,
            "payee": (i * 3 + 1) % ACCOUNTS,
            "amount": 1 + i * 17 % 101,
        }
        for i in range(count)
    ]


def balance(entry, state):
    state.value = (state.value or 0) + entry["change"]
    yield {"account": entry["account"], "balance": state.value}


def total(row, state):
    balances = state.value or {}
    balances[row["account"]] = row["balance"]
    state.value = balances
    yield {"total": sum(balances.values())}


def bank(source, sink, *, ordered=True, totals=None):
    """Every change of a balance to `sink`; to `totals`, if given, their sum after each change."""
    program = ab.Program("bank")
    read = program.read(source, name="transfers", event_time="t")
    credit = read.select(account=pl.col("payee"), change=pl.col("amount"))
    debit = read.select(account=pl.col("payer"), change=-pl.col("amount"))
    balances = credit.union(debit).key_by("account").process(balance, out=BALANCE, name="balance")
    balances.write(sink, name="out", ordered=ordered)
    if totals is not None:
        balances.process(total, out=TOTAL, name="total").write(totals, name="totals")
    return program


def epochs(directory):
    """What was published, epoch by epoch, as a reader of the directory sees it."""
    found = {}
    for file in sorted(directory.glob("part-*.parquet")):
        found.setdefault(int(file.name.split("-")[1]), []).extend(
            pl.read_parquet(file).rows(named=True)
        )
    return found


def assert_no_money_is_made(directory):
    """In every epoch that is visible, with all those before it, the balances add up to 0."""
    balances = {}
    for epoch, rows in epochs(directory).items():
        balances |= {row["account"]: row["balance"] for row in rows}
        assert sum(balances.values()) == 0, f"after epoch {epoch}: {balances}"
    return balances
