"""Judges stores that take containers over from each other, by what clients see and nothing else.

Acknowledged events are in the final history exactly once and in order (`kit.history`). All reads of
a segment agree byte by byte. Answers are true in real time: an answer that was asked for after
something became visible to any client shows it too. An append that was sent after a newer owner of
the container answered is never acknowledged by an older one.
"""

from collections import Counter
from dataclasses import dataclass, field

from anabranch.common.model.hashing import container_of
from kit.history import History, HistoryViolation


@dataclass(frozen=True, slots=True)
class Seen:
    """What clients had seen of a segment when a request began: later answers must show it."""

    length: int
    number: int
    """The last event number of the asking writer that was acknowledged; 0 for a reader."""
    container_epoch: int
    """The newest owner of the container that had answered an append or a set-up."""


@dataclass(slots=True)
class SegmentView:
    """What all clients together have seen of a segment."""

    content: bytearray = field(default_factory=bytearray)
    """The bytes from the start that were read."""
    length: int = 0
    numbers: dict[bytes, int] = field(default_factory=dict)


class Referee:
    """Raises HistoryViolation, an AssertionError, when a promise is broken."""

    def __init__(self, container_count: int) -> None:
        self.history = History()
        self.counts: Counter[str] = Counter()
        self._container_count = container_count
        self._segments: dict[str, SegmentView] = {}
        self._epochs: dict[int, int] = {}

    def begin(self, segment: str, writer_id: bytes = b"") -> Seen:
        """A request about the segment begins now."""
        view = self._view(segment)
        container = container_of(segment, self._container_count)
        return Seen(view.length, view.numbers.get(writer_id, 0), self._epochs.get(container, 0))

    def appended(
        self, segment: str, writer_id: bytes, last: int, *, length: int, epoch: int, sent: Seen
    ) -> None:
        """An append, of which the last event was first sent at `sent`, is acknowledged by the owner
        of this container epoch. An older owner may confirm what it stored before."""
        if epoch < sent.container_epoch:
            raise HistoryViolation(
                f"{segment}: the owner of epoch {epoch} acknowledged an append that was sent after "
                f"the owner of epoch {sent.container_epoch} had answered"
            )
        self._answered(segment, epoch)
        self.history.acknowledge(segment, writer_id, last)
        view = self._view(segment)
        view.numbers[writer_id] = max(last, view.numbers.get(writer_id, 0))
        view.length = max(view.length, length)
        self.counts["acknowledged appends"] += 1

    def set_up(self, segment: str, writer_id: bytes, last: int, epoch: int, asked: Seen) -> None:
        """A set-up, begun at `asked`, is answered."""
        if last < asked.number:
            raise HistoryViolation(
                f"{segment}: a set-up tells {last} events, {asked.number} were acknowledged before"
            )
        if epoch < asked.container_epoch:
            raise HistoryViolation(
                f"{segment}: the owner of epoch {epoch} answered a set-up that was sent after the "
                f"owner of epoch {asked.container_epoch} had answered"
            )
        self._answered(segment, epoch)
        self.history.acknowledge(segment, writer_id, last)
        view = self._view(segment)
        view.numbers[writer_id] = max(last, view.numbers.get(writer_id, 0))
        self.counts["set-ups"] += 1

    def told_length(self, segment: str, length: int, asked: Seen) -> None:
        """The length of a segment, asked for at `asked`."""
        if length < asked.length:
            raise HistoryViolation(
                f"{segment}: a stale length of {length}, {asked.length} bytes were seen before"
            )
        self._view(segment).length = max(length, self._view(segment).length)
        self.counts["lengths"] += 1

    def read(self, segment: str, offset: int, data: bytes, *, at_tail: bool, asked: Seen) -> None:
        """Bytes that were read from `offset`; `at_tail`: the segment has no more."""
        view = self._view(segment)
        end = offset + len(data)
        if at_tail and end < asked.length:
            raise HistoryViolation(
                f"{segment}: a stale read ends at {end}, {asked.length} bytes were seen before"
            )
        known = bytes(view.content[offset:end])
        if data[: len(known)] != known:
            raise HistoryViolation(f"{segment}: two reads from {offset} differ")
        if offset <= len(view.content) < end:
            view.content += data[len(known) :]
        view.length = max(view.length, end)
        self.counts["reads at the tail" if at_tail else "reads"] += 1

    def refused_beyond(self, segment: str, offset: int, asked: Seen) -> None:
        """A store said that a read at `offset`, begun at `asked`, lies beyond the end."""
        if offset <= asked.length:
            raise HistoryViolation(
                f"{segment}: a stale store ends before {offset}, {asked.length} bytes were seen"
            )

    def missing(self, segment: str) -> None:
        """A store said that a segment, whose creation was acknowledged, does not exist."""
        raise HistoryViolation(f"{segment} is lost")

    def check_all(self, contents: dict[str, bytes]) -> None:
        """Check the final contents of all segments."""
        for segment, content in contents.items():
            seen = bytes(self._view(segment).content)
            if content[: len(seen)] != seen:
                raise HistoryViolation(f"{segment}: what was read before is gone or changed")
            if len(content) < self._view(segment).length:
                raise HistoryViolation(f"{segment}: it was longer before")
            self.history.check_segment(segment, content)

    def _answered(self, segment: str, epoch: int) -> None:
        container = container_of(segment, self._container_count)
        self._epochs[container] = max(epoch, self._epochs.get(container, 0))

    def _view(self, segment: str) -> SegmentView:
        return self._segments.setdefault(segment, SegmentView())
