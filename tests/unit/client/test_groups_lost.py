"""Readers that died: who waits for a checkpoint of the last one takes its place as a witness, and
who joins with the id of one waits for its end, but not for ever."""

import asyncio
from dataclasses import replace

import pytest

from anabranch.client import GroupReaderSettings, GroupStream, ReaderGroupConfig
from anabranch.client.groups.liveness import STALE_SHARE
from anabranch.client.groups.member import NAMESAKE_LEASES_MAX
from anabranch.client.groups.state import OnlineReader
from anabranch.common.errors import Unavailable
from anabranch.common.model.reader_group import LEASE_MS_MIN
from kit.client_bench import READER, STREAM, bench
from kit.group_desk import LEASE_S, Desk, two_segments
from kit.virtual_time import run_virtual

GROUP = "plant/readers"


async def test_a_checkpoint_does_not_wait_for_a_reader_that_died_alone() -> None:
    async with bench(2) as b:
        config = ReaderGroupConfig((GroupStream(STREAM),), lease_ms=LEASE_MS_MIN)
        await b.client.reader_groups.create(GROUP, config)
        group = b.client.reader_group(GROUP)
        reader = await group.reader("a", GroupReaderSettings(READER)).__aenter__()
        for task in tuple(reader._tasks):
            task.cancel()

        checkpoint = await group.checkpoint(timeout_s=10)

        assert set(checkpoint.positions) == {f"{STREAM}/{n}.#epoch.0" for n in range(2)}
        assert await group.readers() == {}


def test_who_joins_waits_some_leases_for_an_earlier_reader_of_its_id_that_is_never_seen_gone() -> (
    None
):
    async def story() -> None:
        desk = Desk(replace(two_segments(), readers={"me": OnlineReader(nonce=8, beat=3)}))
        desk.log.fetch_s = (STALE_SHARE + 0.1) * LEASE_S  # what it knows is never fresh
        begun_s = desk.clock.monotonic()

        with pytest.raises(Unavailable) as caught:
            async with asyncio.timeout(3 * NAMESAKE_LEASES_MAX * LEASE_S):
                await desk.member.join()

        waited_leases = (desk.clock.monotonic() - begun_s) / LEASE_S
        assert NAMESAKE_LEASES_MAX < waited_leases < NAMESAKE_LEASES_MAX + 2
        assert caught.value.fields["reader"] == "me"
        assert desk.log.entries == [], "it accused nobody, and did not join"

    run_virtual(story())
