"""Writes the demo's events: one transaction per day, while the stream is scaled.

A day's rows become readable together when its transaction commits. The next day begins at once; its
transaction commits later, so its rows come later. For some days, the demo first writes a draft and
aborts it, as a source that corrects itself would, and then writes the day again.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import groupby, islice
from typing import NamedTuple

from anabranch.cli.demo.check import Days
from anabranch.cli.demo.source import Row
from anabranch.client import EventWriter, Transaction, TransactionSettings
from anabranch.common.errors import BufferFull, TransactionEnded
from anabranch.common.model.transaction import TransactionState

BATCH_SIZE = 500
SETTINGS = TransactionSettings(writer="demo", commit_timeout_s=120.0)
DRAFT = b"draft "
"""The first bytes of a draft's rows, so that a check would notice them."""


class Day(NamedTuple):
    """The rows of one day, in the source's order."""

    date: str
    rows: list[Row]


def days(rows: Iterable[Row]) -> Iterator[Day]:
    """The rows by day."""
    for date, of_day in groupby(rows, key=lambda row: row.date):
        yield Day(date, list(of_day))


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """The rows in lists of at most `BATCH_SIZE`."""
    remaining = iter(rows)
    while batch := list(islice(remaining, BATCH_SIZE)):
        yield batch


class DayWriter:
    """Owns the transactions of all days, committed and aborted.

    Of `draft_every` days, one is first written as a draft.
    """

    def __init__(self, writer: EventWriter, draft_every: int) -> None:
        self._writer = writer
        self._draft_every = draft_every
        self._last: Transaction | None = None
        self.days = Days()

    @asynccontextmanager
    async def day(self, day: Day) -> AsyncIterator[Transaction]:
        """The transaction in which to write the day's rows; leaving the block commits it."""
        if self.days.count % self._draft_every == self._draft_every - 1:
            await self._draft(day)
        async with self._writer.transaction(SETTINGS) as transaction:
            yield transaction
            await transaction.commit(wait=False)
        self.days.add(len(day.rows))
        if transaction.state is not TransactionState.COMMITTED:
            self._last = transaction

    async def finish(self) -> None:
        """Wait until all days can be read; commits are performed in the order of the requests."""
        if self._last is not None:
            found = await self._last.wait(SETTINGS.commit_timeout_s)
            if found.state is not TransactionState.COMMITTED:
                raise TransactionEnded("the last day is not readable yet", state=found.state.value)

    async def _draft(self, day: Day) -> None:
        async with self._writer.transaction(SETTINGS) as transaction:
            for row in day.rows[: len(day.rows) // 2]:
                await write_one(transaction, row._replace(event=DRAFT + row.event))
            await transaction.flush()
            await transaction.abort()
        self.days.aborted += 1


async def write_one(transaction: Transaction, row: Row) -> None:
    """Write one event, waiting while the buffer is full."""
    while True:
        try:
            transaction.write(row.event, row.key, row.timestamp_ms)
        except BufferFull:
            await transaction.drain()
        else:
            return
