"""Functions whose surroundings the tests of fingerprints change, from a file of their own."""

import math

RATES = {"x": 1.0}
LIMIT = 10


def helper(x):
    return x + 1


def other(x):
    return x + 2


def reads(r, factor=2):
    return {**r, "n": helper(r["n"]) * factor + RATES.get("x", 0) + LIMIT + math.floor(1.5)}


class Scale:
    unit = "eur"

    def __init__(self, factor):
        self.factor = factor
        self.unused = []

    def __call__(self, r):
        return {**r, "n": self.scaled(r["n"]), "unit": self.unit}

    def scaled(self, n):
        return n * self.factor
