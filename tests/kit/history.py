"""What writers were told, held against what readers see: the promises P1, P3 and P4 as a checker.

Events of the simulation say who they are: ``<writer hex>:<number>:<filler>``. A history records
what was attempted and what was acknowledged; `check_segment` then reads a segment's bytes and
fails on a lost, invented, repeated, reordered or altered event, and on bytes that were seen
once and are gone or different now. What was truncated may be gone, as far as someone asked for
it; bytes of a merged segment are checked as that segment's, wherever they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

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


class Place(NamedTuple):
    """Where a merged segment's bytes are."""

    target: str
    offset: int
    length: int


@dataclass
class History:
    """Attempts and acknowledgements per (segment, writer), and the bytes seen per segment."""

    attempted: dict[WriterInSegment, list[bytes]] = field(default_factory=dict)
    acknowledged: dict[WriterInSegment, int] = field(default_factory=dict)
    seen: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """By segment: (where the bytes start, the bytes)."""
    sealed_at: dict[str, int] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    truncating: dict[str, int] = field(default_factory=dict)
    """The highest offset that somebody asked to truncate at."""
    truncated: dict[str, int] = field(default_factory=dict)
    merging: set[tuple[str, str]] = field(default_factory=set)
    """(source, target) that somebody asked to merge."""
    merged: dict[str, Place] = field(default_factory=dict)

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

    def merge(self, source: str, place: Place) -> None:
        """The store said where a merged segment's bytes are."""
        if (source, place.target) not in self.merging:
            raise HistoryViolation(f"{source}: nobody asked for its merge into {place.target}")
        if self.merged.setdefault(source, place) != place:
            raise HistoryViolation(f"{source}: merged as {self.merged[source]}, now {place}")

    def check_segment(self, segment: str, content: bytes, start: int = 0) -> None:
        """`content` is the segment as read from `start`, its first byte there is, to its end."""
        before_start, before = self.seen.get(segment, (0, b""))
        if not max(before_start, self.truncated.get(segment, 0)) <= start:
            raise HistoryViolation(f"{segment}: what was truncated is back, from {start} on")
        still = before[start - before_start :]
        if content[: len(still)] != still:
            raise HistoryViolation(f"{segment}: bytes that were read are gone or changed")
        sealed_at, length = self.sealed_at.get(segment), start + len(content)
        if sealed_at is not None and length != sealed_at:
            raise HistoryViolation(f"{segment}: sealed at {sealed_at}, now {length} bytes")
        self.seen[segment] = (start, content)
        own = self._check_sources(segment, content, start)
        self._check_writers(segment, _events_by_writer(own, whole=start == 0), whole=start == 0)

    def check_start(self, segment: str, start: int) -> None:
        """The segment itself starts there; a part of another one may start anywhere."""
        if start > self.truncating.get(segment, 0):
            raise HistoryViolation(f"{segment}: starts at {start}, which nobody asked for")

    def _check_sources(self, segment: str, content: bytes, start: int) -> bytes:
        """Check what was merged into the segment. Returns what was appended to it."""
        places = ((place, name) for name, place in self.merged.items() if place.target == segment)
        own: list[bytes] = []
        at = start
        # An empty source lies in front of the one that begins at the same offset.
        for place, source in sorted(places, key=lambda found: (found[0].offset, found[0].length)):
            end = place.offset + place.length
            if end < start or (end == start and place.length):
                continue
            if end > start + len(content):
                raise HistoryViolation(f"{segment}: bytes of {source} are lost")
            begin = max(place.offset, start)
            own.append(content[at - start : begin - start])
            self.check_segment(source, content[begin - start : end - start], begin - place.offset)
            at = end
        own.append(content[at - start :])
        return b"".join(own)

    def _check_writers(
        self, segment: str, stored: dict[bytes, list[tuple[int, bytes]]], *, whole: bool
    ) -> None:
        for writer_id, events in stored.items():
            sent = self.attempted.get((segment, writer_id), [])
            if any(sent[number - 1 : number] != [event] for number, event in events):
                raise HistoryViolation(f"{segment}: events of {writer_id.hex()} are not its own")
        for (name, writer_id), last in self.acknowledged.items():
            events = stored.get(writer_id, [])
            found = events[-1][0] if events else 0
            if name == segment and found < last and (whole or events):
                raise HistoryViolation(
                    f"{segment}: {writer_id.hex()} was promised {last} events, {found} are there"
                )


def _events_by_writer(content: bytes, *, whole: bool) -> dict[bytes, list[tuple[int, bytes]]]:
    """Each writer's numbered events in order of their place.

    Fails on a number that is not the next, or, in a segment that is `whole`, not the first.
    """
    by_writer: dict[bytes, list[tuple[int, bytes]]] = {}
    at = 0
    while at < len(content):
        block = Block(content, at)
        events = by_writer.setdefault(block.header.writer_id, [])
        first = block.header.first_event_number
        expected = events[-1][0] + 1 if events else 1 if whole else first
        if first != expected:
            raise HistoryViolation(f"block at {at} starts with event {first}, expected {expected}")
        for number, event in enumerate(block.events(), first):
            if not block.header.is_large and identify(event) != (block.header.writer_id, number):
                raise HistoryViolation(f"block at {at} holds event {number} out of place")
            events.append((number, event))
        at += block.header.size
    return by_writer


@dataclass
class KeyedHistory:
    """What one writer or several wrote of each key, in order; every payload is written once."""

    written: dict[str | None, list[bytes]] = field(default_factory=dict)

    def wrote(self, payload: bytes, key: str | None) -> None:
        self.written.setdefault(key, []).append(payload)

    def check(self, read: Iterable[tuple[str | None, bytes]], *, complete: bool = True) -> None:
        """`read` is what a reader yielded, in order. Without `complete` it may stop early.

        Fails on what is lost, repeated, invented, or out of its key's order.
        """
        by_key: dict[str | None, list[bytes]] = {}
        for key, payload in read:
            by_key.setdefault(key, []).append(payload)
        for key in set(by_key) | set(self.written):
            found, expected = by_key.get(key, []), self.written.get(key, [])
            if key is None:  # no order is promised
                found, expected = sorted(found), sorted(expected)
                if not complete and len(set(found)) == len(found) and set(found) <= set(expected):
                    continue
            if found != (expected if complete else expected[: len(found)]):
                raise HistoryViolation(f"key {key!r}: wrote {expected}, read {found}")
