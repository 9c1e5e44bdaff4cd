"""Clients of a simulated store that make transient segments over a connection of their own."""

import asyncio

from anabranch.common.wire.messages import (
    NO_DECISION,
    CreateTransient,
    Failed,
    Message,
    SegmentCreated,
    error_of,
)
from anabranch.segstore.handlers.transient import TransientDesk
from kit.store_requests import info_of, merge, seal
from kit.store_world import Client
from kit.store_writer import WriterScript


class Uploads:
    """The transient segments of one connection, by the real desk."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._desk = TransientDesk(client.life.store, client.life.ids)

    async def begin(self, parent: str, writer_id: bytes) -> str:
        """Make a transient segment; raises what the store answers. Returns its name.

        From now on it may be deleted at any time: with the connection, or by a crash.
        """
        answered: asyncio.Future[Message] = self.client.life.loop.create_future()
        request = CreateTransient(segment=parent, writer_id=writer_id)
        self._desk.create(request, answered.set_result)
        reply = await answered
        if isinstance(reply, Failed):
            raise error_of(reply)
        assert isinstance(reply, SegmentCreated)
        world = self.client.life.world
        world.history.deleting.add(reply.segment)
        world.created.add(reply.segment)
        world.transients[reply.segment] = world.lives
        return reply.segment

    async def write(self, writer: WriterScript) -> None:
        """Two blocks of an upload."""
        assert await writer.begin(self.client)
        for count in (1, 2):
            writer.send(self.client, count)

    async def finish(self, parent: str, *names: str) -> None:
        """Seal the segments and make all of them the end of their parent."""
        for name in names:
            await seal(self.client, name, NO_DECISION)
        await merge(self.client, parent, names, NO_DECISION)

    async def store(self, writer: WriterScript, name: str) -> None:
        """Seal the segment, and append a reference to it with its bytes before it."""
        await seal(self.client, name, NO_DECISION)
        writer.send_large(self.client, name, (await info_of(self.client, name)).length)

    def disconnect(self) -> None:
        """The connection is gone."""
        self._desk.close()
