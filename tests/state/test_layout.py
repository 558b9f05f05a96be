"""The small files of a checkpoint: written and read back, and refused when anything is wrong."""

import json
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import CheckpointError
from anabranch.state.description import Description
from anabranch.state.layout import (
    Acknowledgement,
    Commit,
    DeltaName,
    EpochPlan,
    Lease,
    Metadata,
    delta_of,
    number_of,
    plan_of,
)

DELTA = "state/count/0000000005_2_1_ab.delta"
COMMIT = Commit(
    first=4,
    last=5,
    watermarks={"clicks": 2**63 - 1, "ads": None},
    positions={"clicks": {0: 17, "0": {"file": "a", "row": 3}}},
    row_numbers={"clicks": {0: 17}},
    greatest_times={"clicks": {0: -5}},
    owners=(0, 0, 1, 1),
    lanes=2,
    deltas={"count": {1: DELTA}},
    staged={"out": ((4, ("a", None)), (5, ({"rows": 1.5},)))},
    statistics={"rows": 10},
    number=3,
    run=2,
    parent=2,
    plans=("epochs/0000000004_1.plan", "epochs/0000000005_2.plan"),
    adopted=(),
    state_from=3,
)
PLAN = EpochPlan(
    epoch=4,
    source="clicks",
    offsets={0: (3, 5), "a": (None, [1, "x"])},
    idle=(1, "b"),
    finished=(0,),
    hint=77,
    lanes=2,
    owners=1,
    memory={"files": ["ä\u2028", "\ud800"]},
    run=2,
)
LEASE = Lease(3, "r", "host:1")
VALUES = [
    Metadata("id", "views", 5),
    LEASE,
    PLAN,
    COMMIT,
    Commit(0, -1),
    Description(
        {"views": {"kind": ("window",), "key": ("a: Int64", "ä: String")}, "x": {}},
        {"clicks": "Files"},
        ("out",),
    ),
    Acknowledgement(4, 2),
]


def resealed(data, change):
    content = json.loads(data.splitlines()[1])
    change(content)
    body = b"v1\n" + json.dumps(content).encode() + b"\n"
    return body + b"crc32c %08x\n" % crc32c(body)


def read(value, path, data):
    """What is in a file of the kind that a value is of."""
    if not isinstance(value, EpochPlan):
        return type(value).from_bytes(path, data)
    (plan,) = EpochPlan.all_from_bytes(path, data)
    return plan


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_is_written_is_read(value):
    assert value == read(value, "file", value.to_bytes())


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_length_but_its_own_is_refused(value):
    data = value.to_bytes()

    for length in range(len(data)):
        with pytest.raises(CheckpointError, match=r"^checkpoint file some/file cannot be read"):
            read(value, "some/file", data[:length])
    with pytest.raises(CheckpointError):
        read(value, "some/file", data + b"\n")


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_flipped_bit_is_refused(value):
    data = value.to_bytes()

    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CheckpointError, match="some/file"):
            read(value, "some/file", bytes(flipped))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_key_must_be_there_and_of_its_type(value):
    data = value.to_bytes()

    for key in json.loads(data.splitlines()[1]):
        without = resealed(data, lambda content, key=key: content.pop(key))
        with pytest.raises(CheckpointError, match=f"key '{key}' is missing"):
            read(value, "file", without)
        if key in ("hint", "memory"):
            continue
        wrong = resealed(data, lambda content, key=key: content.update({key: 1.5}))
        with pytest.raises(CheckpointError, match=f"key '{key}'"):
            read(value, "file", wrong)


def test_an_unknown_key_is_refused():
    with pytest.raises(CheckpointError, match="unknown key 'extra'"):
        Lease.from_bytes("f", resealed(LEASE.to_bytes(), lambda it: it.update(extra=1)))


LATER = replace(
    COMMIT,
    latest={"clicks": "epochs/0000000005_2.plan", "ads": "epochs/0000000001_1.plan"},
    dropped=("count", "sum"),
    quarantined={"clicks": {0: (3, 7), "a": (1,)}},
)


def test_keys_that_came_later_may_be_missing_and_are_written_only_where_they_say_something():
    assert LATER == Commit.from_bytes("file", LATER.to_bytes())
    assert b"latest" not in COMMIT.to_bytes()
    assert b"dropped" not in COMMIT.to_bytes()
    assert COMMIT == Commit.from_bytes("file", COMMIT.to_bytes())


@pytest.mark.parametrize("key", ["latest", "dropped", "quarantined"])
def test_keys_that_came_later_are_checked_as_well(key):
    wrong = resealed(LATER.to_bytes(), lambda content: content.update({key: 1.5}))

    with pytest.raises(CheckpointError, match=f"key '{key}'"):
        Commit.from_bytes("file", wrong)


def test_plans_of_several_epochs_are_one_file():
    behind = [replace(PLAN, epoch=epoch, source=source) for epoch, source in ((5, "ads"), (6, "x"))]

    found = EpochPlan.all_from_bytes("file", PLAN.to_bytes(behind))

    assert (PLAN, *(replace(each, file=4) for each in behind)) == found
    assert {PLAN.path} == {plan.path for plan in found}


def test_a_file_of_many_plans_may_say_up_to_where_it_goes():
    behind = [replace(PLAN, epoch=epoch) for epoch in (5, 6)]
    first = replace(PLAN, last=6)

    found = EpochPlan.all_from_bytes("file", first.to_bytes(behind))

    assert (first, *(replace(each, file=4, last=6) for each in behind)) == found
    assert {"epochs/0000000004-0000000006_2.plan"} == {plan.path for plan in found}
    wrong = resealed(first.to_bytes(behind), lambda content: content.update(last=7))
    with pytest.raises(CheckpointError, match="it ends with epoch 6 and says 7"):
        EpochPlan.all_from_bytes("file", wrong)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: plan.update(epoch=6), "epoch 6 of run 2 is out of place"),
        (lambda plan: plan.update(run=3), "epoch 5 of run 3 is out of place"),
        (lambda plan: plan.pop("hint"), "key 'hint' is missing"),
        (lambda plan: plan.update(following=[]), "unknown"),
    ],
)
def test_a_file_of_plans_in_which_one_does_not_belong_is_refused(change, said):
    data = PLAN.to_bytes([replace(PLAN, epoch=5)])

    with pytest.raises(CheckpointError, match=said):
        EpochPlan.all_from_bytes("file", resealed(data, lambda all_: change(all_["following"][0])))


@pytest.mark.parametrize("following", [1, "x", {}, [1], [[]], None])
def test_what_follows_a_plan_must_be_plans(following):
    data = resealed(PLAN.to_bytes(), lambda content: content.update(following=following))

    with pytest.raises(CheckpointError, match="plans of epochs are expected"):
        EpochPlan.all_from_bytes("file", data)


@pytest.mark.parametrize("key", ["plans", "adopted", "latest"])
@pytest.mark.parametrize("path", ["../../secret", "metadata", "/etc/passwd", "epochs/1.plan"])
def test_a_plan_is_named_as_plans_are(key, path):
    value = {"ads": path} if key == "latest" else [path]
    hostile = resealed(COMMIT.to_bytes(), lambda content: content.update({key: value}))

    with pytest.raises(CheckpointError, match="a plan is not named as plans are"):
        Commit.from_bytes("file", hostile)


def test_another_version_is_told_from_damage():
    data = LEASE.to_bytes().replace(b"v1", b"v2", 1)

    with pytest.raises(CheckpointError, match=r"^checkpoint file lease/3 was written by a newer"):
        Lease.from_bytes("lease/3", data)


@pytest.mark.parametrize(
    "text", [b"[1]", b'{"a":1,"a":1}', b'{"a":NaN}', b"[" * 100_000, b"{", b"1" * 5000]
)
def test_what_is_no_plain_object_is_refused(text):
    body = b"v1\n" + text + b"\n"

    with pytest.raises(CheckpointError):
        Lease.from_bytes("f", body + b"crc32c %08x\n" % crc32c(body))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("last", 2),
        ("lanes", 1),
        ("deltas", {"count": [[7, DELTA]]}),
        ("deltas", {"count": [[1, "../../etc/passwd"]]}),
        ("staged", {"out": [[9, []]]}),
        ("staged", {"out": [[5, []], [4, []]]}),
        ("positions", {"clicks": [[0, 1], [0, 2]]}),
        ("positions", {"clicks": [[True, 1]]}),
        ("owners", [0, -1]),
    ],
)
def test_a_commit_that_cannot_be_is_refused(key, value):
    data = resealed(COMMIT.to_bytes(), lambda content: content.update({key: value}))

    with pytest.raises(CheckpointError, match="commits/3"):
        Commit.from_bytes("commits/3", data)


@given(st.text(min_size=1), st.integers(0, 10**12))
def test_names_of_deltas_are_plain_and_say_what_they_are(operator, epoch):
    name = DeltaName(operator, epoch, run=2, lane=1, id="0a-b", snapshot=True)

    found = delta_of(name.path)

    assert name.path.isascii()
    assert 2 == name.path.count("/")
    assert len(name.path.split("/")[1]) <= 120
    assert not name.path.split("/")[1].startswith(".")
    assert found is not None
    assert (epoch, 2, 1, "0a-b", True) == (
        found.epoch,
        found.run,
        found.lane,
        found.id,
        found.snapshot,
    )
    assert operator == found.operator or len(name.path.split("/")[1]) == 120


@given(st.lists(st.integers(0, 10**10 - 1)))
def test_names_sort_as_their_numbers_do(numbers):
    paths = [EpochPlan(each, "s", {}, run=1).path for each in numbers]

    assert [plan_of(path) for path in sorted(paths)] == [(each, 1) for each in sorted(numbers)]


def test_other_names_are_none_of_ours():
    assert number_of("commits/README") is None
    assert plan_of("epochs/4.plan") is None
    assert delta_of("state/count/x.delta") is None
