"""Queries about the cluster: members, leader, holds. Each controller answers with its own view."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from anabranch.common.contracts import membership as contracts
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.container_queries import ContainerExplained, ExplainContainer
from anabranch.common.contracts.queries import (
    ContainerDescription,
    DrainChange,
    DrainStore,
    NodeDescription,
    Query,
    StoreDrained,
    UndrainStore,
)
from anabranch.common.model.cluster import (
    JETSTREAM,
    REPLICATED,
    LeaderRecord,
    NodeRecord,
    PlacementState,
)
from anabranch.controller.cluster.balancer import Balancer
from anabranch.controller.cluster.drains import Drains
from anabranch.controller.cluster.membership import Membership
from anabranch.controller.cluster.placements import Placements
from anabranch.controller.domain.cluster.descriptions import JOURNAL
from anabranch.controller.domain.cluster.explaining import Situation, StoreFacts, explain
from anabranch.controller.domain.cluster.joining import Refusal
from anabranch.controller.domain.cluster.liveness import Kind, Member
from anabranch.controller.domain.cluster.replica_lists import followers

TELL_S_MAX = 2.0
SHARED_LOGS = frozenset({JETSTREAM, REPLICATED})
"""The places of logs that descriptions name as they are; any other is a store's own journal."""

TellPeers = Callable[[str, bytes, float], Awaitable[Iterable[tuple[str, bytes]]]]
"""Asks the other controllers: (query, payload, seconds) → (controller id, answer)."""


@dataclass(frozen=True, slots=True)
class ClusterDesk:
    """The dependencies of cluster queries. `bucket_owners` maps each owned bucket to a controller
    id.
    """

    members: Membership
    placements: Placements
    leader: Callable[[], LeaderRecord | None]
    tell_peers: TellPeers
    balancer: Balancer
    drains: Drains
    bucket_owners: Callable[[], Mapping[int, str]] = dict

    def list_nodes(self) -> tuple[NodeDescription, ...]:
        """Every segment store, by node id. Raises Unavailable until membership is complete."""
        self.members.require_complete()
        placed: Counter[str] = Counter()
        opened: Counter[str] = Counter()
        followed: Counter[str] = Counter()
        for placement in self.placements.placements.values():
            placed[placement.owner] += 1
            opened[placement.owner] += placement.state is PlacementState.OPEN
            followed.update(followers(placement))
        drained = self.drains.nodes
        described = {
            name: _store(
                self.members.nodes[name], placed[name], draining=name in drained
            ).model_copy(
                update={
                    "live": found.live,
                    "since_ms": found.since_ms,
                    "containers_open": opened[name] if found.live else 0,
                    "containers_followed": followed[name],
                }
            )
            for name, found in self.members.standings(Kind.STORE)
        }
        for name, found in self.members.admission.outsiders.items():
            store = _store(found.record, placed[name], draining=name in drained)
            told = {"live": False, "refused": True, "refusal": found.why.value}
            described[name] = store.model_copy(update=told)
        return tuple(node for _, node in sorted(described.items()))

    async def drain(self, change: DrainChange) -> StoreDrained:
        """Drain or undrain a store.

        Raises NodeNotFound, Unavailable, OutcomeUnknown.
        """
        self.members.require_complete()
        known = self.members.nodes.keys() | self.members.refused.keys()
        drained = await self.drains.perform(change, known)
        for node in self.list_nodes():
            if node.node_id == change.node_id:
                return StoreDrained(node=node)
        gone = NodeDescription(node_id=change.node_id, host="", port=0, live=False)
        return StoreDrained(node=gone.model_copy(update={"draining": drained}))

    def explain(self, query: ExplainContainer) -> ContainerExplained:
        """Why the container does not serve. Raises InvalidRequest, Unavailable."""
        listed = {found.container: found for found in self.placements.list_containers()}
        self.placements.check_number(query.container)
        placements = self.placements.placements
        reasons = explain(query.container, placements.get(query.container), self._situation())
        return ContainerExplained(container=listed[query.container], reasons=reasons)

    def _situation(self) -> Situation:
        members, placements = self.members, self.placements.placements
        return Situation(
            stores={
                name: StoreFacts(view, members.silent_s(name), members.dead_after_s(name))
                for name, view in self.balancer.stores().items()
            },
            plan=self.balancer.plan(placements),
            hold=members.hold,
            refused=frozenset(members.admission.of(Refusal.NO_TOKEN)),
            unregistered=frozenset(members.admission.of(Refusal.UNREGISTERED)),
            leased=members.leased,
            moving=[number for number, found in sorted(placements.items()) if found.target],
        )

    def list_controllers(self) -> contracts.ControllerList:
        """Every controller that announced itself, by id. Raises Unavailable."""
        self.members.require_complete()
        leader = self.leader()
        records = self.members.controllers
        return contracts.ControllerList(
            controllers=tuple(
                contracts.ControllerDescription(
                    controller_id=name,
                    session=found.seen.session,
                    live=found.live,
                    since_ms=found.since_ms,
                    leader=leader is not None and leader.controller_id == name,
                    term=leader.term if leader and leader.controller_id == name else 0,
                    host=records[name].host,
                    pid=records[name].pid,
                    started_ms=records[name].started_ms,
                )
                for name, found in self.members.standings(Kind.CONTROLLER)
            )
        )

    def overview(self) -> contracts.ClusterOverview:
        """The cluster at a glance. Raises Unavailable."""
        self.members.require_complete()
        leader = self.leader()
        states = Counter(_state(found) for found in self.placements.list_containers())
        return contracts.ClusterOverview(
            answered_by=self.members.me.controller_id,
            leader=leader.controller_id if leader else "",
            term=leader.term if leader else 0,
            hold=self._hold(),
            controllers=self._count(Kind.CONTROLLER),
            stores=self._count(Kind.STORE),
            containers=dict(sorted(states.items())),
            buckets=tuple(
                contracts.BucketOwner(bucket=bucket, owner=owner)
                for bucket, owner in sorted(self.bucket_owners().items())
            ),
        )

    async def confirm(self, query: contracts.ConfirmLosses) -> contracts.LossesConfirmed:
        """Confirm that the held members are lost, and forward the confirmation to other
        controllers.
        """
        held = self.members.confirm(query.members)
        if held and query.tell_others:
            told = contracts.ConfirmLosses(
                members=tuple(member.member_id for member in held), tell_others=False
            )
            await self.tell_peers("confirm_losses", told.model_dump_json().encode(), TELL_S_MAX)
        return contracts.LossesConfirmed(
            controllers=_ids(held, Kind.CONTROLLER), stores=_ids(held, Kind.STORE)
        )

    def _hold(self) -> contracts.Hold | None:
        hold = self.members.hold
        if hold is None:
            return None
        return contracts.Hold(
            reason="blind" if hold.blind else "losses",
            since_ms=hold.since_ms,
            controllers=_ids(hold.missing, Kind.CONTROLLER),
            stores=_ids(hold.missing, Kind.STORE),
        )

    def _count(self, kind: Kind) -> contracts.MemberCount:
        found = [standing.live for _, standing in self.members.standings(kind)]
        return contracts.MemberCount(known=len(found), live=sum(found))


class HasCluster(Protocol):
    """A desk that has a cluster desk."""

    @property
    def cluster(self) -> ClusterDesk: ...


def _store(node: NodeRecord, containers: int, *, draining: bool) -> NodeDescription:
    """What a record says about its store."""
    return NodeDescription(
        node_id=node.node_id,
        host=node.endpoint.host,
        port=node.endpoint.port,
        session=node.session,
        stopped=node.stopped,
        containers=containers,
        rack=node.rack,
        log=node.journal_id if node.journal_id in SHARED_LOGS else JOURNAL,
        over=node.over,
        draining=draining,
    )


async def list_controllers(desk: HasCluster, _query: contracts.ListControllers) -> Contract:
    """The controllers. Raises Unavailable."""
    return desk.cluster.list_controllers()


async def cluster_overview(desk: HasCluster, _query: contracts.ShowCluster) -> Contract:
    """The cluster at a glance. Raises Unavailable."""
    return desk.cluster.overview()


async def confirm_losses(desk: HasCluster, query: contracts.ConfirmLosses) -> Contract:
    """Confirm that the members behind a hold are lost."""
    return await desk.cluster.confirm(query)


async def drain_store(desk: HasCluster, query: DrainChange) -> Contract:
    """Drain or undrain a store. Raises NodeNotFound, Unavailable, OutcomeUnknown."""
    return await desk.cluster.drain(query)


async def explain_container(desk: HasCluster, query: ExplainContainer) -> Contract:
    """Why a container does not serve. Raises InvalidRequest, Unavailable."""
    return desk.cluster.explain(query)


Answers = Mapping[str, tuple[type[Query], Callable[[Any, Any], Awaitable[Contract]]]]

QUERIES: Answers = {
    "list_controllers": (contracts.ListControllers, list_controllers),
    "cluster_overview": (contracts.ShowCluster, cluster_overview),
    "explain_container": (ExplainContainer, explain_container),
}

ACTIONS: Answers = {
    "confirm_losses": (contracts.ConfirmLosses, confirm_losses),
    "drain_store": (DrainStore, drain_store),
    "undrain_store": (UndrainStore, drain_store),
}


def _state(found: ContainerDescription) -> str:
    return found.state


def _ids(members: Iterable[Member], kind: Kind) -> tuple[str, ...]:
    return tuple(sorted(member.member_id for member in members if member.kind is kind))
