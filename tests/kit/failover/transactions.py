"""What a caller of transactions was told, in a file outside of the cluster, and what must hold.

    try <number>                       the transaction is about to begin
    ack <number> <begun_s> <acked_s>   its commit is acknowledged
    gone <number>                      an error ended it: it may be there or not

Transaction n of caller c has `EVENTS` events; event i says ``c:n:i`` and has the key ``c-<i mod
KEYS>``. Every transaction is there whole and once, or not at all; an acknowledged one is there; and
the transactions of a caller come in the order of their commits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

EVENTS = 12
KEYS = 3
EXAMPLES_MAX = 5


def key_of(caller: int, index: int) -> str:
    """The routing key of an event."""
    return f"t{caller}-{index % KEYS}"


def event_of(caller: int, number: int, index: int) -> bytes:
    """Event `index` of a transaction."""
    return b"%d:%d:%d" % (caller, number, index)


@dataclass(slots=True)
class TransactionLedger:
    """`waits`: (begun, acknowledged) of each commit, in seconds of the monotonic clock."""

    tried: int = 0
    acknowledged: set[int] = field(default_factory=set)
    waits: list[tuple[float, float]] = field(default_factory=list)

    def add(self, lines: Iterable[str]) -> None:
        """Take further lines; a last one that was cut off by a kill counts for nothing."""
        for line in lines:
            if not line.endswith("\n"):
                continue
            verb, number, *times = line.split()
            if verb == "try":
                self.tried = int(number) + 1
            elif verb == "ack":
                self.acknowledged.add(int(number))
                begun_s, acked_s = map(float, times)
                self.waits.append((begun_s, acked_s))


class LedgerWriter:
    """The writing side; each line is handed to the kernel at once."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("x")

    def note(self, verb: str, number: int, *times: float) -> None:
        """Write a line."""
        told = "".join(f" {time:.6f}" for time in times)
        self._file.write(f"{verb} {number}{told}\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class TransactionVerdict:
    """One reading of the whole stream of transactions."""

    ledgers: Mapping[int, TransactionLedger]
    events: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    _seen: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    _last_of_key: dict[str, tuple[int, int]] = field(default_factory=dict)

    def take(self, payloads: Sequence[bytes], keys: Sequence[str | None]) -> None:
        """Further events, in the order in which they were read."""
        for payload, key in zip(payloads, keys, strict=True):
            self._take_one(payload, key)

    def _take_one(self, payload: bytes, key: str | None) -> None:
        self.events += 1
        caller, number, index = _who(payload)
        ledger = self.ledgers.get(caller)
        if ledger is None or not 0 <= number < ledger.tried or not 0 <= index < EVENTS:
            return self._blame("unknown", repr(payload[:40]))
        if key != key_of(caller, index):
            return self._blame("wrong key", f"{payload!r}: {key!r}")
        seen = self._seen.setdefault((caller, number), [0] * EVENTS)
        seen[index] += 1
        if seen[index] > 1:
            return self._blame("duplicate", f"caller {caller}, transaction {number}")
        if self._last_of_key.get(key, (-1, -1)) > (number, index):
            self._blame("out of order", f"caller {caller}, key {key}, transaction {number}")
        self._last_of_key[key] = number, index
        return None

    def close(self) -> None:
        """Nothing more will be read."""
        for (caller, number), seen in self._seen.items():
            if 0 in seen:
                self._blame("torn", f"caller {caller}, transaction {number}")
        for caller, ledger in self.ledgers.items():
            for number in sorted(ledger.acknowledged):
                if (caller, number) not in self._seen:
                    self._blame("lost", f"caller {caller}, transaction {number}")

    def _blame(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= EXAMPLES_MAX:
            self.examples.append(f"{kind}: {example}")

    @property
    def whole(self) -> int:
        """How many transactions are there."""
        return sum(0 not in seen for seen in self._seen.values())

    @property
    def violations(self) -> int:
        """0 if every promise was kept."""
        return self.counts.total()


def _who(payload: bytes) -> tuple[int, int, int]:
    words = payload.split(b":")
    if len(words) != 3 or not all(word.isdigit() for word in words):
        return -1, -1, -1
    caller, number, index = map(int, words)
    return caller, number, index
