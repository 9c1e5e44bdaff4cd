"""What all commands have in common, and where they are published.

`command_id` is the idempotency key and becomes the operation's id: the same id gets the same
answer. `reply_to` is the caller's inbox.
"""

from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from anabranch.common.contracts import subjects
from anabranch.common.contracts.base import Contract
from anabranch.common.model.hashing import shard_of


class CommandBase(Contract):
    schema_number: Literal[1] = 1
    command_id: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_\-]+$")
    spreads: ClassVar[bool] = False
    """Its work changes aggregates of other shards than the one that remembers its operation."""
    reply_to: str = ""
    wait_ms: int = Field(default=0, ge=0)
    """How long the caller waits, from when the queue stores the command; 0: not said. The
    controller refuses to decide the command later than that."""
    deadline_ms: int = 0
    """The same as a Unix time in ms, by the controller's clock, from callers of the release that
    knew no `wait_ms`; 0: not said. It counts only without `wait_ms`."""
    scope: str


class About(NamedTuple):
    """What a command is about: a scope, or a stream or a reader group in it."""

    scope: str
    stream: str | None = None
    group: str | None = None

    def __str__(self) -> str:
        part = self.stream if self.group is None else self.group
        return self.scope if part is None else f"{self.scope}/{part}"


def about(command: CommandBase) -> About:
    """What the command is about."""
    stream: str | None = getattr(command, "stream", None)
    group: str | None = getattr(command, "group", None)
    return About(command.scope, stream, group)


def kind_of(command: CommandBase) -> str:
    """The tag of the command."""
    return str(getattr(command, "kind"))  # noqa: B009


def subject_of(command: CommandBase) -> str:
    """Where the command is published."""
    found = about(command)
    part = found.stream if found.group is None else found.group
    return subjects.command(shard_of(str(found)), kind_of(command), command.scope, part)
