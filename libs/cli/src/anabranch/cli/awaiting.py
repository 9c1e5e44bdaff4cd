"""Waits for the end of a change, and shows its steps meanwhile."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.admin import Admin, Fields
from anabranch.cli.output import Output
from anabranch.client import Operation, OperationState
from anabranch.common.contracts.base import ErrorBody
from anabranch.common.errors import OutcomeUnknown
from anabranch.common.runtime.clock import Clock

LOOK_S = 2.0
"""The longest single wait for an operation's end."""


@Parameter(name="*")
@dataclass(frozen=True)
class Patience:
    """Options of every command that makes a change."""

    wait: Annotated[bool, Parameter(negative="--no-wait")] = True
    "Return when the change is done; --no-wait: as soon as it is accepted."
    timeout: float = 600.0
    "Seconds to wait; the change continues afterwards."


async def carried_out(
    start: Callable[[float], Awaitable[Operation]],
    admin: Admin,
    output: Output,
    patience: Patience,
    clock: Clock,
) -> Operation:
    """Start a change with the given wait; returns its operation, which has ended if `wait`.

    Raises the change's error; OutcomeUnknown after the timeout, with its operation.
    """
    deadline_s = clock.monotonic() + patience.timeout
    operation = await start(min(LOOK_S, patience.timeout) if patience.wait else 0.0)
    if operation.state is OperationState.SUCCEEDED or not patience.wait:
        return operation
    await ended(operation.operation_id, admin, output, clock, deadline_s)
    return Operation(operation.operation_id, OperationState.SUCCEEDED)


async def ended(
    operation: str, admin: Admin, output: Output, clock: Clock, deadline_s: float
) -> Fields:
    """Wait for an operation, and print each of its steps. Raises as `carried_out`."""
    told: object = None
    while True:
        left_s = deadline_s - clock.monotonic()
        found = await admin.operation(operation, wait_s=max(min(LOOK_S, left_s), 0.0))
        if found["state"] == "succeeded":
            return found
        if found["state"] == "failed":
            raise ErrorBody.model_validate(found["error"]).to_error()
        if left_s <= 0:
            raise OutcomeUnknown(
                "the operation did not end in time; it continues",
                operation=operation,
            )
        news = (found.get("step"), found.get("attempts"))
        if news != told:
            told = news
            output.progress(_progress(found, clock.now_ms()), found)


def _progress(found: Fields, now_ms: int) -> str:
    what = f"{found.get('kind') or 'working'}: {found.get('step') or 'waiting for its turn'}"
    since_ms = found.get("since_ms")
    text = f"{what}, for {max(0, now_ms - since_ms) / 1000:.0f} s" if since_ms else what
    failure = found.get("last_error")
    if failure:
        text += f"; tried {found['attempts']} times: {failure['message']}"
    return text
