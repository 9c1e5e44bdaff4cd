"""Truncation under a reader, event pointers and the batch client, with real stores."""

from pathlib import Path

import pytest

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.client import (
    Client,
    EventNotFound,
    EventReader,
    EventsTruncated,
    NotAtBoundary,
    Position,
    StreamNotFound,
    WriterSettings,
    connect,
)
from anabranch.common.model.names import stream_ref
from kit.scaling_traffic import scale_to

STREAM = stream_ref("reading/numbers")
NAME = str(STREAM)
EPOCHS = (1, 3, 2)
PER_EPOCH = 60


async def write_epochs(client: Client) -> None:
    """Numbers as events and keys, in blocks of a few, in an epoch of each count of segments."""
    for number, count in enumerate(EPOCHS):
        if number:
            await scale_to(client, STREAM, count)
        async with client.writer(NAME, WriterSettings(block_size_bytes=100)) as writer:
            for event in range(number * PER_EPOCH, (number + 1) * PER_EPOCH):
                writer.write(str(event), f"key {event % 10}")


async def steps(client: Client) -> list[dict[str, Position]]:
    """Cuts from the head to the tail."""
    found: list[dict[str, Position]] = []
    cut: dict[str, Position] | None = None
    for _ in range(200):
        after = await client.batch.next_stream_cut(NAME, cut, 900)
        if after == cut:
            return found
        found.append(after)
        cut = after
    raise AssertionError("the cuts do not come to an end")


async def refused_truncations(client: Client, cuts: list[dict[str, Position]]) -> None:
    """Of a cut, one place at a time moves into an append; the others stay where they were."""
    for cut in cuts[1::5]:
        for segment, place in cut.items():
            bad = {**cut, segment: Position(place.offset - 1)}
            if place.offset > 0:
                with pytest.raises(NotAtBoundary):
                    await client.streams.truncate(NAME, bad)


async def behind_truncations(reader: EventReader) -> tuple[list[int], int]:
    """What comes to the end, and how often a truncation was told."""
    found: list[int] = []
    told = 0
    while True:
        try:
            event = await anext(reader, None)
        except EventsTruncated:
            told += 1
        else:
            if event is None:
                return found, told
            found.append(int(event.payload))


async def test_a_stream_is_read_in_steps_by_pointers_and_behind_its_truncation(
    tmp_path: Path,
) -> None:
    async with (
        embedded_cluster(UpSettings(tmp_path / "data")) as cluster,
        connect(cluster.nats) as client,
    ):
        await cluster.wait_ready()
        await client.scopes.create(STREAM.scope)
        await client.streams.create(NAME)
        await write_epochs(client)
        async with client.reader(NAME, until_tail=True) as reader:
            events = [event async for event in reader]
        assert sorted(int(event.payload) for event in events) == list(range(3 * PER_EPOCH))
        for event in events[::9]:
            assert await client.fetch(event.pointer) == event

        batch, cuts = client.batch, await steps(client)
        found: list[int] = []
        for start, end in zip([None, *cuts], cuts, strict=False):
            for each in await batch.segment_ranges(NAME, start, end):
                async for block in batch.read_range(each):
                    found += map(int, block.payloads)
        assert sorted(found) == list(range(3 * PER_EPOCH))
        assert await batch.distance(NAME, None, None) == sum(
            each.size for each in await batch.segment_ranges(NAME)
        )

        await refused_truncations(client, cuts)
        async with client.reader(NAME, until_tail=True) as reader:
            assert sorted([int(event.payload) async for event in reader]) == sorted(found)
        await client.streams.truncate(NAME, cuts[len(cuts) // 2])
        first = {events[0].segment: Position(0)}
        async with client.reader(NAME, first, until_tail=True) as reader:
            rest, told = await behind_truncations(reader)
        async with client.reader(NAME, until_tail=True) as reader:
            left = [int(event.payload) async for event in reader]
        assert told > 0
        assert 0 < len(left) < 3 * PER_EPOCH
        assert sorted(rest) == sorted(left)
        with pytest.raises(EventNotFound):
            await client.fetch(events[0].pointer)

        async with client.reader(NAME, "tail") as reader:
            await client.streams.seal(NAME)
            assert await reader.next_batch() is None
        async with client.reader(NAME, first) as reader:
            await client.streams.delete(NAME)
            with pytest.raises(StreamNotFound):
                await behind_truncations(reader)
