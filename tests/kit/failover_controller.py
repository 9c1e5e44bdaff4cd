"""A controller's process in a simulated cluster: the real parts that watch, lead and place."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType

from anabranch.common.errors import AnabranchError, ProcessReplaced
from anabranch.common.model.cluster import ControllerRecord
from anabranch.common.runtime.ids import SeededIds
from anabranch.controller.cluster.balancer import Balancer
from anabranch.controller.cluster.drains import Drains
from anabranch.controller.cluster.elections import Elections
from anabranch.controller.cluster.leadership import Leadership
from anabranch.controller.cluster.membership import MemberRecords, Membership
from anabranch.controller.cluster.placements import Placements
from anabranch.controller.domain.cluster.placement_actions import Replication
from anabranch.controller.ports import Candidates
from kit.candidates import NoCandidates
from kit.failover_services import Services
from kit.loud import loud

SETTLE_S = 3.0
NOT_REPLICATED = Replication()


class NoTopics:
    """A cluster without topics."""

    complete = True
    wanted: Mapping[int, tuple[str, ...]] = MappingProxyType({})

    def on_change(self, listener: Callable[[], None]) -> None:
        return


class ControllerProcess:
    """One life of a controller."""

    def __init__(
        self,
        services: Services,
        name: str,
        rate: float,
        replication: Replication = NOT_REPLICATED,
    ) -> None:
        process = self.process = services.processes.new(name, rate)
        self.ways = services.ways_of(process)
        ids, clock = SeededIds(services.next_number()), process.clock
        controllers = services.objects(services.controllers, self.ways)
        nodes = services.objects(services.nodes, self.ways)
        cluster = services.objects(services.cluster, self.ways)
        placed = services.objects(services.placements, self.ways)
        self.members = Membership(
            ControllerRecord(name, ids.new_id()),
            MemberRecords(controllers, nodes),
            clock,
            containment=loud(clock),
        )
        self.leadership = Leadership(cluster, controllers, self.members, clock)
        self.placements = Placements(
            self.members, placed, services.container_count, clock, containment=loud(clock)
        )
        self.drains = Drains(cluster, clock)
        self.balancer = Balancer(
            placed,
            self.placements,
            self.members,
            self.leadership,
            self.drains,
            elections=Elections(placed, self.members, self._candidates(), clock),
            container_count=services.container_count,
            settle_s=SETTLE_S,
            replication=replication,
            clock=clock,
            containment=loud(clock),
            topics=NoTopics(),
        )
        process.start(self._run())

    def _candidates(self) -> Candidates:
        """How it reaches the stores' copies. Other simulations have stores with copies."""
        return NoCandidates()

    async def _run(self) -> None:
        parts = (self.members, self.leadership, self.placements, self.drains, self.balancer)
        try:
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(part.serve())
        except* ProcessReplaced:
            self.process.kill()

    def locate(self, segment: str) -> str:
        """The node id of the store that serves the segment; "" if none. Call it in its process."""
        try:
            found = self.placements.locate([segment])[0]
        except AnabranchError:
            return ""
        return found.node_id if found.container_epoch else ""
