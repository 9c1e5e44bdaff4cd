"""Stores the events of requests through open writers."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from anabranch.client import EventWriter, Transaction
from anabranch.client.transactions.part import PartReport, TransactionPart
from anabranch.common.errors import AnabranchError
from anabranch.common.workflow.containment import as_defect, naming_defects, tell_defect
from anabranch.gateway.bounds.changes import Change, Changes, Idempotency, Outcome, Performing
from anabranch.gateway.events.bodies import EventsBody
from anabranch.gateway.events.destinations import Writer
from anabranch.gateway.events.writers import OpenWriters

T = TypeVar("T")
Storing = asyncio.Future[Outcome[PartReport | None]]

EVENT_COST_BYTES = 64
"""The estimated overhead of an event beside its bytes."""


class Appends:
    """See the module."""

    def __init__(self, writers: OpenWriters, changes: Changes) -> None:
        self._writers = writers
        self._changes = changes

    async def append(
        self, destination: str, body: EventsBody, idempotency: Idempotency | None = None
    ) -> PartReport | None:
        """Return when every event is durable; for a part of a transaction, with its writer's
        report.

        Raises the writer's errors, and as `Changes.perform`.
        """
        store = partial(self._store, destination, body)
        return await self._changes.perform(_change(destination, body, store), idempotency)

    async def transact(
        self, stream: str, body: EventsBody, idempotency: Idempotency | None = None
    ) -> None:
        """Store all events as one transaction of the stream; return when it is committed.

        Raises the errors of a transaction, and as `Changes.perform`.
        """
        store = partial(self._store_together, stream, body)
        await self._changes.perform(_change(stream, body, store), idempotency)

    def _store(self, destination: str, body: EventsBody) -> Performing[PartReport | None]:
        return self._store_now(destination, body) or self._store_when_open(destination, body)

    def _store_now(self, destination: str, body: EventsBody) -> Storing | None:
        """Give the events to the stream's writer in this turn of the loop, if it is open."""
        leased = self._writers.lease_now(destination)
        if leased is None:
            return None
        writer, release = leased
        if not isinstance(writer, EventWriter):
            release()
            return None
        outcome: Storing = asyncio.get_running_loop().create_future()

        def settle(acknowledged: asyncio.Future[None]) -> None:
            release()
            if outcome.done():
                return
            if acknowledged.cancelled():  # The gateway is stopping.
                outcome.cancel()
            else:
                outcome.set_result(_outcome_of(acknowledged))

        begun = False
        try:
            with naming_defects("storing events"):
                _write(writer, body)
                begun = True
                acknowledged = writer.acknowledgement()
                assert isinstance(acknowledged, asyncio.Future), "an open writer needs no task"
                acknowledged.add_done_callback(settle)
        except AnabranchError as error:
            release()
            tell_defect(error)
            outcome.set_result(Outcome(error, begun))
        return outcome

    async def _store_when_open(
        self, destination: str, body: EventsBody
    ) -> Outcome[PartReport | None]:
        begun = False
        try:
            with naming_defects("storing events"):
                async with self._writers.lease(destination) as writer:
                    _write(writer, body)
                    begun = True
                    await writer.flush()
                    if isinstance(writer, TransactionPart):
                        return Outcome(None, begun, await writer.report())
        except AnabranchError as error:
            tell_defect(error)
            return Outcome(error, begun)
        return Outcome(None, begun)

    async def _store_together(self, stream: str, body: EventsBody) -> Outcome[None]:
        transaction: Transaction[bytes | str] | None = None
        try:
            with naming_defects("storing events"):
                async with self._writers.lease(stream) as writer:
                    assert isinstance(writer, EventWriter)
                    async with writer.transaction() as transaction:
                        _write(transaction, body)
        except AnabranchError as error:
            tell_defect(error)
            may_be_stored = transaction is not None and (
                transaction.state is None or transaction.is_done
            )
            return Outcome(error, may_be_stored)
        return Outcome(None, begun=True)


def _change(place: str, body: EventsBody, store: Callable[[], Performing[T]]) -> Change[T]:
    size_bytes = body.size_bytes + EVENT_COST_BYTES * len(body.payloads)
    return Change("events", "stream", place, size_bytes, store)


def _outcome_of(acknowledged: asyncio.Future[None]) -> Outcome[PartReport | None]:
    error = acknowledged.exception()
    if error is not None and not isinstance(error, AnabranchError):
        error = as_defect("storing events", error)
        tell_defect(error)
    return Outcome(error, begun=True)


def _write(writer: Writer, body: EventsBody) -> None:
    if len(body.payloads) == 1:  # the most frequent request, and cheaper than a batch of one
        writer.write(body.payloads[0], None if body.keys is None else body.keys[0])
    elif body.keys is None:
        writer.write_batch(body.payloads)
    else:
        writer.write_batch(body.payloads, body.keys)
