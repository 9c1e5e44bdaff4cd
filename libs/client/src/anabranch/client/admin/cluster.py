"""The processes of a cluster: the live ones, the leader, and holds.

Every list is the view of the one controller that answers.
"""

from collections.abc import AsyncIterator

from anabranch.client.admin.tier2_flush import FLUSH_TIMEOUT_S, TierTwoFlush
from anabranch.client.wire.control import QUERY_TIMEOUT_S, ConnectionPool, ControlPlane
from anabranch.common.contracts.membership import (
    ClusterOverview,
    ConfirmLosses,
    ControllerDescription,
    ControllerList,
    ListControllers,
    LossesConfirmed,
    ShowCluster,
)
from anabranch.common.contracts.queries import (
    DrainStore,
    ListNodes,
    NodeDescription,
    NodeList,
    Query,
    StoreDrained,
    UndrainStore,
)
from anabranch.common.runtime.clock import Clock


class Cluster:
    """The cluster as a whole; `client.cluster`.

    ::

        overview = await client.cluster.show()
        print(overview.leader, overview.stores.live)
    """

    def __init__(self, control: ControlPlane, pool: ConnectionPool, clock: Clock) -> None:
        self._control = control
        self._pool = pool
        self._clock = clock

    async def show(self, *, timeout_s: float = QUERY_TIMEOUT_S) -> ClusterOverview:
        """The cluster at a glance. Raises Unavailable.

        ::

            print((await client.cluster.show()).leader)
        """
        return await self._control.query(
            "cluster_overview", ShowCluster(), ClusterOverview, timeout_s=timeout_s
        )

    async def confirm_losses(self) -> LossesConfirmed:
        """Confirm that the members which went away all at once are gone for good.

        Their containers are then placed on the stores that are left. Raises Unavailable.

        ::

            await client.cluster.confirm_losses()
        """
        return await self._control.query(
            "confirm_losses", ConfirmLosses(), LossesConfirmed, timeout_s=QUERY_TIMEOUT_S
        )

    async def flush_to_tier2(self, *, timeout_s: float = FLUSH_TIMEOUT_S) -> tuple[int, ...]:
        """Move everything that was acknowledged before the call to tier 2.

        Returns the numbers of the containers that were flushed, which are all of the cluster.
        Raises Unavailable, naming the first container that was not flushed in time.

        ::

            flushed = await client.cluster.flush_to_tier2(timeout_s=120)
        """
        return await TierTwoFlush(self._control, self._pool, self._clock).perform(timeout_s)


class Controllers:
    """The controllers of a cluster; `client.controllers`.

    ::

        async for controller in client.controllers.list():
            print(controller.controller_id, controller.live, controller.leader)
    """

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def list(
        self, *, timeout_s: float = QUERY_TIMEOUT_S
    ) -> AsyncIterator[ControllerDescription]:
        """Every controller that announced itself, by id. Raises Unavailable.

        ::

            live = [one.controller_id async for one in client.controllers.list() if one.live]
        """
        found = await self._control.query(
            "list_controllers", ListControllers(), ControllerList, timeout_s=timeout_s
        )
        for controller in found.controllers:
            yield controller


class Stores:
    """The segment stores of a cluster; `client.stores`.

    Changes take effect at once and may be repeated; the stores report their progress.

    ::

        async for store in client.stores.list():
            print(store.node_id, store.host, store.port)
    """

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def list(self, *, timeout_s: float = QUERY_TIMEOUT_S) -> AsyncIterator[NodeDescription]:
        """Every segment store that announced itself, by node id. Raises Unavailable.

        ::

            async for store in client.stores.list():
                print(store.node_id, store.host, store.port)
        """
        found = await self._control.query("list_nodes", ListNodes(), NodeList, timeout_s=timeout_s)
        for store in found.nodes:
            yield store

    async def drain(self, node_id: str) -> NodeDescription:
        """Move all containers away from the store, one at a time, and place none on it.

        The call returns at once, and the store stays drained until `undrain`. Its `containers`
        tell how many are still to move. It may be repeated. Raises NodeNotFound, Unavailable.

        ::

            store = await client.stores.drain("store-2")
            print(store.containers, "containers to move")
        """
        return await self._change("drain_store", DrainStore(node_id=node_id))

    async def undrain(self, node_id: str) -> NodeDescription:
        """Let the store have containers again. It may be repeated.

        Raises NodeNotFound, Unavailable.

        ::

            await client.stores.undrain("store-2")
        """
        return await self._change("undrain_store", UndrainStore(node_id=node_id))

    async def _change(self, name: str, query: Query) -> NodeDescription:
        changed = await self._control.query(name, query, StoreDrained, timeout_s=QUERY_TIMEOUT_S)
        return changed.node
