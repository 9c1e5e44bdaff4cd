"""Determines which messages of a log's stream count. One pass, in the order of the stream.

Several owners may have written to the stream at the same time, and a server may have dropped some
of an owner's pipelined messages. The rules make all readers reach the same conclusion:

    an opening of a higher epoch            counts, and begins the chain of its epoch
    an opening of the same or a lower one   is void
    a frame of a lower epoch                is void: its owner was replaced before it was stored
    a frame that continues the chain        counts
    the first one that does not, and all
    later ones of that epoch                are void: the owner acknowledged none of them

A frame whose parts do not all count is void as a whole.

**Purged messages.** A release removes the frames below an *anchor*, which is the last released
frame of an epoch, and the openings below the anchor's. The first message that follows an opening
may therefore have a number above 1, but only at the place that it had if nothing was ever missing.
`Resolution.required` is the operation up to which tier 2 must have everything, since messages
before it may be purged; with less in tier 2, the log lacks operations.

**Lost messages.** Three facts reveal that an acknowledged message is missing: an opening names a
message that counted for its writer, a frame states the number that its owner had confirmed, and
operations are numbered without gaps.
"""

from dataclasses import dataclass
from enum import Enum

from anabranch.common.errors import CorruptJournal
from anabranch.segstore.domain.log.stream.messages import Kind, Link, Message, Opening

_BEFORE_ALL = -1


class Verdict(Enum):
    """Whether a message counts."""

    COUNTS = "counts"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class StreamFrame:
    """A whole frame that counts: its operations, and its places in the stream.

    `number` is the number of its first part, `opening_place` the place of its epoch's opening.
    """

    container_epoch: int
    number: int
    first_sequence: int
    last_sequence: int
    first_place: int
    last_place: int
    payload_size: int
    opening_place: int

    @property
    def in_its_place(self) -> bool:
        """Whether nothing but the epoch's own frames lies between the opening and this frame."""
        return self.first_place == self.opening_place + self.number


@dataclass(slots=True)
class _Partial:
    """The parts of a frame that were read so far."""

    first: Message
    first_place: int
    size: int
    next_index: int = 1


class Resolution:
    """The result of the pass so far. `add` takes the next message of the stream."""

    def __init__(self, container: int) -> None:
        self._container = container
        self.frames: list[StreamFrame] = []
        self.required = 0
        """The operation up to which the reader must have everything from elsewhere."""
        self.broken = False
        """Whether a message did not continue its chain."""
        self.first_frame_place = 0
        self.first_opening_place = 0
        """The lowest places that were read; 0 for none. A purge during the pass removes them."""
        self.created = 0
        """The time of the stream's creation, as the first opening names it."""
        self._epoch = _BEFORE_ALL
        self._opening_place = 0
        self._link = Link(0, 0, 0)
        self._chain_broken = False
        self._undisturbed = False
        self._partial: _Partial | None = None
        self._links: dict[tuple[int, int], int] = {}
        self._place = 0

    @property
    def empty(self) -> bool:
        """Whether no opening was read."""
        return self._epoch == _BEFORE_ALL

    @property
    def end(self) -> Link:
        """The last message that counts, and the last operation up to there."""
        return self._link

    @property
    def highest_epoch(self) -> int:
        """The epoch of the last opening that counts; no message has a higher one."""
        return self._epoch

    @property
    def opening_place(self) -> int:
        """The place of that opening."""
        return self._opening_place

    def add(self, place: int, message: Message, opening: Opening | None) -> Verdict:
        """Judge the next message; `opening` is the payload of an opening.

        Raises CorruptJournal.
        """
        assert place > self._place, "messages come in the order of the stream"
        self._place = place
        if message.container != self._container:
            raise CorruptJournal(
                "the log's stream holds a message of another container",
                container=self._container, found=message.container, place=place,
            )  # fmt: skip
        if message.kind is Kind.OPENING:
            assert opening is not None
            verdict = self._add_opening(place, message, opening)
        else:
            self.first_frame_place = self.first_frame_place or place
            verdict = self._add_frame(place, message)
        if verdict is Verdict.VOID:
            self._undisturbed = False
        return verdict

    def _add_opening(self, place: int, message: Message, opening: Opening) -> Verdict:
        self.first_opening_place = self.first_opening_place or place
        if message.container_epoch <= self._epoch:
            return Verdict.VOID
        if self.created not in (0, opening.created):
            raise CorruptJournal(
                "the log's stream was created again after a message was written",
                place=place, created=self.created, found=opening.created,
            )  # fmt: skip
        self.created = opening.created
        self._check_reached(place, opening.reached)
        self._epoch = message.container_epoch
        self._opening_place = place
        self._chain_broken, self._undisturbed, self._partial = False, True, None
        self._advance(message)
        return Verdict.COUNTS

    def _check_reached(self, place: int, reached: Link) -> None:
        """The message that the opener had read must count here too, unless it was purged."""
        known = self._links.get((reached.container_epoch, reached.number))
        if known is None:
            self.required = max(self.required, reached.last_sequence)
        elif known != reached.crc:
            raise CorruptJournal(
                "an opening message contradicts the messages before it",
                place=place, container_epoch=reached.container_epoch, number=reached.number,
            )  # fmt: skip

    def _add_frame(self, place: int, message: Message) -> Verdict:
        if message.container_epoch > self._epoch:
            raise CorruptJournal(
                "the opening message of a frame's epoch is missing",
                place=place, container_epoch=message.container_epoch,
            )  # fmt: skip
        if message.container_epoch < self._epoch:
            return Verdict.VOID
        if self._continues(message):
            self._take(place, message)
            return Verdict.COUNTS
        if self._is_anchor(place, message):
            self.required = max(self.required, message.last_sequence)
            self._take(place, message)
            return Verdict.COUNTS
        self._refuse_loss(place, message)
        self._chain_broken = self.broken = True
        self._partial = None
        return Verdict.VOID

    def _continues(self, message: Message) -> bool:
        return (
            not self._chain_broken
            and message.number == self._link.number + 1
            and message.previous_crc == self._link.crc
        )

    def _is_anchor(self, place: int, message: Message) -> bool:
        return (
            self._undisturbed
            and self._link.number == 0
            and message.number > 1
            and place == self._opening_place + message.number
        )

    def _refuse_loss(self, place: int, message: Message) -> None:
        """Raises CorruptJournal if the message proves that the missing one was acknowledged."""
        if message.confirmed > self._link.number:
            raise CorruptJournal(
                "an acknowledged message of the log is missing",
                place=place, container_epoch=self._epoch, number=self._link.number + 1,
            )  # fmt: skip

    def _take(self, place: int, message: Message) -> None:
        partial = self._partial
        if message.part_index == 0:
            if partial is not None:
                raise CorruptJournal("a frame of the log lacks its last parts", place=place)
            partial = self._partial = _Partial(message, place, message.payload_size)
        elif partial is not None:
            if message.part_index != partial.next_index:
                raise CorruptJournal("the parts of a frame are out of order", place=place)
            partial.next_index += 1
            partial.size += message.payload_size
        self._advance(message)
        if message.part_index + 1 == message.part_count:
            self._partial = None
            if partial is not None:
                self._add_whole(place, partial)

    def _add_whole(self, place: int, partial: _Partial) -> None:
        first = partial.first
        reached = self._link.last_sequence
        if self.frames and first.first_sequence <= reached:
            raise CorruptJournal(
                "two frames hold the same operations",
                place=place, first_sequence=first.first_sequence, last_sequence=reached,
            )  # fmt: skip
        if first.first_sequence > reached + 1:
            self.required = max(self.required, first.first_sequence - 1)
        self.frames.append(
            StreamFrame(
                first.container_epoch,
                first.number,
                first.first_sequence,
                first.last_sequence,
                partial.first_place,
                place,
                partial.size,
                self._opening_place,
            )
        )
        link = self._link
        self._link = Link(link.container_epoch, link.number, link.crc, first.last_sequence)

    def _advance(self, message: Message) -> None:
        self._link = Link(
            message.container_epoch, message.number, message.crc, self._link.last_sequence
        )
        self._links[message.container_epoch, message.number] = message.crc
