"""Parked commands in a JetStream stream of their own: one subject, and one message, per command.

If a command is parked again, the new message replaces the old one. The body is the command's body;
the headers are the command's headers, and additional ones about the parking.
"""

from collections.abc import Sequence

import nats.js.errors
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, RawStreamMsg, StorageType, StreamConfig

from anabranch.common.adapters.jetstream_streams import ensure_stream
from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.contracts import subjects
from anabranch.controller.domain.parking import (
    ParkedCommand,
    parked_command,
    parked_headers,
)

CALL_S_MAX = 5.0
PARKED_COUNT_MAX = 10_000
"""When the stream is full, further commands stay in their queues instead of being parked."""
MESSAGE_ID_HEADER = "Nats-Msg-Id"
DELETE_FAILED_CODE = 10057
"""The server's code for several failures, among them the deletion of a missing message."""


async def create_parked_stream(client: Client, replicas: int = 1) -> tuple[str, ...]:
    """Ensure the stream; return the names of its servers. Raises Unavailable."""
    return await ensure_stream(
        client,
        StreamConfig(
            name=subjects.PARKED_STREAM,
            subjects=[subjects.PARKED_SUBJECTS],
            storage=StorageType.FILE,
            num_replicas=replicas,
            max_msgs_per_subject=1,
            max_msgs=PARKED_COUNT_MAX,
            discard=DiscardPolicy.NEW,
            allow_direct=False,
        ),
    )


class JetStreamParkedCommands:
    """See `ports.ParkedCommands`; `create_parked_stream` must have run."""

    def __init__(self, client: Client) -> None:
        self._js = client.jetstream(timeout=CALL_S_MAX)

    async def park(self, command: ParkedCommand) -> None:
        """See `ParkedCommands.park`."""
        with as_unavailable("park a command", command=command.command_id):
            await self._js.publish(
                subjects.parked_command(command.bucket, command.command_id),
                command.body,
                headers=parked_headers(command),
            )

    async def page(self, after: int, count: int) -> Sequence[tuple[int, ParkedCommand]]:
        """See `ParkedCommands.page`."""
        found: list[tuple[int, ParkedCommand]] = []
        while len(found) < count:
            raw = await self._next(after + 1, subjects.PARKED_SUBJECTS)
            if raw is None:
                break
            assert raw.seq is not None
            after = raw.seq
            found.append((after, _parked(raw)))
        return found

    async def redrive(self, command_id: str) -> bool:
        """See `ParkedCommands.redrive`."""
        raw = await self._find(command_id)
        if raw is None:
            return False
        command = _parked(raw)
        # Concurrent redrives publish it once; later ones are recognised by the command's id.
        once = f"redrive-{command_id}-{raw.seq}"
        with as_unavailable("publish a parked command", command=command_id):
            await self._js.publish(
                command.subject, command.body, headers={**command.headers, MESSAGE_ID_HEADER: once}
            )
        await self._delete(raw)
        return True

    async def drop(self, command_id: str) -> bool:
        """See `ParkedCommands.drop`."""
        raw = await self._find(command_id)
        if raw is None:
            return False
        await self._delete(raw)
        return True

    async def _find(self, command_id: str) -> RawStreamMsg | None:
        return await self._next(1, subjects.parked_filter(command_id))

    async def _next(self, sequence: int, subject: str) -> RawStreamMsg | None:
        """The first message at or after `sequence` on the subject, read from the leader."""
        with as_unavailable("read parked commands"):
            try:
                return await self._js.get_msg(
                    subjects.PARKED_STREAM, seq=sequence, subject=subject, next=True
                )
            except nats.js.errors.NotFoundError:
                return None

    async def _delete(self, raw: RawStreamMsg) -> None:
        assert raw.seq is not None
        with as_unavailable("remove a parked command"):
            try:
                await self._js.delete_msg(subjects.PARKED_STREAM, raw.seq)
            except nats.js.errors.APIError as error:
                found = await self._next(raw.seq, subjects.PARKED_SUBJECTS)
                if error.err_code != DELETE_FAILED_CODE or (found and found.seq == raw.seq):
                    raise
                # Another controller removed the message, or the command was parked again meanwhile.


def _parked(raw: RawStreamMsg) -> ParkedCommand:
    assert raw.subject is not None
    bucket, command_id = raw.subject.rsplit(".", 2)[1:]
    return parked_command(int(bucket), command_id, raw.headers or {}, raw.data or b"")
