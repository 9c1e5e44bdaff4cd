"""What was read, held against what the writers were told.

Every acknowledged event is there exactly once; one that was tried and not acknowledged at most
once; nothing else is there; and the events of a key come in the order of their writing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from kit.chaos.ledger import LedgerContent, event_of, key_of

EXAMPLES_MAX = 5


@dataclass(slots=True)
class Verdict:
    """One reading of the whole stream. `violations` is empty if it keeps all promises."""

    ledgers: Mapping[int, LedgerContent]
    events: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    _seen: dict[int, bytearray] = field(default_factory=dict)
    _last_of_key: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._seen = {writer: bytearray(held.tried) for writer, held in self.ledgers.items()}

    def take(self, payloads: Sequence[bytes], keys: Sequence[str | None]) -> None:
        """Further events, in the order in which they were read."""
        for payload, key in zip(payloads, keys, strict=True):
            self._take_one(payload, key)

    def _take_one(self, payload: bytes, key: str | None) -> None:
        self.events += 1
        writer, number = _who(payload)
        seen = self._seen.get(writer, bytearray())
        if not 0 <= number < len(seen) or payload != event_of(writer, number):
            return self._blame("unknown", repr(payload[:40]))
        if key != key_of(writer, number):
            return self._blame("wrong key", f"writer {writer}, event {number}: {key!r}")
        if seen[number]:
            return self._blame("duplicate", f"writer {writer}, event {number}")
        seen[number] = 1
        if self._last_of_key.get(key, -1) > number:
            self._blame("out of order", f"writer {writer}, key {key}, event {number}")
        self._last_of_key[key] = number
        return None

    def _blame(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= EXAMPLES_MAX:
            self.examples.append(f"{kind}: {example}")

    def close(self) -> None:
        """Nothing more will be read: what is not there now is lost."""
        for writer, held in self.ledgers.items():
            seen = self._seen[writer]
            for number in range(held.acknowledged):
                if not seen[number]:
                    self._blame("lost", f"writer {writer}, event {number}")

    @property
    def violations(self) -> int:
        return self.counts.total()


def _who(payload: bytes) -> tuple[int, int]:
    writer, _, rest = payload.partition(b":")
    number, _, _ = rest.partition(b":")
    if not (writer.isdigit() and number.isdigit()):
        return -1, -1
    return int(writer), int(number)


@dataclass(frozen=True, slots=True)
class Struck:
    """A blow that was dealt: which part, and when, in seconds of the monotonic clock."""

    part: str
    at_s: float


def recoveries(
    struck: Iterable[Struck], ledgers: Mapping[int, LedgerContent]
) -> Iterator[tuple[Struck, float]]:
    """For each kill the seconds until the first acknowledgement of a batch that was begun after it.

    An acknowledgement that was on its way already counts for nothing. A kill that nobody was ever
    answered after is left out; its writers' failure tells of it.
    """
    acks = sorted(
        (ack.begun_s, ack.acked_s) for held in ledgers.values() for ack in held.acks
    )  # fmt: skip
    for blow in struck:
        after = [acked for begun, acked in acks if begun > blow.at_s]
        if after:
            yield blow, min(after) - blow.at_s


def summary(found: Iterable[tuple[Struck, float]]) -> list[str]:
    """A line per part: how often it was killed, and how long until the next acknowledgement."""
    by_part: dict[str, list[float]] = {}
    for blow, seconds in found:
        by_part.setdefault(blow.part, []).append(seconds)
    return [
        f"{part}: killed {len(times)} times, first acknowledgement after"
        f" {median(times):.2f} s (median), {max(times):.2f} s (longest)"
        for part, times in sorted(by_part.items())
    ]
