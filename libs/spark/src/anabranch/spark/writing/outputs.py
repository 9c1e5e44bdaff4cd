"""Where a task writes its rows: a part of the batch's transaction, the stream itself, or a topic.

A task begins nothing before its first row. `PartOutput` finds or creates the transaction of the
batch's key and draws a new part, so that no two attempts ever share one. The client pings the
transaction until the output is closed.
"""

from typing import TYPE_CHECKING, Protocol

from anabranch.client.client import Client
from anabranch.client.settings import TransactionSettings, WriterSettings
from anabranch.client.topics.producer import TopicProducer
from anabranch.client.transactions.part import TransactionPart
from anabranch.client.transactions.transaction import Transaction
from anabranch.client.writer import EventWriter
from anabranch.common.errors import BufferFull, VersionPassed
from anabranch.common.model.names import StreamRef
from anabranch.spark.options.write import WriteOptions
from anabranch.spark.writing.columns import EVENT, KEY, TIME
from anabranch.spark.writing.reports import PartWritten, SinkKey, TaskReport
from anabranch.spark.writing.schema import Written
from anabranch.spark.writing.streams import creating

if TYPE_CHECKING:
    import pyarrow as pa

WRITER_LABEL = "spark"
WRITER_SETTINGS = WriterSettings(large_events=True)
EVENT_BYTES_MAX = WRITER_SETTINGS.buffer_size_bytes // 2


class Output(Protocol):
    """A task's output; `close` after all else, also after an error."""

    async def take(self, rows: "pa.RecordBatch") -> None:
        """Take a slice of rows; waits for room. Raises the writer's failure."""

    async def finish(self) -> TaskReport:
        """Wait until all rows are durable. Raises the writer's failure if they are not."""

    async def close(self) -> None:
        """Stop; rows that are not durable are dropped."""


class PartOutput:
    """Writes a new part of the transaction of `key`."""

    def __init__(self, client: Client, options: WriteOptions, key: SinkKey, has: Written) -> None:
        self._client = client
        self._options = options
        self._key = key
        self._has = has
        self._transaction: Transaction | None = None
        self._part: TransactionPart | None = None

    async def open(self) -> None:
        """Find or create the transaction, and add a part, unless the version was committed before.

        Raises VersionPassed for a query that is behind its application, and as
        `Transactions.begin`.
        """
        key, transactions = self._key, self._client.transactions(self._options.stream)
        settings = TransactionSettings(lease_ms=self._options.lease_ms, writer=WRITER_LABEL)

        async def begin() -> Transaction:
            return await transactions.begin(
                settings,
                key=(key.application, key.version),
                parts=True,
                writer_settings=WRITER_SETTINGS,
            )

        try:
            found = await creating(self._client, self._options, begin)
        except VersionPassed:
            committed = await committed_version(self._client, self._options.stream, key)
            if committed is None or committed < key.version:
                raise
            if committed > key.version and self._options.is_query and self._options.application:
                raise _behind(key, committed) from None
            return
        self._transaction = found
        if not found.is_done:
            self._part = await found.part().__aenter__()

    async def take(self, rows: "pa.RecordBatch") -> None:
        """See `Output`. Drops the rows if the version was committed before."""
        if self._part is not None:
            await put(self._part, rows, self._has)

    async def finish(self) -> TaskReport:
        """See `Output`."""
        if self._part is None:
            return TaskReport(self._key)
        report = await self._part.report()
        lengths = tuple((each.segment_id, each.length) for each in report.lengths)
        part = PartWritten(self._part.transaction_id, report.part, lengths)
        return TaskReport(self._key, part, report.event_count)

    async def close(self) -> None:
        """See `Output`: the transaction stays open for the driver."""
        if self._part is not None:
            await self._part.close()
        if self._transaction is not None:
            await self._transaction.close()


class DirectOutput:
    """Writes to the stream or the topic itself; a task that runs again repeats its events."""

    def __init__(self, writer: EventWriter | TopicProducer, has: Written) -> None:
        self._writer = writer
        self._has = has
        self._events = 0

    async def take(self, rows: "pa.RecordBatch") -> None:
        """See `Output`."""
        self._events += rows.num_rows
        await put(self._writer, rows, self._has)

    async def finish(self) -> TaskReport:
        """See `Output`."""
        await self._writer.flush()
        return TaskReport(events=self._events)

    async def close(self) -> None:
        """See `Output`."""
        await self._writer.close()


async def open_output(
    client: Client, options: WriteOptions, key: SinkKey | None, has: Written
) -> Output:
    """The output of a task that has rows. Raises as the client's begin and writers."""
    if options.exactly_once:
        assert key is not None
        part = PartOutput(client, options, key, has)
        await part.open()
        return part

    async def begin() -> EventWriter | TopicProducer:
        if isinstance(options.target, StreamRef):
            return await client.writer(options.target, WRITER_SETTINGS).__aenter__()
        return await client.topics.producer(options.target).__aenter__()

    return DirectOutput(await creating(client, options, begin), has)


async def put(
    writer: TransactionPart | EventWriter | TopicProducer, rows: "pa.RecordBatch", has: Written
) -> None:
    """Write the rows as columns, as soon as the writer's buffer has room."""
    while True:
        try:
            writer.write_arrow(
                rows,
                event=EVENT,
                key=KEY if has.routing_key else None,
                timestamp_ms=TIME if has.event_time else None,
            )
        except BufferFull:
            await writer.drain()
        else:
            return


async def is_committed(client: Client, stream: StreamRef, key: SinkKey) -> bool:
    """Whether the key's version, or a later one, is committed."""
    committed = await committed_version(client, stream, key)
    return committed is not None and committed >= key.version


async def committed_version(client: Client, stream: StreamRef, key: SinkKey) -> int | None:
    """The highest committed version of the key's application; None: it has none."""
    return (await client.transactions(stream).application(key.application)).committed_version


def _behind(key: SinkKey, committed: int) -> VersionPassed:
    """The number of a batch does not tell whether another checkpoint's events are in it."""
    return VersionPassed(
        f"batch {key.version} of the query lies before batch {committed}, which the application "
        "has committed; the query has probably another checkpoint than the earlier one",
        remedy="continue the earlier checkpoint, or give the query another application",
        application=key.application, version=key.version, committed=committed,
    )  # fmt: skip
