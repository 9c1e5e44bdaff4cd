"""A group whose last reader died: who waits for a checkpoint takes its place as a witness."""

from anabranch.client import GroupReaderSettings, GroupStream, ReaderGroupConfig
from anabranch.common.model.reader_group import LEASE_MS_MIN
from kit.client_bench import READER, STREAM, bench

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
