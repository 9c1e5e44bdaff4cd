"""Queries about what is parked: commands that were put aside because handling them fails, and
aggregates whose work is left alone because of a defect.

A parked command is kept, by its id. Parked work is known to the controllers that met the defect;
whichever is asked asks the others. Its id is the aggregate's name, as ``stream:demo/one``.

Their names are in `PARKED_QUERIES`.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import Query, Question

PARKED_PAGE_SIZE_MAX = 50


class ListParked(Query):
    """→ ParkedList: parked work on the first page, then commands in the order in which they were
    parked. `only_here`: only the work that the answering controller itself has parked."""

    page_token: str = Field(default="", pattern=r"^[0-9]{0,20}$")
    """Empty for the first page, else the previous answer's `next_page_token`."""
    page_size: int = Field(default=PARKED_PAGE_SIZE_MAX, ge=1, le=PARKED_PAGE_SIZE_MAX)
    only_here: bool = False


class ParkedDescription(Contract):
    """A parked command, or parked work. Times are Unix ms; `error` is the last one.

    Of work, `command_id` is the aggregate's name, `subject` that of its events, `body` empty, and
    `controller` a controller that left it alone. `part`: what of it fails; of a command "command".
    """

    command_id: str
    bucket: int
    """The bucket of the command's or work's aggregate."""
    subject: str
    attempts: int
    """How often its handling failed."""
    first_ms: int
    """When it failed first."""
    last_ms: int
    """When it failed last; never before `first_ms`."""
    error: str
    body: str
    """As text; bytes that are none are replaced, and a long one is cut."""
    part: str = "command"
    controller: str = ""


WORK_TOLD_MAX = 200
"""Parked work that one answer shows."""


class ParkedList(Contract):
    ok: Literal[True] = True
    commands: tuple[ParkedDescription, ...]
    next_page_token: str = ""
    """Empty on the last page."""


class ChangeParked(Query):
    """What an operator wants of one parked command."""

    command_id: str = Field(max_length=800, pattern=r"^([A-Za-z0-9_\-]{1,64}|[a-z]+:\S+)$")


class RedriveParked(ChangeParked):
    """→ ParkedChanged; the command is published again under its own id. Idempotent.

    With an aggregate's name, all controllers take up its work again. `only_here`: only the
    answering one does.
    """

    only_here: bool = False


class DropParked(ChangeParked):
    """→ ParkedChanged; the command is gone for good. Idempotent."""


class ParkedChanged(Contract):
    """`was_parked`: whether a command of that id was there."""

    ok: Literal[True] = True
    command_id: str
    was_parked: bool


QUERIES: Mapping[str, Question] = {"list_parked": Question(ListParked, ParkedList)}

ACTIONS: Mapping[str, Question] = {
    "redrive_parked": Question(RedriveParked, ParkedChanged),
    "drop_parked": Question(DropParked, ParkedChanged),
}
"""By name."""
