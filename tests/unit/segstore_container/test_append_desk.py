"""The append sessions of a connection that lives long."""

import asyncio
import struct

import pytest
from crc32c import crc32c

from anabranch.common.errors import MalformedBlock
from anabranch.common.wire.block import HEADER_SIZE_BYTES
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    Append,
    Appended,
    AppendOnce,
    AppendSetup,
    CreateSegment,
    Failed,
    Message,
    SetupAppend,
)
from anabranch.segstore.domain.container.circumstances import Given
from anabranch.segstore.handlers import append as desks
from anabranch.segstore.handlers.append import AppendDesk
from anabranch.segstore.shell.container.container import Container
from kit.container_driver import CREATE_STAMP, SEGMENT, WRITER, ContainerDriver
from kit.live_store import LiveStore, World, live_store


class Writer:
    """Sets up and appends over one desk, each time under another writer id."""

    def __init__(self, live: LiveStore) -> None:
        self.replies: list[Message] = []
        self._desk = AppendDesk(live.store, lambda message, _: self.replies.append(message))

    def setup(self, session: int, writer: int) -> Message:
        request = SetupAppend(segment=SEGMENT, writer_id=bytes([writer]) * 16, session=session)
        self._desk.setup(session, request)
        return self.replies[-1]

    def append(self, session: int) -> None:
        request = Append(session=session, first_event_number=1, count=1, is_block=False)
        self._desk.append(session, request, b"x")


async def durable(container: Container) -> None:
    async with asyncio.timeout(5):
        while not container.idle:  # noqa: ASYNC110  the log commits in the loop's next turn
            await asyncio.sleep(0)


async def test_a_connection_never_runs_out_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desks, "SESSIONS_MAX", 3)
    world = World()
    await world.assign(0)
    async with live_store(world) as live:
        container = live.store.open_containers()[0].container
        container.ask(CreateSegment(segment=SEGMENT, stamp=CREATE_STAMP), lambda _: None)
        await durable(container)
        writer = Writer(live)
        # sessions that are over make room first, here those of one writer's first two setups
        for session in (1, 2, 3, 4):
            assert isinstance(writer.setup(session, writer=max(3, session)), AppendSetup)
        writer.append(3)
        await durable(container)
        assert isinstance(writer.replies[-1], Appended)
        # then the oldest
        for session in (5, 6):
            assert isinstance(writer.setup(session, writer=session), AppendSetup)
        writer.append(3)
        ended = writer.replies[-1]
        assert isinstance(ended, Failed)
        assert ended.code == "session-ended"


def test_a_block_that_readers_would_refuse_for_ever_is_refused_at_the_door() -> None:
    # given a block whose checksum is right and whose lengths do not add up
    driver = ContainerDriver()
    driver.create()
    good = encode_block([b"ab", b"c"], writer_id=WRITER, first_event_number=1, base_timestamp_ms=0)
    body = b"\x01" + good[HEADER_SIZE_BYTES + 1 :]
    head = good[: HEADER_SIZE_BYTES - 4]
    block = head + struct.pack("<I", crc32c(body, crc32c(head))) + body
    # then it is refused by name, with a session and without one
    session = driver.setup()
    driver.append_raw(session, 1, 2, block, is_block=True)
    once = AppendOnce(segment=SEGMENT, writer_id=WRITER, first_event_number=1, count=2)
    driver.container.ask(once, driver._deliver(), Given(block))
    driver.commit()
    refused = [reply for reply in driver.take_replies() if isinstance(reply, Failed)]
    assert [reply.code for reply in refused] == [MalformedBlock.code] * 2
    assert driver.content() == b""
