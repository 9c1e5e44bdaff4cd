"""Stores the events of requests through open writers."""

from functools import partial

from anabranch.client.transactions.part import PartReport, TransactionPart
from anabranch.common.errors import AnabranchError
from anabranch.common.workflow.containment import naming_defects, tell_defect
from anabranch.gateway.bounds.changes import Change, Changes, Idempotency, Outcome
from anabranch.gateway.events.bodies import EventsBody
from anabranch.gateway.events.destinations import Writer
from anabranch.gateway.events.writers import OpenWriters

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
        size_bytes = body.size_bytes + EVENT_COST_BYTES * len(body.payloads)
        store = partial(self._store, destination, body)
        change = Change("events", "stream", destination, size_bytes, store)
        return await self._changes.perform(change, idempotency)

    async def _store(self, destination: str, body: EventsBody) -> Outcome[PartReport | None]:
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


def _write(writer: Writer, body: EventsBody) -> None:
    if body.keys is None:
        writer.write_batch(body.payloads)
    else:
        writer.write_batch(body.payloads, body.keys)
