"""Every position around the blocks of a segment, at every door by which a program can give one.

The oracle: behind the last event of a block is the next block; where no event can ever lie there is
no position.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from anabranch.client import (
    Event,
    GroupReaderSettings,
    GroupStream,
    InvalidPosition,
    Position,
    ReaderGroupConfig,
    SegmentPosition,
)
from anabranch.client.admin.operations import send
from anabranch.common.contracts.reader_groups import CreateReaderGroup
from anabranch.common.model.names import segment_id
from anabranch.common.wire.block import parse_header
from kit.client_bench import READER, STREAM, Bench, bench, writer_settings
from kit.large import LARGE_FROM, small_parts

FIRST, SECOND = f"{STREAM}/0.#epoch.0", f"{STREAM}/1.#epoch.0"
GROUP = "plant/readers"
SETTINGS = writer_settings(large_events=True)
FAST = GroupReaderSettings(READER, save_interval_s=0.01)
BLOCKS: Sequence[Sequence[bytes]] = (
    [b"1"], [b"2", b"3", b"4"], [b"x" * (LARGE_FROM + 1)], [b"5", b"6"],
)  # fmt: skip


@pytest.fixture(autouse=True)
def parts() -> Iterator[None]:
    with small_parts():
        yield


@dataclass(frozen=True, slots=True)
class Place:
    """A position, where it is in its simplest form, and what lies behind it; None: it is none."""

    given: Position
    simple: Position | None
    events: tuple[bytes, ...] = ()


def places(data: bytes) -> list[Place]:
    """All positions of a segment: at, within and behind every block, and around its end."""
    events = [list(block) for block in BLOCKS]
    found: list[Place] = []
    at = number = 0
    while at < len(data):
        header = parse_header(data, at)
        count, behind = header.event_count, at + header.size
        rest = [event for block in events[number + (count > 0) :] for event in block]
        for index in range(count):
            left = (*events[number][index:], *rest)
            found.append(Place(Position(at, index), Position(at, index), left))
        if count == 0:
            found.append(Place(Position(at), Position(at), tuple(rest)))
        else:
            found.append(Place(Position(at, count), Position(behind), tuple(rest)))
        found += [Place(Position(at, count + 1), None), Place(Position(at, 1 << 40), None)]
        found += [Place(Position(at + 1), None), Place(Position(behind - 1, 1), None)]
        at, number = behind, number + (count > 0)
    assert number == len(BLOCKS)
    end = len(data)
    found.append(Place(Position(end), Position(end)))
    found += [Place(at, None) for at in (Position(end, 1), Position(end + 1), Position(-1, 1))]
    return found


@asynccontextmanager
async def filled() -> AsyncIterator[tuple[Bench, list[Place]]]:
    """A stream of two segments, of which the first has these blocks and the second one event."""
    async with bench(2) as b:
        for block in BLOCKS:
            async with b.client.writer(STREAM, SETTINGS) as writer:
                writer.write_batch(block, ["low"] * len(block))
        first, second = b.store.segments[FIRST], b.store.segments[SECOND]
        if not first.data:  # the key is one of the other half
            first.data, second.data = second.data, first.data
            first.boundaries, second.boundaries = second.boundaries, first.boundaries
        assert not second.data
        yield b, places(bytes(first.data))


async def taken(reader: AsyncIterator[Event], count: int) -> tuple[bytes, ...]:
    return tuple([(await anext(reader)).payload for _ in range(count)])


async def test_a_reader_starts_at_every_position_that_is_one_and_refuses_the_others() -> None:
    async with filled() as (b, all_places):
        for place in all_places:
            start = {FIRST: place.given, SECOND: Position(0)}
            if place.simple is None:
                reader = b.client.reader(STREAM, start, settings=READER)
                with pytest.raises(InvalidPosition):
                    await anext(reader)
                await reader.close()
                continue
            async with b.client.reader(STREAM, start, until_tail=True) as reader:
                assert tuple([event.payload async for event in reader]) == place.events, place


async def test_a_group_is_created_and_reset_at_the_positions_that_are_ones_alone() -> None:
    async with filled() as (b, all_places):
        groups = b.client.reader_groups
        await groups.create(GROUP, streams=[STREAM])
        for number, place in enumerate(all_places):
            start = {FIRST: place.given, SECOND: Position(0)}
            first = SegmentPosition(segment_id(0, 0), *place.given)
            stream = GroupStream(STREAM, start=(first, SegmentPosition(segment_id(0, 1), 0)))
            generation = (await groups.describe(GROUP)).generation
            if place.simple is None:
                with pytest.raises(InvalidPosition):
                    await groups.reset(GROUP, start=start)
                with pytest.raises(InvalidPosition):
                    await groups.create(f"{GROUP}-{number}", ReaderGroupConfig((stream,)))
                assert (await groups.describe(GROUP)).generation == generation
                continue
            await groups.reset(GROUP, start=start)
            await groups.create(f"{GROUP}-{number}", ReaderGroupConfig((stream,)))
            for name in (GROUP, f"{GROUP}-{number}"):
                (made,) = (await groups.describe(name)).config.streams
                assert Position(made.start[0].offset, made.start[0].event_index) == place.simple


async def test_a_reader_is_put_offline_at_the_positions_that_are_ones_and_others_go_on_there() -> (
    None
):
    async with filled() as (b, all_places):
        await b.client.reader_groups.create(GROUP, streams=[STREAM])
        for place in all_places:
            await b.client.reader_groups.reset(GROUP)
            group = b.client.reader_group(GROUP)
            async with group.reader("one", FAST):
                while not (await group.readers())["one"]:
                    pass
                if place.simple is None:
                    with pytest.raises(InvalidPosition):
                        await group.reader_offline("one", {FIRST: place.given})
                    continue
                await group.reader_offline(
                    "one", {FIRST: place.given, "none/s/0.#epoch.0": Position(0, 9)}
                )
                assert (await group.positions())[FIRST] == place.simple
            async with group.reader("two", FAST) as reader:
                assert await taken(reader, len(place.events)) == place.events


async def test_ranges_begin_and_end_with_the_block_that_a_position_stands_for() -> None:
    async with filled() as (b, all_places):
        batch = b.client.batch
        for place in all_places:
            cut = {FIRST: place.given, SECOND: Position(0)}
            if place.simple is None:
                if place.given.event_index:
                    with pytest.raises(InvalidPosition):
                        await batch.segment_ranges(STREAM, cut)
                    with pytest.raises(InvalidPosition):
                        await batch.next_stream_cut(STREAM, cut, 1)
                continue
            behind = [each.start for each in await batch.segment_ranges(STREAM, cut)]
            before = [each.end for each in await batch.segment_ranges(STREAM, None, cut)]
            end = len(b.store.segments[FIRST].data)
            assert behind == ([place.simple.offset] if place.simple.offset < end else [])
            assert before == ([place.simple.offset] if place.simple.offset else [])


async def stored(b: Bench, position: Position) -> None:
    """A group that begins there, as another client could have made it."""
    first = SegmentPosition(segment_id(0, 0), *position)
    stream = GroupStream(STREAM, start=(first, SegmentPosition(segment_id(0, 1), 0)))
    await send(
        b.control,
        lambda command_id: CreateReaderGroup(
            command_id=command_id, scope="plant", group="readers",
            config=ReaderGroupConfig((stream,)),
        ),
    )  # fmt: skip


async def test_a_position_that_is_none_and_was_stored_stops_its_segment_alone_until_a_reset() -> (
    None
):
    async with filled() as (b, all_places):
        second = b.store.segments[SECOND]
        second.data += b.store.segments[FIRST].data
        second.boundaries += b.store.segments[FIRST].boundaries
        bad = [each.given for each in all_places if each.simple is None and each.given.offset >= 0]
        events = tuple(event for block in BLOCKS for event in block)
        for given in bad[::3]:
            await stored(b, given)
            group = b.client.reader_group(GROUP)
            for name in ("one", "two"):
                async with group.reader(name, FAST) as reader:
                    seen: list[bytes] = []
                    refused: list[InvalidPosition] = []
                    while len(seen) < len(events) or not refused:
                        try:
                            seen += await taken(reader, 1)
                        except InvalidPosition as error:
                            refused.append(error)
                        if name == "two" and refused:
                            break
                told = [each.fields["segment"] for each in refused]
                assert told == [FIRST], given
                assert tuple(seen) == events[: len(seen)]
            assert len((await group.status()).segments) == 2
            await b.client.reader_groups.reset(GROUP, start={FIRST: (0, 0), SECOND: (0, 0)})
            async with group.reader("three", FAST) as reader:
                assert sorted(await taken(reader, 2 * len(events))) == sorted(2 * events)
            await group.close()
            await b.client.reader_groups.delete(GROUP)


async def test_a_position_behind_its_block_that_was_stored_is_read_as_the_next_block() -> None:
    async with filled() as (b, all_places):
        for place in all_places:
            if place.simple in (None, place.given):
                continue
            await stored(b, place.given)
            group = b.client.reader_group(GROUP)
            async with group.reader("one", FAST) as reader:
                assert await taken(reader, len(place.events)) == place.events
            await group.close()
            await b.client.reader_groups.delete(GROUP)


async def test_a_reader_that_acknowledges_by_asking_may_also_acknowledge_by_index() -> None:
    async with filled() as (b, _):
        await b.client.reader_groups.create(GROUP, streams=[STREAM])
        group = b.client.reader_group(GROUP)
        async with group.reader("one", FAST) as reader:
            batch = await reader.next_batch()
            assert batch is not None
            reader.ack({FIRST: Position(0, len(batch))})
            assert reader.positions()[FIRST] == batch.next
            await reader.next_batch()
            await reader.next_batch()
            with pytest.raises(InvalidPosition):
                reader.ack({FIRST: Position(reader.positions()[FIRST].offset + 1)})
