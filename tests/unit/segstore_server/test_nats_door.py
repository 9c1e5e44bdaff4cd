"""The NATS door between a NATS client that can be held up and the desk behind it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import cast

import pytest
from nats.aio.client import Client
from nats.errors import ConnectionClosedError

from anabranch.common.contracts import subjects
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    AppendOnce,
    CreateSegment,
    Message,
    ReadSegment,
    SegmentRead,
    Stamp,
    decode_message,
    encode_message,
)
from anabranch.common.wire.packet import PacketParser
from anabranch.segstore.handlers.control import ControlDesk
from anabranch.segstore.server.nats_door import REPLIES_WAITING_SIZE_BYTES_MAX, NatsDoor
from kit.live_store import LiveStore, World, live_store
from kit.wire_client import WRITER

SEGMENT = "scope/stream/0.#epoch.0"
EVENT_SIZE_BYTES = 500_000


@dataclass
class Subscription:
    ended: bool = False

    async def unsubscribe(self) -> None:
        self.ended = True


@dataclass
class Received:
    subject: str
    data: bytes
    reply: str


@dataclass
class HeldUpNats:
    """Stands for the NATS client: what is published waits while `open` is not set."""

    open: asyncio.Event = field(default_factory=asyncio.Event)
    published: list[bytes] = field(default_factory=list)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    lost: bool = False
    callback: Callable[[Received], Awaitable[None]] | None = None

    async def subscribe(
        self,
        subject: str,
        *,
        cb: Callable[[Received], Awaitable[None]],
        pending_bytes_limit: int,
    ) -> Subscription:
        if self.lost:
            raise ConnectionClosedError
        self.callback = cb
        self.subscriptions[subject] = Subscription()
        return self.subscriptions[subject]

    async def publish(self, inbox: str, data: bytes) -> None:
        await self.open.wait()
        if self.lost:
            raise ConnectionClosedError
        self.published.append(data)

    async def deliver(self, verb: str, message: Message, payload: bytes = b"") -> None:
        assert self.callback is not None
        data = b"".join(encode_message(message, 1, payload))
        await self.callback(Received(subjects.segment_request(0, verb), data, "inbox"))


@dataclass
class Served:
    live: LiveStore
    nats: HeldUpNats
    door: NatsDoor

    async def sent(self) -> None:
        """Return when every answer was handed to NATS."""
        async with asyncio.timeout(5):
            while True:
                if self.door.idle:
                    return
                await asyncio.sleep(0)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    world = World()
    await world.assign(0)
    nats = HeldUpNats()
    async with asyncio.TaskGroup() as group, live_store(world) as live:
        control = ControlDesk(live.store, lambda work: cast("None", group.create_task(work)))
        door = NatsDoor(cast("Client", nats), control, live.throttle)
        assert await door.serve(frozenset({0}))
        nats.open.set()
        await nats.deliver("create", CreateSegment(segment=SEGMENT, stamp=Stamp(1, 1)))
        block = encode_block(
            [bytes(EVENT_SIZE_BYTES)], writer_id=WRITER, first_event_number=1, base_timestamp_ms=0
        )
        once = AppendOnce(segment=SEGMENT, writer_id=WRITER, first_event_number=1, count=1)
        await nats.deliver("append", once, block)
        while len(nats.published) < 2:  # noqa: ASYNC110 - answers come when the log has synced
            await asyncio.sleep(0)
        nats.published.clear()
        yield Served(live, nats, door)
        nats.open.set()


READ = ReadSegment(segment=SEGMENT, offset=0, size_max=1 << 20)


async def test_reads_stop_being_made_while_answers_cannot_be_sent_and_none_is_lost(
    served: Served,
) -> None:
    served.nats.open.clear()
    for _ in range(50):
        await served.nats.deliver("read", READ)
    assert served.door._sending <= REPLIES_WAITING_SIZE_BYTES_MAX + 2 * EVENT_SIZE_BYTES
    served.nats.open.set()
    while len(served.nats.published) < 50:  # noqa: ASYNC110 - counted, not signalled
        await asyncio.sleep(0)
    await served.sent()
    for data in served.nats.published:
        (packet,) = PacketParser().feed(data)
        assert isinstance(decode_message(packet), SegmentRead)
        assert len(packet.payload) > EVENT_SIZE_BYTES


async def test_answers_that_nats_refuses_are_given_up_and_count_no_more(served: Served) -> None:
    served.nats.lost = True
    await served.nats.deliver("read", READ)
    await served.sent()
    assert served.nats.published == []
    served.nats.lost = False
    await served.nats.deliver("read", READ)
    await served.sent()
    assert len(served.nats.published) == 1


async def test_the_door_follows_the_containers_and_says_when_it_could_not(served: Served) -> None:
    assert await served.door.serve(frozenset({1, 2}))
    ended = {subject: one.ended for subject, one in served.nats.subscriptions.items()}
    assert ended == {"ana.seg.0.*": True, "ana.seg.1.*": False, "ana.seg.2.*": False}
    served.nats.lost = True
    assert not await served.door.serve(frozenset({1, 3}))
    served.nats.lost = False
    assert await served.door.serve(frozenset({1, 3}))
    assert not served.nats.subscriptions["ana.seg.3.*"].ended
