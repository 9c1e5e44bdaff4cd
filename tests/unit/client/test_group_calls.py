"""Calls of a reader group that are under way at the same time."""

import asyncio

import pytest

from anabranch.client import Position
from anabranch.client.groups.access import GroupAccess, GroupSynchronizer
from anabranch.common.errors import Closed
from kit.client_bench import STREAM, bench

GROUP = "plant/readers"


async def test_first_calls_at_once_both_answer_and_the_slower_one_closes_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[GroupSynchronizer] = []
    open_log = GroupAccess.open_log

    async def noted(access: GroupAccess) -> GroupSynchronizer:
        opened.append(await open_log(access))
        return opened[-1]

    monkeypatch.setattr(GroupAccess, "open_log", noted)
    async with bench(2) as b:
        await b.client.reader_groups.create(GROUP, streams=[STREAM])
        group = b.client.reader_group(GROUP)

        async with asyncio.TaskGroup() as tasks:
            readers = tasks.create_task(group.readers())
            positions = tasks.create_task(group.positions())

        assert readers.result() == {}
        assert positions.result() == {f"{STREAM}/{n}.#epoch.0": Position(0) for n in range(2)}
        faster, slower = opened
        await faster.fetch()
        with pytest.raises(Closed):
            await slower.fetch()
        assert await group.readers() == {}
        await group.close()
        with pytest.raises(Closed):
            await faster.fetch()
