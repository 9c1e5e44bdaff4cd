"""The NATS door: control requests on segments, addressed by container.

Serves ``ana.seg.<container>.<verb>`` for every container assigned here; a request is one packet
and so is the reply. The same handlers as over TCP answer; the verb must fit the packet. Without
NATS this door is silent and TCP serves on.
"""

from collections.abc import Awaitable, Callable, Mapping

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from anabranch.common.contracts import subjects
from anabranch.common.errors import AnabranchError, BadPacket, InvalidRequest
from anabranch.common.wire.messages import (
    CreateSegment,
    DeleteSegment,
    FlushContainer,
    GetSegmentInfo,
    LocateOffset,
    Message,
    SealSegment,
    decode_message,
    encode_message,
    failed,
)
from anabranch.common.wire.packet import PacketParser
from anabranch.segstore.handlers.control import CONTROL, ControlDesk

VERBS: Mapping[str, type[Message]] = {
    "create": CreateSegment,
    "seal": SealSegment,
    "delete": DeleteSegment,
    "info": GetSegmentInfo,
    "locate": LocateOffset,
    "flush": FlushContainer,
}

_log = structlog.get_logger(__name__)


Respond = Callable[[bytes], None]
"""Sends a reply; must not wait."""


def handle_packet(desk: ControlDesk, verb: str, data: bytes, respond: Respond) -> None:
    """Answer one request, now or once what it depends on is durable."""
    request_id = 0

    def deliver(message: Message) -> None:
        respond(b"".join(encode_message(message, request_id)))

    try:
        packets = list(PacketParser().feed(data))
        if len(packets) != 1:
            raise BadPacket("a request is not exactly one packet", packets=len(packets))
        request_id = packets[0].request_id
        message = decode_message(packets[0])
        if VERBS.get(verb) is not type(message):
            raise InvalidRequest("the verb does not fit the packet", verb=verb)
        CONTROL[type(message)](desk, message, deliver)
    except AnabranchError as error:
        deliver(failed(error))


class NatsDoor:
    """Subscriptions of one process, by container."""

    def __init__(self, client: Client, desk: ControlDesk) -> None:
        self._client = client
        self._desk = desk
        self._subscriptions: dict[int, Subscription] = {}

    async def serve(self, containers: frozenset[int]) -> bool:
        """Answer for exactly these containers. False: NATS did not take it, call again."""
        try:
            for container in containers - self._subscriptions.keys():
                subject = subjects.segment_request(container, "*")
                self._subscriptions[container] = await self._client.subscribe(
                    subject, cb=self._callback()
                )
            for container in self._subscriptions.keys() - containers:
                await self._subscriptions[container].unsubscribe()
                del self._subscriptions[container]
        except (nats.errors.Error, OSError) as error:
            _log.warning("the NATS door cannot follow the containers", error=repr(error))
            return False
        return True

    def _callback(self) -> Callable[[Msg], Awaitable[None]]:
        async def received(message: Msg) -> None:
            verb = message.subject.rpartition(".")[2]

            def respond(data: bytes) -> None:
                self._desk.spawn(self._reply(message.reply, data))

            handle_packet(self._desk, verb, message.data, respond)

        return received

    async def _reply(self, inbox: str, data: bytes) -> None:
        if not inbox:
            return
        try:
            await self._client.publish(inbox, data)
        except (nats.errors.Error, OSError) as error:
            _log.warning("a reply could not be sent over NATS", error=repr(error))
