r"""Rows on their way from head tasks to lanes, carried by whoever runs the tasks.

A *piece* is one blob for one lane:

    name 16 bytes | epoch i64 | map i32 | lane i32 | crc32c u32 | the blob

The name is a digest of run, shipment and attempt: a *shipment* is what one round of head tasks sent
together. A piece made again from the same rows has the same name, so what tells a blob that differs
is the reference, which says its length and checksum.

What lanes hand to the driver goes with their results, as pieces behind the JSON:

    length of the JSON u32 | JSON | for each piece its length u64 | piece
"""

from __future__ import annotations

import hashlib
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from crc32c import crc32c

from anabranch.errors import RunError
from anabranch.runtime.exchange import BLOB, PartError, PartName
from anabranch.runtime.payload import EpochDone, LaneDone, lane_from_bytes, lane_to_bytes

MOST_BYTES = (1 << 31) - 1024
"""Of a piece: Spark counts the bytes of an item in 31 bits."""

_NAME = struct.Struct("<16sqii")
_CRC = struct.Struct("<I")
_HEADER_SIZE = _NAME.size + _CRC.size
_SHORT, _LONG = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class CarriedReference:
    """Which pieces there are; made of JSON values, since it travels through the driver.

    >>> reference = CarriedReference("s1", "run-1", 7, 0, "0", {0: (100, 5)})
    >>> CarriedReference.from_json(reference.as_json()) == reference
    True
    """

    shipment: str
    run: str
    epoch: int
    map: int
    attempt: str
    places: Mapping[int, tuple[int, int]]
    """Length and checksum of the blob, by lane; a lane without a part is absent."""
    node: str = ""
    """Where it was made; whoever hands it over says so."""

    def as_json(self) -> dict[str, Any]:
        """As a value for `json.dumps`."""
        places = {str(lane): list(place) for lane, place in self.places.items()}
        return {**asdict(self), "places": places}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CarriedReference:
        """The reference that such a value stands for."""
        places = {int(lane): (int(size), int(crc)) for lane, (size, crc) in value["places"].items()}
        names = ("shipment", "run", "epoch", "map", "attempt")
        named = {name: value[name] for name in names}
        return cls(**named, places=places, node=value.get("node", ""))

    @property
    def file(self) -> str:
        """What people call it."""
        return PartName(self.run, self.epoch, self.map, self.attempt).file

    def name(self, lane: int) -> bytes:
        """How the lane's piece begins."""
        whose = f"{self.run} {self.shipment} {self.attempt}"
        digest = hashlib.blake2b(whose.encode(), digest_size=16).digest()
        return _NAME.pack(digest, self.epoch, self.map, lane)


class CarriedExchange:
    """Collects what a task writes, and gives it what has arrived; begun anew for each task."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._shipment = ""
        self._arrived: dict[bytes, bytes] = {}
        self._written: dict[int, list[bytes]] = defaultdict(list)

    def begin(self, shipment: str = "", arrived: Iterable[bytes] = ()) -> None:
        """Forget the task before; whatever its lane reads must be among these pieces.

        Raises:
            PartError: A piece is there twice.
        """
        self._shipment, self._written, self._arrived = shipment, defaultdict(list), {}
        for piece in arrived:
            name = piece[: _NAME.size]
            if name in self._arrived:
                _, epoch, map_, lane = _NAME.unpack(name)
                file = PartName("", epoch, map_, "any").file
                raise PartError.of(file, lane, "it arrived twice")
            self._arrived[name] = piece

    def write(self, name: PartName, parts: Mapping[int, bytes]) -> dict[str, Any]:
        """Collect blobs; they are gone unless somebody takes what was `written`."""
        places = {lane: (len(blob), crc32c(blob)) for lane, blob in parts.items()}
        reference = CarriedReference(
            self._shipment, name.run, name.epoch, name.map, name.attempt, places
        )
        for lane, blob in parts.items():
            if len(blob) > MOST_BYTES:
                why = f"it has {len(blob)} bytes, and Spark moves {MOST_BYTES} at most"
                message = f"the part of lane {lane} in {reference.file} is too large"
                raise RunError(message, why=why, so="make epochs or splits smaller")
            self._written[lane].append(
                b"".join((reference.name(lane), _CRC.pack(places[lane][1]), blob))
            )
        return reference.as_json()

    def read(self, part: Mapping[str, Any], lane: int) -> bytes | None:
        """The blob of a lane, exactly as it was written, or None if there is none for it.

        Raises:
            PartError: It did not arrive, or it is damaged or another one.
        """
        if BLOB in part:
            # It came to the driver with a lane's result, and with the driver's word to this one.
            return part[BLOB].get(lane)  # type: ignore[no-any-return]
        reference = CarriedReference.from_json(part)
        if lane not in reference.places:
            return None
        piece = self._arrived.get(reference.name(lane))
        if piece is None:
            raise PartError.of(reference.file, lane, "it did not arrive")
        length, crc = reference.places[lane]
        blob = piece[_HEADER_SIZE:]
        if (len(blob), crc32c(blob)) == (length, crc):
            return blob
        whole = _CRC.unpack_from(piece, _NAME.size) == (crc32c(blob),)
        differs = "it was made again, and is another one than it was"
        raise PartError.of(reference.file, lane, differs if whole else "it is damaged")

    def written(self) -> dict[int, list[bytes]]:
        """The pieces of this task, by lane."""
        return dict(self._written)


def lane_with_parts_to_bytes(done: LaneDone, pieces: Mapping[int, list[bytes]]) -> bytes:
    """A lane's result with all that it wrote."""
    told = lane_to_bytes(done)
    parts = [_SHORT.pack(len(told)), told]
    for piece in (each for some in pieces.values() for each in some):
        parts += (_LONG.pack(len(piece)), piece)
    return b"".join(parts)


def lane_with_parts_from_bytes(data: bytes) -> LaneDone:
    """A lane's result, its parts with their blobs in them."""
    (size,) = _SHORT.unpack_from(data)
    done = lane_from_bytes(data[_SHORT.size : _SHORT.size + size])
    exchange = CarriedExchange()
    exchange.begin(arrived=_pieces(data, _SHORT.size + size))
    stages = tuple(
        replace(stage, epochs=tuple(_with_blobs(each, exchange) for each in stage.epochs))
        for stage in done.stages
    )
    return replace(done, stages=stages)


def _with_blobs(done: EpochDone, exchange: CarriedExchange) -> EpochDone:
    return replace(
        done, parts={number: _with_blob(part, exchange) for number, part in done.parts.items()}
    )


def _with_blob(part: dict[str, Any], exchange: CarriedExchange) -> dict[str, Any]:
    lanes = CarriedReference.from_json(part).places
    return {**part, BLOB: {lane: exchange.read(part, lane) for lane in lanes}}


def _pieces(data: bytes, at: int) -> Iterator[bytes]:
    while at < len(data):
        (size,) = _LONG.unpack_from(data, at)
        at += _LONG.size + size
        yield data[at - size : at]
