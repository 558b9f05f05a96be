"""What the tests run in lanes and heads."""

import os
import threading


def count(plans, index, items):
    """Add up in the process; the payload says how much."""
    for item in items:
        _total.append(int(item))
        yield f"{index} {sum(_total)} {os.getpid()}".encode()


_total = []


def use_plans(plans, index, items):
    for item in items:
        yield f"{index} {plans[item.decode()](index)}".encode()


def know_plans(plans, index, items):
    for _ in items:
        yield ",".join(sorted(plans)).encode()


def hang(plans, index, items):
    for item in items:
        if item == b"hang":
            threading.Event().wait()
        yield str(os.getpid()).encode()
