"""Queries about parked commands, answered by any controller."""

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.parked import (
    DropParked,
    ListParked,
    ParkedChanged,
    ParkedDescription,
    ParkedList,
    RedriveParked,
)
from anabranch.controller.domain.parking import ParkedCommand
from anabranch.controller.ports import ParkedCommands

BODY_LENGTH_MAX = 1024
"""Characters of a body that a list shows: a whole page must fit into a message."""


async def list_parked(parked: ParkedCommands, query: ListParked) -> Contract:
    """A page of them. Raises Unavailable."""
    found = await parked.page(int(query.page_token or 0), query.page_size + 1)
    page = found[: query.page_size]
    more = len(found) > len(page)
    return ParkedList(
        commands=tuple(_described(command) for _, command in page),
        next_page_token=str(page[-1][0]) if more else "",
    )


async def redrive_parked(parked: ParkedCommands, query: RedriveParked) -> Contract:
    """Publish one again. Raises Unavailable."""
    done = await parked.redrive(query.command_id)
    return ParkedChanged(command_id=query.command_id, was_parked=done)


async def drop_parked(parked: ParkedCommands, query: DropParked) -> Contract:
    """Remove one. Raises Unavailable."""
    done = await parked.drop(query.command_id)
    return ParkedChanged(command_id=query.command_id, was_parked=done)


def _described(command: ParkedCommand) -> ParkedDescription:
    return ParkedDescription(
        command_id=command.command_id,
        bucket=command.bucket,
        subject=command.subject,
        attempts=command.attempts,
        first_ms=command.first_ms,
        last_ms=command.last_ms,
        error=command.error,
        body=command.body.decode(errors="replace")[:BODY_LENGTH_MAX],
    )
