"""How simulated controllers reach the copies of stores: requests without a connection.

A request may be performed although its sender gave up, and long after; its answer may be lost.
"""

import asyncio
from collections.abc import Callable, Coroutine

from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.controller.domain.cluster.election import CopyEnd, Promised
from anabranch.segstore.ports_replica import CopyState
from kit.processes import Process
from kit.replica_network import Network

PROMISE_S_MAX = 1.0


class SimCandidates:
    """The stores as candidates of elections, as one controller reaches them."""

    def __init__(self, network: Network, name: str, process: Process) -> None:
        self._network = network
        self._name = name
        self._process = process

    async def promise(
        self, node_id: str, container: int, log_id: str, container_epoch: int
    ) -> Promised:
        """See `Candidates`."""
        try:
            async with asyncio.timeout(PROMISE_S_MAX):
                return await self._promise(node_id, container, log_id, container_epoch)
        except TimeoutError as error:
            raise Unavailable("the store did not answer", node=node_id) from error

    async def _promise(
        self, node_id: str, container: int, log_id: str, container_epoch: int
    ) -> Promised:
        network = self._network
        hosting = network.host(node_id)
        if hosting is None:
            raise Unavailable("nothing listens there", node=node_id)
        there = network.way(self._name, node_id, hosting.process)
        back = network.way(node_id, self._name, self._process)
        told: asyncio.Future[CopyState] = asyncio.get_running_loop().create_future()

        def hear(result: CopyState | AnabranchError) -> None:
            if told.done():
                return
            if isinstance(result, AnabranchError):
                told.set_exception(result)
            else:
                told.set_result(result)

        async def perform() -> None:
            try:
                result: CopyState | AnabranchError = await hosting.host.promise(
                    container, log_id, container_epoch, None
                )
                assert not isinstance(result, AnabranchError)
                if network.host(node_id) is hosting:
                    network.promises.promised(node_id, container_epoch, result)
                network.promises.answered(node_id)
            except AnabranchError as error:
                result = error
            if not network.loses():
                back.tell(lambda: hear(result))

        if not network.loses():
            there.tell(lambda: _begin(hosting.spawn, perform()))
        state = await told
        if not state.copy_id:
            return Promised("", None)
        end = state.end
        return Promised(state.copy_id, CopyEnd(end.container_epoch, end.number, end.last_sequence))


def _begin(
    spawn: Callable[[Coroutine[None, None, None]], object], work: Coroutine[None, None, None]
) -> None:
    spawn(work)
