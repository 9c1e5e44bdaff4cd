"""The history of one copy of a replicated log: the messages that count, in order. Pure.

A copy's records are messages (`domain/log/stream/messages.py`), in the order in which the copy
stored them::

    base      the log goes on after a message: the first record of a copy, a rewind, or an anchor
    opening   the first message of a container epoch; it names the message before it
    frame     continues its epoch
    promise   the copy refuses lower container epochs; not part of the history

The history is the same list after a restart: `replayed` folds the records, of which the oldest may
be gone, because each one names the message before it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from anabranch.common.errors import CorruptJournal
from anabranch.segstore.domain.log.stream.messages import Kind, Link, Message, Opening

Position = tuple[int, int]
"""(container epoch, number); the positions of one history only grow."""


def position_of(link: Link) -> Position:
    """The position of a message that a link names."""
    return link.container_epoch, link.number


class Verdict(Enum):
    """How a message relates to the history of a copy."""

    NEXT = "next"
    """It continues the history."""
    KNOWN = "known"
    """It counts already."""
    REFUSED = "refused"
    """Messages before it are missing, or it contradicts the history."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A message that counts. `record`: the number of the copy's record that holds it, from 1 on.

    `first_sequence` is above `link.last_sequence` for an opening, which has no operations.
    """

    link: Link
    kind: Kind
    first_sequence: int
    record: int
    size: int

    @property
    def position(self) -> Position:
        return position_of(self.link)


def link_of(message: Message, opening: Opening | None, before: Link) -> Link:
    """The link that names a message. `before`: the message before it in the history."""
    if message.kind is Kind.OPENING:
        assert opening is not None
        return Link(message.container_epoch, 0, message.crc, opening.reached.last_sequence)
    last = message.last_sequence if message.count else before.last_sequence
    return Link(message.container_epoch, message.number, message.crc, last)


class History:
    """The messages of a copy that count, after its base.

    The base is a message that the copy need not have: everything up to it is in tier 2.
    """

    def __init__(self, base: Link) -> None:
        self._base = base
        self._counted: list[Counted] = []

    @property
    def base(self) -> Link:
        return self._base

    @property
    def end(self) -> Link:
        """The last message that counts."""
        return self._counted[-1].link if self._counted else self._base

    def judge(self, message: Message, opening: Opening | None) -> Verdict:
        """How an opening or a frame relates to this history."""
        known = self.at((message.container_epoch, message.number))
        if known is not None:
            same = known.link.crc == message.crc
            return Verdict.KNOWN if same else Verdict.REFUSED
        end = self.end
        if message.kind is Kind.OPENING:
            assert opening is not None
            follows = opening.reached == end and message.container_epoch > end.container_epoch
        else:
            follows = (
                message.container_epoch == end.container_epoch
                and message.number == end.number + 1
                and message.previous_crc == end.crc
                and message.first_sequence == end.last_sequence + 1
            )
        return Verdict.NEXT if follows else Verdict.REFUSED

    def add(self, message: Message, opening: Opening | None, record: int) -> Counted:
        """Append a message that was judged to be the next one."""
        link = link_of(message, opening, self.end)
        first = message.first_sequence if message.count else link.last_sequence + 1
        counted = Counted(link, message.kind, first, record, message.payload_size)
        assert counted.position > position_of(self.end), "positions only grow"
        self._counted.append(counted)
        return counted

    def at(self, position: Position) -> Counted | None:
        """The message at a position, if it counts and was not released."""
        index = bisect_left(self._counted, position, key=_position)
        found = self._counted[index] if index < len(self._counted) else None
        return found if found is not None and found.position == position else None

    def has(self, link: Link) -> bool:
        """Whether exactly this message is the base or counts."""
        if link == self._base:
            return True
        found = self.at(position_of(link))
        return found is not None and found.link == link

    def rewind(self, to: Link) -> None:
        """Forget the messages after one that counts or is the base."""
        assert self.has(to), "only to a message of this history"
        while self.end != to:
            self._counted.pop()

    def after(self, link: Link) -> Sequence[Counted]:
        """The messages after one that counts or is the base, in order."""
        assert self.has(link), "only after a message of this history"
        at = bisect_left(self._counted, position_of(link), key=_position)
        if at < len(self._counted) and self._counted[at].link == link:
            at += 1
        return self._counted[at:]

    def size_after(self, position: Position) -> int:
        """Bytes of the payloads of the messages after a position, which need not be one of this
        history."""
        at = bisect_right(self._counted, position, key=_position)
        return sum(found.size for found in self._counted[at:])

    def frames_after(self, sequence: int) -> Sequence[Counted]:
        """The frames that hold operations after `sequence`, in order."""
        at = bisect_left(self._counted, sequence + 1, key=_last_sequence)
        return [found for found in self._counted[at:] if found.kind is Kind.FRAME]

    def marks(self) -> tuple[Link, ...]:
        """The base, and the last message of each container epoch after it, in order."""
        marks = [self._base]
        for found in self._counted:
            if marks[-1].container_epoch == found.link.container_epoch and len(marks) > 1:
                marks.pop()
            marks.append(found.link)
        return tuple(marks)

    def common(self, marks: Sequence[Link]) -> Link | None:
        """The last message that this history shares with another one, given that one's `marks`.

        Within an epoch one owner wrote each number once, so of two histories that have an epoch,
        the shorter part is common; the other copy checks the checksum when it rewinds. None if
        the histories share nothing, or contradict each other.
        """
        own = {mark.container_epoch: mark for mark in self.marks()}
        for mark in reversed(marks):
            mine = own.get(mark.container_epoch)
            if mine is None:
                continue
            if mark.number >= mine.number:
                return mine if mark.number > mine.number or mark.crc == mine.crc else None
            if self.has(mark):
                return mark
            return None
        return None

    def release(self, sequence: int) -> None:
        """Forget the messages up to an operation that tier 2 has, except the last message."""
        last = min(bisect_left(self._counted, sequence + 1, key=_last_sequence), len(self._counted))
        if last == len(self._counted) and last:
            last -= 1
        if last:
            self._base = self._counted[last - 1].link
            del self._counted[:last]

    def settle(self) -> None:
        """Take the last message as the base. Only when everything up to it is released."""
        assert len(self._counted) <= 1, "messages that tier 2 lacks would be forgotten"
        self._base = self.end
        self._counted.clear()

    @property
    def oldest_record(self) -> int | None:
        """The oldest record that is still needed; None if no message counts but the base."""
        return self._counted[0].record if self._counted else None


def _position(found: Counted) -> Position:
    return found.position


def _last_sequence(found: Counted) -> int:
    return found.link.last_sequence


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a copy as read at open. `link`: the payload of a base."""

    number: int
    message: Message
    opening: Opening | None = None
    link: Link | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """A copy after a restart. `anchor`: the record that holds the present base, if one does."""

    history: History
    promised: int
    anchor: int | None


def replayed(records: Iterable[Record]) -> Replayed | None:
    """Fold the records of a copy, in order; None if there is none, so nothing is known.

    The oldest records may be missing, because they were released. Raises CorruptJournal if a
    record does not continue the ones before it.
    """
    history: History | None = None
    promised, anchor = 0, None
    for record in records:
        message = record.message
        promised = max(promised, message.container_epoch)
        if message.kind is Kind.PROMISE:
            continue
        if message.kind is Kind.BASE:
            assert record.link is not None
            if history is None or not history.has(record.link):
                history = History(record.link)
            history.rewind(record.link)
            anchor = record.number
            continue
        if history is None:
            history = History(_before(message, record.opening))
        verdict = history.judge(message, record.opening)
        if verdict is Verdict.REFUSED:
            raise CorruptJournal(
                "a record of a replicated log does not continue the ones before it",
                container=message.container, container_epoch=message.container_epoch,
                number=message.number, record=record.number,
            )  # fmt: skip
        if verdict is Verdict.NEXT:
            history.add(message, record.opening, record.number)
    return None if history is None else Replayed(history, promised, anchor)


def _before(message: Message, opening: Opening | None) -> Link:
    """The message before one, as that one names it."""
    if message.kind is Kind.OPENING:
        assert opening is not None
        return opening.reached
    return Link(
        message.container_epoch,
        message.number - 1,
        message.previous_crc,
        message.first_sequence - 1,
    )
