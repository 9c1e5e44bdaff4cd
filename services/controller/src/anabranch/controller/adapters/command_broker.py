"""The command queue and the notices, carried by FastStream.

One durable pull consumer per bucket, one command at a time in each (`max_ack_pending=1` keeps
the order also across redeliveries), delivered as often as it takes. FastStream acknowledges
when the handler returns, which is when the decision is durable and answered; `TryAgain` puts
the message back to the head of its bucket after a pause.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import structlog
from faststream import AckPolicy
from faststream.exceptions import NackMessage
from faststream.nats import JStream, NatsBroker, NatsMessage, PullSub
from nats.js.api import ConsumerConfig

from anabranch.common.adapters.nats_connection import PENDING_SIZE_BYTES_MAX, RECONNECT_WAIT_S
from anabranch.common.contracts.subjects import (
    COMMAND_STREAM,
    command_consumer,
    command_filter,
)
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.tracing import trace_parent_in
from anabranch.controller.ports import TryAgain

ACK_WAIT_S = 30.0
"""Longer than deciding one command can take: every call in it has a shorter deadline."""
PULL_EXPIRES_S = 2.0
"""Also how long a bucket may stand still after a connection broke unseen."""
TRY_AGAIN_S = 1.0
DEFECT_PAUSE_S = 5.0
GRACE_S = 10.0

_log = structlog.get_logger(__name__)


class Delivered(NamedTuple):
    """What of a message is handled. Read by the decoder, because injecting headers costs more."""

    body: bytes
    trace_parent: str


def command_broker(url: str, handle: Callable[[bytes, str], Awaitable[None]]) -> NatsBroker:
    """A broker that gives every command's body and trace parent to `handle` once started."""
    broker = NatsBroker(
        url,
        name="controller-commands",
        max_reconnect_attempts=-1,
        reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]
        pending_size=PENDING_SIZE_BYTES_MAX,
        graceful_timeout=GRACE_S,
        apply_types=False,
        logger=None,
    )

    async def on_command(delivered: Delivered) -> None:
        try:
            await handle(delivered.body, delivered.trace_parent)
        except TryAgain as refusal:
            _log.warning("a command will be tried again", cause=str(refusal.cause))
            raise NackMessage(delay=TRY_AGAIN_S) from refusal
        except Exception as defect:
            _log.exception("a command could not be handled because of a defect")
            raise NackMessage(delay=DEFECT_PAUSE_S) from defect

    for bucket in range(SHARD_COUNT):
        broker.subscriber(
            command_filter(bucket),
            durable=command_consumer(bucket),
            stream=JStream(COMMAND_STREAM, declare=False),
            pull_sub=PullSub(batch_size=1, timeout=PULL_EXPIRES_S),
            config=ConsumerConfig(ack_wait=ACK_WAIT_S, max_deliver=-1, max_ack_pending=1),
            ack_policy=AckPolicy.NACK_ON_ERROR,
            decoder=_delivered,
            no_reply=True,
        )(on_command)
    return broker


async def _delivered(message: NatsMessage) -> Delivered:
    """The bytes as they are: what they mean is the handler's to judge."""
    return Delivered(message.body, trace_parent_in(message.headers))
