"""The simulated bus keeps the rules of the real one, and its mishaps are those of a network."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from anabranch.common.adapters.jetstream_events import JetStreamEventStore
from anabranch.common.errors import (
    OutcomeUnknown,
    StreamRewound,
    Unavailable,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.ports import Append, NewMessage
from kit.rng import seeded
from kit.simbus import SimClient, SimServer, sim_event_store, simulated_readers
from kit.simlink import Blow, Link, Weather
from kit.simqueue import ACK_WAIT_S, SimQueue
from kit.virtual_time import VirtualClock, run_virtual

SUBJECT = "ana.evt.3.scope.s"
T = TypeVar("T")


class Bus:
    """A server, and a client of it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.server = SimServer(seeded(1), self.counts)
        self.link = Link(seeded(2), self.counts)
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.store = self.connect(self.link)

    def connect(self, link: Link) -> JetStreamEventStore:
        return sim_event_store(SimClient(self.server, link, seeded(3)), self.clock)


def run(act: Callable[[Bus], Awaitable[T]]) -> T:
    async def main() -> T:
        return await act(Bus())

    with simulated_readers():
        return run_virtual(main())


def message(append_id: str, revision: int = 1) -> NewMessage:
    return NewMessage(revision, append_id, "events", 1, 0, b"[]")


BATCH = [Append(SUBJECT, 0, message("first")), Append(SUBJECT + "2", 0, message("second"))]


def test_an_append_that_was_stored_and_not_answered_is_found_by_its_id() -> None:
    async def act(bus: Bus) -> int:
        bus.link.blow = Blow(1, "after", bus.link.pause)

        async def hear_again() -> None:
            await bus.clock.sleep(7)  # the answer comes when nobody waits for it any more
            bus.link.resume()

        async with asyncio.TaskGroup() as group:
            group.create_task(hear_again())
            found = group.create_task(bus.store.append(SUBJECT, 0, message("mine")))
        return found.result()

    assert run(act) == 1


def test_an_append_that_came_too_late_is_stored_or_refused_never_repeated() -> None:
    async def act(bus: Bus) -> list[str]:
        bus.link.weather = Weather(late=1.0)
        with pytest.raises(OutcomeUnknown):
            await bus.store.append(SUBJECT, 0, message("late"))
        bus.link.weather = Weather()
        await bus.store.append(SUBJECT, 0, message("other"))
        await bus.clock.sleep(60)
        return [one.append_id for one in await bus.store.load(SUBJECT)]

    assert run(act) == ["other"]


def test_a_batch_that_was_stored_and_not_answered_is_found_on_each_of_its_subjects() -> None:
    async def act(bus: Bus) -> list[int]:
        bus.link.blow = Blow(1, "after", bus.link.pause)

        async def hear_again() -> None:
            await bus.clock.sleep(7)
            bus.link.resume()

        async with asyncio.TaskGroup() as group:
            group.create_task(hear_again())
            found = group.create_task(bus.store.append_all(BATCH))
        return list(found.result())

    assert run(act) == [1, 2]


def test_a_batch_that_came_too_late_is_refused_as_a_whole_once_one_subject_has_moved() -> None:
    async def act(bus: Bus) -> list[str]:
        bus.link.weather = Weather(late=1.0)
        with pytest.raises(OutcomeUnknown):
            await bus.store.append_all(BATCH)
        bus.link.weather = Weather()
        await bus.store.append(SUBJECT + "2", 0, message("other"))
        await bus.clock.sleep(60)
        return [m.append_id async for m in bus.store.scan(3, "ana.evt.3.>")]

    assert run(act) == ["other"]


def test_a_server_that_is_away_answers_nobody_and_has_everything_when_it_is_back() -> None:
    async def act(bus: Bus) -> int:
        await bus.store.append(SUBJECT, 0, message("first"))
        bus.server.stop()
        with pytest.raises(Unavailable):
            await bus.store.last_sequence(3)
        bus.server.start()
        with pytest.raises(WrongExpectedSequence):
            await bus.store.append(SUBJECT, 0, message("second"))
        return await bus.store.last_sequence(3)

    assert run(act) == 1


def test_a_follower_goes_on_after_a_restart_and_gets_everything_once() -> None:
    async def act(bus: Bus) -> list[int]:
        seen: list[int] = []

        async def follow() -> None:
            async for one in bus.store.follow(3, 0):
                seen.append(one.sequence)  # noqa: PERF401  it is cancelled

        async with asyncio.TaskGroup() as group:
            following = group.create_task(follow())
            for revision in range(1, 7):
                await bus.store.append(SUBJECT, revision - 1, message("x", revision))
                if revision % 2 == 0:
                    bus.server.stop()
                    bus.server.start()
            await bus.clock.sleep(1)
            following.cancel()
        return seen

    assert run(act) == [1, 2, 3, 4, 5, 6]


def test_a_follower_that_has_seen_what_the_server_lost_says_so() -> None:
    async def act(bus: Bus) -> None:
        await bus.store.append(SUBJECT, 0, message("kept"))
        await bus.store.append(SUBJECT, 1, message("lost", 2))
        async with asyncio.timeout(60):
            async for one in bus.store.follow(3, 0):
                if one.sequence == 2:
                    bus.server.stop()
                    bus.server.lose_last(3, 1)
                    bus.server.start()

    with pytest.raises(StreamRewound):
        run(act)


def test_a_bucket_gives_out_one_command_at_a_time_and_again_what_is_not_acknowledged() -> None:
    async def act(bus: Bus) -> list[tuple[bytes, int]]:
        queue: SimQueue = bus.server.queue
        queue.put(1, b"first")
        queue.put(1, b"second")
        first, delivery = await queue.take(lambda: True)
        given = [(first.body, delivery)]
        again, delivery = await queue.take(lambda: True)
        given.append((again.body, delivery))
        assert bus.clock.monotonic() >= ACK_WAIT_S
        queue.ack(again, delivery)
        second, delivery = await queue.take(lambda: True)
        return [*given, (second.body, delivery)]

    assert run(act) == [(b"first", 1), (b"first", 2), (b"second", 1)]


def test_what_a_dead_process_had_sent_arrives_and_nothing_else_of_it() -> None:
    async def act(bus: Bus) -> int:
        async def send() -> None:
            await bus.store.append(SUBJECT, 0, message("sent"))

        async with asyncio.TaskGroup() as group:
            task = group.create_task(send())

            def die() -> None:
                bus.link.cut()
                task.cancel()

            bus.link.blow = Blow(1, "after", die)
        with pytest.raises(Unavailable):
            await bus.store.last_sequence(3)
        other = bus.connect(Link(seeded(4), bus.counts))
        return await other.last_sequence(3)

    assert run(act) == 1
