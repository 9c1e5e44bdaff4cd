"""Who is alive in a reader group, by beats in its log and monotonic clocks. Pure.

A reader's *lease* runs from the moment at which it sent its last beat that it has found in the log
while it was online. It hands out nothing when less than the margin is left. Others count the same
lease from the moment at which they found that beat, which was later; only while what they know is
fresh; and they take over by an entry that quotes the beat, so one more beat before it in the log
defeats it. So nobody reads a segment that another reader still hands out, as long as clocks run at
the same speed to within the margin.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.client.groups.state import OnlineReader, ReaderGroupState
from anabranch.client.groups.updates import Lost

MARGIN_SHARE = 0.125
"""Of the lease: for clocks that run at different speeds, and for what a reader is about to do."""
STALE_SHARE = 0.5
"""Of the lease: what was learned longer ago says nothing about who is alive."""


@dataclass(slots=True)
class OwnLease:
    """A reader's own; moments in seconds of its monotonic clock."""

    lease_s: float
    valid_until_s: float = float("-inf")
    last_number: int = 0
    _sent: dict[int, float] = field(default_factory=dict)

    def sending(self, now_s: float) -> int:
        """A beat is about to be sent → its number."""
        self.last_number += 1
        self._sent[self.last_number] = now_s
        return self.last_number

    def confirmed(self, number: int) -> None:
        """The log has this beat, and this reader is online behind it. Repeatable."""
        sent_s = self._sent.get(number)
        if sent_s is None:
            return
        self.valid_until_s = sent_s + self.lease_s * (1 - MARGIN_SHARE)
        self._sent = {n: at_s for n, at_s in self._sent.items() if n > number}

    def end(self) -> None:
        """Hand out nothing any more, whatever is still found in the log."""
        self.valid_until_s = float("-inf")
        self._sent.clear()


@dataclass(frozen=True, slots=True)
class _Seen:
    reader: OnlineReader
    since_s: float


class PeerWatch:
    """What one reader knows of the others' beats."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._seen: dict[str, _Seen] = {}
        self._fresh_s = float("-inf")
        self._fresh_since_s = float("inf")

    def caught_up(self, readers: Mapping[str, OnlineReader], now_s: float) -> None:
        """The log was read to its end just now, and these are online."""
        if now_s - self._fresh_s > self._lease_s * STALE_SHARE:
            self._fresh_since_s = now_s
        self._fresh_s = now_s
        self._seen = {
            reader_id: known
            if (known := self._seen.get(reader_id)) and known.reader == reader
            else _Seen(reader, now_s)
            for reader_id, reader in readers.items()
        }

    def silent(self, now_s: float) -> Iterable[Lost]:
        """Who gave no sign of life for a whole lease in which one would have been seen."""
        if now_s - self._fresh_s > self._lease_s * STALE_SHARE:
            return
        for reader_id, known in self._seen.items():
            if now_s - max(known.since_s, self._fresh_since_s) >= self._lease_s:
                yield Lost(reader_id=reader_id, nonce=known.reader.nonce, beat=known.reader.beat)


def is_still(state: ReaderGroupState, lost: Lost) -> bool:
    """Whether the reader gave no sign of life since, as far as this state knows."""
    reader = state.readers.get(lost.reader_id)
    return reader is not None and (reader.nonce, reader.beat) == (lost.nonce, lost.beat)
