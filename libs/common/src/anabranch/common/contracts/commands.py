"""Commands: what somebody wants done. Work-queue messages, imperative names.

`command_id` is the idempotency key and becomes the operation's id: the same id gets the same
answer. `incarnation` says which life of the scope or stream is meant (None: whichever lives
when the command is decided). `reply_to` is the caller's inbox; the reply is an `Answer`, sent
when the decision is durable, which is before the work is done. The operation's end is
announced on `subjects.operation_notice` as an `OperationStatus`.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from anabranch.common.contracts.base import Contract, ErrorBody, ReadToken


class CommandBase(Contract):
    schema_number: Literal[1] = 1
    command_id: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_\-]+$")
    reply_to: str = ""
    deadline_ms: int = 0
    """Unix time in ms after which nobody waits; 0 = none. A later decision is refused."""
    scope: str


class CreateScope(CommandBase):
    kind: Literal["create_scope"] = "create_scope"


class DeleteScope(CommandBase):
    kind: Literal["delete_scope"] = "delete_scope"
    incarnation: int | None = None


class CreateStream(CommandBase):
    kind: Literal["create_stream"] = "create_stream"
    stream: str
    segment_count: int = 1


class SealStream(CommandBase):
    kind: Literal["seal_stream"] = "seal_stream"
    stream: str
    incarnation: int | None = None


class DeleteStream(CommandBase):
    kind: Literal["delete_stream"] = "delete_stream"
    stream: str
    incarnation: int | None = None


Command = Annotated[
    CreateScope | DeleteScope | CreateStream | SealStream | DeleteStream,
    Field(discriminator="kind"),
]
COMMANDS: TypeAdapter[Command] = TypeAdapter(Command)


class Accepted(Contract):
    """The intent is durable; poll `operation` or wait for its notice."""

    kind: Literal["accepted"] = "accepted"
    operation: str
    read_token: ReadToken


class Rejected(Contract):
    kind: Literal["rejected"] = "rejected"
    error: ErrorBody


Answer = Annotated[Accepted | Rejected, Field(discriminator="kind")]
ANSWERS: TypeAdapter[Answer] = TypeAdapter(Answer)


class OperationState(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class OperationStatus(Contract):
    """Where an accepted command stands. `error` only when FAILED."""

    operation: str
    state: OperationState
    read_token: ReadToken | None = None
    error: ErrorBody | None = None
