"""The JetStream event store while its server pauses, dies and returns."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from nats.aio.client import Client
from nats.js.api import RawStreamMsg

from anabranch.common.adapters.jetstream_events import JetStreamEventStore
from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore, create_bucket
from anabranch.common.adapters.jetstream_reader import StreamReader
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts.subjects import event_stream, event_stream_subjects
from anabranch.common.errors import (
    OutcomeUnknown,
    StreamRewound,
    Unavailable,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.ports import Gate, NewMessage
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import nats_target
from kit.infra import NatsServer

SUBJECT = "ana.evt.3.stream.s.x"
SHARD = 3
DEADLINE_S = 20


def message(revision: int, append_id: str) -> NewMessage:
    return NewMessage(revision, append_id, "events", 1, 0, b"[]")


async def test_an_append_whose_answer_came_too_late_is_found_by_its_id(
    nats_server: NatsServer, client: Client
) -> None:
    store = JetStreamEventStore(client, SystemClock(), append_deadline_s=0.3)
    nats_server.pause()
    asyncio.get_running_loop().call_later(0.6, nats_server.resume)

    sequence = await store.append(SUBJECT, 0, message(1, "mine"))

    assert [(m.sequence, m.append_id) for m in await store.load(SUBJECT)] == [(sequence, "mine")]


async def test_an_append_that_may_still_arrive_is_of_unknown_outcome(
    nats_server: NatsServer, client: Client
) -> None:
    store = JetStreamEventStore(client, SystemClock(), append_deadline_s=0.2, resolve_budget_s=0.0)
    nats_server.pause()
    # The look-up has a deadline of its own, so resuming must not let it see the message.
    try:
        with pytest.raises(OutcomeUnknown):
            await store.append(SUBJECT, 0, message(1, "mine"))
    finally:
        nats_server.resume()

    async with asyncio.timeout(DEADLINE_S):
        async for found in store.follow(SHARD, 0):
            assert found.append_id == "mine"
            break
    with pytest.raises(WrongExpectedSequence):
        await store.append(SUBJECT, 0, message(1, "decided again on the old state"))


async def test_without_the_stream_nothing_is_stored_and_that_is_said(
    nats_server: NatsServer,
) -> None:
    bare = await connect_nats(nats_target(nats_server.url), "bare")
    store = JetStreamEventStore(bare, SystemClock())

    with pytest.raises(Unavailable):
        await store.append(SUBJECT, 0, message(1, "a"))

    await bare.close()


async def test_without_a_server_connecting_says_so() -> None:
    with pytest.raises(Unavailable) as refusal:
        await connect_nats(nats_target("nats://127.0.0.1:1"), "test", deadline_s=0.2)

    assert refusal.value.fields["url"] == "nats://127.0.0.1:1"


async def test_acknowledged_messages_survive_the_kill_of_the_server(
    nats_server: NatsServer, client: Client
) -> None:
    store = JetStreamEventStore(client, SystemClock())
    at = 0
    for revision in range(1, 51):
        at = await store.append(SUBJECT, at, message(revision, f"a{revision}"))
    nats_server.kill()
    nats_server.start()

    fresh = await connect_nats(nats_target(nats_server.url), "fresh")
    loaded = await JetStreamEventStore(fresh, SystemClock()).load(SUBJECT)

    assert [m.revision for m in loaded] == list(range(1, 51))
    await fresh.close()


async def test_a_follower_misses_and_repeats_nothing_across_restarts_of_the_server(
    nats_server: NatsServer, client: Client
) -> None:
    store = JetStreamEventStore(client, SystemClock())
    seen: list[int] = []
    at = 0

    async def write(first: int, last: int) -> None:
        nonlocal at
        writer = await connect_nats(nats_target(nats_server.url), "writer")
        for revision in range(first, last + 1):
            at = await JetStreamEventStore(writer, SystemClock()).append(
                SUBJECT, at, message(revision, f"a{revision}")
            )
        await writer.close()

    await write(1, 20)
    async with asyncio.timeout(DEADLINE_S):
        async for found in store.follow(SHARD, 0):
            seen.append(found.revision)
            if found.revision in (20, 40):
                nats_server.kill()
                nats_server.start()
                await write(found.revision + 1, found.revision + 20)
            if found.revision == 60:
                break

    assert seen == list(range(1, 61))


async def test_a_shard_that_lost_messages_stops_its_follower(client: Client) -> None:
    reader = StreamReader(client, SystemClock(), event_stream(SHARD), event_stream_subjects(SHARD))

    with pytest.raises(StreamRewound):
        async for _ in reader.follow(7):
            pass


async def test_a_shard_that_is_gone_stops_its_follower_too(nats_server: NatsServer) -> None:
    bare = await connect_nats(nats_target(nats_server.url), "bare")
    store = JetStreamEventStore(bare, SystemClock())

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(StreamRewound):
            async for _ in store.follow(SHARD, 7):
                pass
    assert await store.last_sequence(SHARD) == 0
    await bare.close()


async def test_a_watcher_learns_what_changed_while_the_server_was_away(
    nats_server: NatsServer, client: Client
) -> None:
    await create_bucket(client, "things")
    watched = JetStreamObjectStore(client, SystemClock(), "things")
    revision = await watched.create("a", b"1")
    seen: list[tuple[str, bytes]] = []

    async with asyncio.timeout(DEADLINE_S):
        async for found in watched.watch():
            if found is None:
                nats_server.kill()
                nats_server.start()
                writer = await connect_nats(nats_target(nats_server.url), "writer")
                away = JetStreamObjectStore(writer, SystemClock(), "things")
                await away.create("b", b"2")
                await away.delete("a", revision)
                await writer.close()
                continue
            seen.append((found.key, found.value))
            if found.value == b"":
                break

    assert seen == [("a", b"1"), ("b", b"2"), ("a", b"")]


GATE = "ana.evt.3.gate.s.1"
CHILD = "ana.evt.3.member.s.1.x.1"


async def test_a_child_whose_answer_came_too_late_is_found_on_its_own_subject(
    nats_server: NatsServer, client: Client
) -> None:
    store = JetStreamEventStore(client, SystemClock(), append_deadline_s=0.3)
    gate = await store.append(GATE, 0, message(1, "gate"))
    nats_server.pause()
    asyncio.get_running_loop().call_later(0.6, nats_server.resume)

    sequence = await store.append(CHILD, 0, message(1, "mine"), gate=Gate(GATE, gate))

    assert [(m.sequence, m.append_id) for m in await store.load(CHILD)] == [(sequence, "mine")]


async def test_a_child_that_got_lost_is_refused_once_its_gate_has_moved(
    nats_server: NatsServer, client: Client
) -> None:
    store = JetStreamEventStore(client, SystemClock(), append_deadline_s=0.3)
    gate = await store.append(GATE, 0, message(1, "open"))
    nats_server.pause()

    async def lose_what_is_on_its_way_and_close() -> None:
        nats_server.kill()
        nats_server.start()
        other = await connect_nats(nats_target(nats_server.url), "other")
        await JetStreamEventStore(other, SystemClock()).append(GATE, gate, message(2, "closed"))
        await other.close()

    async with asyncio.TaskGroup() as group:
        attempt = group.create_task(
            _refusal_of(store.append(CHILD, 0, message(1, "mine"), gate=Gate(GATE, gate)))
        )
        group.create_task(_after(0.6, lose_what_is_on_its_way_and_close))

    assert attempt.result().fields["subject"] == GATE
    assert await store.load(CHILD) == []


async def _refusal_of(appending: Awaitable[int]) -> WrongExpectedSequence:
    with pytest.raises(WrongExpectedSequence) as refusal:
        await appending
    return refusal.value


async def _after(seconds: float, perform: Callable[[], Awaitable[None]]) -> None:
    await SystemClock().sleep(seconds)
    await perform()


async def test_a_child_that_arrives_between_two_looks_and_before_the_closing_is_found(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = JetStreamEventStore(client, SystemClock())
    gate = await real.append(GATE, 0, message(1, "open"))

    class Slow(JetStreamEventStore):
        """Its own append arrives after its first look, and the closing right behind it."""

        looked = False

        async def _first_from(self, subject: str, sequence: int) -> RawStreamMsg | None:
            found = await super()._first_from(subject, sequence)
            if not self.looked:
                self.looked = True
                await real.append(CHILD, 0, message(1, "mine"), gate=Gate(GATE, gate))
                await real.append(GATE, gate, message(2, "closed"))
            return found

    slow = Slow(client, SystemClock())

    async def lost(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(slow._js, "publish", lost)

    sequence = await slow.append(CHILD, 0, message(1, "mine"), gate=Gate(GATE, gate))

    assert [m.sequence for m in await real.load(CHILD)] == [sequence]
