"""`CommandSender` over JetStream; it sends to the same queue as other callers."""

from nats.aio.client import Client

from anabranch.common.adapters.nats_connection import as_unavailable
from anabranch.common.contracts.command import about, subject_of
from anabranch.common.contracts.commands import Command
from anabranch.common.runtime.speaking import enveloped

PUBLISH_DEADLINE_S = 5.0


class NatsCommandSender:
    """See `CommandSender`."""

    def __init__(self, client: Client) -> None:
        self._jetstream = client.jetstream()

    async def post(self, command: Command) -> None:
        """See `CommandSender.post`."""
        with as_unavailable("take a command", command=command.kind, about=str(about(command))):
            request = enveloped(command.model_dump_json().encode())
            await self._jetstream.publish(
                subject_of(command),
                request.body,
                timeout=PUBLISH_DEADLINE_S,
                headers=request.headers(),
            )
