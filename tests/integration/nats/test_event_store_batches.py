"""Batches of messages in the JetStream event store while answers and servers get lost."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import RawStreamMsg, StorageType, StreamConfig

from anabranch.common.adapters.jetstream_batch import OPEN_BATCHES_MAX
from anabranch.common.adapters.jetstream_events import JetStreamEventStore, create_streams
from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.contracts.subjects import event_stream, event_stream_subjects
from anabranch.common.errors import OutcomeUnknown, Unavailable, WrongExpectedSequence
from anabranch.common.eventsourcing.ports import Append, NewMessage
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import nats_target
from kit.infra import Infra, NatsServer
from kit.infra.hurting import unhurt

A, B = "ana.evt.3.stream.s.a", "ana.evt.3.stream.s.b"
SHARD = 3
DEADLINE_S = 20


@pytest.fixture
def nats_server(infra: Infra) -> Iterator[NatsServer]:
    """These tests decide themselves which messages and answers get lost."""
    with unhurt(infra).nats() as server:
        yield server


def message(revision: int, append_id: str) -> NewMessage:
    return NewMessage(revision, append_id, "events", 1, 0, b"[]")


MINE = [Append(A, 0, message(1, "mine-a")), Append(B, 0, message(1, "mine-b"))]


async def ids(store: JetStreamEventStore, subject: str) -> list[str]:
    return [m.append_id for m in await store.load(subject)]


async def after(seconds: float, perform: Callable[[], Awaitable[object]]) -> None:
    await SystemClock().sleep(seconds)
    await perform()


async def test_a_batch_whose_answer_came_too_late_is_found_by_its_ids(
    nats_server: NatsServer, client: Client
) -> None:
    store = JetStreamEventStore(client, SystemClock(), append_deadline_s=0.3)
    nats_server.pause()
    asyncio.get_running_loop().call_later(0.6, nats_server.resume)

    sequences = await store.append_all(MINE)

    for sequence, one in zip(sequences, MINE, strict=True):
        (found,) = await store.load(one.subject)
        assert (found.sequence, found.append_id) == (sequence, one.message.append_id)


async def test_a_batch_that_may_still_arrive_is_of_unknown_outcome(
    nats_server: NatsServer, client: Client
) -> None:
    store = JetStreamEventStore(client, SystemClock(), append_deadline_s=0.2, resolve_budget_s=0.0)
    nats_server.pause()
    try:
        with pytest.raises(OutcomeUnknown):
            await store.append_all(MINE)
    finally:
        nats_server.resume()

    async with asyncio.timeout(DEADLINE_S):
        seen = []
        async for found in store.follow(SHARD, 0):
            seen.append(found.append_id)
            if len(seen) == 2:
                break
    assert seen == ["mine-a", "mine-b"]


@pytest.mark.parametrize("moved", [A, B])
async def test_a_batch_that_got_lost_is_refused_once_any_of_its_subjects_has_moved(
    nats_server: NatsServer, client: Client, moved: str
) -> None:
    store = JetStreamEventStore(client, SystemClock(), append_deadline_s=0.3)
    nats_server.pause()

    async def lose_what_is_on_its_way_and_move() -> None:
        nats_server.kill()
        nats_server.start()
        other = await connect_nats(nats_target(nats_server.url), "other")
        await JetStreamEventStore(other, SystemClock()).append(moved, 0, message(1, "theirs"))
        await other.close()

    async with asyncio.TaskGroup() as group:
        attempt = group.create_task(_refusal_of(store.append_all(MINE)))
        group.create_task(after(0.6, lose_what_is_on_its_way_and_move))

    assert attempt.result().fields["subject"] == moved
    assert await ids(store, moved) == ["theirs"]
    assert await ids(store, B if moved == A else A) == []


async def _refusal_of(appending: Awaitable[Sequence[int]]) -> WrongExpectedSequence:
    with pytest.raises(WrongExpectedSequence) as refusal:
        await appending
    return refusal.value


@pytest.mark.parametrize("looked_at", [A, B])
async def test_a_batch_that_arrives_between_two_looks_is_found_though_others_follow(
    client: Client, monkeypatch: pytest.MonkeyPatch, looked_at: str
) -> None:
    real = JetStreamEventStore(client, SystemClock())

    class Slow(JetStreamEventStore):
        """Its own batch arrives before it looks at a subject, and others' messages behind it."""

        async def _first_from(self, subject: str, sequence: int) -> RawStreamMsg | None:
            if subject == looked_at and not await real.load(subject):
                first, second = await real.append_all(MINE)
                await real.append(A, first, message(2, "theirs"))
                await real.append(B, second, message(2, "theirs"))
            return await super()._first_from(subject, sequence)

    slow = Slow(client, SystemClock())

    async def lost(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(slow._batches._js, "publish", lost)
    sequences = await slow.append_all(MINE)

    assert [(await real.load(where))[0].sequence for where in (A, B)] == list(sequences)


async def test_a_batch_of_which_a_part_got_lost_is_not_stored_and_that_is_said(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JetStreamEventStore(client, SystemClock())

    real = client.publish

    async def publish(subject: str, *given: Any, **named: Any) -> None:
        if subject != A:
            await real(subject, *given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(client, "publish", publish)
        with pytest.raises(Unavailable):
            await store.append_all(MINE)

    assert await ids(store, B) == []
    await store.append_all(MINE)
    assert await ids(store, B) == ["mine-b"]


async def test_more_batches_than_the_server_takes_wait_for_their_turn(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JetStreamEventStore(client, SystemClock(), append_deadline_s=0.2)
    is_held, begun = asyncio.Event(), 0

    async def held(*_: object, **__: object) -> None:
        nonlocal begun
        begun += 1
        await is_held.wait()

    monkeypatch.setattr(store._batches._js, "publish", held)
    async with asyncio.TaskGroup() as group:
        busy = [
            group.create_task(store.append_all(_numbered(number)))
            for number in range(OPEN_BATCHES_MAX)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="too many batches"):
            await store.append_all(MINE)
        assert begun == OPEN_BATCHES_MAX
        for task in busy:
            task.cancel()

    monkeypatch.undo()
    await store.append_all(MINE)


def _numbered(number: int) -> list[Append]:
    return [Append(f"{one.subject}{number}", 0, message(1, f"id-{number}")) for one in MINE]


async def test_batches_survive_the_kill_of_the_server_as_wholes(
    nats_server: NatsServer, client: Client
) -> None:
    stored = 0
    for attempt in range(3):
        writer = await connect_nats(nats_target(nats_server.url), "writer")
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(_write_until_killed(writer, attempt * 10_000))
            await SystemClock().sleep(0.05 + 0.013 * attempt)
            nats_server.kill()
        stored += writing.result()
        await close_nats(writer)
        nats_server.start()

    fresh = await connect_nats(nats_target(nats_server.url), "fresh")
    store = JetStreamEventStore(fresh, SystemClock())
    found = [m.append_id async for m in store.scan(SHARD, event_stream_subjects(SHARD))]
    await fresh.close()

    assert found[::2] == found[1::2]
    assert len(found) // 2 >= stored > 0


async def _write_until_killed(client: Client, first: int) -> int:
    """How many batches were acknowledged."""
    store = JetStreamEventStore(client, SystemClock(), append_deadline_s=0.3, resolve_budget_s=0.0)
    for number in range(10_000):
        try:
            await store.append_all(_numbered(first + number))
        except (OutcomeUnknown, Unavailable):
            return number
    raise AssertionError("the server was to be killed")


async def test_streams_of_an_older_release_learn_to_store_batches(nats_server: NatsServer) -> None:
    client = await connect_nats(nats_target(nats_server.url), "older")
    js = client.jetstream()
    name = event_stream(SHARD)
    await js.add_stream(
        StreamConfig(
            name=name,
            subjects=[event_stream_subjects(SHARD)],
            storage=StorageType.FILE,
            allow_direct=False,
            description="as it was",
        )
    )
    store = JetStreamEventStore(client, SystemClock())
    await store.append(A, 0, message(1, "old"))
    with pytest.raises(Unavailable):
        await store.append_all([Append(B, 0, message(1, "x")), Append(B + "b", 0, message(1, "y"))])
    before = await _config(client, name)

    await create_streams(client)
    await create_streams(client)

    changed = await _config(client, name)
    assert changed.pop("allow_atomic") is True
    assert {k: v for k, v in changed.items() if k != "metadata"} == {
        k: v for k, v in before.items() if k != "metadata"
    }
    first = (await store.load(A))[0].sequence
    await store.append_all([Append(A, first, message(2, "new")), MINE[1]])
    assert await ids(store, A) == ["old", "new"]
    await client.close()


async def _config(client: Client, stream: str) -> dict[str, Any]:
    answer = await client.request(f"$JS.API.STREAM.INFO.{stream}")
    config: dict[str, Any] = json.loads(answer.data)["config"]
    return config
