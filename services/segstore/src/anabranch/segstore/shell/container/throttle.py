"""Back-pressure of one store, whose fullest source decides how full the store is.

    source     measured by                              limit              refuses at
    pending    bytes (and answers) waiting for the      pending_soft       pending_hard
               journal
    unflushed  those of the next line that no flush     unflushed          never
               has taken up yet
    untiered   bytes that only the journal holds        untiered           5/4 of it, or the limit
    journal    files of the journal, all of which an    journal            itself while tier 2 fails
               open reads
    disk       the disk of the journal: there is no     none               at once
               room for its next file

Each source has a ratio of its own limit. Above 1 the connections stop being read until the pending
bytes have drained to half of their limit; from the last column on, appends are refused with the
source's name. While a flush is behind, those that send little go on for a while (`paused_for_all`),
so that a lone event does not wait for the flush of another writer's megabytes.

A flush relieves `untiered` and `journal` only when it ends, and it moves all that there is when it
begins: at their limits, a writer that is faster than tier 2 would wait for a whole flush of that
size. `unflushed` sinks while the flush goes on. Its limit is so low that a container's flush ends
before the other two are full, so its fast writer continues at the rate of tier 2.

While tier 2 fails, no connection is paused for these three, which only tier 2 could relieve; the
last two refuse at their limit instead. While the disk is full no connection is paused either, so a
connection whose appends are refused can still read.

The store never drops an accepted operation. Owned by the event loop's thread.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from anabranch.common.errors import Overloaded

_MIB = 1024 * 1024


class Source(StrEnum):
    """The sources of back-pressure."""

    PENDING = "pending"
    UNFLUSHED = "unflushed"
    UNTIERED = "untiered"
    JOURNAL = "journal"
    DISK = "disk"


_REFUSALS: Mapping[Source, tuple[str, str]] = {
    Source.PENDING: ("too many bytes wait for the journal", "wait and try again"),
    Source.UNTIERED: (
        "too many bytes wait for tier 2",
        "check that tier 2 is reachable and writable; then try again",
    ),
    Source.JOURNAL: (
        "the journal holds more than a start may read",
        "check that tier 2 is writable and that no container of this store is offline, because "
        "each pins the journal's oldest file until it is flushed; then try again",
    ),
    Source.DISK: (
        "the journal has no room for its next file",
        "free space on the journal's disk, or raise the limit of open files; then try again",
    ),
}


@dataclass(frozen=True, slots=True)
class ThrottleLimits:
    """All in bytes."""

    pending_soft: int = 64 * _MIB
    pending_hard: int = 128 * _MIB
    untiered: int = 1024 * _MIB
    journal: int = 1024 * _MIB

    @property
    def unflushed(self) -> int:
        """So many bytes may come while a flush of as many goes on; the rest is for the journal's
        unfilled files."""
        return self.untiered * 3 // 8


def above_by_quarter(limit: int) -> int:
    """The size at which a limit that tier 2 relieves refuses, while tier 2 works."""
    return limit * 5 // 4


def fullest(ratios: Mapping[Source, float]) -> Source:
    """The source that decides how full the store is."""
    return max(ratios, key=lambda source: ratios[source])


class Throttle:
    """Counts the bytes that the store holds, and calls the waiting connections back.

    `journal_size` returns the bytes of the journal's files; `no_room` whether the journal waits for
    room on its disk.
    """

    def __init__(
        self,
        limits: ThrottleLimits,
        *,
        journal_size: Callable[[], int],
        no_room: Callable[[], bool],
    ) -> None:
        self._limits = limits
        self._unflushed_max = limits.unflushed
        self._untiered_max = above_by_quarter(limits.untiered)
        self._journal_max = above_by_quarter(limits.journal)
        self._journal_size = journal_size
        self._no_room = no_room
        self.pending = 0
        self.untiered = 0
        self.taken_up = 0
        """The un-tiered bytes that running flushes have read so far."""
        self.refused: Counter[tuple[str, ...]] = Counter()
        """Source → appends and other operations refused."""
        self._failing: set[int] = set()
        self._waiting: dict[Callable[[], None], None] = {}

    # --- how full -----------------------------------------------------------------------------

    def ratios(self) -> Mapping[Source, float]:
        """The share of its limit that each source takes; above 1 it pauses connections."""
        limits = self._limits
        return {
            Source.PENDING: self.pending / limits.pending_soft,
            Source.UNFLUSHED: self.unflushed / self._unflushed_max,
            Source.UNTIERED: self.untiered / limits.untiered,
            Source.JOURNAL: self._journal_size() / limits.journal,
            Source.DISK: float(self._no_room()),
        }

    @property
    def has_no_room(self) -> bool:
        """Whether the journal waits for room on its disk."""
        return self._no_room()

    @property
    def unflushed(self) -> int:
        """The un-tiered bytes that no flush has taken up yet."""
        return self.untiered - self.taken_up

    @property
    def paused(self) -> bool:
        """Whether connections that send much must stop being read."""
        limits = self._limits
        return self._pauses(self._unflushed_max, limits.untiered, limits.journal)

    @property
    def paused_for_all(self) -> bool:
        """Whether also those that send little must, because others have used half of the room
        between the limits of tier 2 and the refusal."""
        limits = self._limits
        untiered = (limits.untiered + self._untiered_max) // 2
        return self._pauses(untiered, untiered, (limits.journal + self._journal_max) // 2)

    def _pauses(self, unflushed: int, untiered: int, journal: int) -> bool:
        if self._no_room():
            return False
        if self.pending > self._limits.pending_soft:
            return True
        return not self._failing and (
            self.untiered - self.taken_up > unflushed
            or self.untiered > untiered
            or self._journal_size() > journal
        )

    @property
    def flush_wanted(self) -> bool:
        """Whether unflushed bytes come near their limit, so that every container should flush.
        (The journal's files are freed only by a flush of the container that pins the oldest one:
        `journal_watch.py`.)"""
        return self.untiered - self.taken_up > self._unflushed_max * 3 // 4

    # --- counting -----------------------------------------------------------------------------

    def admit(self, size: int) -> None:
        """Count `size` more pending bytes. Raises Overloaded without counting them."""
        limits, failing = self._limits, self._failing
        if self._no_room():
            raise self._refusal(Source.DISK, 0, 0, size)
        if self.pending + size > limits.pending_hard:
            raise self._refusal(Source.PENDING, self.pending, limits.pending_hard, size)
        limit = limits.untiered if failing else self._untiered_max
        if self.untiered + size > limit:
            raise self._refusal(Source.UNTIERED, self.untiered, limit, size)
        limit = limits.journal if failing else self._journal_max
        used = self._journal_size()
        if used + size > limit:
            raise self._refusal(Source.JOURNAL, used, limit, size)
        self.pending += size

    def count(self, size: int) -> None:
        """Count `size` more pending bytes over any limit, for deletions that no client could
        repeat. They are fewer than the segments that they delete."""
        self.pending += size

    def _refusal(self, source: Source, used: int, limit: int, size: int) -> Overloaded:
        self.refused[source.value,] += 1
        what, remedy = _REFUSALS[source]
        return Overloaded(
            what, remedy=remedy, source=source.value, used=used, limit=limit, size=size
        )

    def forget_pending(self, size: int) -> None:
        """`size` pending bytes became durable or were given up."""
        self.pending -= size
        self.wake()

    def add_untiered(self, size: int) -> None:
        """`size` bytes became durable in the journal only; negative: they are tiered or gone."""
        self.untiered += size
        if size < 0:
            self.wake()

    def take_up(self, size: int) -> None:
        """A running flush has read `size` more bytes."""
        self.taken_up += size
        self.wake()

    def put_down(self, size: int) -> None:
        """A flush that has taken up `size` bytes ends. Call this before `add_untiered` gets what it
        moved, so that no connection goes on because of bytes that count twice."""
        self.taken_up -= size

    def tier_two_failing(self, container: int, *, failing: bool) -> None:
        """Note whether the container's last flush failed."""
        if failing:
            self._failing.add(container)
        else:
            self._failing.discard(container)
        self.wake()

    # --- waiting ------------------------------------------------------------------------------

    def when_open(self, callback: Callable[[], None]) -> None:
        """Call back once when reading may continue (soon after half is drained)."""
        self._waiting[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        """Do not call back any more, because the connection is gone; harmless to repeat."""
        self._waiting.pop(callback, None)

    def wake(self) -> None:
        """Call the waiting connections back if reading may continue. Call this when the journal
        frees files."""
        if not self._waiting or self.paused or self.pending > self._limits.pending_soft // 2:
            return
        waiting, self._waiting = self._waiting, {}
        for callback in waiting:
            callback()
