"""A part of a transaction: one task's events, in segments of their own.

The commit names the valid parts and the length of each. If a task left a part half written, or
wrote its events again under another id, the commit does not name that part and readers never see
it.
"""

from types import TracebackType
from typing import Self

from pydantic import Field

from anabranch.client.serializers import Serializer
from anabranch.client.transactions.fate import Fate
from anabranch.client.transactions.writer import TransactionWriter, Writing
from anabranch.client.writing.lane_writer import T
from anabranch.common.contracts.transactions import (
    AddTransactionPart,
    CommittedPart,
    PartLength,
    TransactionBegun,
)
from anabranch.common.errors import InvalidRequest, Remedy
from anabranch.common.model.names import parse_segment_name, transaction_segment
from anabranch.common.model.transaction import check_id


class PartReport(CommittedPart):
    """The contents of a part; pass it to `Transaction.commit`.

    It travels as JSON (`model_dump_json`, `PartReport.model_validate_json`), as a dict
    (`model_dump`, `PartReport.model_validate`), or pickled. `event_count` is the part writer's
    count.

    ::

        report = PartReport.model_validate_json(text)
        await client.transactions("plant/sensors").commit(transaction_id, parts=[report])
    """

    event_count: int = Field(default=0, ge=0)


class TransactionPart(TransactionWriter[T]):
    """Writes one part of a transaction: an async context manager, made by `Transaction.part`.

    Entering it creates the part, and leaving it normally flushes. If it is left by an exception, do
    not name it in a commit. Use a new `part_id` for every attempt: the events of two attempts in
    one part cannot be told apart. ::

        async with txn.part() as part:
            part.write(b"21.5", key="boiler")
        report = await part.report()
    """

    def __init__(
        self, part_id: str, fate: Fate, writing: Writing, serializer: Serializer[T] | None
    ) -> None:
        super().__init__(fate, writing, serializer)
        self.part_id = check_id(part_id)
        self._was_opened = False

    async def __aenter__(self) -> Self:
        """Raises TransactionEnded, TransactionNotFound, InvalidRequest (it has no parts, or too
        many), Unavailable. Idempotent: the same id is the same part."""
        calls = self._fate.calls
        query = AddTransactionPart(
            **calls.names, transaction_id=self.transaction_id, part=self.part_id
        )
        begun = await calls.ask("add_transaction_part", query, TransactionBegun)
        self._fate.learn(begun.transaction)
        await self._open_lanes(begun.segments)
        self._was_opened = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self.close()

    async def report(self) -> PartReport:
        """Flush, then report the durable length of the part in each of the stream's segments.

        Call it after the last write, inside the block or after it. Segments without events are not
        named. Raises the writer's failure if a write is not durable, InvalidRequest before the part
        was entered, Unavailable.

        ::

            report = await part.report()
            print(report.event_count)
        """
        if not self._was_opened:
            raise InvalidRequest(
                "the part was not created yet",
                remedy=Remedy(api="use it as `async with txn.part() as part`"),
            )
        await self.flush()
        lengths: list[PartLength] = []
        event_count = 0
        for appender in self._lanes.appenders:
            if not appender.outbox.acknowledged:
                continue
            event_count += appender.outbox.acknowledged
            length = appender.length
            if length is None:
                length = await self._length_of(appender.segment)
            lengths.append(PartLength(segment_id=_parent_id(appender.segment), length=length))
        lengths.sort(key=lambda each: each.segment_id)
        return PartReport(part=self.part_id, lengths=tuple(lengths), event_count=event_count)


def _parent_id(segment: str) -> int:
    found = transaction_segment(segment)
    assert found is not None
    return parse_segment_name(found.parent)[1]
