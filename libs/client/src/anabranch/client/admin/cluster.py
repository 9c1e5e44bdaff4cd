"""The processes of a cluster: who is alive, who leads, and what is held."""

from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.common.contracts.membership import (
    ClusterOverview,
    ConfirmLosses,
    ControllerDescription,
    ControllerList,
    ListControllers,
    LossesConfirmed,
    ShowCluster,
)


class ClusterMembers:
    """The members of a cluster; `client.cluster`. What is told is one controller's view."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def show(self, *, timeout_s: float = QUERY_TIMEOUT_S) -> ClusterOverview:
        """The cluster at a glance. Raises Unavailable."""
        return await self._control.query(
            "cluster_overview", ShowCluster(), ClusterOverview, timeout_s=timeout_s
        )

    async def list_controllers(
        self, *, timeout_s: float = QUERY_TIMEOUT_S
    ) -> tuple[ControllerDescription, ...]:
        """Every controller that announced itself, by id. Raises Unavailable."""
        found = await self._control.query(
            "list_controllers", ListControllers(), ControllerList, timeout_s=timeout_s
        )
        return found.controllers

    async def confirm_losses(self) -> LossesConfirmed:
        """What is held because too much went at once is gone indeed. Raises Unavailable."""
        return await self._control.query(
            "confirm_losses", ConfirmLosses(), LossesConfirmed, timeout_s=QUERY_TIMEOUT_S
        )
