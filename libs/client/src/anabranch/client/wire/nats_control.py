"""The control plane by NATS: queries by request/reply, commands by the JetStream work queue.

The client publishes a command under one id as often as needed. The controller answers a repeated id
with the same answer, so a lost reply costs time, never a second execution. The controller announces
the end of the work once. The announcement may get lost, so the client also polls.
Everything happens within the caller's deadline. If the deadline passes, the client raises
Unavailable if the command cannot have reached the cluster, and OutcomeUnknown otherwise.
"""

import asyncio
import contextlib
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import nats.errors
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError

from anabranch.client.wire.control import ATTEMPT_PAUSE_S, A
from anabranch.client.wire.controllers import Roster
from anabranch.client.wire.naming import naming
from anabranch.client.wire.nats_queries import START_HINT, NatsQueries
from anabranch.client.wire.read_tokens import Memory, points_in
from anabranch.common.adapters.nats_connection import keeping_cancellation
from anabranch.common.contracts import subjects
from anabranch.common.contracts.base import ErrorBody
from anabranch.common.contracts.command import CommandBase, about, kind_of, subject_of
from anabranch.common.contracts.commands import (
    ANSWERS,
    Accepted,
    OperationState,
    OperationStatus,
    Rejected,
)
from anabranch.common.contracts.queries import (
    GetOperation,
    OperationFound,
    Query,
    QueryFailed,
)
from anabranch.common.errors import (
    AnabranchError,
    Closed,
    ConnectionLost,
    OperationNotFound,
    OutcomeUnknown,
    ReadTokenUnknown,
    Retry,
    TopicNotProvisioned,
    Unavailable,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.runtime.speaking import enveloped
from anabranch.common.runtime.trace_context import asking

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_ATTEMPT_S = 2.0
_PAUSE_S = ATTEMPT_PAUSE_S
_POLL_S = 1.0
_CLOSE_S = 2.0


class NatsControlPlane:
    """A `ControlPlane` on a NATS connection, which it owns."""

    def __init__(
        self,
        connection: NatsClient,
        *,
        clock: Clock,
        ids: IdSource,
        tracer: "Tracer | None" = None,
        token: str = "",
    ) -> None:
        self._connection = connection
        self._token = token
        self._tracer = tracer
        self._jetstream: JetStreamContext = connection.jetstream()
        self._clock = clock
        self._ids = ids
        self._memory = Memory()
        first = int.from_bytes(ids.new_bytes()[:4])
        self._queries = NatsQueries(connection, clock, Roster(first), token)
        self._closed = False

    def new_command_id(self) -> str:
        return self._ids.new_id()

    async def close(self) -> None:
        """Close the connection and give up the calls under way on it. Repeatable.

        If the server is away, the NATS client fails to flush its buffer; this counts as success.
        """
        self._closed = True
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(_CLOSE_S):
                await self._connection.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Closed("the client is closed", remedy="connect again")

    # --- queries --------------------------------------------------------------------------

    async def query(self, name: str, query: Query, answer: type[A], *, timeout_s: float) -> A:
        """See `ControlPlane`. Retries errors of the kind Retry within the time, but not the end of
        a wait that the query asks for.

        The answer includes the effects of this client's own commands.
        """
        self._refuse_if_closed()
        with asking(self._tracer, f"client query {name}"), naming(query):
            return await self._query(name, query, answer, timeout_s)

    async def _query(self, name: str, query: Query, answer: type[A], timeout_s: float) -> A:
        deadline_s = self._clock.monotonic() + timeout_s
        while True:
            try:
                left_s = deadline_s - self._clock.monotonic()
                return await self._ask(name, query, answer, min(_ATTEMPT_S, left_s))
            except TopicNotProvisioned:
                raise
            except Retry:
                if self._clock.monotonic() + _PAUSE_S >= deadline_s:
                    raise
                await self._clock.sleep(_PAUSE_S)

    async def _ask(self, name: str, query: Query, answer: type[A], timeout_s: float) -> A:
        """Make one attempt. Raises the error in the answer, Unavailable, ConnectionLost."""
        while True:
            payload = self._memory.demanded_by(query).model_dump_json().encode()
            try:
                found = _parse_answer(await self._queries.ask(name, payload, timeout_s), answer)
            except ReadTokenUnknown as error:
                if not self._memory.forget(error):
                    raise
            else:
                self._memory.learn(points_in(found))
                return found

    # --- commands -------------------------------------------------------------------------

    async def execute(
        self, command: CommandBase, *, timeout_s: float, wait_s: float | None = None
    ) -> OperationState:
        """See `ControlPlane`."""
        self._refuse_if_closed()
        with asking(self._tracer, f"client command {kind_of(command)}"), naming(command):
            return await self._execute(command, timeout_s, wait_s)

    async def _execute(
        self, command: CommandBase, timeout_s: float, wait_s: float | None
    ) -> OperationState:
        delivered = accepted = False
        inbox = self._connection.new_inbox()
        command = command.model_copy(
            update={
                "reply_to": inbox,
                "wait_ms": math.ceil(timeout_s * 1000),
            }
        )

        def published() -> None:
            nonlocal delivered
            delivered = True

        subscriptions: list[Subscription] = []
        try:
            async with asyncio.timeout(timeout_s) as time_left:
                answers = await self._subscribe(inbox)
                subscriptions.append(answers)
                notices = await self._subscribe(subjects.operation_notice(command.command_id))
                subscriptions.append(notices)
                answer = await self._publish_until_answered(command, answers, published)
                accepted = True
                if wait_s is not None:
                    time_left.reschedule(asyncio.get_running_loop().time() + wait_s)
                if answer is not None:
                    await self._until_done(command, notices)
        except TimeoutError:
            if accepted and wait_s is not None:
                return OperationState.RUNNING
            raise _time_ran_out(command, delivered) from None
        finally:
            for subscription in subscriptions:
                await self._unsubscribe(subscription)
        return OperationState.SUCCEEDED

    async def _subscribe(self, subject: str) -> Subscription:
        try:
            return await self._connection.subscribe(subject, pending_msgs_limit=1024)
        except nats.errors.Error as error:
            raise ConnectionLost("the connection to nats is lost", reason=str(error)) from error

    async def _unsubscribe(self, subscription: Subscription) -> None:
        with contextlib.suppress(nats.errors.Error):  # The subscription ended with the connection.
            await subscription.unsubscribe()

    async def _publish_until_answered(
        self, command: CommandBase, answers: Subscription, published: Callable[[], None]
    ) -> Accepted | None:
        """Return the acceptance, or None if a poll found the operation done. Raises a rejection."""
        patience_s = _ATTEMPT_S
        while True:
            if await self._publish(command):
                published()
                message = await _next_within(answers, patience_s)
                patience_s *= 2
                if message is not None:
                    return self._accepted(message.data)
                if await self._is_done(command):
                    return None
            else:
                await self._clock.sleep(_PAUSE_S)

    async def _publish(self, command: CommandBase) -> bool:
        """Make one attempt; return whether the command may have been stored."""
        request = enveloped(command.model_dump_json().encode(), self._token)
        try:
            with keeping_cancellation():
                await self._jetstream.publish(
                    subject_of(command),
                    request.body,
                    timeout=_ATTEMPT_S,
                    headers=request.headers(),
                )
        except (NoStreamResponseError, nats.errors.NoRespondersError, APIError):
            return False
        except (nats.errors.TimeoutError, TimeoutError):
            return True
        except nats.errors.Error as error:
            raise ConnectionLost("the connection to nats is lost", reason=str(error)) from error
        return True

    def _accepted(self, data: bytes) -> Accepted:
        answer = ANSWERS.validate_json(data)
        self._memory.learn(points_in(answer))
        if isinstance(answer, Rejected):
            raise answer.error.to_error()
        return answer

    async def _until_done(self, command: CommandBase, notices: Subscription) -> None:
        """Wait for the announcement, and poll at intervals.

        If a command's work spreads over shards, its end is always polled, because the announcement
        carries the read token of one shard only.
        """
        while True:
            message = await _next_within(notices, _POLL_S)
            if message is not None:
                status = OperationStatus.model_validate_json(message.data)
                self._memory.learn(points_in(status))
                if status.state is not OperationState.RUNNING and not command.spreads:
                    _raise_if_failed(status.state, status.error)
                    return
            if (message is None or command.spreads) and await self._is_done(command):
                return

    async def _is_done(self, command: CommandBase) -> bool:
        """Poll once. Raises the operation's failure; an unknown operation counts as not done."""
        query = GetOperation(operation=command.command_id, **about(command)._asdict())
        try:
            found = await self._ask("operation", query, OperationFound, _ATTEMPT_S)
        except (OperationNotFound, Retry):
            return False
        _raise_if_failed(found.state, found.error)
        return found.state == "succeeded"


def _parse_answer(data: bytes, answer: type[A]) -> A:
    if json.loads(data).get("ok") is False:
        raise QueryFailed.model_validate_json(data).error.to_error()
    return answer.model_validate_json(data)


def _raise_if_failed(state: str, error: ErrorBody | None) -> None:
    if state == OperationState.FAILED:
        if error is None:
            raise AnabranchError("the operation failed without a reason")
        raise error.to_error()


def _time_ran_out(command: CommandBase, delivered: bool) -> AnabranchError:
    if not delivered:
        return Unavailable("no cluster accepted the command", remedy=START_HINT)
    return OutcomeUnknown(
        "the command did not end in time; it may still be carried out",
        operation=command.command_id,
    )


async def _next_within(subscription: Subscription, seconds: float) -> Msg | None:
    try:
        with keeping_cancellation():
            return await subscription.next_msg(timeout=seconds)
    except nats.errors.TimeoutError:
        return None
