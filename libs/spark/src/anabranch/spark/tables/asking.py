"""Asks a running cluster, or tier 2, for the rows of a table.

Each table is a function from (client, streams) to rows. Requests for segments and groups run a few
at a time. The rows of a table are some thousand at most per stream, and one task returns them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.client import connect
from anabranch.client.client import Client
from anabranch.common.contracts.stream_queries import SegmentRun
from anabranch.common.errors import (
    Corrupt,
    CorruptManifest,
    NotFound,
    ReaderGroupNotFound,
    SegmentNotFound,
    StreamNotFound,
    Unavailable,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.model.transaction import VERSION_MAX, TransactionState
from anabranch.common.runtime.nats_target import NatsTarget
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.workflow.bounded import answers
from anabranch.spark.options.streams import Matching, Named, Which
from anabranch.spark.places.opening import CLIENT_NAME, opened
from anabranch.spark.places.stores import StorePlace
from anabranch.spark.places.tier_two import TierTwoPlace
from anabranch.spark.tables import rows
from anabranch.spark.tables.options import TableOptions
from anabranch.spark.tables.rows import Row
from anabranch.spark.tables.stored import Stored, StoredStream, read_stored

AT_ONCE = 16
_ENDED = (TransactionState.COMMITTED, TransactionState.ABORTED)


def table_rows(options: TableOptions) -> list[Row]:
    """The rows of a table other than `blocks`.

    Raises StreamNotFound, ScopeNotFound, Unavailable, and from tier 2 Corrupt errors.
    """
    if isinstance(options.place, NatsTarget):
        return asyncio.run(cluster_rows(options.place, options))
    with opened(options.place) as (loop, streams):
        assert isinstance(streams, TierTwoPlace)
        return loop.run(tier_two_rows(streams.storage, options))


async def cluster_rows(target: NatsTarget, options: TableOptions) -> list[Row]:
    """The rows that the cluster returns."""
    async with connect(target, name=CLIENT_NAME) as client:
        asked = _Asked(client, options.which, await StorePlace(client).find(options.which))
        return await _OF_CLUSTER[options.table](asked)


@dataclass(frozen=True, slots=True)
class _Asked:
    client: Client
    which: Which
    streams: Sequence[StreamRef]

    @property
    def is_listed(self) -> bool:
        """Whether the streams were found in a list, so that one may have been deleted since."""
        return not isinstance(self.which, Named)

    async def of_streams(
        self, rows_of: Callable[[Client, StreamRef], Awaitable[Sequence[Row]]]
    ) -> list[Row]:
        """The rows of all streams, in order. Raises StreamNotFound for a stream that was named."""

        async def one(stream: StreamRef) -> Sequence[Row]:
            try:
                return await rows_of(self.client, stream)
            except StreamNotFound:
                if not self.is_listed:
                    raise
                return ()

        return [row for found in await answers(self.streams, AT_ONCE, one) for row in found]


async def _streams(asked: _Asked) -> list[Row]:
    async def of(client: Client, stream: StreamRef) -> Sequence[Row]:
        return [rows.stream_row(await client.streams.describe(str(stream)))]

    return await asked.of_streams(of)


async def _segments(asked: _Asked) -> list[Row]:
    return await asked.of_streams(_segment_rows)


async def _segment_rows(client: Client, stream: StreamRef) -> Sequence[Row]:
    ranges = client.ranges()

    async def one(run: SegmentRun) -> Row | None:
        told = await client.streams.describe_segment(str(stream), run.segment_id)
        try:
            info = await ranges.info(run.name)
        except SegmentNotFound:  # truncated since it was listed
            info = None
        return rows.segment_row(stream, run, told, info)

    found = await answers(await ranges.runs(stream), AT_ONCE, one)
    return [row for row in found if row is not None]


async def _epochs(asked: _Asked) -> list[Row]:
    async def of(client: Client, stream: StreamRef) -> Sequence[Row]:
        told = client.streams.scaling_events(str(stream), 0, VERSION_MAX)
        return [rows.epoch_row(stream, each) async for each in told]

    return await asked.of_streams(of)


async def _transactions(asked: _Asked) -> list[Row]:
    async def of(client: Client, stream: StreamRef) -> Sequence[Row]:
        found: dict[str, Row] = {}  # a later list shows a later state of the same one
        for state in (None, *_ENDED):
            async for each in client.transactions(stream).list(state):
                found[each.transaction_id] = rows.transaction_row(stream, each)
        return list(found.values())

    return await asked.of_streams(of)


async def _reader_groups(asked: _Asked) -> list[Row]:
    """The groups that read one of the streams; if all are asked for, all groups."""
    wanted = {str(stream) for stream in asked.streams}
    takes_all = isinstance(asked.which, Matching) and asked.which.pattern == ".*"
    names = [name async for name in _group_names(asked)]

    async def one(name: str) -> Row | None:
        group = asked.client.reader_group(name)
        try:
            told = await group.describe()
            if not takes_all and wanted.isdisjoint(each.stream for each in told.config.streams):
                return None
            return rows.group_row(told, await group.status())
        except ReaderGroupNotFound:  # deleted since it was listed
            return None
        except (NotFound, Unavailable):  # a stream of it is gone, or its segments do not answer
            return rows.group_row(told, None)

    return [row for row in await answers(names, AT_ONCE, one) if row is not None]


async def _group_names(asked: _Asked) -> AsyncIterator[str]:
    which, client = asked.which, asked.client
    if isinstance(which, Matching) and which.scope is not None:
        scopes: list[str] = [which.scope]
    else:
        scopes = sorted([name async for name in client.scopes.list()])
    for scope in scopes:
        async for name in client.reader_groups.list(scope):
            yield f"{scope}/{name}"


_OF_CLUSTER: Mapping[str, Callable[[_Asked], Awaitable[list[Row]]]] = {
    "streams": _streams,
    "segments": _segments,
    "epochs": _epochs,
    "transactions": _transactions,
    "reader_groups": _reader_groups,
}


async def tier_two_rows(storage: ChunkStorage, options: TableOptions) -> list[Row]:
    """The rows that tier 2 gives. Raises CorruptManifest for damage; an audit lists it."""
    stored = await read_stored(storage, options.which)
    _refuse_damage(stored)
    return [row for stream in stored.streams for row in _of_stored(options.table, stream)]


def _of_stored(table: str, stream: StoredStream) -> Sequence[Row]:
    match table:
        case "streams":
            return [rows.stored_stream_row(stream)]
        case "segments":
            return [rows.stored_segment_row(stream.told.ref, each) for each in stream.segments]
        case _:
            return list(rows.stored_epoch_rows(stream))


def _refuse_damage(stored: Stored) -> None:
    damage: list[Corrupt] = [
        CorruptManifest(each.text, stream=each.stream, segment=each.segment)
        for each in (*stored.lost, *(lost for one in stored.streams for lost in one.lost))
    ]
    if damage:
        raise damage[0]
