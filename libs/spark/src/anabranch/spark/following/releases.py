"""Lets the reader group of a query release the events that the query has processed.

    subscribe ──► the group exists, and holds back retention from the query's start on
    release(offset of a finished batch) ──► retention may delete events before it

The release waits only until the controller accepts it: a lost one is made up for by the next.
"""

from collections.abc import Mapping

from anabranch.client.admin.operations import send
from anabranch.client.client import Client
from anabranch.common.contracts.reader_groups import UpdateSubscriberCut
from anabranch.common.errors import (
    CutRefused,
    InvalidRequest,
    ReaderGroupExists,
    ReaderGroupNotFound,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.model.reader_group import (
    GroupRef,
    GroupRetention,
    GroupStream,
    ReaderGroupConfig,
)
from anabranch.common.runtime.logger import get_logger
from anabranch.spark.following.cuts import of_each
from anabranch.spark.following.offsets import Offset, Point

_log = get_logger(__name__)


async def subscribe(client: Client, group: GroupRef, start: Offset) -> int:
    """The generation of the group; creates it at `start` if it does not exist.

    Raises InvalidRequest for a group that does not release by cut, or reads other streams;
    ScopeNotFound.
    """
    name = str(group)
    try:
        found = await client.reader_groups.describe(name)
    except ReaderGroupNotFound:
        streams = tuple(GroupStream(str(each), start[each].cut) for each in start)
        config = ReaderGroupConfig(streams, retention=GroupRetention.MANUAL)
        try:
            await client.reader_groups.create(name, config)
        except ReaderGroupExists:
            _log.info("another process has created the reader group", group=name)
        found = await client.reader_groups.describe(name)
    _check(found.config, group, start)
    return found.generation


def _check(config: ReaderGroupConfig, group: GroupRef, offset: Offset) -> None:
    if config.retention is not GroupRetention.MANUAL:
        raise InvalidRequest(
            "the reader group does not release by cut",
            remedy="name a group whose retention is manual, or one that the query may create",
            group=str(group), retention=config.retention.value,
        )  # fmt: skip
    missing = {str(stream) for stream in offset} - {each.stream for each in config.streams}
    if missing:
        raise InvalidRequest(
            "the reader group does not read a stream of the query",
            remedy="name another group, which the query may create",
            group=str(group), stream=min(missing),
        )  # fmt: skip


async def release(
    client: Client,
    group: GroupRef,
    generation: int,
    offset: Offset,
    released: Mapping[StreamRef, Point],
) -> None:
    """Release everything before `offset`, except where it is `released` already.

    A query that goes back to an earlier checkpoint releases nothing new. Raises GenerationMismatch
    (the group was reset), SubscriberNotFound, StreamNotFound, Retry errors.
    """

    async def update(stream: StreamRef) -> None:
        try:
            await send(
                client.control_plane,
                lambda command_id: UpdateSubscriberCut(
                    command_id=command_id,
                    scope=stream.scope,
                    stream=stream.stream,
                    subscriber=str(group),
                    generation=generation,
                    cut=offset[stream].cut,
                ),
                wait=False,
            )
        except CutRefused:
            _log.info("the group has released more before", group=str(group), stream=str(stream))

    await of_each([each for each in offset if released.get(each) != offset[each]], update)
