"""A log in a stream: its openings, its pipeline and its ends, on simulated servers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

import pytest

from anabranch.common.errors import CorruptJournal, Deposed, LogNotHere, Unavailable
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.jetstream_log.log import StreamLog
from anabranch.segstore.adapters.jetstream_log.view import CONFIRM_S_MAX, StreamView
from anabranch.segstore.adapters.jetstream_log.window import MESSAGES_MAX
from anabranch.segstore.domain.log.stream.messages import Kind
from anabranch.segstore.ports_stream import StreamFacts
from kit.log_driver import ScriptedSource, replay_of
from kit.rng import seeded
from kit.sim_stream import SimClient, SimRemote, SimServers, StreamFaults
from kit.stream_log import around_of
from kit.virtual_time import OrderedLoop, cancel_all

Run = Callable[[Coroutine[None, None, None]], None]


@pytest.fixture
def servers() -> SimServers:
    return SimServers(seeded(1))


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner(loop_factory=OrderedLoop) as runner:
        yield runner.run
        cancel_all(runner.get_loop())


def log_on(client: SimClient, number: int = 1) -> StreamLog:
    loop = asyncio.get_running_loop()
    return StreamLog(client, around_of(loop, loop.create_task), SeededIds(number))


async def opened(
    servers: SimServers, epoch: int = 1, *, number: int = 1, next_sequence: int = 1
) -> tuple[StreamLog, StreamView, ScriptedSource]:
    log = log_on(SimClient(servers), number)
    await log.create_log(0, "log-0")
    source = ScriptedSource(next_sequence=next_sequence)
    return log, await log.open_log(0, "log-0", epoch, source), source


async def settle(seconds: float = 0.5) -> None:
    await asyncio.sleep(seconds)


def test_a_log_whose_stream_holds_no_message_is_not_an_empty_log(
    servers: SimServers, run: Run
) -> None:
    async def test() -> None:
        servers.create("log-0")
        with pytest.raises(LogNotHere):
            await log_on(SimClient(servers)).open_log(0, "log-0", 1, ScriptedSource())

    run(test())


def test_a_stream_that_was_created_again_is_refused(servers: SimServers, run: Run) -> None:
    async def test() -> None:
        await opened(servers)
        servers.streams["log-0"].created += 1
        with pytest.raises(CorruptJournal):
            await log_on(SimClient(servers)).open_log(0, "log-0", 2, ScriptedSource())

    run(test())


def test_a_bounded_number_of_messages_is_in_flight(servers: SimServers, run: Run) -> None:
    async def test() -> None:
        _, view, source = await opened(servers)
        servers.faults = StreamFaults(lost=1.0)
        for _ in range(3 * MESSAGES_MAX):
            source.put(b"x")
        view.ready()
        await settle()
        assert len(source.taken) == MESSAGES_MAX

    run(test())


def test_an_answer_that_does_not_come_in_time_ends_the_view(servers: SimServers, run: Run) -> None:
    async def test() -> None:
        _, view, source = await opened(servers)
        servers.faults = StreamFaults(unanswered=1.0)
        source.put(b"x")
        view.ready()
        await settle(CONFIRM_S_MAX - 0.1)
        assert not source.failures
        await settle(0.2)
        assert [type(error) for error in source.failures] == [Unavailable]
        assert not source.journal_failures
        # the message was stored all the same, and counts for the next owner
        servers.faults = StreamFaults()
        _, view, _ = await opened(servers, 2)
        assert await replay_of(view) == {1: b"x"}

    run(test())


def test_messages_behind_a_dropped_one_are_never_confirmed(servers: SimServers, run: Run) -> None:
    async def test() -> None:
        _, view, source = await opened(servers)
        servers.faults = StreamFaults(apply_s_max=0.01)
        for number in range(4):
            source.put(b"%d" % number)
        view.ready()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        servers.streams["log-0"].proposed[1].doomed = True
        await settle(CONFIRM_S_MAX + 1)
        assert source.durable == {1: b"0"}
        assert [type(error) for error in source.failures] == [Unavailable]
        _, view, _ = await opened(servers, 2)
        assert await replay_of(view) == {1: b"0"}

    run(test())


def test_an_owner_that_was_replaced_ends_as_deposed(servers: SimServers, run: Run) -> None:
    async def test() -> None:
        _, older, source = await opened(servers)
        await opened(servers, 2, number=2)
        source.put(b"late")
        older.ready()
        await settle()
        assert [type(error) for error in source.failures] == [Deposed]
        assert source.durable == {}

    run(test())


def test_an_owner_that_keeps_writing_cannot_hold_a_newer_one_off(
    servers: SimServers, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = SimRemote.describe

    async def test() -> None:
        _, older, source = await opened(servers)

        async def described(self: SimRemote) -> StreamFacts | None:
            facts = await describe(self)
            source.put(b"in between")
            older.ready()
            await settle(0.01)
            return facts

        monkeypatch.setattr(SimRemote, "describe", described)
        _, newer, _ = await opened(servers, 2, number=2)
        assert await replay_of(newer) == source.durable
        assert len(source.durable) > 3

    run(test())


def test_an_opening_without_an_answer_is_found_and_not_sent_again(
    servers: SimServers, run: Run
) -> None:
    async def test() -> None:
        await opened(servers)
        servers.faults = StreamFaults(unanswered=1.0)
        log = log_on(SimClient(servers), 2)
        await log.open_log(0, "log-0", 2, ScriptedSource())
        kinds = [kind for kind, _ in servers.streams["log-0"].messages.values()]
        assert kinds == [Kind.OPENING] * 3

    run(test())


def test_an_opening_that_is_lost_is_given_up(servers: SimServers, run: Run) -> None:
    async def test() -> None:
        log, _, _ = await opened(servers)
        servers.faults = StreamFaults(lost=1.0)
        with pytest.raises(Unavailable):
            await log.open_log(0, "log-0", 2, ScriptedSource())

    run(test())


def test_a_purge_during_the_read_does_not_look_like_a_broken_chain(
    servers: SimServers, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SimRemote.read
    purges = 1

    async def test() -> None:
        _, older, source = await opened(servers)
        for number in range(9):
            source.put(b"%d" % number)
        older.ready()
        await settle()

        async def read_and_purge(
            self: SimRemote, first: int, last: int
        ) -> AsyncIterator[tuple[int, bytes]]:
            nonlocal purges
            count = 0
            async for place, data in read(self, first, last):
                yield place, data
                count += 1
                if count == 4 and purges:
                    purges -= 1
                    await older.release(6)

        monkeypatch.setattr(SimRemote, "read", read_and_purge)
        _, newer, _ = await opened(servers, 2, number=2)
        assert not purges
        assert list(await replay_of(newer, 6)) == [7, 8, 9]
        with pytest.raises(CorruptJournal):
            await replay_of(newer, 4)

    run(test())


def test_a_process_notices_that_its_stream_lost_what_it_confirmed(
    servers: SimServers, run: Run
) -> None:
    async def test() -> None:
        log, view, source = await opened(servers)
        for _ in range(3):
            source.put(b"x")
        view.ready()
        await settle()
        assert len(source.durable) == 3
        servers.lose_tail("log-0", 2)
        with pytest.raises(Unavailable, match="lacks messages"):
            await log.open_log(0, "log-0", 2, ScriptedSource())
        assert max(servers.streams["log-0"].messages) == 3, "nothing was written over the loss"

    run(test())


def test_a_release_whose_purge_fails_is_made_up_for_by_the_next_one(
    servers: SimServers, run: Run
) -> None:
    async def test() -> None:
        _, view, source = await opened(servers)
        for _ in range(3):
            source.put(b"x")
        view.ready()
        await settle()
        servers.faults = StreamFaults(purge_failed=1.0)
        await view.release(3)
        assert len(servers.streams["log-0"].messages) == 5
        servers.faults = StreamFaults()
        await view.release(3)
        assert sorted(servers.streams["log-0"].messages) == [2, 5]

    run(test())
