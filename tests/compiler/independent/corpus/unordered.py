"""Orders that are not the same in two processes: sets of strings, and what is made of them."""

from __future__ import annotations

import itertools
from collections import Counter

from tests.compiler.independent.labels import per_process, unsafe

TEXT = "the quick brown fox jumps over a lazy dog and runs away from all those small red hens"
ALIKE = "quick brown jumps night eight seven three spade heart clubs small those".split()
STOP = frozenset(TEXT.split())
COLUMNS = {"id", "x", "name", "tags", "at"}
SIZES = {name: (1e16, 1.0, -1e16)[i % 3] for i, name in enumerate(TEXT.split())}


def set_to_list(r):
    return {**r, "tags": list({f"{r['name']}{i}" for i in range(40)})}


def set_joined(r):
    return {**r, "tags": ",".join(set(TEXT))}


def set_looped_over(r):
    for word in set(TEXT.split()):
        yield {"word": word}


def set_popped(r):
    words = set(TEXT.split())
    return {"words": [words.pop() for _ in range(5)]}


def set_first(r):
    return {"word": next(iter(set(TEXT.split())))}


def set_first_that(r):
    return {"word": next(word for word in set(TEXT.split()) if len(word) > 2)}


def set_algebra(r):
    return {"words": tuple(frozenset(TEXT.split()) - {"fox"} | {"cat"})}


def set_to_dict_keys(r):
    return {"words": list(dict.fromkeys(set(TEXT.split())))}


def set_largest_with_ties(r):
    return {"word": max(set(ALIKE), key=len)}


def set_smallest_with_ties(r):
    return {"word": min(set(ALIKE), key=len)}


def set_sorted_with_ties(r):
    return {"words": sorted(set(ALIKE), key=len)}


def set_sum_of_floats(r):
    total = 0.0
    for name in set(SIZES):
        total += SIZES[name]
    return {"sum": total}


def set_repr(r):
    return {"text": f"{set(TEXT.split())}"}


def set_enumerated(r):
    return [{"rank": i, "word": word} for i, word in enumerate(set(TEXT.split()))]


def set_zipped(r):
    return {"pairs": list(zip(range(9), set(TEXT.split()), strict=False))}


def set_unpacked(r):
    first, *_ = set(TEXT.split())
    return {"first": first}


def set_starred(r):
    return {"words": [*set(TEXT.split())]}


def set_counted(r):
    return {"most": Counter(set(TEXT.split())).most_common(3)}


def set_chained(r):
    return {"words": list(itertools.chain(["a"], set(TEXT.split())))}


def set_mapped(r):
    return {"words": list(map(str.upper, set(TEXT.split())))}


def set_extended(r):
    words = []
    words.extend(set(TEXT.split()))
    return {"words": words}


def set_added_in_place(r):
    words = []
    words += {*TEXT.split()}
    return {"words": words}


def words_of(text):
    return {word for word in text.split() if word}


def set_from_a_helper(r):
    return {"words": list(words_of(TEXT))}


def set_of_keys(r):
    row = dict.fromkeys(TEXT.split(), 1)
    return {"columns": list(row.keys() & STOP)}


def set_of_other_keys(r):
    row = dict.fromkeys(TEXT.split(), 1)
    return {"columns": ",".join(row.keys() - {"fox"})}


def set_captured(r):
    return {"found": [word for word in STOP if word in TEXT]}


def set_captured_as_columns(r):
    return {"values": [str(r[column]) for column in COLUMNS]}


def set_decides_the_last(r):
    last = None
    for word in STOP:
        last = word
    return {"last": last}


def set_built_in_a_loop(r):
    seen, out = set(), ""
    for word in TEXT.split():
        seen.add(word)
    for word in seen:
        out += word
    return {"out": out}


def set_hash(r):
    return {"hash": hash(frozenset(TEXT.split()))}


def set_of_tuples(r):
    return {"pairs": list({(word, len(word)) for word in TEXT.split()})}


def set_of_bytes(r):
    return {"words": list({word.encode() for word in TEXT.split()})}


def set_in_the_state(r, state):
    state.value = set(TEXT.split())
    return {"words": list(state.value)}


for each in [each for name, each in list(globals().items()) if name.startswith("set_")]:
    unsafe(each, per_process, state=each.__name__ == "set_in_the_state")
