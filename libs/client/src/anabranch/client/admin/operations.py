"""Operations: the handles of accepted commands, by which a caller waits for and looks up outcomes.

`send` sends a command. It does not build the command or decide anything: it draws a command id if
the caller gave none, waits as long as asked, and returns the handle.
"""

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.common.contracts.command import CommandBase
from anabranch.common.contracts.commands import (
    OperationState,
)
from anabranch.common.contracts.operation_queries import (
    ListOperations,
    ListWork,
    OperationList,
    WorkList,
)
from anabranch.common.contracts.queries import PAGE_SIZE_MAX, GetOperation, OperationFound
from anabranch.common.errors import (
    AnabranchError,
    InvalidRequest,
    OperationNotFound,
    OutcomeUnknown,
    Retry,
)
from anabranch.common.runtime.clock import Clock

COMMAND_TIMEOUT_S = 30.0
POLL_FIRST_S = 0.05
POLL_LONGEST_S = 1.0
OperationFilter = Literal["running", "failed", "all"]
_COMMAND_ID = re.compile(r"[A-Za-z0-9_\-]{1,64}")


class Sending(TypedDict, total=False):
    """How a command is sent. Every key is optional.

    `wait`: return when the operation is complete (the default), or as soon as it is accepted.
    `timeout_s` limits the whole wait, after which OutcomeUnknown names the operation. `wait_s`, in
    place of `wait`: how long to wait for the end after acceptance. `command_id`: the id of the
    operation, drawn by default; up to 64 letters, digits, hyphens and underscores. A repeated id
    returns the first command's answer and has no further effect.
    """

    wait: bool
    timeout_s: float
    wait_s: float
    command_id: str


@dataclass(frozen=True, slots=True)
class Operation:
    """An accepted command. `state` is the one at the return of the call: SUCCEEDED or RUNNING.

    ::

        operation = await client.streams.seal("plant/sensors", wait=False)
        print(operation.operation_id, operation.state)
    """

    operation_id: str
    state: OperationState


async def send(
    control: ControlPlane, command: Callable[[str], CommandBase], **how: Unpack[Sending]
) -> Operation:
    """Send the command that `command` builds for an id. Raises as `ControlPlane.execute`."""
    command_id = how["command_id"] if "command_id" in how else control.new_command_id()
    if _COMMAND_ID.fullmatch(command_id) is None:
        raise InvalidRequest(
            "not a command id",
            remedy="use 1 to 64 letters, digits, hyphens and underscores",
            command_id=command_id[:80],
        )
    built = command(command_id)
    wait_s = how.get("wait_s", None if how.get("wait", True) else 0.0)
    timeout_s = how.get("timeout_s", COMMAND_TIMEOUT_S)
    state = await control.execute(built, timeout_s=timeout_s, wait_s=wait_s)
    return Operation(built.command_id, state)


class Operations:
    """The operations of a cluster; `client.operations`.

    A scope or stream remembers its last 256 operations, also beyond its deletion.

    ::

        operation = await client.streams.seal("plant/sensors", wait=False)
        await client.operations.wait(operation)
    """

    def __init__(self, control: ControlPlane, clock: Clock) -> None:
        self._control = control
        self._clock = clock

    async def describe(
        self, operation: Operation | str, *, timeout_s: float = QUERY_TIMEOUT_S
    ) -> OperationFound:
        """The operation's present state. Raises OperationNotFound.

        ::

            print((await client.operations.describe(operation)).state)
        """
        query = GetOperation(operation=_id_of(operation))
        return await self._control.query("operation", query, OperationFound, timeout_s=timeout_s)

    async def wait(
        self, operation: Operation | str, *, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> OperationFound:
        """Return when it succeeded. Raises the error that it failed with, OperationNotFound,
        Unavailable, OutcomeUnknown (fields: operation) when time ran out before its end.

        ::

            await client.operations.wait(operation, timeout_s=60)
        """
        found = await self.follow(operation, timeout_s=timeout_s)
        if found.state == "failed":
            raise failure_of(found)
        if found.state == "running":
            raise OutcomeUnknown(
                "the operation did not end in time; it continues",
                operation=found.operation,
            )
        return found

    async def follow(
        self, operation: Operation | str, *, timeout_s: float = COMMAND_TIMEOUT_S
    ) -> OperationFound:
        """The operation, as soon as it has ended; at the timeout, its present state.

        Raises OperationNotFound, and Unavailable if no controller answered by then.

        ::

            found = await client.operations.follow(operation, timeout_s=5)
        """
        deadline_s = self._clock.monotonic() + timeout_s
        pause_s = POLL_FIRST_S
        while True:
            left_s = deadline_s - self._clock.monotonic()
            found = await self._look(operation, left_s)
            if found is not None and (found.state != "running" or left_s <= 0):
                return found
            await self._clock.sleep(min(pause_s, max(left_s, 0.0)))
            pause_s = min(pause_s * 2, POLL_LONGEST_S)

    async def _look(self, operation: Operation | str, left_s: float) -> OperationFound | None:
        """None if that may change in the time that is left."""
        try:
            return await self.describe(
                operation, timeout_s=min(max(left_s, POLL_FIRST_S), QUERY_TIMEOUT_S)
            )
        except Retry:
            if left_s <= 0:
                raise
        except OperationNotFound:
            # Of one that was accepted some controller's copy is a little behind.
            if isinstance(operation, str) or left_s <= 0:
                raise
        return None

    async def list(
        self, state: OperationFilter = "all", *, scope: str = ""
    ) -> AsyncIterator[OperationFound]:
        """The operations that are remembered, by id, fetched page by page.

        `scope`: only those of the scope and its streams.

        ::

            running = [one async for one in client.operations.list("running")]
        """
        token = ""
        while True:
            page = await self.page(state, scope=scope, page_token=token)
            for operation in page.operations:
                yield operation
            if not (token := page.next_page_token):
                return

    async def page(
        self,
        state: OperationFilter = "all",
        *,
        scope: str = "",
        page_token: str = "",
        page_size: int = PAGE_SIZE_MAX,
    ) -> OperationList:
        """One page of them, from the start or from an earlier page's token.

        ::

            first = await client.operations.page("failed", page_size=10)
        """
        query = ListOperations(state=state, scope=scope, page_token=page_token, page_size=page_size)
        return await self._control.query(
            "list_operations", query, OperationList, timeout_s=QUERY_TIMEOUT_S
        )

    async def work_page(
        self, scope: str = "", *, page_token: str = "", page_size: int = PAGE_SIZE_MAX
    ) -> WorkList:
        """One page of the scopes and streams with pending work, by name: each with its step, its
        start, and its reason to wait or its error. Raises Unavailable.

        ::

            work = (await client.operations.work_page("plant")).work
        """
        query = ListWork(scope=scope, page_token=page_token, page_size=page_size)
        return await self._control.query("list_work", query, WorkList, timeout_s=QUERY_TIMEOUT_S)


def failure_of(found: OperationFound) -> AnabranchError:
    """The error of an operation that failed."""
    if found.error is None:
        return AnabranchError("the operation failed without a reason", operation=found.operation)
    return found.error.to_error()


def _id_of(operation: Operation | str) -> str:
    return operation.operation_id if isinstance(operation, Operation) else operation
