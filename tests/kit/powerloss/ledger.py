"""What was asked of a cluster and what it acknowledged, and what is to be found afterwards.

A ledger is a file of JSON lines on a file system that keeps its power: ``["try", kind, name]``
before something is asked, ``["ack", kind, name]`` after it was acknowledged.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

SCOPE = "loss"
EVENTS, TRANSACTIONS = f"{SCOPE}/events", f"{SCOPE}/transactions"
TABLE = f"{SCOPE}/table"
EVENTS_PER_TRANSACTION = 5
FAMILIES = 3
"""Primary keys of the table; an update of the table changes both entries of one of them."""
KEYS = 3


class Kind(StrEnum):
    STREAM = "stream"
    EVENT = "event"
    TRANSACTION = "transaction"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Ledger:
    """The names tried and acknowledged, by kind, in their order."""

    tried: dict[Kind, list[str]] = field(default_factory=lambda: {kind: [] for kind in Kind})
    acknowledged: dict[Kind, list[str]] = field(default_factory=lambda: {k: [] for k in Kind})


class LedgerWriter:
    """The writing side; every line is out of the process when the call returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def tried(self, kind: Kind, *names: str) -> None:
        self._file.writelines(json.dumps(["try", kind, name]) + "\n" for name in names)
        self._file.flush()

    def acknowledged(self, kind: Kind, *names: str) -> None:
        self._file.writelines(json.dumps(["ack", kind, name]) + "\n" for name in names)
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_ledger(path: Path) -> Ledger:
    """What a ledger holds; half a last line is left out, one that does not exist is empty."""
    ledger = Ledger()
    text = path.read_text() if path.exists() else ""
    for line in text[: text.rfind("\n") + 1].splitlines():
        verb, kind, name = json.loads(line)
        (ledger.tried if verb == "try" else ledger.acknowledged)[Kind(kind)].append(name)
    return ledger


@dataclass(frozen=True, slots=True)
class Found:
    """What a cluster shows after its restart: names of streams; payloads and (key, payload)."""

    streams: frozenset[str] = frozenset()
    events: Sequence[tuple[str | None, str]] = ()
    transactions: Sequence[str] = ()
    entries: Mapping[tuple[str, str], int] = field(default_factory=dict)


def key_of(event: str) -> str:
    """The routing key of an event, by its number."""
    return f"key-{int(event) % KEYS}"


def family_of(update: str) -> str:
    """The primary key of the entries that an update of the table changes, by its number."""
    return f"family-{int(update) % FAMILIES}"


def violations(ledger: Ledger, found: Found) -> list[str]:
    """Which promises are broken; empty if all that was acknowledged is there."""
    acknowledged, tried = ledger.acknowledged, ledger.tried
    wrong = [f"lost stream {n}" for n in acknowledged[Kind.STREAM] if n not in found.streams]
    seen = Counter(event for _, event in found.events)
    wrong += [f"lost event {name}" for name in acknowledged[Kind.EVENT] if not seen[name]]
    wrong += [f"repeated event {name}" for name, count in seen.items() if count > 1]
    wrong += [f"unknown event {name}" for name in sorted(seen.keys() - set(tried[Kind.EVENT]))]
    wrong += _disorder(found.events)
    parts = Counter(event.partition(":")[0] for event in found.transactions)
    for name in acknowledged[Kind.TRANSACTION]:
        if not parts[name]:
            wrong.append(f"lost transaction {name}")
    for name, count in parts.items():
        if count != EVENTS_PER_TRANSACTION:
            wrong.append(f"transaction {name} has {count} of {EVENTS_PER_TRANSACTION} events")
    return wrong + _wrong_entries(ledger, found.entries)


def _wrong_entries(ledger: Ledger, entries: Mapping[tuple[str, str], int]) -> list[str]:
    """An atomic update numbers both entries of a family alike; a later one has a higher number."""
    wrong = []
    tried = {int(name) for name in ledger.tried[Kind.UPDATE]}
    last = {family_of(name): int(name) for name in ledger.acknowledged[Kind.UPDATE]}
    families = last.keys() | {family for family, _ in entries}
    for family in sorted(families):
        left, right = entries.get((family, "left"), -1), entries.get((family, "right"), -1)
        if left != right:
            wrong.append(f"half an update: {family} has {left} and {right}")
        if min(left, right) < last.get(family, -1):
            wrong.append(f"lost update {last[family]}")
        wrong += [f"unknown update {one}" for one in {left, right} - tried - {-1}]
    return wrong


def _disorder(events: Iterable[tuple[str | None, str]]) -> list[str]:
    last: dict[str | None, int] = {}
    wrong = []
    for key, event in events:
        if int(event) < last.get(key, -1):
            wrong.append(f"event {event} comes late for {key}")
        last[key] = int(event)
    return wrong
