"""The updates of one call as a unit, and requests of many units. Pure.

A unit is performed whole or refused. Units that wait at the same time travel in one request: its
block has the entries of all units end to end, and columns say how many entries and which conditions
each has (`wire.table`). All entries of a block share a time to live, and all versions in a request
are of one life of the segment, so a unit that differs begins another request.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import NamedTuple

from anabranch.common.adapters.store_connection import Reply
from anabranch.common.errors import BadPacket
from anabranch.common.wire.block import HEADER_SIZE_BYTES
from anabranch.common.wire.messages import TableUpdated, UpdateTable
from anabranch.common.wire.table import UPDATE_ENTRIES_MAX, UPDATE_SIZE_BYTES_MAX, encode_update
from anabranch.common.wire.table_columns import ABSENT, ANY, decode_refusals, encode_numbers

FOREIGN = -1
"""The segment number to send with a version of another partition: it never matches."""
ENTRY_OVERHEAD_BYTES = 4 + 2 + 1 + 8
"""Of an entry in a block: the sizes of payload and key, the form, the time to live."""


class Performed(NamedTuple):
    """The unit was performed: its first entry has this version, the next one the next, …"""

    segment_number: int
    version: int


class Refused(NamedTuple):
    """The unit was refused: the key of its entry number `entry` has this version, or ABSENT."""

    segment_number: int
    version: int
    entry: int


Outcome = Performed | Refused


@dataclass(eq=False, slots=True)
class Unit:
    """The updates of one call on one partition: table keys, and values or None to remove.

    `conditions` has one item per key, or none at all; `segment_number` is that of the versions in
    it, or 0. `size` is the number of bytes in a block. `told` gets the outcome.
    """

    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    conditions: Sequence[int]
    segment_number: int
    ttl_ms: int
    size: int
    told: asyncio.Future[Outcome]
    deadline_s: float


def size_of(keys: Sequence[bytes], values: Sequence[bytes | None]) -> int:
    """The bytes that these entries need in a block, or a few more."""
    return (
        sum(map(len, keys)) + sum(map(len, filter(None, values))) + ENTRY_OVERHEAD_BYTES * len(keys)
    )


UNIT_SIZE_BYTES_MAX = UPDATE_SIZE_BYTES_MAX - HEADER_SIZE_BYTES


class Filling:
    """Says how many of the waiting units fit into one request."""

    __slots__ = ("_entries", "_number", "_size", "_ttl_ms")

    def __init__(self) -> None:
        self._entries = 0
        self._size = 0
        self._number = 0
        self._ttl_ms = 0

    def takes(self, unit: Unit) -> bool:
        """Add the unit, unless it must begin another request. The first unit always fits."""
        entries, size = self._entries + len(unit.keys), self._size + unit.size
        if self._entries and (
            entries > UPDATE_ENTRIES_MAX
            or size > UNIT_SIZE_BYTES_MAX
            or unit.ttl_ms != self._ttl_ms
            or (unit.segment_number != self._number and unit.segment_number and self._number)
        ):
            return False
        self._entries, self._size, self._ttl_ms = entries, size, unit.ttl_ms
        self._number = self._number or unit.segment_number
        return True


@dataclass(eq=False, slots=True)
class UpdateRequest:
    """A numbered request, to be sent unchanged until it is answered.

    `size` is the room that its units take in the buffer. `unclear`: an attempt ended without an
    answer, so the store may have performed the request. `replied` gets the reply to the present
    attempt.
    """

    number: int
    units: Sequence[Unit]
    message: UpdateTable
    payload: bytes
    size: int
    deadline_s: float
    unclear: bool = False
    replied: "asyncio.Future[Reply] | None" = None


def request_of(units: Sequence[Unit], segment: str, client_id: bytes, number: int) -> UpdateRequest:
    """The request that performs the units, which fit together (`Filling`)."""
    keys, values = units[0].keys, units[0].values
    if len(units) > 1:
        keys = list(chain.from_iterable([unit.keys for unit in units]))
        values = list(chain.from_iterable([unit.values for unit in units]))
    conditions: list[int] = []
    if any([unit.conditions for unit in units]):  # noqa: C419
        for unit in units:
            conditions += unit.conditions or [ANY] * len(unit.keys)
    message = UpdateTable(
        segment=segment,
        client_id=client_id,
        request_number=number,
        conditions=encode_numbers(conditions, "q"),
        units=encode_numbers([len(unit.keys) for unit in units], "I") if len(units) > 1 else b"",
        segment_number=next((unit.segment_number for unit in units if unit.segment_number), 0),
    )
    payload = encode_update(
        keys, values, client_id=client_id, request_number=number, ttl_ms=units[0].ttl_ms
    )
    size = sum([unit.size for unit in units])
    deadline_s = min([unit.deadline_s for unit in units])
    return UpdateRequest(number, units, message, payload, size, deadline_s)


def outcomes(counts: Sequence[int], reply: TableUpdated) -> list[Outcome]:
    """The outcome of each unit, given the numbers of their entries. Raises BadPacket."""
    refused = {each.unit: each for each in decode_refusals(reply.refused)}
    number, version, first = reply.segment_number, reply.version, 0
    if (version == ABSENT) != (len(refused) == len(counts)) or any(
        unit >= len(counts) for unit in refused
    ):
        raise BadPacket("the answer to an update does not fit its units", units=len(counts))
    if not refused:
        versions = accumulate(counts[:-1], initial=version)
        return [Performed(number, each) for each in versions]
    told: list[Outcome] = []
    for unit, count in enumerate(counts):
        refusal = refused.get(unit)
        if refusal is None:
            told.append(Performed(number, version))
            version += count
        else:
            told.append(Refused(number, refusal.version, refusal.entry - first))
        first += count
    return told
