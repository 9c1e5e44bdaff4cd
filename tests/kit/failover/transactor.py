"""``python -m kit.failover.transactor``: commits transactions until standard input ends.

An error ends a transaction, and its outcome stays open: the ledger says so, and the caller goes on
with the next one. The process ends with 0.
"""

import argparse
import asyncio
import sys
from pathlib import Path

import structlog

from anabranch.client import Client, EventWriter, TransactionSettings, connect
from anabranch.client.settings import WriterSettings
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import SystemClock
from kit.chaos.writer import end_of_input
from kit.failover.transactions import EVENTS, LedgerWriter, event_of, key_of

LEASE_MS = 20_000
RETRY_S = 60.0
PAUSE_S = 0.05


def ledger_path(directory: Path, caller: int) -> Path:
    """Where a caller's ledger lies."""
    return directory / f"transactions-{caller}"


async def commit_one(writer: EventWriter, caller: int, number: int) -> None:
    """Begin, write, and commit; returns when readers see the events."""
    settings = TransactionSettings(lease_ms=LEASE_MS, commit_timeout_s=RETRY_S, short=False)
    async with writer.transaction(settings) as transaction:
        for index in range(EVENTS):
            transaction.write(event_of(caller, number, index), key_of(caller, index))


async def transact(
    client: Client, stream: str, caller: int, ledger: LedgerWriter, stopping: asyncio.Event
) -> None:
    """Commit transactions until told to stop; a writer that failed is replaced."""
    clock = SystemClock()
    number = 0
    while not stopping.is_set():
        try:
            async with client.writer(stream, WriterSettings(retry_timeout_s=RETRY_S)) as writer:
                while not stopping.is_set():
                    ledger.note("try", number)
                    begun_s = clock.monotonic()
                    await commit_one(writer, caller, number)
                    ledger.note("ack", number, begun_s, clock.monotonic())
                    number += 1
                    await clock.sleep(PAUSE_S)
        except AnabranchError as error:
            sys.stderr.write(f"transaction {number}: {error}\n")
            ledger.note("gone", number)
            number += 1


async def run(options: argparse.Namespace) -> None:
    """All callers of this process."""
    stopping = asyncio.Event()
    ledgers = {each: LedgerWriter(ledger_path(options.ledgers, each)) for each in options.write}
    try:
        async with connect(options.nats) as client, asyncio.TaskGroup() as group:
            group.create_task(end_of_input(stopping))
            for caller, ledger in ledgers.items():
                group.create_task(transact(client, options.stream, caller, ledger, stopping))
    finally:
        for ledger in ledgers.values():
            ledger.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="kit.failover.transactor")
    parser.add_argument("--nats", required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--ledgers", type=Path, required=True, help="a directory")
    parser.add_argument("--write", type=int, nargs="+", required=True, help="numbers of callers")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
