"""The events of carried transactions in the simulation: real blocks, which say whose they are."""

import json
from collections.abc import Sequence

from anabranch.common.wire.block import Block
from anabranch.common.wire.block_encoding import encode_block
from kit.sim_segments import Piece

Told = tuple[str, int, float]
"""A writer, the number of its event, and the event's key."""


def block_of(transaction: str, events: Sequence[Told]) -> bytes:
    """One block of these events."""
    payloads = [json.dumps([transaction, *event]).encode() for event in events]
    return encode_block(payloads, writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0)


def pieces_in(block: bytes) -> list[Piece]:
    """The events of a block. The first one has the size of all, so that no other one ends before
    the block does."""
    found: list[Piece] = []
    for payload in Block(block).events():
        transaction, writer, number, key = json.loads(bytes(payload))
        size = 0 if found else len(block)
        found.append(Piece(writer, number, key, size, transaction))
    return found
