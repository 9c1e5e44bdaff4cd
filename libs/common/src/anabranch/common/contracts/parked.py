"""Queries about parked commands: those that were put aside because handling them fails.

Their names are in `PARKED_QUERIES`.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import Query, Question

PARKED_PAGE_SIZE_MAX = 50


class ListParked(Query):
    """→ ParkedList, in the order in which they were parked."""

    page_token: str = Field(default="", pattern=r"^[0-9]{0,20}$")
    """Empty for the first page, else the previous answer's `next_page_token`."""
    page_size: int = Field(default=PARKED_PAGE_SIZE_MAX, ge=1, le=PARKED_PAGE_SIZE_MAX)


class ParkedDescription(Contract):
    """A parked command. Times are Unix ms; `error` is the last one."""

    command_id: str
    bucket: int
    subject: str
    attempts: int
    first_ms: int
    last_ms: int
    error: str
    body: str
    """As text; bytes that are none are replaced, and a long one is cut."""


class ParkedList(Contract):
    ok: Literal[True] = True
    commands: tuple[ParkedDescription, ...]
    next_page_token: str = ""
    """Empty on the last page."""


class ChangeParked(Query):
    """What an operator wants of one parked command."""

    command_id: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_\-]+$")


class RedriveParked(ChangeParked):
    """→ ParkedChanged; the command is published again under its own id. Idempotent."""


class DropParked(ChangeParked):
    """→ ParkedChanged; the command is gone for good. Idempotent."""


class ParkedChanged(Contract):
    """`was_parked`: whether a command of that id was there."""

    ok: Literal[True] = True
    command_id: str
    was_parked: bool


PARKED_QUERIES: Mapping[str, Question] = {
    "list_parked": Question(ListParked, ParkedList),
    "redrive_parked": Question(RedriveParked, ParkedChanged),
    "drop_parked": Question(DropParked, ParkedChanged),
}
"""By name."""
