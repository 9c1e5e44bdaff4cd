"""The sources about the cluster, as its controllers describe it to a client.

The first query decides whether the cluster answers at all; without an answer the other sources are
not asked, so that one missing cluster is one failure.
"""

import asyncio
from contextlib import AsyncExitStack

from anabranch.cli.doctor.decisions.cluster import Members, Pending
from anabranch.cli.doctor.decisions.topics import Topics
from anabranch.cli.doctor.finding import CannotLook
from anabranch.cli.doctor.once import Once
from anabranch.cli.doctor.place import NO_CLUSTER, Place
from anabranch.cli.doctor.sources.causes import cause_of
from anabranch.client import Client, ContainerDescription, connect
from anabranch.common.contracts.membership import ClusterOverview
from anabranch.common.contracts.parked import ParkedDescription
from anabranch.common.contracts.queries import NodeDescription
from anabranch.common.contracts.spus import SpuDescription, SpuGroupDescription
from anabranch.common.contracts.topics import PartitionDescription, TopicDescription
from anabranch.common.errors import AnabranchError, NotFound, Unavailable
from anabranch.common.model.objects import PartitionResolution
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.bounded import for_each

CONNECT_S_MAX = 3.0
QUERY_S_MAX = 4.0
DIAL_S_MAX = 2.0
DIALLED_AT_ONCE_MAX = 16
PARKED_MAX = 200
TOPICS_MAX = 20_000
TROUBLED_TOPICS_MAX = 5
"""The topics whose partitions are asked for, because some are not online."""
NAME = "anabranch-doctor"


class ClusterView:
    """Each public attribute is a source."""

    def __init__(self, place: Place, clock: Clock, stack: AsyncExitStack) -> None:
        self._place = place
        self._clock = clock
        self._stack = stack
        self.client = Once(self._connect)
        self.overview = Once(self._overview)
        self.members = Once(self._members)
        self.containers = Once(self._containers)
        self.parked = Once(self._parked)
        self.work = Once(self._work)
        self.addresses = Once(self._addresses)
        self.spus = Once(self._spus)
        self.spu_groups = Once(self._spu_groups)
        self.topics = Once(self._topics)

    async def known_overview(self) -> ClusterOverview:
        """The overview, for checks other than the one that reports its failure."""
        try:
            return await self.overview()
        except (AnabranchError, TimeoutError) as error:
            why = NO_CLUSTER if self._place.absent else "the cluster does not answer"
            raise CannotLook(why) from error

    async def _connect(self) -> Client:
        if self._place.target is None:
            raise CannotLook("only this machine is looked at")
        client = await connect(self._place.target.address, name=NAME, timeout_s=CONNECT_S_MAX)
        self._stack.push_async_callback(client.close)
        return client

    async def _overview(self) -> ClusterOverview:
        try:
            return await (await self.client()).cluster.show(timeout_s=QUERY_S_MAX)
        except Unavailable as error:
            raise _explained(error, self._place) from error

    async def _answering(self) -> Client:
        await self.known_overview()
        return await self.client()

    async def _members(self) -> Members:
        client = await self._answering()
        controllers = [one async for one in client.controllers.list(timeout_s=QUERY_S_MAX)]
        stores = [one async for one in client.stores.list(timeout_s=QUERY_S_MAX)]
        return Members(tuple(controllers), tuple(stores))

    async def _containers(self) -> tuple[ContainerDescription, ...]:
        client = await self._answering()
        return tuple([one async for one in client.containers.list(timeout_s=QUERY_S_MAX)])

    async def _parked(self) -> tuple[ParkedDescription, ...]:
        client = await self._answering()
        found = []
        async for one in client.parked.list(timeout_s=QUERY_S_MAX):
            found.append(one)
            if len(found) >= PARKED_MAX:
                break
        return tuple(found)

    async def _work(self) -> Pending:
        client = await self._answering()
        page = await client.operations.work_page()
        return Pending(page.work, self._clock.now_ms(), more=bool(page.next_page_token))

    async def _spus(self) -> tuple[SpuDescription, ...]:
        client = await self._answering()
        return tuple([one async for one in client.spus.list()])

    async def _spu_groups(self) -> tuple[SpuGroupDescription, ...]:
        client = await self._answering()
        return tuple([one async for one in client.spu_groups.list()])

    async def _topics(self) -> Topics:
        client = await self._answering()
        found: list[TopicDescription] = []
        more = False
        async for one in client.topics.list(system=True):
            if len(found) == TOPICS_MAX:
                more = True
                break
            found.append(one)
        troubled: list[PartitionDescription] = []
        lacking = [one.topic for one in found if one.partitions_online < one.partition_count]
        for name in lacking[:TROUBLED_TOPICS_MAX]:
            troubled += await _not_online(client, name)
        return Topics(tuple(found), tuple(troubled), more)

    async def _addresses(self) -> dict[str, str]:
        """Address → why it takes no connection, for each live store."""
        stores = [one for one in (await self.members()).stores if one.live]
        if self._place.target is not None and self._place.target.context.http:
            raise CannotLook("clients of a gateway reach the stores through it")
        found: dict[str, str] = {}

        async def dial(store: NodeDescription) -> None:
            found[f"{store.host}:{store.port}"] = await _problem(store)

        await for_each(stores, DIALLED_AT_ONCE_MAX, dial)
        return found


async def _not_online(client: Client, topic: str) -> list[PartitionDescription]:
    try:
        found = await client.topics.partitions(topic)
    except NotFound:
        return []  # deleted meanwhile
    return [one for one in found if one.resolution is not PartitionResolution.ONLINE]


async def _problem(store: NodeDescription) -> str:
    """Why the store's data port takes no connection; empty if it does."""
    try:
        async with asyncio.timeout(DIAL_S_MAX):
            _, writer = await asyncio.open_connection(store.host, store.port)
    except TimeoutError:
        return "no answer in time"
    except OSError as error:
        return cause_of(error)
    writer.close()
    return ""


def _explained(error: Unavailable, place: Place) -> AnabranchError:
    """The error, with the reason that the data directory shows."""
    found = place.directory
    if place.data_dir is None or (found.published and found.held):
        return error
    path = str(place.data_dir.absolute())
    if found.published:
        return Unavailable(
            "the cluster in this data directory has ended without a clean stop",
            remedy="start it again with `anabranch up`",
            path=path,
        )
    if found.held:
        return Unavailable(
            "the cluster in this data directory is not ready yet, or a part of it does not start",
            remedy="look at the check `services-ready` and at logs/ in the directory",
            path=path,
        )
    return Unavailable(
        NO_CLUSTER,
        remedy="start it with `anabranch up`; `anabranch doctor --local` needs no cluster",
        path=path,
    )
