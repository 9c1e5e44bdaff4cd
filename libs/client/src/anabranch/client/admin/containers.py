"""The containers of segments: the store of each, and an operator's changes."""

from collections.abc import AsyncIterator, Sequence

from anabranch.client.admin.tier2_flush import list_containers
from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.common.contracts.container_queries import (
    AbandonTail,
    ContainerExplained,
    ContainerPlaced,
    ElectLeader,
    EnableContainer,
    ExplainContainer,
    MoveContainer,
    SetContainerReplicas,
    UnpinContainer,
)
from anabranch.common.contracts.queries import (
    ContainerDescription,
    Query,
)


class Containers:
    """The containers of a cluster; `client.containers`.

    Changes take effect at once and may be repeated; the stores report their progress.

    ::

        await client.containers.move(3, "store-2")
        async for container in client.containers.list():
            print(container.container, container.state, container.node_id)
    """

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def list(
        self, *, timeout_s: float = QUERY_TIMEOUT_S
    ) -> AsyncIterator[ContainerDescription]:
        """Every container by number, and the store that has it. Raises Unavailable.

        ::

            async for container in client.containers.list():
                print(container.container, container.state, container.node_id)
        """
        for container in await list_containers(self._control, timeout_s=timeout_s):
            yield container

    async def explain(
        self, container: int, *, timeout_s: float = QUERY_TIMEOUT_S
    ) -> ContainerExplained:
        """The reasons why the container does not serve, and the next step of the cluster.

        Raises InvalidRequest, Unavailable.

        ::

            for reason in (await client.containers.explain(3)).reasons:
                print(reason)
        """
        return await self._control.query(
            "explain_container",
            ExplainContainer(container=container),
            ContainerExplained,
            timeout_s=timeout_s,
        )

    async def move(self, container: int, node_id: str) -> ContainerDescription:
        """Ask the container's store to close it, and open it on another store, where it stays.

        Raises NodeNotFound, InvalidRequest, Conflict (it is disabled or offline), Unavailable.

        ::

            await client.containers.move(3, "store-2")
        """
        return await self._change(
            "move_container", MoveContainer(container=container, node_id=node_id)
        )

    async def abandon_tail(self, container: int, node_id: str) -> ContainerDescription:
        """Place the container on another store and lose, for good, the data that only its own store
        has.

        Raises NodeNotFound, InvalidRequest, Unavailable.

        ::

            await client.containers.abandon_tail(3, "store-2")
        """
        return await self._change("abandon_tail", AbandonTail(container=container, node_id=node_id))

    async def enable(self, container: int) -> ContainerDescription:
        """Open a disabled or offline container again. Raises InvalidRequest, Unavailable.

        ::

            await client.containers.enable(3)
        """
        return await self._change("enable_container", EnableContainer(container=container))

    async def unpin(self, container: int) -> ContainerDescription:
        """Let the cluster balance a moved container again. Raises InvalidRequest, Unavailable.

        ::

            await client.containers.unpin(3)
        """
        return await self._change("unpin_container", UnpinContainer(container=container))

    async def set_replicas(self, container: int, replicas: Sequence[str]) -> ContainerDescription:
        """Replicate the container's log on exactly these stores from now on.

        New ones copy the log first; meanwhile `wanted` of the container names the list. The leader
        stays if it is in the list; otherwise the first one leads. Raises NodeNotFound,
        InvalidRequest, Conflict (its log is not replicated), Unavailable.

        ::

            await client.containers.set_replicas(3, ["store-1", "store-2", "store-4"])
        """
        query = SetContainerReplicas(container=container, replicas=tuple(replicas))
        return await self._change("set_container_replicas", query)

    async def elect_unclean(self, container: int, node_id: str = "") -> ContainerDescription:
        """Have a replica lead although its copy of the log may lack acknowledged events, which are
        then lost for good.

        Only for a container without a leader, whose in-sync copies are lost. `node_id`: the store
        that leads; empty: the one whose copy has most. Raises Conflict, Unavailable.

        ::

            await client.containers.elect_unclean(3)
        """
        return await self._change("elect_leader", ElectLeader(container=container, node_id=node_id))

    async def _change(self, name: str, query: Query) -> ContainerDescription:
        changed = await self._control.query(name, query, ContainerPlaced, timeout_s=QUERY_TIMEOUT_S)
        return changed.container
