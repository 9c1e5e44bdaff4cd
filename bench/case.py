"""What is asked of every system alike: payloads, how long, how often, and what came of it.

The pool is 1,000 payloads of which the first half is random and the rest is not, so that
compression gains little and nothing is drawn while the clock runs. It comes from one seed: the
same events in every run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from anabranch.cli.perf.load.payloads import pool_of
from bench.clock import Stopwatch

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is done. `bytes_max` bounds a round so that memory and disk suffice."""

    name: str
    rounds: int
    warm_up_s: float
    write_s: float
    awaited_s: float
    tail_s: float
    http_s: float
    bytes_max: int
    segments: int
    """How many segments W10 makes."""
    table_entries: int
    """How many entries the table of W22 has."""
    flush_bytes: int
    """Flush size of the cluster that tiers: small in short rounds, or none would see a flush."""
    fresh_servers: bool
    """New servers and directories for every workload and size, not only for every run."""


QUICK = Effort(
    name="quick",
    rounds=3,
    warm_up_s=0.03,
    write_s=0.1,
    awaited_s=0.1,
    tail_s=0.3,
    http_s=0.5,
    bytes_max=64 * MIB,
    segments=10_000,
    table_entries=1_000_000,
    flush_bytes=8 * MIB,
    fresh_servers=False,
)
MEDIUM = Effort(
    name="medium",
    rounds=3,
    warm_up_s=0.5,
    write_s=1.5,
    awaited_s=1.5,
    tail_s=2.0,
    http_s=2.0,
    bytes_max=512 * MIB,
    segments=10_000,
    table_entries=5_000_000,
    flush_bytes=64 * MIB,
    fresh_servers=True,
)
LONG = Effort(
    name="long",
    rounds=5,
    warm_up_s=10.0,
    write_s=60.0,
    awaited_s=30.0,
    tail_s=60.0,
    http_s=30.0,
    bytes_max=4096 * MIB,
    segments=100_000,
    table_entries=5_000_000,
    flush_bytes=64 * MIB,
    fresh_servers=True,
)


@dataclass(frozen=True, slots=True)
class Case:
    """One size of event in one workload; `events` is the pool."""

    event_bytes: int
    events: tuple[bytes, ...]

    @property
    def pool_bytes(self) -> int:
        return self.event_bytes * len(self.events)


@dataclass(frozen=True, slots=True)
class Sample:
    """What one round of one system gave. Latencies in ms; None = not what is measured here.

    `notes`: further figures by name, such as the ratio to what is compared in the same round.
    """

    events: int
    seconds: float
    cpu_seconds: float | None
    verified: bool
    p50_ms: float | None = None
    p99_ms: float | None = None
    ack_p50_ms: float | None = None
    ack_p99_ms: float | None = None
    notes: Mapping[str, float] = field(default_factory=dict)


class Supply:
    """The pool as one batch, again and again, until time or bytes are used up.

    Counts what was taken, so that what a system holds can be compared with it.
    """

    def __init__(self, case: Case, clock: Stopwatch, seconds: float, bytes_max: int) -> None:
        self._case = case
        self._clock = clock
        self._ends_at = clock.now() + seconds
        self._batches_max = max(1, bytes_max // case.pool_bytes)
        self.batches = 0

    @property
    def events(self) -> int:
        return self.batches * len(self._case.events)

    def __iter__(self) -> Iterator[Sequence[bytes]]:
        while self.batches < self._batches_max:
            self.batches += 1
            yield self._case.events
            if self._clock.now() >= self._ends_at:
                return


class Digest:
    """Count and checksum of events in their order; equal digests mean equal sequences."""

    def __init__(self) -> None:
        self._count = 0
        self._size = 0
        self._crc = 0

    def add(self, events: Sequence[bytes]) -> None:
        joined = b"".join(events)
        self._count += len(events)
        self._size += len(joined)
        self._crc = crc32(joined, self._crc)

    def add_pool(self, case: Case, count: int) -> None:
        """The first `count` events of the pool repeated for ever."""
        rounds, rest = divmod(count, len(case.events))
        joined = b"".join(case.events)
        for _ in range(rounds):
            self._crc = crc32(joined, self._crc)
        self._count += rounds * len(case.events)
        self._size += rounds * len(joined)
        self.add(case.events[:rest])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Digest) and self._key() == other._key()

    __hash__ = None  # type: ignore[assignment]

    def _key(self) -> tuple[int, int, int]:
        return self._count, self._size, self._crc


class Multiset:
    """Which events, whatever their order; equal ones mean, all but surely, the same events."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0

    def add(self, events: Sequence[bytes]) -> None:
        self.count += len(events)
        self._sum += sum(map(crc32, events))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Multiset):
            return False
        return (self.count, self._sum) == (other.count, other._sum)

    __hash__ = None  # type: ignore[assignment]


def case_of(event_bytes: int) -> Case:
    """The pool for events of a size (at least 16 bytes, or 0 where no events are written)."""
    return Case(event_bytes, pool_of(event_bytes))
