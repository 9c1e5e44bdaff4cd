"""The NATS door: requests on segments, addressed by container.

Serves ``ana.seg.<container>.<verb>`` for every container that is assigned to this store. A request
is one packet, and so is its reply; the verb must fit the packet. The handlers are those of TCP.
While NATS is unreachable this door is silent, and TCP continues to serve.

NATS has no connection that the store could hold up, so the door refuses instead: an append while
the store is over its limits, and a read beyond the queue's bound, get Overloaded. The door keeps
nothing else between requests. Reads wait while replies to earlier ones wait to be sent.
"""

from collections.abc import Awaitable, Callable

import nats.errors
import structlog
from msgspec.structs import replace
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from anabranch.common.contracts import subjects
from anabranch.common.contracts.segment_requests import PAYLOAD_SIZE_BYTES_MAX, SEGMENT_REQUESTS
from anabranch.common.errors import AnabranchError, BadPacket, InvalidRequest, Overloaded
from anabranch.common.wire.messages import (
    AppendOnce,
    AppendTogether,
    CreateTransient,
    MergeBatch,
    Message,
    ReadSegment,
    SetupAppend,
    decode_message,
    encode_message,
    failed,
)
from anabranch.common.wire.packet import Packet, PacketParser
from anabranch.segstore.domain.container.circumstances import Given
from anabranch.segstore.handlers.append import setup_without_session
from anabranch.segstore.handlers.control import ControlDesk
from anabranch.segstore.handlers.read import ReadDesk
from anabranch.segstore.shell.container.replies import Deliver
from anabranch.segstore.shell.container.throttle import Throttle
from anabranch.segstore.shell.memory.granule import Bytes

REQUESTS_WAITING_SIZE_BYTES_MAX = 32 * 1024 * 1024
"""Per container; the NATS client drops requests beyond it, and their callers time out."""
REPLIES_WAITING_SIZE_BYTES_MAX = 8 * 1024 * 1024
"""Reads wait while more bytes than this have not been handed to NATS."""

_USE_TCP = "use a TCP connection to the segment store, which permits larger packets"

_log = structlog.get_logger(__name__)

Respond = Callable[[bytes], None]
"""Sends a reply; must not wait."""


class PacketDesk:
    """Answers single packets, at once or when everything that the answer depends on is durable."""

    def __init__(self, control: ControlDesk, throttle: Throttle) -> None:
        self._control = control
        self._throttle = throttle
        self._reads = ReadDesk(control.store, self._read_done, control.spawn)
        self._readers: dict[int, tuple[int, Respond]] = {}
        self._read_count = 0

    def handle(self, verb: str, data: bytes, respond: Respond) -> None:
        """Answer one request exactly once, also on an error."""
        request_id = 0

        def deliver(message: Message) -> None:
            respond(b"".join(encode_message(message, request_id)))

        try:
            packet = _one_packet(data)
            request_id = packet.request_id
            message = decode_message(packet)
            if isinstance(message, CreateTransient):
                raise InvalidRequest(
                    "a transient segment belongs to a connection, and NATS has none",
                    remedy="create it over a TCP connection to the segment store",
                )
            exchange = SEGMENT_REQUESTS.get(verb)
            if exchange is None or exchange.request is not type(message):
                raise InvalidRequest("the verb does not fit the packet", verb=verb)
            if len(packet.payload) > PAYLOAD_SIZE_BYTES_MAX:
                raise _too_large("the payload is too large for NATS", len(packet.payload))
            if isinstance(message, ReadSegment):
                self._read(request_id, message, respond)
            else:
                self._perform(message, packet.payload, deliver)
        except AnabranchError as error:
            deliver(failed(error))

    def _perform(self, message: Message, payload: bytes, deliver: Deliver) -> None:
        if isinstance(message, SetupAppend):
            setup_without_session(self._control.store, message, deliver)
            return
        if isinstance(message, AppendOnce | AppendTogether | MergeBatch) and self._throttle.paused:
            raise Overloaded("the store accepts no appends at the moment")
        self._control.ask(message, deliver, Given(payload))

    # --- reads --------------------------------------------------------------------------------

    def pause_reads(self) -> None:
        """Stop answering reads: NATS takes replies more slowly than they are produced."""
        self._reads.pause()

    def resume_reads(self) -> None:
        """Answer reads again."""
        self._reads.resume()

    def stop_reads(self, error: AnabranchError) -> None:
        """Answer all waiting reads with `error`."""
        self._reads.close()
        for number in tuple(self._readers):
            self._read_done(failed(error), number, b"")

    def _read(self, request_id: int, request: ReadSegment, respond: Respond) -> None:
        self._read_count += 1
        number = self._read_count
        self._readers[number] = (request_id, respond)
        size_max = min(request.size_max, PAYLOAD_SIZE_BYTES_MAX)
        try:
            self._reads.submit(number, replace(request, size_max=size_max))
        except AnabranchError:
            del self._readers[number]
            raise

    def _read_done(self, message: Message, number: int, data: Bytes) -> None:
        request_id, respond = self._readers.pop(number)
        if len(data) > PAYLOAD_SIZE_BYTES_MAX:
            error = _too_large("the append at the offset is too large for NATS", len(data))
            message, data = failed(error), b""
        respond(b"".join(encode_message(message, request_id, data)))


class NatsDoor:
    """Subscriptions of one process, by container."""

    def __init__(self, client: Client, control: ControlDesk, throttle: Throttle) -> None:
        self._client = client
        self._spawn = control.spawn
        self._desk = PacketDesk(control, throttle)
        self._subscriptions: dict[int, Subscription] = {}
        self._sending = 0

    async def serve(self, containers: frozenset[int]) -> bool:
        """Answer for exactly these containers. If NATS fails this returns False; call it again."""
        try:
            for container in containers - self._subscriptions.keys():
                subject = subjects.segment_request(container, "*")
                self._subscriptions[container] = await self._client.subscribe(
                    subject,
                    cb=self._callback(),
                    pending_bytes_limit=REQUESTS_WAITING_SIZE_BYTES_MAX,
                )
            for container in self._subscriptions.keys() - containers:
                await self._subscriptions[container].unsubscribe()
                del self._subscriptions[container]
        except (nats.errors.Error, OSError) as error:
            _log.warning("cannot follow the containers for requests over NATS", error=repr(error))
            return False
        return True

    def stop_reads(self, error: AnabranchError) -> None:
        """Answer all waiting reads with `error`."""
        self._desk.stop_reads(error)

    @property
    def idle(self) -> bool:
        """Whether every answer was handed to NATS."""
        return self._sending == 0

    def _callback(self) -> Callable[[Msg], Awaitable[None]]:
        async def received(message: Msg) -> None:
            verb = message.subject.rpartition(".")[2]

            def respond(data: bytes) -> None:
                if message.reply:
                    self._sending += len(data)
                    if self._sending > REPLIES_WAITING_SIZE_BYTES_MAX:
                        self._desk.pause_reads()
                    self._spawn(self._reply(message.reply, data))

            self._desk.handle(verb, message.data, respond)

        return received

    async def _reply(self, inbox: str, data: bytes) -> None:
        try:
            await self._client.publish(inbox, data)
        except (nats.errors.Error, OSError) as error:
            _log.warning("cannot send a reply over NATS", error=repr(error))
        finally:
            self._sending -= len(data)
            if self._sending <= REPLIES_WAITING_SIZE_BYTES_MAX // 2:
                self._desk.resume_reads()


def _one_packet(data: bytes) -> Packet:
    """Raises BadPacket."""
    parser = PacketParser()
    packets = list(parser.feed(data))
    if len(packets) != 1 or parser.pending_size_bytes:
        raise BadPacket("the request is not exactly one packet", packets=len(packets))
    return packets[0]


def _too_large(message: str, size: int) -> InvalidRequest:
    return InvalidRequest(message, remedy=_USE_TCP, size=size, limit=PAYLOAD_SIZE_BYTES_MAX)
