"""The command queue and the notices, over FastStream.

Each bucket has one durable pull consumer and one command at a time: `max_ack_pending=1` keeps the
order even across redeliveries and changes of owner. Deliveries are unlimited. A controller pulls
only from owned buckets. When it loses a bucket, it stops pulling and finishes the command in hand.

    pulled ── handled ───────────────────────▶ acknowledged
      │ ▲        │ TryAgain: a second later
      │ └────────┤ defect: later and later
      │          └ the tenth defect ─▶ parked ▶ acknowledged
      └─ the bucket was lost meanwhile: given back for its owner

The controller acknowledges a command once the decision is durable and answered. Until then it
reports progress to the server again and again. If the reports stop, because the owner died or the
message arrived after the last pull from a lost bucket, the server soon delivers the command again.
Defects are counted in memory, per bucket and command: a new owner starts at zero.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial

import nats.errors
import structlog
from faststream.nats import JStream, NatsBroker, NatsMessage, PullSub
from faststream.nats.subscriber.usecases import PullStreamSubscriber
from nats.aio.client import Client
from nats.js.api import ConsumerConfig

from anabranch.common.adapters.nats_connection import (
    close_nats,
    connect_nats,
    keeping_cancellation,
)
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.subjects import (
    COMMAND_STREAM,
    command_consumer,
    command_filter,
)
from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.backoff import Backoff
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng
from anabranch.common.runtime.nats_target import NatsTarget
from anabranch.common.workflow.containment import Containment
from anabranch.controller.domain.parking import (
    PARK_AT_COUNT,
    PAUSES,
    Defects,
    ParkedCommand,
    command_id_in,
    headers_to_keep,
)
from anabranch.controller.ports import TryAgain

ACK_WAIT_S = 5.0
"""The time without a progress report after which a command is delivered again; its bucket waits
meanwhile. It equals the duration of a lease: when a controller takes over a dead owner's buckets,
the commands in hand are delivered again.
"""
TELL_S = ACK_WAIT_S / 4
"""The period of progress reports: two may be lost or late."""
IN_HAND_S_MAX = 30.0
"""Longer than any decision can take, because every call in it has a shorter deadline. After this
time the controller stops reporting progress.
"""
PULL_EXPIRES_S = 2.0
"""Also the time for which a bucket may stand still after a connection broke unnoticed."""
TRY_AGAIN_S = 1.0
AWAY = Backoff(first_s=2.0, longest_s=2.0)
"""The pause while a bucket's consumer is away: all buckets lose it at once, and retry apart."""
GRACE_S = 10.0

Handle = Callable[[Envelope, int], Awaitable[None]]
"""Handles a request. The second argument is the server's time, in Unix milliseconds, at which the
queue stored the request. Raises TryAgain.
"""
Park = Callable[[ParkedCommand], Awaitable[None]]
"""Stores a parked command durably. Raises Unavailable."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _InHand:
    message: NatsMessage
    until_s: float
    """The monotonic time after which the controller reports no more progress."""


class _Broker(NatsBroker):
    """FastStream's broker on a connection that this project opens.

    FastStream's own connection would send credentials without TLS if the server offers none. It
    would also stop reconnecting for ever after temporary errors, such as too many connections.
    """

    def __init__(self, target: NatsTarget) -> None:
        servers = list(target.addresses)
        super().__init__(servers, graceful_timeout=GRACE_S, apply_types=False, logger=None)
        self._target = target

    async def _connect(self) -> Client:
        connection = await connect_nats(self._target, "controller-commands")
        self.config.connect(connection)
        return connection


class CommandQueue:
    """Handles the commands of the buckets given to `own`, and publishes notices."""

    def __init__(
        self,
        target: NatsTarget,
        handle: Handle,
        park: Park,
        clock: Clock,
        *,
        rng: Rng,
        containment: Containment,
        pause_ratio: float = 1.0,
    ) -> None:
        """`pause_ratio` shortens the pauses after defects, for tests."""
        self._handle = handle
        self._park = park
        self._clock = clock
        self._rng = rng
        self._containment = containment
        self._pause_ratio = pause_ratio
        self._broker = _Broker(target)
        self._subscribers = [self._subscriber(bucket) for bucket in range(SHARD_COUNT)]
        self._client: Client | None = None
        self._owned = [asyncio.Event() for _ in range(SHARD_COUNT)]
        self._defects: dict[int, Defects] = {}
        self._in_hand: dict[int, _InHand] = {}
        self._empty_handed = asyncio.Event()
        self.parked_count = 0
        """Commands parked since the start."""

    async def start(self) -> None:
        """Connect. Raises Unavailable, Unauthorized."""
        try:
            self._client = await self._broker.connect()
            await self._broker.start()
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise Unavailable("the command queue cannot be read", cause=repr(error)) from error

    def own(self, buckets: Collection[int]) -> None:
        """Pull from these buckets from now on, and from no others."""
        for bucket, owned in enumerate(self._owned):
            if bucket in buckets:
                owned.set()
            else:
                owned.clear()

    async def serve(self) -> None:
        """Pull and handle until cancelled; call `start` first."""
        async with asyncio.TaskGroup() as group:
            for bucket in range(SHARD_COUNT):
                pull = partial(self._pull, bucket)
                group.create_task(self._containment.keep(f"commands of bucket {bucket}", pull))
            keep = self._containment.keep("commands in hand", self._keep_in_hand)
            group.create_task(keep)

    async def stop(self) -> None:
        """Finish the commands in hand, within the grace time, and disconnect, even without a
        server.
        """
        self.own(())
        try:
            async with asyncio.timeout(GRACE_S):
                while self._in_hand:
                    self._empty_handed.clear()
                    await self._empty_handed.wait()
        except TimeoutError:
            _log.warning(
                "commands in hand stay in the queue for redelivery", count=len(self._in_hand)
            )
        try:
            with keeping_cancellation():
                await self._broker.stop()
        except (nats.errors.Error, OSError, TimeoutError, RuntimeError) as error:
            # The transport raises RuntimeError if it breaks while it is drained, as in
            # `close_nats`.
            _log.info("the command queue was not drained: NATS is away", error=repr(error))
        if self._client is not None:
            await close_nats(self._client)

    async def publish(self, body: bytes, subject: str) -> None:
        """Publish a notice, best effort; a caller that misses it queries the operation."""
        try:
            await self._broker.publish(body, subject)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            _log.warning("cannot send a notice", error=repr(error))

    def _subscriber(self, bucket: int) -> PullStreamSubscriber:
        found = self._broker.subscriber(
            command_filter(bucket),
            durable=command_consumer(bucket),
            stream=JStream(COMMAND_STREAM, declare=False),
            pull_sub=PullSub(batch_size=1, timeout=PULL_EXPIRES_S),
            config=ConsumerConfig(ack_wait=ACK_WAIT_S, max_deliver=-1, max_ack_pending=1),
            no_reply=True,
        )
        assert isinstance(found, PullStreamSubscriber)
        return found

    async def _pull(self, bucket: int) -> None:
        while True:
            await self._owned[bucket].wait()
            message = await self._next(bucket)
            if message is None:
                continue
            if not self._owned[bucket].is_set():
                await _settle(message.nack())
                continue
            self._in_hand[bucket] = _InHand(message, self._clock.monotonic() + IN_HAND_S_MAX)
            try:
                await self._perform(bucket, message)
            finally:
                del self._in_hand[bucket]
                self._empty_handed.set()

    async def _keep_in_hand(self) -> None:
        """Report progress on the commands in hand."""
        while True:
            await self._clock.sleep(TELL_S)
            for each in list(self._in_hand.values()):
                if self._clock.monotonic() < each.until_s:
                    await _settle(each.message.in_progress())

    async def _next(self, bucket: int) -> NatsMessage | None:
        """The bucket's next command; None if none came within the pull's time."""
        subscriber = self._subscribers[bucket]
        try:
            with keeping_cancellation():
                return await subscriber.get_one(timeout=PULL_EXPIRES_S)
        except TimeoutError:
            return None
        except (nats.errors.Error, OSError) as error:
            # The consumer or its stream is away: pause, then begin with a new subscription.
            _log.info("a bucket's commands cannot be pulled", bucket=bucket, error=repr(error))
            await self._clock.sleep(AWAY.delay_s(1, self._rng.random()))
            await _settle(subscriber.stop())
            return None

    async def _perform(self, bucket: int, message: NatsMessage) -> None:
        assert isinstance(message.body, bytes)
        try:
            stored_ms = int(message.raw_message.metadata.timestamp.timestamp() * 1000)
            await self._handle(Envelope.received(message.body, message.headers), stored_ms)
        except TryAgain as refusal:
            _log.warning("a command will be retried", cause=str(refusal.cause))
            await _settle(message.nack(delay=TRY_AGAIN_S))
            return
        except Exception as defect:  # noqa: BLE001
            # The service's edge: a defect in one command must not end the service for all callers.
            _log.exception("the handling of a command failed because of a defect", bucket=bucket)
            if not await self._set_aside(bucket, message, defect):
                return
        self._defects.pop(bucket, None)
        await _settle(message.ack())

    async def _set_aside(self, bucket: int, message: NatsMessage, defect: Exception) -> bool:
        """Park a command that failed too often, else give it back; returns whether it is parked."""
        raw = message.raw_message
        sequence = raw.metadata.sequence.stream
        defects = Defects.after(self._defects.get(bucket), sequence, self._clock.now_ms())
        self._defects[bucket] = defects
        if defects.count >= PARK_AT_COUNT:
            parked = ParkedCommand(
                command_id=command_id_in(raw.data, sequence),
                bucket=bucket,
                subject=raw.subject,
                body=raw.data,
                headers=headers_to_keep(raw.headers or {}),
                error=repr(defect),
                attempts=defects.count,
                first_ms=defects.first_ms,
                last_ms=defects.last_ms,
            )
            try:
                await self._park(parked)
            except AnabranchError as error:
                _log.warning("a command cannot be parked now", bucket=bucket, cause=str(error))
            else:
                self.parked_count += 1
                _log.error(
                    "a command was parked, because its handling fails repeatedly",
                    command_id=parked.command_id,
                    subject=parked.subject,
                    error=parked.error,
                    remedy="`anabranch operation parked` shows it; redrive or drop it",
                )
                return True
        pause_s = PAUSES.delay_s(defects.count, self._rng.random()) * self._pause_ratio
        await _settle(message.nack(delay=pause_s))
        return False


async def _settle(answer: Awaitable[None]) -> None:
    """Report a message's outcome to the server.

    If the report is lost, the server delivers the command again, and the controller recognises its
    id.
    """
    try:
        with keeping_cancellation():
            await answer
    except (nats.errors.Error, OSError, TimeoutError) as error:
        _log.warning("cannot report a command's outcome to the command queue", error=repr(error))
