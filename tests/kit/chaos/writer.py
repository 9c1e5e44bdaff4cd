"""``python -m kit.chaos.writer``: writers that go on, whatever dies, until standard input ends.

Each has its own event writer and its own ledger. It ends with 0 when everything that it wrote is
acknowledged; a writer that fails ends the process with 1, and says why.
"""

import argparse
import asyncio
import sys
from pathlib import Path

import structlog

from anabranch.client import Client, connect
from anabranch.client.settings import WriterSettings
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import SystemClock
from kit.chaos.ledger import LedgerFile, event_of, key_of

RETRY_S = 120.0
BATCH_SIZES = (1, 7, 30, 90)


def ledger_path(directory: Path, writer: int) -> Path:
    """Where a writer's ledger lies."""
    return directory / f"ledger-{writer}"


async def write(
    client: Client,
    options: argparse.Namespace,
    writer: int,
    ledger: LedgerFile,
    stopping: asyncio.Event,
) -> None:
    """Write batches; note each before it is sent, and after it is acknowledged."""
    clock = SystemClock()
    last, batch = -1, 0
    settings = WriterSettings(retry_timeout_s=options.retry_s, block_size_bytes=16 * 1024)
    async with client.writer(options.stream, settings) as events:
        while not stopping.is_set():
            first, last = last + 1, last + BATCH_SIZES[batch % len(BATCH_SIZES)]
            ledger.tried(last)
            begun_s = clock.monotonic()
            for number in range(first, last + 1):
                events.write(event_of(writer, number), key_of(writer, number))
            await events.flush()
            ledger.acknowledged(last, begun_s, clock.monotonic())
            batch += 1
            if options.pause_s:
                await clock.sleep(options.pause_s)


async def end_of_input(stopping: asyncio.Event) -> None:
    """Set the event when standard input is closed, by its owner or by its owner's death."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    stopping.set()


async def run(options: argparse.Namespace) -> None:
    """All writers of this process."""
    stopping = asyncio.Event()
    ledgers = {number: LedgerFile(ledger_path(options.ledgers, number)) for number in options.write}
    try:
        async with connect(options.nats) as client, asyncio.TaskGroup() as group:
            group.create_task(end_of_input(stopping))
            for number, ledger in ledgers.items():
                group.create_task(write(client, options, number, ledger, stopping))
    finally:
        for ledger in ledgers.values():
            ledger.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="kit.chaos.writer")
    parser.add_argument("--nats", required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--retry-s", type=float, default=RETRY_S, help="without any progress")
    parser.add_argument("--pause-s", type=float, default=0.0, help="between two batches")
    parser.add_argument("--ledgers", type=Path, required=True, help="a directory")
    parser.add_argument("--write", type=int, nargs="+", required=True, help="numbers of writers")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    try:
        asyncio.run(run(parser.parse_args()))
    except (AnabranchError, BaseExceptionGroup) as error:
        causes = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
        sys.stderr.write("".join(f"{cause!r}\n" for cause in causes))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
