"""The promise door: a controller that looks for a leader asks this store's copies over NATS.

Serves ``ana.copy.<node id>.promise``, for all containers: a store that leads none is asked, too. A
question is answered when the promise is durable. The copies bound how long that may take, and a
controller that gave up earlier asks again. Promises of different containers wait for one group
commit together.

The door answers while NATS does. It keeps nothing between questions.
"""

import asyncio
from contextlib import suppress

import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from pydantic import ValidationError

from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.contracts.elections import (
    EndOfCopy,
    EpochPromised,
    PromiseEpoch,
    PromiseRefused,
)
from anabranch.common.contracts.subjects import promise_request
from anabranch.common.errors import (
    AnabranchError,
    InvalidRequest,
    Overloaded,
    Unavailable,
)
from anabranch.segstore.ports_replica import CopyHost, CopyState

CONCURRENT_MAX = 64
WAITING_MAX = 1024
"""One question for each container of the largest cluster."""

_log = structlog.get_logger(__name__)


class PromiseDesk:
    """Answers questions for promises."""

    def __init__(self, copies: CopyHost) -> None:
        self._copies = copies

    async def answer(self, data: bytes) -> bytes:
        """The encoded answer to an encoded question, errors included."""
        try:
            answer: Contract = await self._promise(_question(data))
        except AnabranchError as error:
            answer = PromiseRefused(error=ErrorBody.of(error))
        return answer.model_dump_json().encode()

    async def _promise(self, asked: PromiseEpoch) -> EpochPromised:
        # Not cancelled when the controller gives up: a promise that was begun becomes durable.
        state = await self._copies.promise(
            asked.container, asked.log_id, asked.container_epoch, None
        )
        _log.info(
            "promised a controller to refuse older epochs",
            container=asked.container, epoch=asked.container_epoch, copy=state.copy_id,
        )  # fmt: skip
        return _promised(state)


class PromiseDoor:
    """The subscription of one store. `copies`: those of this store."""

    def __init__(self, client: Client, node_id: str, copies: CopyHost) -> None:
        self._client = client
        self._node_id = node_id
        self._desk = PromiseDesk(copies)
        self._waiting: asyncio.Queue[Msg] = asyncio.Queue(WAITING_MAX)

    async def serve(self) -> None:
        """Answer until cancelled. Raises Unavailable if NATS does not take the subscription."""
        try:
            subscription = await self._client.subscribe(
                promise_request(self._node_id), cb=self._receive
            )
        except (nats.errors.Error, OSError) as error:
            raise Unavailable("NATS did not take a subscription", node=self._node_id) from error
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(CONCURRENT_MAX):
                    group.create_task(self._work())
        finally:
            with suppress(nats.errors.Error):  # the closed connection has ended the subscription
                await subscription.unsubscribe()

    async def _receive(self, message: Msg) -> None:
        try:
            self._waiting.put_nowait(message)
        except asyncio.QueueFull:
            full = Overloaded("too many controllers ask for promises", limit=WAITING_MAX)
            refusal = PromiseRefused(error=ErrorBody.of(full))
            await self._respond(message, refusal.model_dump_json().encode())

    async def _work(self) -> None:
        while True:
            message = await self._waiting.get()
            await self._respond(message, await self._desk.answer(message.data))

    async def _respond(self, message: Msg, answer: bytes) -> None:
        if not message.reply:
            return
        try:
            await self._client.publish(message.reply, answer)
        except (nats.errors.Error, OSError) as error:
            _log.warning("cannot send a promise over NATS", error=repr(error))


def _question(data: bytes) -> PromiseEpoch:
    """Raises InvalidRequest."""
    try:
        return PromiseEpoch.model_validate_json(data)
    except ValidationError as error:
        raise InvalidRequest("the question for a promise is malformed") from error


def _promised(state: CopyState) -> EpochPromised:
    if not state.copy_id:
        return EpochPromised()
    end = state.end
    return EpochPromised(
        copy_id=state.copy_id,
        end=EndOfCopy(
            container_epoch=end.container_epoch,
            number=end.number,
            last_sequence=end.last_sequence,
        ),
    )
