"""W18: as W6, but the reader at the tail is one of a reader group.

What differs is what a group costs each event: the lease is looked at, and what was processed is
saved. The stream has one segment, as in W6.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from anabranch.client import Client, GroupStream, ReaderGroupConfig
from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.systems.anabranch import Anabranch, AnabranchStream
from bench.systems.port import Label, System
from bench.workloads.w6_tail import Tailing

GROUP = "bench/w18"


class GroupTail:
    name = "W18"
    event_bytes: tuple[int, ...] = (1_024,)

    def __init__(self, settings: str) -> None:
        self._settings = settings

    def suits(self, label: Label) -> bool:
        return label.system == "anabranch" and label.settings == self._settings

    async def measure(
        self, system: System, case: Case, effort: Effort, clock: Stopwatch, *, warm_up: bool
    ) -> Sample:
        assert isinstance(system, Anabranch), "nobody else has reader groups"
        async with system.stream(case) as stream:
            await stream.append(case.events[0])

            @asynccontextmanager
            async def tail() -> AsyncIterator[AsyncIterator[Sequence[bytes]]]:
                async with group_at_tail(system.client, stream) as batches:
                    yield batches

            seconds = effort.warm_up_s if warm_up else effort.tail_s
            return await Tailing(system, case, clock).measure(stream, tail, seconds)


@asynccontextmanager
async def group_at_tail(
    client: Client, stream: AnabranchStream
) -> AsyncIterator[AsyncIterator[Sequence[bytes]]]:
    """What one reader of a fresh group gets, which stands at the end."""
    config = ReaderGroupConfig((GroupStream(stream.name),))
    await client.reader_groups.create(GROUP, config, start="tail")
    async with client.reader_group(GROUP).reader("only") as reader:
        yield (batch.payloads async for batch in reader.batches())
    await client.reader_groups.delete(GROUP)
