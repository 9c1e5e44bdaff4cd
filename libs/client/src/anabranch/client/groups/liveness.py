"""Liveness of a group's readers, by beats in its log and monotonic clocks. Pure.

A reader's *lease* begins when it sends a beat, and counts once the reader has found this beat in
the log and is online there. It hands out nothing when less than the margin is left. Other readers
count the same lease from the moment at which they found the beat, which is later, and only while
their knowledge is fresh. They take over with an entry that quotes the beat; one more beat before
this entry in the log defeats it. So no reader reads a segment while another still hands out its
events, as long as the clocks' rates differ by less than the margin.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.client.groups.state import OnlineReader, ReaderGroupState
from anabranch.client.groups.updates import Lost

MARGIN_SHARE = 0.125
"""A share of the lease, for clocks that run at different rates and for actions in progress."""
STALE_SHARE = 0.5
"""A share of the lease: older knowledge is no evidence about liveness."""


@dataclass(slots=True)
class OwnLease:
    """The reader's own lease; times are seconds of its monotonic clock."""

    lease_s: float
    valid_until_s: float = float("-inf")
    last_number: int = 0
    _sent: dict[int, float] = field(default_factory=dict)

    def sending(self, now_s: float) -> int:
        """Note that a beat is about to be sent; returns its number."""
        self.last_number += 1
        self._sent[self.last_number] = now_s
        return self.last_number

    def confirmed(self, number: int) -> None:
        """Note that the log has this beat, and that the reader is online after it. Idempotent."""
        sent_s = self._sent.get(number)
        if sent_s is None:
            return
        self.valid_until_s = sent_s + self.lease_s * (1 - MARGIN_SHARE)
        self._sent = {n: at_s for n, at_s in self._sent.items() if n > number}

    def end(self) -> None:
        """Hand out nothing from now on, even if the log confirms more beats."""
        self.valid_until_s = float("-inf")
        self._sent.clear()


@dataclass(frozen=True, slots=True)
class _Seen:
    reader: OnlineReader
    since_s: float


class PeerWatch:
    """One reader's knowledge of the other readers' beats."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._seen: dict[str, _Seen] = {}
        self._fresh_s = float("-inf")
        self._fresh_since_s = float("inf")

    def caught_up(self, readers: Mapping[str, OnlineReader], now_s: float) -> None:
        """Note that the log was just read to its end, where these readers are online."""
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
        """The readers without a beat for a whole lease during which a beat would have been seen."""
        if now_s - self._fresh_s > self._lease_s * STALE_SHARE:
            return
        for reader_id, known in self._seen.items():
            if now_s - max(known.since_s, self._fresh_since_s) >= self._lease_s:
                yield Lost(reader_id=reader_id, nonce=known.reader.nonce, beat=known.reader.beat)


def is_still(state: ReaderGroupState, lost: Lost) -> bool:
    """Whether the reader has sent no beat since, as far as this state knows."""
    reader = state.readers.get(lost.reader_id)
    return reader is not None and (reader.nonce, reader.beat) == (lost.nonce, lost.beat)
