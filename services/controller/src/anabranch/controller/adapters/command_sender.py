"""`CommandSender` on JetStream: the same queue that callers use."""

from nats.aio.client import Client

from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.contracts import subjects
from anabranch.common.contracts.commands import Command
from anabranch.common.model.hashing import shard_of
from anabranch.common.runtime.tracing import trace_headers

PUBLISH_DEADLINE_S = 5.0


class NatsCommandSender:
    """See `CommandSender`."""

    def __init__(self, client: Client) -> None:
        self._jetstream = client.jetstream()

    async def post(self, command: Command) -> None:
        """See `CommandSender.post`."""
        stream: str | None = getattr(command, "stream", None)
        name = command.scope if stream is None else f"{command.scope}/{stream}"
        subject = subjects.command(shard_of(name), command.kind, command.scope, stream)
        with as_unavailable("take a command", command=command.kind, about=name):
            await self._jetstream.publish(
                subject,
                command.model_dump_json().encode(),
                timeout=PUBLISH_DEADLINE_S,
                headers=trace_headers(),
            )
