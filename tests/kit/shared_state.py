"""What tests of shared state share: a codec whose states tell their whole history, and settings."""

from anabranch.client.settings import OneSegmentSettings
from anabranch.common.wire.block import Block
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import AppendOnce
from kit.fake_segment import FakeSegment

SHARED = OneSegmentSettings(retry_timeout_s=5.0, ack_timeout_s=2.0)
OTHER = b"somebody else..."

History = tuple[tuple[str, int], ...]
"""Every update that was applied, with the revision behind it."""


class HistoryCodec:
    """A state is all updates that were ever applied, in order, with their revisions."""

    def encode_state(self, state: History) -> bytes:
        return ";".join(f"{name}@{revision}" for name, revision in state).encode()

    def decode_state(self, body: bytes) -> History:
        pairs = (each.split("@") for each in body.decode().split(";") if each)
        return tuple((name, int(revision)) for name, revision in pairs)

    def encode_update(self, update: str) -> bytes:
        return update.encode()

    def decode_update(self, body: bytes) -> str:
        return body.decode()

    def apply(self, state: History, update: str, *, revision: int) -> History:
        return (*state, (update, revision))


class CountCodec:
    """A number, and what is added to it."""

    def encode_state(self, state: int) -> bytes:
        return b"%d" % state

    def decode_state(self, body: bytes) -> int:
        return int(body)

    def encode_update(self, update: int) -> bytes:
        return b"%d" % update

    def decode_update(self, body: bytes) -> int:
        return int(body)

    def apply(self, state: int, update: int, *, revision: int) -> int:
        assert revision > 0
        return state + update


def names(state: History | None) -> list[str]:
    """The updates alone."""
    return [name for name, _ in state or ()]


def append_as_other(segment: FakeSegment, entry: bytes) -> None:
    """As somebody else does it, at this very moment."""
    number = segment.last_numbers.get(OTHER, 0) + 1
    block = encode_block([entry], writer_id=OTHER, first_event_number=number, base_timestamp_ms=0)
    request = AppendOnce(segment="", writer_id=OTHER, first_event_number=number, count=1)
    segment.append(OTHER, request, block)


def stored_entries(segment: FakeSegment, start: int = 0) -> list[tuple[bytes, int]]:
    """(entry, revision behind its append) of all that was ever appended, truncated or not."""
    data, at = bytes(segment.data), start
    found: list[tuple[bytes, int]] = []
    while at < len(data):
        block = Block(data, at)
        at += block.header.size
        found += [(entry, at) for entry in block.events()]
    return found
