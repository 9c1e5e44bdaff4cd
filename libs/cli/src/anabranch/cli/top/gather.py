"""Asks the cluster for a snapshot: all parts at once, each within one deadline.

A part that fails or does not answer in time says so and keeps its last value; the others go on.
One refresh asks for the loads of at most `2 * limit` streams and for the lags of `GROUPS_ASKED_MAX`
groups (`rotation`), each `CONCURRENCY` at a time; the groups are few because a group's lag may read
a MiB of each of its segments. Only busy streams are asked for the lengths of their segments.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from anabranch.cli.top import lines
from anabranch.cli.top.flow import Flow, Growth
from anabranch.cli.top.listing import Listing
from anabranch.cli.top.rotation import Rotation
from anabranch.cli.top.snapshot import (
    GroupLine,
    Groups,
    Members,
    Part,
    Snapshot,
    StreamLine,
    Streams,
    Topics,
    Work,
)
from anabranch.cli.top.topics import ask_topics
from anabranch.client import Client, NotFound, Retry, ScalingType, StreamDescription
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.bounded import for_each

CONCURRENCY = 4
GROUPS_ASKED_MAX = 8
WORK_MAX = 200
PARKED_MAX = 50
SHARE_FOR_LOADS = 0.8
"""Of the deadline; loads that come later are shown after the next refresh."""

T = TypeVar("T")


class Gatherer:
    """Takes snapshots one after the other; remembers the last answer of each part.

    `limit`: the most streams and groups of a snapshot.
    """

    def __init__(
        self, client: Client, address: str, *, clock: Clock, limit: int, deadline_s: float
    ) -> None:
        self._client = client
        self._clock = clock
        self._limit = limit
        self._deadline_s = deadline_s
        self._last = Snapshot(clock.now_ms(), address)
        self._listing = Listing(client)
        self._stream_rotation = Rotation()
        self._group_rotation = Rotation()
        self._flow = Flow()
        self._loads: dict[str, StreamLine] = {}
        self._groups: dict[str, GroupLine] = {}

    @property
    def last(self) -> Snapshot:
        """The last snapshot; at first an empty one."""
        return self._last

    async def snapshot(self) -> Snapshot:
        """The cluster now. Raises nothing of the cluster's: see `Part.trouble`."""
        began, last = self._clock.monotonic(), self._last
        async with asyncio.TaskGroup() as tasks:
            listed = tasks.create_task(self._listed())
            members = tasks.create_task(self._part(last.members, self._ask_members))
            topics = tasks.create_task(self._part(last.topics, self._ask_topics))
            work = tasks.create_task(self._part(last.work, self._ask_work))
        streams, groups = listed.result()
        self._last = replace(
            last,
            at_ms=self._clock.now_ms(),
            took_ms=(self._clock.monotonic() - began) * 1000,
            streams=streams,
            groups=groups,
            topics=topics.result(),
            members=members.result(),
            work=work.result(),
        )
        return self._last

    async def _listed(self) -> tuple[Part[Streams], Part[Groups]]:
        """Streams and groups, which need the listing first."""
        last, ends_at = self._last, self._ends_at(SHARE_FOR_LOADS)
        unlisted: Part[bool] = Part()
        listing = await self._part(unlisted, self._ask_listing)
        if listing.trouble:
            return last.streams.failed(listing.trouble), last.groups.failed(listing.trouble)
        async with asyncio.TaskGroup() as tasks:
            streams = tasks.create_task(self._part(last.streams, lambda: self._loaded(ends_at)))
            groups = tasks.create_task(self._part(last.groups, lambda: self._lagging(ends_at)))
        return streams.result(), groups.result()

    async def _ask_listing(self) -> bool:
        await self._listing.refresh()
        return True

    async def _part(self, last: Part[T], ask: Callable[[], Awaitable[T]]) -> Part[T]:
        try:
            async with asyncio.timeout(self._deadline_s):
                return Part(await ask(), self._clock.now_ms())
        except TimeoutError:
            return last.failed(f"no answer within {self._deadline_s:g} s")
        except AnabranchError as error:
            return last.failed(str(error))

    def _ends_at(self, share: float) -> float:
        return asyncio.get_running_loop().time() + share * self._deadline_s

    # --- streams --------------------------------------------------------------------------

    async def _loaded(self, ends_at: float) -> Streams:
        described = {f"{one.scope}/{one.stream}": one for one in self._listing.streams()}
        asked = self._stream_rotation.chosen(described, 2 * self._limit)
        late = await _late(ends_at, asked, lambda name: self._ask_load(name, described[name]))
        found = [self._stream_line(name, one) for name, one in described.items()]
        self._loads = {name: line for name, line in self._loads.items() if name in described}
        self._flow.keep(described)
        busiest = sorted(found, key=lines.load_order)[: self._limit]
        return Streams(busiest, len(found), self._listing.is_whole, late)

    def _stream_line(self, name: str, described: StreamDescription) -> StreamLine:
        line, load = lines.stream_line(described), self._loads.get(name)
        if load is None:
            return line
        return replace(
            line,
            events_per_s=load.events_per_s,
            bytes_per_s=load.bytes_per_s,
            over_s=load.over_s,
            scaling=load.scaling or line.scaling,
            doing=line.doing or load.doing,
        )

    async def _ask_load(self, name: str, described: StreamDescription) -> None:
        streams = self._client.streams
        try:
            rates = await streams.segment_rates(name, timeout_s=self._deadline_s)
            line = lines.with_rates(lines.stream_line(described), rates)
            config = described.config
            if config is not None and config.scaling.type is not ScalingType.FIXED:
                explained = await streams.explain(name, timeout_s=self._deadline_s)
                line = replace(line, scaling=lines.scaling(explained))
            self._loads[name] = line  # should the stores not answer in time
            if line.bytes_per_s:
                self._loads[name] = line = lines.with_growth(line, await self._growth(name))
        except NotFound:
            return  # deleted meanwhile
        except Retry:
            raise  # the cluster does not answer, so no other stream would
        except AnabranchError as error:
            line = replace(lines.stream_line(described), doing=f"unknown load: {error}")
            self._loads[name] = line
        self._stream_rotation.answered(name, line.events_per_s or 0.0)

    async def _growth(self, name: str) -> Growth | None:
        """Since the last refresh; None if it is not known."""
        try:
            cut = await self._client.streams.tail_cut(name)
        except Retry:
            return None  # a store does not answer
        lengths = {segment.segment_id: segment.offset for segment in cut.segments}
        return self._flow.growth(name, self._clock.monotonic(), lengths)

    # --- groups ---------------------------------------------------------------------------

    async def _lagging(self, ends_at: float) -> Groups:
        names = list(self._listing.groups())
        self._groups = {name: self._groups.get(name, lines.unasked(name)) for name in names}
        asked = self._group_rotation.chosen(names, GROUPS_ASKED_MAX)
        late = await _late(ends_at, asked, self._ask_lag)
        worst = sorted(self._groups.values(), key=lines.lag_order)[: self._limit]
        return Groups(worst, len(names), self._listing.is_whole, late)

    async def _ask_lag(self, name: str) -> None:
        group = self._client.reader_group(name)
        try:
            line = lines.group_line(await group.status())
        except NotFound:
            return  # deleted meanwhile
        except AnabranchError as error:
            line = GroupLine(name, str(error))
        finally:
            await group.close()
        self._groups[name] = line
        self._group_rotation.answered(name, float(line.bytes or 0))

    # --- topics ---------------------------------------------------------------------------

    async def _ask_topics(self) -> Topics:
        return await ask_topics(self._client, self._limit)

    # --- members and work -----------------------------------------------------------------

    async def _ask_members(self) -> Members:
        client, timeout_s = self._client, self._deadline_s
        overview = await client.cluster.show(timeout_s=timeout_s)
        controllers = [one async for one in client.controllers.list(timeout_s=timeout_s)]
        stores = [one async for one in client.stores.list(timeout_s=timeout_s)]
        containers = [one async for one in client.containers.list(timeout_s=timeout_s)]
        return lines.members(overview, controllers, stores, containers)

    async def _ask_work(self) -> Work:
        page = await self._client.operations.work_page(page_size=WORK_MAX)
        parked = []
        async for one in self._client.parked.list(timeout_s=self._deadline_s):
            parked.append(one)
            if len(parked) == PARKED_MAX:
                break
        found = lines.work(page.work, parked)
        is_whole = not page.next_page_token and len(parked) < PARKED_MAX
        return Work(found[: self._limit], len(found), is_whole)


async def _late(ends_at: float, names: list[str], ask: Callable[[str], Awaitable[None]]) -> int:
    """Ask for each name; returns how many did not answer in time. Raises the first error."""
    answered = 0

    async def count(name: str) -> None:
        nonlocal answered
        await ask(name)
        answered += 1

    try:
        async with asyncio.timeout_at(ends_at):
            await for_each(names, CONCURRENCY, count)
    except TimeoutError:
        return len(names) - answered
    return 0
