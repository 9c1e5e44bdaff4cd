"""Parked commands in memory. It passes the conformance suite of `ParkedCommands`."""

from collections.abc import Sequence

from anabranch.controller.domain.parking import ParkedCommand


class FakeParkedCommands:
    """A `ParkedCommands`; `published` is what was redriven, in order."""

    def __init__(self) -> None:
        self._kept: dict[int, ParkedCommand] = {}
        self._number = 0
        self.published: list[ParkedCommand] = []

    async def park(self, command: ParkedCommand) -> None:
        """See `ParkedCommands.park`."""
        place = (command.bucket, command.command_id)
        self._kept = {n: c for n, c in self._kept.items() if (c.bucket, c.command_id) != place}
        self._number += 1
        self._kept[self._number] = command

    async def page(self, after: int, count: int) -> Sequence[tuple[int, ParkedCommand]]:
        """See `ParkedCommands.page`."""
        return [(number, kept) for number, kept in self._kept.items() if number > after][:count]

    async def redrive(self, command_id: str) -> bool:
        """See `ParkedCommands.redrive`."""
        found = self._remove(command_id)
        if found is not None:
            self.published.append(found)
        return found is not None

    async def drop(self, command_id: str) -> bool:
        """See `ParkedCommands.drop`."""
        return self._remove(command_id) is not None

    def _remove(self, command_id: str) -> ParkedCommand | None:
        for number, kept in self._kept.items():
            if kept.command_id == command_id:
                return self._kept.pop(number)
        return None
