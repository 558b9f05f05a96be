import json
from dataclasses import replace

import pytest

from anabranch.errors import RunError
from anabranch.runtime import carried
from anabranch.runtime.carried import (
    CarriedExchange,
    lane_with_parts_from_bytes,
    lane_with_parts_to_bytes,
)
from anabranch.runtime.exchange import BLOB, PartError, PartName
from anabranch.runtime.payload import EpochDone, LaneDone, StageDone

NAME = PartName("run-1", epoch=7, map=2, attempt="0")
PARTS = {0: b"zero" * 100, 3: b"", 5: b"five"}


def sent(parts=PARTS, name=NAME, shipment="s1"):
    """What a head task sends, and what it says of it."""
    exchange = CarriedExchange()
    exchange.begin(shipment)
    part = json.loads(json.dumps(exchange.write(name, parts)))
    return part, exchange.written()


def arrived(*pieces):
    exchange = CarriedExchange()
    exchange.begin(arrived=pieces)
    return exchange


def test_parts_come_back_by_lane():
    part, pieces = sent()

    assert PARTS == {lane: arrived(*pieces[lane]).read(part, lane) for lane in PARTS}


def test_lane_without_a_part_has_none():
    part, _ = sent()

    assert arrived().read(part, 1) is None


def test_pieces_come_in_any_order_and_with_others():
    first, others = sent(), sent({0: b"other"}, replace(NAME, epoch=8))

    exchange = arrived(*others[1][0], *first[1][0])

    assert (b"zero" * 100, b"other") == (exchange.read(first[0], 0), exchange.read(others[0], 0))


def test_the_same_work_makes_the_same_pieces():
    assert sent() == sent()


def test_a_piece_that_did_not_arrive_is_noticed():
    part, _ = sent()

    with pytest.raises(PartError, match=r"(?s)^the part of lane 5 in 7_2_0.parts.*not arrive"):
        arrived().read(part, 5)


@pytest.mark.parametrize(
    "other",
    [
        {"name": replace(NAME, run="run-2")},
        {"name": replace(NAME, epoch=8)},
        {"name": replace(NAME, map=1)},
        {"name": replace(NAME, attempt="1")},
        {"shipment": "s2"},
    ],
)
def test_another_s_piece_is_not_taken(other):
    part, _ = sent()
    _, pieces = sent(**other)

    with pytest.raises(PartError, match=r"(?s)not arrive"):
        arrived(*pieces[5]).read(part, 5)


def test_a_piece_made_again_otherwise_is_noticed():
    part, _ = sent()
    _, pieces = sent({**PARTS, 5: b"vive"})

    with pytest.raises(PartError, match=r"(?s)made again, and is another"):
        arrived(*pieces[5]).read(part, 5)


@pytest.mark.parametrize("change", [lambda piece: piece[:-1], lambda piece: piece[:-1] + b"x"])
def test_damage_is_noticed(change):
    part, pieces = sent()

    with pytest.raises(PartError, match=r"(?s)damaged"):
        arrived(change(pieces[5][0])).read(part, 5)


def test_a_piece_that_arrives_twice_is_noticed():
    _, pieces = sent()

    with pytest.raises(PartError, match=r"(?s)lane 5 in 7_2_.*twice"):
        arrived(*pieces[5], *pieces[5])


def test_what_is_too_large_for_spark_is_refused(monkeypatch):
    monkeypatch.setattr(carried, "MOST_BYTES", 10)

    with pytest.raises(RunError, match=r"(?s)too large.*400 bytes"):
        sent()


def test_a_task_begins_with_nothing_of_the_one_before():
    exchange = CarriedExchange()
    part = exchange.write(NAME, PARTS)
    exchange.begin()

    assert {} == exchange.written()
    with pytest.raises(PartError):
        exchange.read(part, 0)


def test_a_lane_s_rows_come_with_its_result():
    exchange = CarriedExchange()
    parts = [exchange.write(replace(NAME, epoch=at), {2: b"rows" * at}) for at in (7, 8)]
    epochs = (
        EpochDone(7, 1, 0, {0: parts[0]}), EpochDone(8, 1, 0, {3: parts[1]}), EpochDone(9, 0, 0)
    )  # fmt: skip
    done = LaneDone(1, (StageDone(4, "v", epochs, {"n": "path"}),))

    back = lane_with_parts_from_bytes(lane_with_parts_to_bytes(done, exchange.written()))

    (stage,) = back.stages
    first, second, third = stage.epochs
    assert {2: b"rows" * 7} == first.parts[0][BLOB]
    assert {2: b"rows" * 8} == second.parts[3][BLOB]
    assert {} == third.parts
    assert (4, "v", {"n": "path"}) == (stage.stage, stage.version, stage.deltas)
    # What came with a result is read from the part, by whoever gets it.
    assert b"rows" * 8 == CarriedExchange().read(second.parts[3], 2)
    assert CarriedExchange().read(second.parts[3], 1) is None
