"""The options of `anabranch perf write`, and the load that they describe. Pure."""

from dataclasses import dataclass
from itertools import cycle

from cyclopts import Parameter

from anabranch.cli.events import Compression
from anabranch.cli.perf import amounts
from anabranch.cli.perf.load.payloads import batch_count, pool_count, pool_of
from anabranch.cli.perf.writing import EVENTS_MAX, Plan

SECONDS_DEFAULT = 10.0
SIZE_BYTES_MAX_DEFAULT = 1024 * 1024 * 1024
"""The bytes after which a load ends for which the user gave no limit."""


@Parameter(name="*")
@dataclass(frozen=True)
class LoadOptions:
    """A load, and when it ends."""

    events: int | None = None
    "End after this many events."
    seconds: float | None = None
    "End after this time. By default a load ends after 10 s, or after 1 GiB if that is earlier."
    size: str = "1KiB"
    "The size of an event: bytes, or as 1KiB."
    keys: int = 0
    "The number of routing keys that the events take in turn; 0: events without keys."
    rate: amounts.Rate = "max"
    "Events per second, of all writers; a latency then counts from when its event was due."
    writers: int = 1
    "The number of writers, in this one process."
    compress: Compression | None = None
    "zstd: the writers compress their blocks."

    @property
    def seconds_max(self) -> float | None:
        """When the load ends at the latest; None: only by its events."""
        if self.events is None and self.seconds is None:
            return SECONDS_DEFAULT
        return self.seconds

    def plan(self) -> Plan:
        """The load. Raises InvalidRequest."""
        amounts.at_least_one("--events", self.events)
        amounts.at_least_one("--seconds", self.seconds)
        size_bytes = amounts.event_size(self.size)
        pool = pool_of(size_bytes, pool_count(size_bytes))
        return Plan(
            events=lambda _: cycle(pool),
            event_size_bytes=size_bytes,
            batch_count=batch_count(size_bytes),
            keys=amounts.key_count(self.keys),
            rate_per_s=amounts.events_per_s(self.rate),
            events_max=self._events_max(size_bytes),
            writers=amounts.writer_count(self.writers),
            compression=self.compress,
        )

    def _events_max(self, size_bytes: int) -> int:
        if self.events is not None:
            return self.events
        if self.seconds is not None:
            return EVENTS_MAX
        return max(1, SIZE_BYTES_MAX_DEFAULT // size_bytes)
