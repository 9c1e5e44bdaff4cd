"""Readers of groups that the gateway holds for clients that come and go."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from anabranch.common.errors import (
    InvalidRequest,
    Overloaded,
    ReaderInUse,
    ReaderNotFound,
    ReaderRemoved,
    Unavailable,
)
from anabranch.common.runtime.ids import SeededIds
from anabranch.gateway.events.delivery import Delivered, Token, parse_token
from anabranch.gateway.events.held_reader import Feed, FeedEnd, FeedTimes
from anabranch.gateway.events.held_readers import HeldReaderLimits, HeldReaders
from kit.fake_group import FakeGroup
from kit.virtual_time import VirtualClock, run_virtual

GROUP = "shop/workers"
LIMITS = HeldReaderLimits(
    readers_max=2,
    unacknowledged_events_max=4,
    unacknowledged_size_bytes_max=1 << 20,
    grace_s=10.0,
    open_timeout_s=5.0,
    times=FeedTimes(heartbeat_s=10.0, ack_wait_s=30.0),
)


@dataclass
class World:
    """`readers` hold readers of `group`; set `stopping` to stop the gateway."""

    clock: VirtualClock
    group: FakeGroup
    readers: HeldReaders
    stopping: list[bool] = field(default_factory=list)

    async def connect(self, reader_id: str | None = "r", said: str | None = None) -> Feed:
        token = None if said is None else parse_token(said)
        return (await self.readers.connect(GROUP, reader_id, token))[0]


def world(test: Callable[[World], Awaitable[None]], limits: HeldReaderLimits = LIMITS) -> None:
    """Run the test in virtual time."""

    async def perform() -> None:
        clock, group, stopping = VirtualClock(asyncio.get_running_loop()), FakeGroup(), list[bool]()
        readers = HeldReaders(
            group.reader,
            clock=clock,
            ids=SeededIds(1),
            limits=limits,
            stopping=lambda: bool(stopping),
        )
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(readers.serve())
            await test(World(clock, group, readers, stopping))
            serving.cancel()

    run_virtual(perform())


async def taken(feed: Feed) -> list[bytes]:
    """The payloads of what is sent next."""
    found = await feed.next()
    assert isinstance(found, list)
    return [each.event.payload for each in found]


async def last(feed: Feed) -> Delivered:
    found = await feed.next()
    assert isinstance(found, list)
    return found[-1]


def token(feed: Feed, number: int) -> str:
    return feed.held.delivery.token(number)


def test_a_client_that_comes_back_acknowledges_by_its_last_id_and_gets_the_rest_again() -> None:
    async def test(w: World) -> None:
        w.group.write("a", [b"1", b"2"], [b"3"])
        first = await w.connect()
        assert await taken(first) == [b"1", b"2"]
        assert await taken(first) == [b"3"]
        first.close()
        second = await w.connect(None, token(first, 2))
        assert second.held is first.held
        assert w.group.processed == {"a": (100, 0)}
        assert await taken(second) == [b"3"]

    world(test)


def test_a_client_that_comes_back_without_an_id_gets_all_that_is_unacknowledged_again() -> None:
    async def test(w: World) -> None:
        w.group.write("a", [b"1", b"2"])
        first = await w.connect()
        await taken(first)
        first.close()
        assert await taken(await w.connect()) == [b"1", b"2"]
        assert w.group.processed == {}

    world(test)


def test_a_reader_leaves_when_its_client_is_away_too_long_and_the_rest_goes_to_others() -> None:
    async def test(w: World) -> None:
        w.group.write("a", [b"1", b"2"])
        first = await w.connect()
        await taken(first)
        w.readers.acknowledge(GROUP, "r", parse_token(token(first, 1)))
        first.close()
        await w.clock.sleep(9.0)
        assert list(w.group.online) == ["r"]
        await w.clock.sleep(2.0)
        assert list(w.group.online) == []
        late = await w.connect(None, token(first, 2))
        assert late.held is not first.held
        assert await taken(late) == [b"2"]

    world(test)


def test_acknowledgements_while_it_goes_on_make_room_for_more() -> None:
    async def test(w: World) -> None:
        w.group.write("a", [b"1", b"2", b"3"], [b"4", b"5", b"6"])
        feed = await w.connect()
        assert await taken(feed) + await taken(feed) == [b"1", b"2", b"3", b"4"]
        async with asyncio.TaskGroup() as tasks:
            more = tasks.create_task(taken(feed))
            await w.clock.sleep(1.0)
            assert not more.done()
            w.readers.acknowledge(GROUP, "r", parse_token(token(feed, 1)))
            assert await more == [b"5"]

    world(test)


def test_a_client_that_acknowledges_nothing_is_sent_away_so_that_it_does_by_coming_back() -> None:
    async def test(w: World) -> None:
        w.group.write("a", [b"%d" % n for n in range(6)])
        feed = await w.connect()
        sent = await last(feed)
        assert sent.number == 4
        assert [await feed.next() for _ in range(3)] == [[], [], FeedEnd("acknowledge")]
        feed.close()
        assert await taken(await w.connect(None, token(feed, 4))) == [b"4", b"5"]

    world(test)


def test_an_idle_feed_shows_signs_of_life_and_does_not_end_while_all_is_acknowledged() -> None:
    async def test(w: World) -> None:
        feed = await w.connect()
        assert [await feed.next() for _ in range(10)] == [[]] * 10
        w.group.write("a", [b"1"])
        assert await taken(feed) == [b"1"]

    world(test)


def test_the_end_of_the_group_is_told_once_everything_is_acknowledged() -> None:
    async def test(w: World) -> None:
        w.group.write("a", [b"1"])
        w.group.end()
        feed = await w.connect()
        await taken(feed)
        assert await feed.next() == []
        feed.held.acknowledge(1)
        assert await feed.next() == FeedEnd("end")

    world(test)


def test_a_reader_that_is_connected_is_only_taken_over_by_who_knows_its_last_event() -> None:
    async def test(w: World) -> None:
        w.group.write("a", [b"1"])
        first = await w.connect()
        await taken(first)
        with pytest.raises(ReaderInUse):
            await w.connect()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(first.next())
            await w.clock.sleep(0.1)
            second = await w.connect(None, token(first, 1))
            w.group.write("a", [b"2"])
            assert await waiting == FeedEnd("replaced")
        first.close()
        assert await taken(second) == [b"2"]
        await w.clock.sleep(20.0)
        assert list(w.group.online) == ["r"]

    world(test)


def test_a_client_that_is_back_before_its_last_connection_is_gone_waits_for_that() -> None:
    async def test(w: World) -> None:
        first = await w.connect()
        async with asyncio.TaskGroup() as tasks:
            back = tasks.create_task(w.connect())
            await w.clock.sleep(1.0)
            assert not back.done()
            first.close()
            assert (await back).held is first.held

    world(test)


def test_the_reader_that_is_parked_for_longest_makes_room_and_nobody_else_does() -> None:
    async def test(w: World) -> None:
        first = await w.connect("one")
        await w.connect("two")
        with pytest.raises(Overloaded):
            await w.connect("three")
        first.close()
        await w.connect("three")
        assert list(w.group.online) == ["two", "three"]

    world(test)


def test_tokens_of_other_readers_and_of_events_never_sent_are_refused() -> None:
    async def test(w: World) -> None:
        feed = await w.connect("one")
        with pytest.raises(InvalidRequest):
            await w.connect("two", token(feed, 0))
        with pytest.raises(InvalidRequest):
            await w.connect("one", token(feed, 5))
        with pytest.raises(ReaderNotFound):
            w.readers.acknowledge(GROUP, "two", parse_token(token(feed, 0)))
        with pytest.raises(ReaderNotFound):
            w.readers.acknowledge(GROUP, "one", Token("0" * 32, 0))

    world(test)


def test_a_reader_that_fails_is_told_and_one_that_cannot_join_in_time_is_given_up() -> None:
    async def test(w: World) -> None:
        feed = await w.connect()
        w.group.online["r"].failure = ReaderRemoved("put offline")
        with pytest.raises(ReaderRemoved):
            await feed.next()
        await w.readers.drop(feed.held)
        assert len(w.readers) == 0
        w.group.is_away = True
        with pytest.raises(Unavailable):
            await w.connect()

    world(test)


def test_a_gateway_that_stops_ends_its_feeds_and_its_readers_leave() -> None:
    async def test(w: World) -> None:
        w.group.write("a", [b"1"])
        feed = await w.connect()
        await taken(feed)
        w.stopping.append(True)
        assert await feed.next() == FeedEnd("stopping")
        await w.readers.end(2.0)
        assert (len(w.readers), w.group.online) == (0, {})

    world(test)


def test_a_reader_can_leave_at_once_and_say_what_it_processed() -> None:
    async def test(w: World) -> None:
        w.group.write("a", [b"1", b"2"])
        feed = await w.connect()
        await taken(feed)
        assert await w.readers.end_reader(GROUP, "r", parse_token(token(feed, 1)))
        assert (w.group.online, w.group.processed) == ({}, {"a": (0, 1)})
        assert not await w.readers.end_reader(GROUP, "r", None)

    world(test)
