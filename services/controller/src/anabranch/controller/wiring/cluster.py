"""The parts of a controller that concern the cluster: members, leader, placements, buckets."""

import os
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.common.adapters.redis_leases import RedisLeases
from anabranch.common.contracts import subjects
from anabranch.common.model.cluster import ControllerRecord
from anabranch.common.runtime.health import PartHealth
from anabranch.common.runtime.join_token import read_join_token
from anabranch.common.runtime.service import Lifetime
from anabranch.controller.adapters.candidates import NatsCandidates
from anabranch.controller.adapters.peers import Peers
from anabranch.controller.cluster.admission import Admission, Registered, nothing_registered
from anabranch.controller.cluster.balancer import Balancer
from anabranch.controller.cluster.buckets import LEASE_S, Buckets, Neighbourhood
from anabranch.controller.cluster.drains import Drains
from anabranch.controller.cluster.elections import Elections
from anabranch.controller.cluster.leadership import Leadership
from anabranch.controller.cluster.membership import MemberRecords, Membership
from anabranch.controller.cluster.placement_changes import PlacementChanges
from anabranch.controller.cluster.placements import Placements
from anabranch.controller.cluster.topic_containers import TopicContainerTable
from anabranch.controller.domain.cluster.descriptions import PHASES, phase
from anabranch.controller.domain.cluster.liveness import Hold, Kind, Timing
from anabranch.controller.domain.cluster.placement_actions import Replication
from anabranch.controller.handlers.desk.cluster import ClusterDesk
from anabranch.controller.wiring.surroundings import Surroundings

LEASE_PREFIX = "anabranch"
HOST_LENGTH_MAX = 32
UNSEEN_S_MAX = 10.0
"""A controller that has not seen its own beat for longer is not ready."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster as this controller sees it, and this controller's share of it."""

    members: Membership
    leadership: Leadership
    placements: Placements
    balancer: Balancer
    drains: Drains
    topic_containers: TopicContainerTable
    peers: Peers
    buckets: Buckets
    changes: PlacementChanges

    def desk(self) -> ClusterDesk:
        """The dependencies of queries about the cluster."""
        return ClusterDesk(
            self.members,
            self.placements,
            lambda: self.leadership.leader,
            self.peers.ask_peers,
            self.balancer,
            self.drains,
            self.buckets.owners,
        )

    def count_members(self) -> Mapping[tuple[str, ...], float]:
        """The number of members by (kind, state)."""
        return Counter(
            (kind.value, "live" if found.live else "down")
            for kind in Kind
            for _, found in self.members.standings(kind)
        )

    def holds(self) -> Mapping[tuple[str, ...], float]:
        """1 for the reason of the current hold, 0 for other reasons."""
        hold = self.members.hold
        blind = hold is not None and hold.blind
        return {("blind",): int(blind), ("losses",): int(hold is not None and not blind)}

    def count_containers(self) -> Mapping[tuple[str, ...], float]:
        """The number of containers in each of `PHASES`; none until all records have been seen."""
        if not self.placements.complete or not self.members.complete:
            return {}
        found = Counter(phase(one) for one in self.placements.list_containers())
        return {(name,): found[name] for name in PHASES}

    def report(self, lifetime: Lifetime) -> None:
        """Report the readiness of membership; called on every change and periodically."""
        members = self.members
        if not members.complete or not (members.seeing or members.hold):
            return
        health = membership_health(members.hold, members.unseen_s)
        lifetime.set_ready("membership", health.ready, health.reason)


def membership_health(hold: Hold | None, unseen_s: float) -> PartHealth:
    """Membership's part of readiness.

    A hold does not make a controller unready, because it continues to serve with the members that
    it knows. But a controller whose beats are not stored for long cannot store anything else
    either.
    """
    if unseen_s > UNSEEN_S_MAX:
        return PartHealth(
            False, "NATS does not store this controller's beats: it is away or cannot write"
        )
    if hold is None:
        return PartHealth(True)
    missing = ", ".join(sorted(member.member_id for member in hold.missing))
    return PartHealth(
        True,
        "held: this controller does not see its own beats"
        if hold.blind
        else f"held: missing {missing}",
    )


def build_cluster(
    around: Surroundings, bucket_count: int, registered: Registered = nothing_registered
) -> Cluster:
    """Build all parts; none is started. `registered`: the node ids of the registered SPUs."""
    settings, clock, containment = around.settings, around.clock, around.containment
    me = _myself(around)
    controllers = around.objects(subjects.CONTROLLERS_BUCKET)
    placed = around.objects(subjects.PLACEMENTS_BUCKET)
    records = MemberRecords(controllers, around.objects(subjects.NODES_BUCKET))
    members = Membership(
        me,
        records,
        clock,
        Timing.of(settings.member_dead_s),
        containment=containment,
        admission=Admission(
            token=read_join_token(settings.join_token_file),
            policy=settings.spu_registration,
            registered=registered,
        ),
    )
    cluster = around.objects(subjects.CLUSTER_BUCKET)
    leadership = Leadership(cluster, controllers, members, clock)
    drains = Drains(cluster, clock)
    topics = TopicContainerTable(cluster, clock)
    placements = Placements(
        members, placed, settings.container_count, clock,
        containment=containment, topics=lambda: topics.wanted,
    )  # fmt: skip
    replication = Replication(settings.replication, settings.isr_min)
    elections = Elections(placed, members, NatsCandidates(around.client), clock)
    balancer = Balancer(
        placed,
        placements,
        members,
        leadership,
        drains,
        elections=elections,
        container_count=settings.container_count,
        settle_s=settings.placement_settle_s,
        replication=replication,
        clock=clock,
        containment=containment,
        topics=topics,
        measure=around.observer.metrics.failed_over,
    )
    peers = Peers(around.client, members.live_controllers, me.controller_id)
    buckets = _buckets(around, members, bucket_count)
    changes = PlacementChanges(placed, placements, elections, clock, replication=replication)
    return Cluster(
        members, leadership, placements, balancer, drains, topics, peers, buckets, changes
    )


def _myself(around: Surroundings) -> ControllerRecord:
    host = socket.gethostname()
    short = "".join(c for c in host.split(".")[0] if c.isascii() and c.isalnum())
    return ControllerRecord(
        around.settings.controller_id or f"{short[:HOST_LENGTH_MAX]}-{around.ids.new_id()[:8]}",
        session=around.ids.new_id(),
        host=host,
        pid=os.getpid(),
        started_ms=around.clock.now_ms(),
    )


def _buckets(around: Surroundings, members: Membership, count: int) -> Buckets:
    leases = None
    if around.settings.redis_url:
        leases = RedisLeases(around.settings.redis_url, LEASE_PREFIX, count, LEASE_S)
    neighbourhood = Neighbourhood(members.me.controller_id, members.live_controllers)
    return Buckets(neighbourhood, leases, count=count, clock=around.clock, rng=around.rng)
