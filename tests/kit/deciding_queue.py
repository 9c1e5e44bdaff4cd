"""The queue of a world in memory: it decides each command at once."""

from typing import TYPE_CHECKING

from anabranch.common.contracts.commands import Command, CreateScope, DeleteScope
from anabranch.common.errors import Conflict, InvalidRequest, NotFound, Retry
from anabranch.controller.domain.kv_table.decide import TableCommand
from anabranch.controller.domain.reader_group.decide import GroupCommand

if TYPE_CHECKING:
    from kit.workflow_world import World


class DecidingQueue:
    """`CommandSender` that decides at once; a refusal is nobody's, as nobody waits for an answer.

    `posted` lists all; while `is_stuck`, nothing is decided.
    """

    def __init__(self, world: "World") -> None:
        self._world = world
        self.posted: list[Command] = []
        self.is_stuck = False

    async def post(self, command: Command) -> None:
        """See `CommandSender.post`."""
        self.posted.append(command)
        assert not isinstance(command, CreateScope | DeleteScope)
        if self.is_stuck:
            return
        try:
            if isinstance(command, GroupCommand):
                await self._world.group_command(command)
            elif isinstance(command, TableCommand):
                await self._world.table_command(command)
            else:
                await self._world.command(command)
        except (Conflict, NotFound, Retry, InvalidRequest):
            return
