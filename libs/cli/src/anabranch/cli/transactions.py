"""Transactions, for commands.

Answers are fields; times are Unix milliseconds. This module never pings by itself: the lease of an
abandoned transaction expires.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anabranch.cli.admin import Fields
from anabranch.cli.sink import EventSink
from anabranch.client import (
    ApplicationDescription,
    Client,
    CommittedPart,
    TransactionInfo,
    TransactionPart,
    TransactionSettings,
    TransactionState,
)
from anabranch.client.wire.control import QUERY_TIMEOUT_S
from anabranch.common.model.transaction import LEASE_MS_DEFAULT

UNSAID = {"ok", "incarnation"}
"""Fields that only the client uses."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """`execution_ms_max` 0: the default limit. `key`: application and version."""

    lease_ms: int = LEASE_MS_DEFAULT
    execution_ms_max: int = 0
    writer: str = ""
    parts: bool = False
    key: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Committing:
    """`timestamp_ms`: noted for the writer `writer_id`, if given."""

    parts: Sequence[CommittedPart] = ()
    timestamp_ms: int | None = None
    writer_id: str | None = None


@dataclass(frozen=True, slots=True)
class Destination:
    """A transaction, or a part of it, as a destination of events."""

    stream: str
    transaction_id: str
    part: str | None = None


class TransactionSink(EventSink):
    """Takes events for one destination; leaving its context waits until all are durable in it."""

    async def lengths(self) -> Mapping[int, int]:
        """Of a part: the segments that were written to here, and up to where. Flushes."""
        if not isinstance(self._writer, TransactionPart):
            return {}
        report = await self._writer.report()
        return {each.segment_id: each.length for each in report.lengths}


class Transactions:
    """Transactions on an open client. Raises the client's errors.

    A transaction has the fields `transaction_id`, `state`, `stream_epoch`, `writer`, `opened_ms`,
    `ended_ms`, `age_ms`, `lease_ms`, `lease_left_ms`, `deadline_ms`, `has_parts`, `part_count`,
    `key` (`application`, `version`; None: none).
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def begin(self, stream: str, beginning: Beginning) -> Fields:
        settings = TransactionSettings(
            lease_ms=beginning.lease_ms,
            execution_ms_max=beginning.execution_ms_max,
            writer=beginning.writer,
            auto_ping=False,
        )
        begun = await self._client.transactions(stream).begin(
            settings, key=beginning.key, parts=beginning.parts
        )
        await begun.close()
        return _told(begun.info)

    async def listed(self, stream: str, state: TransactionState | None) -> AsyncIterator[Fields]:
        async for info in self._client.transactions(stream).list(state):
            yield _told(info)

    async def show(self, stream: str, transaction_id: str) -> Fields:
        return _told(await self._client.transactions(stream).describe(transaction_id))

    async def ping(self, stream: str, transaction_id: str, lease_ms: int | None) -> Fields:
        pinged = await self._client.transactions(stream).keep_alive(transaction_id, lease_ms)
        return pinged.model_dump(mode="json")

    async def commit(
        self, stream: str, transaction_id: str, committing: Committing, *, wait_s: float
    ) -> Fields:
        info = await self._client.transactions(stream).commit(
            transaction_id,
            parts=committing.parts,
            timestamp_ms=committing.timestamp_ms,
            writer_id=committing.writer_id,
            wait=wait_s > 0,
            timeout_s=max(wait_s, QUERY_TIMEOUT_S),
        )
        return _told(info)

    async def abort(self, stream: str, transaction_id: str) -> Fields:
        transactions = self._client.transactions(stream)
        return _told(await transactions.abort(transaction_id))

    @asynccontextmanager
    async def writer(self, destination: Destination) -> AsyncIterator[TransactionSink]:
        """Entered, it takes events for the destination. A part that does not exist is made."""
        settings = TransactionSettings(auto_ping=False)
        transactions = self._client.transactions(destination.stream)
        async with transactions.resume(destination.transaction_id, settings) as transaction:
            if destination.part is None:
                yield TransactionSink(transaction)
                return
            async with transaction.part(destination.part) as part:
                yield TransactionSink(part)

    async def application(self, stream: str, application: str) -> Fields:
        return _of(await self._client.transactions(stream).application(application))

    async def forget_application(self, stream: str, application: str) -> Fields:
        return _of(await self._client.transactions(stream).forget_application(application))


def _told(info: TransactionInfo) -> Fields:
    return info.model_dump(mode="json", exclude=UNSAID)


def _of(described: ApplicationDescription) -> Fields:
    return described.model_dump(mode="json", exclude=UNSAID)
