"""Commands and work that a service put aside because its handler failed."""

from collections.abc import AsyncIterator

from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.common.contracts.parked import (
    DropParked,
    ListParked,
    ParkedChanged,
    ParkedDescription,
    ParkedList,
    RedriveParked,
)


class Parked:
    """The parked commands and work of a cluster; `client.parked`.

    Parked work has the name of its aggregate as its id, such as ``stream:demo/one``.

    ::

        async for one in client.parked.list():
            print(one.command_id, one.attempts, one.error)
    """

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def list(self, *, timeout_s: float = QUERY_TIMEOUT_S) -> AsyncIterator[ParkedDescription]:
        """All parked work, then the parked commands in the order in which they were parked.

        Raises Unavailable.

        ::

            ids = [one.command_id async for one in client.parked.list()]
        """
        token = ""
        while True:
            page = await self._control.query(
                "list_parked", ListParked(page_token=token), ParkedList, timeout_s=timeout_s
            )
            for found in page.commands:
                yield found
            token = page.next_page_token
            if not token:
                return

    async def redrive(self, command_id: str, *, timeout_s: float = QUERY_TIMEOUT_S) -> bool:
        """Handle one again, under its own id. Returns False if nothing with that id is parked.

        May be repeated. Raises Unavailable.

        ::

            await client.parked.redrive("stream:plant/sensors")
        """
        done = await self._control.query(
            "redrive_parked",
            RedriveParked(command_id=command_id),
            ParkedChanged,
            timeout_s=timeout_s,
        )
        return done.was_parked

    async def drop(self, command_id: str, *, timeout_s: float = QUERY_TIMEOUT_S) -> bool:
        """Discard a command for good. Returns False if no command with that id is parked.

        May be repeated. Raises Unavailable.

        ::

            await client.parked.drop("4f2c")
        """
        done = await self._control.query(
            "drop_parked", DropParked(command_id=command_id), ParkedChanged, timeout_s=timeout_s
        )
        return done.was_parked
