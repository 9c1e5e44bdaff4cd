"""Readings of everything at the end of a trial, and the verdicts on them."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.client import Client
from kit.chaos.ledger import KEYS, LedgerContent, key_of
from kit.chaos.tier2_stream import blocks_in_tier2
from kit.chaos.verdict import Verdict as EventVerdict
from kit.failover.divergence import KeyHistories
from kit.failover.transactions import TransactionLedger, TransactionVerdict
from kit.soak.verdict import HandedOut, judge
from kit.soak.verdict import Verdict as GroupVerdict

Batch = tuple[Sequence[bytes], Sequence[str | None]]
Source = Callable[[str], AsyncIterator[Batch]]
"""A stream's name → its events with their keys, in the order of a reading."""


@dataclass(frozen=True, slots=True)
class Told:
    """The ledgers of all writers and of all callers of transactions."""

    events: Mapping[int, LedgerContent]
    transactions: Mapping[int, TransactionLedger]


@dataclass(frozen=True, slots=True)
class Reading:
    """Both streams as one place shows them."""

    events: EventVerdict
    transactions: TransactionVerdict
    histories: KeyHistories = field(default_factory=KeyHistories)

    @property
    def violations(self) -> int:
        """0 if every promise was kept."""
        return self.events.violations + self.transactions.violations


async def read_all(told: Told, source: Source, events: str, transactions: str) -> Reading:
    """Read the stream of events and that of transactions."""
    reading = Reading(EventVerdict(told.events), TransactionVerdict(told.transactions))
    async for payloads, keys in source(events):
        reading.events.take(payloads, keys)
        reading.histories.take(payloads, keys)
    async for payloads, keys in source(transactions):
        reading.transactions.take(payloads, keys)
        reading.histories.take(payloads, keys)
    reading.events.close()
    reading.transactions.close()
    return reading


def from_stores(client: Client) -> Source:
    """As a reader gets them."""

    async def read(stream: str) -> AsyncIterator[Batch]:
        async with client.reader(stream, until_tail=True) as reader:
            async for batch in reader.batches():
                yield batch.payloads, batch.keys

    return read


def from_tier2(url: str) -> Source:
    """As tier 2 alone shows them, with no store running."""

    async def read(stream: str) -> AsyncIterator[Batch]:
        async for block in blocks_in_tier2(url, stream):
            stored = block.keys()
            yield block.events(), [key.decode() if key else None for key in stored]

    return read


def judge_group(notes: Path, histories: KeyHistories, writers: int) -> GroupVerdict:
    """What the readers of the group noted, held against what is in the stream."""
    handed_out: list[HandedOut] = []
    for file in sorted(notes.glob("reader-*.txt")):
        with file.open() as lines:
            handed_out += parse_notes(lines)
    keys = [key_of(writer, number) for writer in range(writers) for number in range(KEYS)]
    return judge(handed_out, {key: histories.by_key.get(key, (0, 0))[0] for key in keys})


def parse_notes(lines: Iterable[str]) -> list[HandedOut]:
    """A reader's notes; the payload's number counts all events of a writer, not of a key."""
    found = []
    for line in lines:
        if line.endswith("\n"):
            at_ns, segment, ownership, key, payload = line.split()
            number = int(payload.split(":")[1]) // KEYS
            found.append(HandedOut(int(at_ns), segment, int(ownership), key, number))
    return found
