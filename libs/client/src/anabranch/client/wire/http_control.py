"""The control plane by HTTP: queries, actions and commands through a gateway.

A gateway passes each request to the cluster's control plane and returns the contract's JSON, so
this port raises the same errors as the one by NATS. The client needs nothing but HTTP.

Within the caller's deadline, the client repeats a request that never left this process, that was
refused with an error of the kind Retry, or whose answer was lost. This is safe because a command
carries its id, and an action that is already done succeeds again. Only the begin of a transaction
without a key is not repeated after a lost answer, because each one begins another transaction. The
gateway waits only for a while for the end of a command's work; after that the client polls the
operation.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from anabranch.client.wire.control import ATTEMPT_PAUSE_S, A
from anabranch.client.wire.http_calls import Call, GatewayCalls
from anabranch.client.wire.naming import naming
from anabranch.client.wire.read_tokens import points_in
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.command import CommandBase, about, kind_of
from anabranch.common.contracts.commands import OperationState
from anabranch.common.contracts.control import ACTIONS
from anabranch.common.contracts.queries import GetOperation, OperationFound, Query
from anabranch.common.contracts.transactions import BeginTransaction
from anabranch.common.errors import (
    AnabranchError,
    Closed,
    OperationNotFound,
    OutcomeUnknown,
    Retry,
    TopicNotProvisioned,
    Unavailable,
    Unknown,
    UnsupportedProtocol,
)
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.runtime.trace_context import asking

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

PATH = "/v1/control"
ATTEMPT_S = 15.0
"""The longest wait that one request asks of the gateway: below the gateway's own limits."""
ANSWER_EXTRA_S = 5.0
"""Time for the way to the gateway and back, beyond the wait that the request asks for."""
PAUSE_S = ATTEMPT_PAUSE_S
POLL_LONGEST_S = 1.0

_CHANGING = frozenset(asked.query for asked in ACTIONS.values())

C = TypeVar("C", bound=Contract)


class CommandAnswered(Contract):
    """The gateway's answer to a command: the operation's state when the gateway answered."""

    operation: str
    state: OperationState


class HttpControlPlane:
    """A `ControlPlane` on a gateway; owns the connections of `calls`."""

    def __init__(
        self, calls: GatewayCalls, *, clock: Clock, ids: IdSource, tracer: "Tracer | None" = None
    ) -> None:
        self._calls = calls
        self._clock = clock
        self._ids = ids
        self._tracer = tracer
        self._closed = False

    def new_command_id(self) -> str:
        return self._ids.new_id()

    async def close(self) -> None:
        """Close the connections; repeatable."""
        self._closed = True
        await self._calls.close()

    # --- queries and actions --------------------------------------------------------------

    async def query(self, name: str, query: Query, answer: type[A], *, timeout_s: float) -> A:
        """See `ControlPlane`."""
        self._refuse_if_closed()
        with asking(self._tracer, f"client query {name}"), naming(query):
            kind = "action" if name in ACTIONS else "query"
            body = query.model_dump_json(exclude_defaults=True).encode()
            deadline_s = self._clock.monotonic() + timeout_s

            async def ask(left_s: float) -> A:
                return await self._post(f"{PATH}/{kind}/{name}", body, answer, left_s)

            return await self._repeated(ask, deadline_s, query)

    async def _repeated(
        self, ask: Callable[[float], Awaitable[A]], deadline_s: float, query: Query
    ) -> A:
        changes = type(query) in _CHANGING
        is_unkeyed_begin = isinstance(query, BeginTransaction) and query.key is None
        doubt: Unknown | None = None
        while True:
            left_s = deadline_s - self._clock.monotonic()
            try:
                return await ask(max(left_s, PAUSE_S))
            except TopicNotProvisioned:
                raise  # It ends a wait that the query asks for.
            except (Retry, Unknown) as error:
                doubt = error if isinstance(error, Unknown) else doubt
                if doubt is not None and is_unkeyed_begin:
                    raise
                if self._clock.monotonic() + PAUSE_S >= deadline_s:
                    raise (doubt or error) if changes else _unavailable(error) from error
            await self._clock.sleep(PAUSE_S)

    # --- commands -------------------------------------------------------------------------

    async def execute(
        self, command: CommandBase, *, timeout_s: float, wait_s: float | None = None
    ) -> OperationState:
        """See `ControlPlane`."""
        self._refuse_if_closed()
        with asking(self._tracer, f"client command {kind_of(command)}"), naming(command):
            began_s = self._clock.monotonic()
            state = await self._accepted(command, began_s + timeout_s, wait_s)
            if state is OperationState.SUCCEEDED:
                return state
            if wait_s is None:
                return await self._ended(command, began_s + timeout_s)
            left_s = max(wait_s - ATTEMPT_S, 0.0)  # The gateway has already waited for the rest.
            try:
                return await self._ended(command, self._clock.monotonic() + left_s)
            except OutcomeUnknown:
                return OperationState.RUNNING

    async def _accepted(
        self, command: CommandBase, deadline_s: float, wait_s: float | None
    ) -> OperationState:
        """Send the command until the gateway answers; return the operation's state.

        Raises as `execute` does.
        """
        body = command.model_dump_json().encode()
        path = f"{PATH}/command/{kind_of(command)}"
        doubt: Unknown | None = None
        while True:
            left_s = max(deadline_s - self._clock.monotonic(), PAUSE_S)
            wanted_s = left_s if wait_s is None else wait_s
            try:
                found = await self._post(
                    path, body, CommandAnswered, left_s, wait_s=min(wanted_s, ATTEMPT_S)
                )
            except (Retry, Unknown) as error:
                doubt = error if isinstance(error, Unknown) else doubt
                if self._clock.monotonic() + PAUSE_S >= deadline_s:
                    raise _in_doubt(command) if doubt is not None else error from error
            else:
                return found.state
            await self._clock.sleep(PAUSE_S)

    async def _ended(self, command: CommandBase, deadline_s: float) -> OperationState:
        """Poll until the work succeeded. Raises its failure; OutcomeUnknown after the deadline."""
        query = GetOperation(operation=command.command_id, **about(command)._asdict())
        body = query.model_dump_json(exclude_defaults=True).encode()
        pause_s = PAUSE_S
        while True:
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0:
                raise _in_doubt(command)
            try:
                found = await self._post(f"{PATH}/query/operation", body, OperationFound, left_s)
            except (OperationNotFound, Retry, Unknown):
                pass  # A controller lags behind, or cannot be reached at the moment.
            else:
                if found.state == "succeeded":
                    return OperationState.SUCCEEDED
                if found.state == "failed":
                    raise _failure_of(found)
            await self._clock.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, POLL_LONGEST_S)

    # --- both -----------------------------------------------------------------------------

    async def _post(
        self, path: str, body: bytes, answer: type[C], left_s: float, *, wait_s: float = 0.0
    ) -> C:
        """Make one attempt. Raises the error in the answer, and as `GatewayCalls.once`."""
        asked_s = min(left_s, ATTEMPT_S)
        query = {"timeout": f"{asked_s:g}", **({"wait": f"{wait_s:g}"} if wait_s else {})}
        told = await self._calls.once(
            Call(
                "POST",
                path,
                query,
                {"content-type": "application/json"},
                content=body,
                timeout_s=asked_s + wait_s + ANSWER_EXTRA_S,
            )
        )
        try:
            found = answer.model_validate_json(told.body)
        except ValidationError as error:
            raise UnsupportedProtocol(
                "the gateway's answer is not of the expected form",
                remedy="use a gateway and a client of the same release",
                path=path,
                cause=str(error)[:200],
            ) from error
        self._calls.learn(points_in(found))
        return found

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Closed("the client is closed", remedy="connect again")


def _unavailable(error: AnabranchError) -> AnabranchError:
    """A query changes nothing, so a lost answer leaves no outcome in doubt."""
    if isinstance(error, Unknown):
        return Unavailable("the gateway did not answer in time", cause=error.message)
    return error


def _in_doubt(command: CommandBase) -> OutcomeUnknown:
    return OutcomeUnknown(
        "the command did not end in time; it may still be carried out",
        operation=command.command_id,
    )


def _failure_of(found: OperationFound) -> AnabranchError:
    if found.error is None:
        return AnabranchError("the operation failed without a reason")
    return found.error.to_error()
