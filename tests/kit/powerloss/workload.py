"""``python -m kit.powerloss.workload``: ask for things from before the cluster is up until killed.

Four tasks: one creates streams, one writes events, one commits transactions, one updates a table.
Each notes what it asks before, and what was acknowledged after.
"""

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

import structlog

from anabranch.client import Client, Put, TableConfig, TextSerializer, connect
from anabranch.common.errors import AnabranchError, ScopeExists, StreamExists, TableExists
from anabranch.common.runtime.clock import SystemClock
from kit.powerloss.ledger import (
    EVENTS,
    EVENTS_PER_TRANSACTION,
    SCOPE,
    TABLE,
    TRANSACTIONS,
    Kind,
    LedgerWriter,
    family_of,
    key_of,
)

BATCH_SIZES = (1, 20, 3)
STREAM_PAUSE_S = 0.2
RETRY_S = 0.05


@dataclass(frozen=True, slots=True)
class Asking:
    """What outlives a connection: the ledger, and the numbers that were not used yet."""

    ledger: LedgerWriter
    streams: Iterator[int] = field(default_factory=count)
    batches: Iterator[int] = field(default_factory=count)
    events: Iterator[int] = field(default_factory=count)
    transactions: Iterator[int] = field(default_factory=count)
    updates: Iterator[int] = field(default_factory=count)

    async def create_stream(self, client: Client, name: str, segments: int = 1) -> None:
        """One that is there was created by a request whose answer did not come."""
        self.ledger.tried(Kind.STREAM, name)
        with suppress(StreamExists):
            await client.streams.create(name, segments=segments)
        self.ledger.acknowledged(Kind.STREAM, name)


async def create_streams(client: Client, asking: Asking) -> None:
    """One small stream after the other."""
    for number in asking.streams:
        await asking.create_stream(client, f"{SCOPE}/small-{number}")
        await SystemClock().sleep(STREAM_PAUSE_S)


async def write_events(client: Client, asking: Asking) -> None:
    """Batches without pause."""
    async with client.writer(EVENTS) as writer:
        for batch in asking.batches:
            size = BATCH_SIZES[batch % len(BATCH_SIZES)]
            names = [str(number) for number in islice(asking.events, size)]
            asking.ledger.tried(Kind.EVENT, *names)
            for name in names:
                writer.write(name.encode(), key_of(name))
            await writer.flush()
            asking.ledger.acknowledged(Kind.EVENT, *names)


async def commit_transactions(client: Client, asking: Asking) -> None:
    """One after the other; `async with` returns when its events can be read."""
    async with client.writer(TRANSACTIONS) as writer:
        for number in asking.transactions:
            asking.ledger.tried(Kind.TRANSACTION, str(number))
            async with writer.transaction() as transaction:
                for index in range(EVENTS_PER_TRANSACTION):
                    transaction.write(f"{number}:{index}".encode(), f"key-{index}")
            asking.ledger.acknowledged(Kind.TRANSACTION, str(number))


async def update_table(client: Client, asking: Asking) -> None:
    """Atomic batches, one after the other: each writes its number into both entries of a family."""
    async with client.table(TABLE, key=(TextSerializer(), TextSerializer())) as table:
        for number in asking.updates:
            name = str(number)
            family = family_of(name)
            asking.ledger.tried(Kind.UPDATE, name)
            await table.update([Put((family, side), name.encode()) for side in ("left", "right")])
            asking.ledger.acknowledged(Kind.UPDATE, name)


async def run(nats: str, ledger: LedgerWriter) -> None:
    """All of it. Errors of a cluster that is not up yet are waited for."""
    asking = Asking(ledger)
    while True:
        try:
            async with connect(nats) as client:
                with suppress(ScopeExists):
                    await client.scopes.create(SCOPE)
                for name in (EVENTS, TRANSACTIONS):
                    await asking.create_stream(client, name, segments=2)
                with suppress(TableExists):
                    await client.tables.create(TABLE, TableConfig(secondary_key_size=None))
                async with asyncio.TaskGroup() as group:
                    group.create_task(create_streams(client, asking))
                    group.create_task(write_events(client, asking))
                    group.create_task(commit_transactions(client, asking))
                    group.create_task(update_table(client, asking))
        except (AnabranchError, OSError, ExceptionGroup):
            await SystemClock().sleep(RETRY_S)


def main() -> None:
    parser = argparse.ArgumentParser(prog="kit.powerloss.workload")
    parser.add_argument("--nats", required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    asyncio.run(run(options.nats, LedgerWriter(options.ledger)))


if __name__ == "__main__":
    main()
