"""Calls of a reader group, cancelled at each of their suspensions: nothing is lost or repeated."""

import asyncio

import pytest

from anabranch.client import GroupReader, GroupReaderSettings, GroupStream, ReaderGroupConfig
from anabranch.client.groups.group import ReaderGroup
from anabranch.common.model.reader_group import LEASE_MS_MIN
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import READER, STREAM, Bench, bench

GROUP = "plant/readers"
EVENTS = [str(number).encode() for number in range(6)]
SETTINGS = GroupReaderSettings(READER, save_interval_s=0.05)
GIVEN_S = 0.3
"""Enough for a reader to hear that another one has left."""


async def _filled(b: Bench) -> None:
    config = ReaderGroupConfig((GroupStream(STREAM),), lease_ms=LEASE_MS_MIN)
    await b.client.reader_groups.create(GROUP, config)
    async with b.client.writer(STREAM) as writer:
        for number, event in enumerate(EVENTS):
            writer.write(event, f"key-{number}")


async def _taken(reader: GroupReader, count: int) -> list[bytes]:
    taken: list[bytes] = []
    async with asyncio.timeout(10):
        while len(taken) < count:
            taken.append((await anext(reader)).payload)
    return taken


async def _shared_evenly(group: ReaderGroup) -> None:
    """Once each reader has one segment."""
    for _ in range(1000):
        if {len(has) for has in (await group.readers()).values()} == {1}:
            return
        await asyncio.sleep(0.01)
    pytest.fail("the readers do not share")


async def test_a_reader_whose_calls_are_cancelled_anywhere_reads_every_event_once() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with bench(2) as b:
            await _filled(b)
            group = b.client.reader_group(GROUP)
            reader = group.reader("a", SETTINGS)
            taken: list[bytes] = []
            if await cancelling.run(reader.__aenter__()) is not None:
                while len(taken) < 3:
                    event = await cancelling.run(reader.__anext__())
                    taken += [] if event is None else [event.payload]
                await cancelling.run(reader.__aexit__(None, None, None))
            await reader.close()
            async with group.reader("b", SETTINGS) as other:
                taken += await _taken(other, len(EVENTS) - len(taken))
            assert sorted(taken) == EVENTS
            stands = {name: at.offset for name, at in (await group.positions()).items()}
            assert stands == {name: len(b.store.segments[name].data) for name in stands}

    assert await everywhere(scenario) > 10


async def test_a_group_whose_calls_are_cancelled_anywhere_goes_on() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with bench(2) as b:
            await _filled(b)
            group = b.client.reader_group(GROUP)
            async with group.reader("a", SETTINGS) as reader:
                taken = await _taken(reader, len(EVENTS))
                async with asyncio.TaskGroup() as tasks:
                    asking = tasks.create_task(reader.__anext__())
                    await cancelling.run(group.checkpoint())
                    await cancelling.run(group.stream_cuts())
                    await cancelling.run(group.readers())
                    await cancelling.run(group.cancel_checkpoints())
                    await group.cancel_checkpoints()
                    at = await group.checkpoint("last")
                    asking.cancel()
            assert sorted(taken) == EVENTS
            assert at.positions == await group.positions()
            await cancelling.run(group.close())

    assert await everywhere(scenario) > 10


async def test_a_reader_that_is_given_a_segment_while_it_closes_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench(2) as b:
        await _filled(b)
        group = b.client.reader_group(GROUP)
        reader, other = group.reader("a", SETTINGS), group.reader("b", SETTINGS)
        await reader.__aenter__()
        await other.__aenter__()
        await _shared_evenly(group)
        assert reader._parts is not None
        source = reader._parts.source
        close = source.close

        async def close_while_the_other_leaves() -> None:
            await close()
            await other.close()
            await asyncio.sleep(GIVEN_S)

        monkeypatch.setattr(source, "close", close_while_the_other_leaves)
        await reader.close()
        assert await group.readers() == {}
        async with group.reader("c", SETTINGS) as last:
            assert sorted(await _taken(last, len(EVENTS))) == EVENTS


async def test_administration_that_is_cancelled_anywhere_can_be_repeated() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with bench(2) as b:
            groups = b.client.reader_groups
            await cancelling.run(groups.create(GROUP, streams=[STREAM], command_id="create"))
            await groups.create(GROUP, streams=[STREAM], command_id="create")
            await cancelling.run(groups.reset(GROUP, command_id="reset"))
            await groups.reset(GROUP, command_id="reset")
            assert (await groups.describe(GROUP)).generation == 1
            await cancelling.run(b.client.reader_group(GROUP).status())
            await cancelling.run(groups.delete(GROUP, command_id="delete"))
            await groups.delete(GROUP, command_id="delete")
            assert [group async for group in groups.list("plant")] == []

    assert await everywhere(scenario) > 0
