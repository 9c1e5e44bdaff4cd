"""The fields that all commands share, and the subjects on which clients publish them.

`command_id` is the idempotency key and becomes the operation's id: the same id gets the same
answer. `reply_to` is the caller's inbox.
"""

from typing import ClassVar, Literal

from pydantic import Field

from anabranch.common.contracts import subjects
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.place import Place, place_of
from anabranch.common.model.hashing import shard_of


class CommandBase(Contract):
    schema_number: Literal[1] = 1
    command_id: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_\-]+$")
    spreads: ClassVar[bool] = False
    """Whether its work also changes aggregates in other shards than the operation's own."""
    reply_to: str = ""
    wait_ms: int = Field(default=0, ge=0)
    """How long the caller waits after the queue has stored the command; 0: not given. After this
    time the controller refuses to decide the command."""
    deadline_ms: int = 0
    """The same limit as a Unix time in ms, by the controller's clock, from callers of the release
    that knew no `wait_ms`; 0: not given. The controller uses it only without `wait_ms`."""
    scope: str


def about(command: CommandBase) -> Place:
    """The place of the aggregate that the command names."""
    return place_of(command)


def kind_of(command: CommandBase) -> str:
    """The tag of the command."""
    return str(getattr(command, "kind"))  # noqa: B009


def subject_of(command: CommandBase) -> str:
    """The subject on which the command is published."""
    found = about(command)
    return subjects.command(shard_of(str(found)), kind_of(command), command.scope, found.part_name)
