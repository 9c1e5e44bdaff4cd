"""The table of all checks: its name, its object, its source, its decision."""

from collections.abc import Sequence
from importlib.metadata import version

from anabranch.cli.doctor.cluster_view import ClusterView
from anabranch.cli.doctor.decisions import (
    clocks,
    cluster,
    disks,
    limits,
    nats,
    networks,
    redis,
    services,
    shared_logs,
    topics,
    versions,
)
from anabranch.cli.doctor.decisions.shared_logs import SharedLogs, TierTwoPlace
from anabranch.cli.doctor.examination import Check, check
from anabranch.cli.doctor.finding import ok
from anabranch.cli.doctor.machine import Machine
from anabranch.cli.doctor.servers import Servers
from anabranch.common.errors import InvalidRequest


def local_checks(machine: Machine) -> tuple[Check, ...]:
    """The checks that need no cluster."""
    m = machine
    return (
        check("python", "the version of Python", m.packages, versions.python),
        check("parts", "the releases of the installed parts", m.packages, versions.parts),
        check("libraries", "the versions of their libraries", m.packages, versions.libraries),
        check("disk-writable", "whether the data directory can be written", m.disk, disks.writable),
        check("disk-space", "free space, and the growth of journals", m.disk, disks.space),
        check("disk-inodes", "free inodes", m.disk, disks.inodes),
        check("disk-file-system", "the kind of file system", m.disk, disks.file_system),
        check("network-directories", "directories on network file systems", m.directories,
              networks.network_directories),
        check("disk-sync", "50 synced writes of 4 KiB", m.sync, disks.sync),
        check("clock-synchronised", "whether NTP keeps the clock", m.clock_status,
              clocks.synchronised),
        check("open-files", "the limit of open files", m.limits, limits.open_files),
        check("memory", "memory, and the limit of the control group", m.limits, limits.memory),
        check("processors", "the usable processors", m.limits, limits.processors),
        check("halting", "whether idle processors of a virtual machine halt at once", m.limits,
              limits.halting),
        check("ports", "the ports for outgoing connections", m.limits, limits.ports),
    )  # fmt: skip


def server_checks(servers: Servers) -> tuple[Check, ...]:
    """The checks about NATS, Redis, the gateway, and the services' health ports."""
    s = servers
    own = version("anabranch-cli")
    return (
        check("nats-version", "the release of the NATS server", s.nats,
              lambda found: versions.nats_server(found.release)),
        check("nats-jetstream", "whether JetStream is enabled", s.nats, nats.jetstream),
        check("nats-sync", "whether every write is synced", s.monitored, nats.synced),
        check("nats-servers", "every NATS server of the cluster", s.seen, shared_logs.nats_servers),
        check("nats-payload", "the largest message", s.nats, nats.payload),
        check("nats-store", "the room of the file store", s.monitored, nats.file_store),
        check("nats-account", "the limits of the account", s.account, nats.account_limits),
        check("nats-streams", "the streams of the metadata, and their replicas", s.streams,
              nats.streams),
        check("clock-nats", "the difference to the NATS server's clock", s.nats_clock,
              lambda bound: clocks.offset("NATS server", bound)),
        check("redis-version", "the release of Redis or Valkey", s.redis, versions.redis_server),
        check("redis-eviction", "whether Redis evicts leases", s.redis, redis.eviction),
        check("redis-memory", "the room below the limit of memory", s.redis, redis.memory),
        check("gateway", "the health of the gateway", s.gateway, services.gateway),
        check("clock-gateway", "the difference to the gateway's clock", s.gateway_clock,
              lambda bound: clocks.offset("gateway", bound)),
        check("services-ready", "the health of every service", s.services, services.readiness),
        check("services-version", "the services' releases, and this command's", s.services,
              lambda found: versions.services(own, found)),
        check("services-defects", "unexpected errors", s.services, services.defects),
        check("tier2", "flushes to tier 2, and the export of streams", s.services,
              services.tier_two),
    )  # fmt: skip


def cluster_checks(view: ClusterView) -> tuple[Check, ...]:
    """The checks about the cluster, as its controllers see it."""
    v = view
    return (
        check("cluster-answers", "whether a controller answers", v.overview,
              lambda found: ok(f"{found.answered_by} answers")),
        check("cluster-members", "live controllers and stores", v.members, cluster.members),
        check("cluster-leader", "the leader, and the owners of buckets", v.known_overview,
              cluster.leader),
        check("cluster-holds", "whether controllers hold", v.known_overview, cluster.holds),
        check("containers", "whether every container is open", v.containers, cluster.containers),
        check("store-addresses", "whether this machine reaches the stores", v.addresses,
              cluster.addresses),
        check("spus", "registered SPUs, and stores that were refused", v.spus, topics.spus),
        check("spu-groups", "groups of managed SPUs", v.spu_groups, topics.spu_groups),
        check("topics", "whether topics have their resources", v.topics, topics.topics),
        check("partitions", "whether every partition is online", v.topics, topics.partitions),
        check("parked-commands", "commands that a defect parked", v.parked,
              cluster.parked_commands),
        check("parked-work", "aggregates that a defect stopped", v.parked,
              cluster.stopped_aggregates),
        check("work", "pending work and its failures", v.work, cluster.work),
    )  # fmt: skip


def shared_log_checks(servers: Servers, view: ClusterView, tier2: str) -> tuple[Check, ...]:
    """The checks about logs in NATS; `tier2`: the URL of tier 2, if it is known."""

    async def logs() -> SharedLogs:
        return SharedLogs((await view.members()).stores, (await servers.streams()).streams)

    async def place() -> TierTwoPlace:
        return TierTwoPlace((await view.members()).stores, tier2)

    return (
        check("log-replicas", "the copies of logs in NATS", logs, shared_logs.log_replicas),
        check("tier2-place", "whether tier 2 outlives a machine as the logs do", place,
              shared_logs.tier2_place),
    )  # fmt: skip


def chosen(checks: Sequence[Check], names: Sequence[str]) -> list[Check]:
    """The checks with these names, or all. Raises InvalidRequest for an unknown name."""
    known = {one.name for one in checks}
    for name in names:
        if name not in known:
            raise InvalidRequest(
                f"no check is named {name!r}",
                remedy=f"choose from {', '.join(sorted(known))}",
            )
    return [one for one in checks if not names or one.name in names]
