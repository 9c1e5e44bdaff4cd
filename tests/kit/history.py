"""What writers were told, held against what readers see: the promises P1, P3 and P4 as a checker.

Events of the simulation say who they are: ``<writer hex>:<number>:<filler>``. A history records
what was attempted and what was acknowledged; `check_segment` then reads a segment's bytes and
fails on a lost, invented, repeated, reordered or altered event, and on bytes that were seen
once and are gone or different now.
"""

from dataclasses import dataclass, field

from anabranch.common.wire.block import Block

WriterInSegment = tuple[str, bytes]


def make_event(writer_id: bytes, number: int, filler_size: int = 0) -> bytes:
    """The `number`-th event of a writer, recognisable and of any size."""
    return b"%s:%d:%s" % (writer_id.hex().encode(), number, b"." * filler_size)


def identify(event: bytes) -> tuple[bytes, int]:
    """(writer id, number) of an event that `make_event` made."""
    writer, number, _ = event.split(b":", 2)
    return bytes.fromhex(writer.decode()), int(number)


class HistoryViolation(AssertionError):
    """A promise was broken."""


@dataclass
class History:
    """Attempts and acknowledgements per (segment, writer), and the bytes seen per segment."""

    attempted: dict[WriterInSegment, list[bytes]] = field(default_factory=dict)
    acknowledged: dict[WriterInSegment, int] = field(default_factory=dict)
    seen: dict[str, bytes] = field(default_factory=dict)
    sealed_at: dict[str, int] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)

    def attempt(self, segment: str, writer_id: bytes, first: int, events: list[bytes]) -> None:
        """The writer sent `events`, the first of which has number `first`."""
        known = self.attempted.setdefault((segment, writer_id), [])
        assert first <= len(known) + 1, "a writer numbers its events without gaps"
        del known[first - 1 :]
        known.extend(events)

    def acknowledge(self, segment: str, writer_id: bytes, last: int) -> None:
        """The store said that everything up to `last` is durable."""
        key = (segment, writer_id)
        if last > len(self.attempted.get(key, [])):
            raise HistoryViolation(f"{segment}: acknowledged {last}, which nobody sent")
        self.acknowledged[key] = max(last, self.acknowledged.get(key, 0))

    def check_segment(self, segment: str, content: bytes) -> None:
        """`content` is the segment as read from 0 to its end."""
        before = self.seen.get(segment, b"")
        if content[: len(before)] != before:
            raise HistoryViolation(f"{segment}: bytes that were read are gone or changed")
        sealed_at = self.sealed_at.get(segment)
        if sealed_at is not None and len(content) != sealed_at:
            raise HistoryViolation(f"{segment}: sealed at {sealed_at}, now {len(content)} bytes")
        self.seen[segment] = content
        self._check_writers(segment, _events_by_writer(content))

    def _check_writers(self, segment: str, stored: dict[bytes, list[bytes]]) -> None:
        for writer_id, events in stored.items():
            sent = self.attempted.get((segment, writer_id), [])
            if events != sent[: len(events)]:
                raise HistoryViolation(f"{segment}: events of {writer_id.hex()} are not its own")
        for (name, writer_id), last in self.acknowledged.items():
            if name == segment and len(stored.get(writer_id, [])) < last:
                raise HistoryViolation(
                    f"{segment}: {writer_id.hex()} was promised {last} events, "
                    f"{len(stored.get(writer_id, []))} are there"
                )


def _events_by_writer(content: bytes) -> dict[bytes, list[bytes]]:
    """Each writer's events in order of their place; fails on a number that is not the next."""
    by_writer: dict[bytes, list[bytes]] = {}
    at = 0
    while at < len(content):
        block = Block(content, at)
        events = by_writer.setdefault(block.header.writer_id, [])
        if block.header.first_event_number != len(events) + 1:
            raise HistoryViolation(
                f"block at {at} starts with event {block.header.first_event_number}, "
                f"expected {len(events) + 1}"
            )
        for event in block.events():
            writer_id, number = identify(event)
            if (writer_id, number) != (block.header.writer_id, len(events) + 1):
                raise HistoryViolation(f"block at {at} holds event {number} out of place")
            events.append(event)
        at += block.header.size
    return by_writer
