"""Queries about parked commands, whose handling fails, and about parked work: aggregates whose
work the controllers leave alone because of a defect.

A stream keeps parked commands by their ids. Parked work is in the memory of the controllers that
met the defect; the controller that gets a query asks the others. Its id is the aggregate's name,
as ``stream:demo/one``.

`QUERIES` and `ACTIONS` have the names.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import Query, Question

PARKED_PAGE_SIZE_MAX = 50


class ListParked(Query):
    """→ ParkedList: parked work on the first page, then commands in the order in which they were
    parked.

    `only_here`: list only the work that the answering controller itself has parked.
    """

    page_token: str = Field(default="", pattern=r"^[0-9]{0,20}$")
    """Empty for the first page, else the previous answer's `next_page_token`."""
    page_size: int = Field(default=PARKED_PAGE_SIZE_MAX, ge=1, le=PARKED_PAGE_SIZE_MAX)
    only_here: bool = False


class ParkedDescription(Contract):
    """A parked command, or parked work. Times are Unix ms; `error` is the last one.

    For work, `command_id` is the aggregate's name, `subject` the subject of its events, `body`
    empty, and `controller` a controller that parked it. `part` names the part of the controller
    that failed; for a command it is "command".
    """

    command_id: str
    bucket: int
    """The bucket of the command's or work's aggregate."""
    subject: str
    attempts: int
    """The number of failures."""
    first_ms: int
    """The time of the first failure."""
    last_ms: int
    """The time of the last failure; never before `first_ms`."""
    error: str
    body: str
    """The body as text; undecodable bytes are replaced, and a long body is cut."""
    part: str = "command"
    controller: str = ""


WORK_TOLD_MAX = 200
"""The largest number of parked aggregates in one answer."""


class ParkedList(Contract):
    ok: Literal[True] = True
    commands: tuple[ParkedDescription, ...]
    next_page_token: str = ""
    """Empty on the last page."""


class ChangeParked(Query):
    """The base of actions on one parked command, or on parked work."""

    command_id: str = Field(max_length=800, pattern=r"^([A-Za-z0-9_\-]{1,64}|[a-z]+:\S+)$")


class RedriveParked(ChangeParked):
    """→ ParkedChanged. Publishes the command again under its own id. Idempotent.

    With an aggregate's name, all controllers take up its work again. `only_here`: only the
    answering controller does.
    """

    only_here: bool = False


class DropParked(ChangeParked):
    """→ ParkedChanged. Deletes a command permanently. Parked work cannot be dropped. Idempotent."""


class ParkedChanged(Contract):
    """`was_parked`: whether a command or work with that id was parked."""

    ok: Literal[True] = True
    command_id: str
    was_parked: bool


QUERIES: Mapping[str, Question] = {"list_parked": Question(ListParked, ParkedList)}

ACTIONS: Mapping[str, Question] = {
    "redrive_parked": Question(RedriveParked, ParkedChanged),
    "drop_parked": Question(DropParked, ParkedChanged),
}
"""By name."""
