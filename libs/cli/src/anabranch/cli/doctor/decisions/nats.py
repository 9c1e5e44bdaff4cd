"""Settings and room of the NATS server, which holds all metadata. Pure.

JetStream acknowledges metadata that must survive a loss of power. With one replica that needs
``sync_interval: always``, which only the monitoring port shows (docs/operations.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.cli.doctor.finding import Finding, failure, listed, ok, skipped, warning
from anabranch.cli.figures import counted, size
from anabranch.common.contracts import subjects
from anabranch.common.eventsourcing.store_clock import Bound
from anabranch.common.model.hashing import SHARD_COUNT

USED_SHARE_MAX = 0.8
PAYLOAD_BYTES_MIN = 1024 * 1024
"""The default of NATS, to which the services fit their messages."""
EXPECTED = (
    *(subjects.event_stream(shard) for shard in range(SHARD_COUNT)),
    subjects.COMMAND_STREAM,
    subjects.PARKED_STREAM,
    *(
        f"KV_{bucket}"
        for bucket in (
            subjects.NODES_BUCKET,
            subjects.CONTROLLERS_BUCKET,
            subjects.PLACEMENTS_BUCKET,
            subjects.CLUSTER_BUCKET,
        )
    ),
)
"""The streams that hold the metadata; controllers create them."""
SYNC_REMEDY = "write `sync_interval: always` into the block `jetstream` of nats.conf, and restart"


@dataclass(frozen=True, slots=True)
class NatsServer:
    """The server's facts for every client. `clock`: its clock minus this machine's."""

    server_id: str
    release: str
    jetstream: bool
    clustered: bool
    max_payload_bytes: int
    clock: Bound | None


@dataclass(frozen=True, slots=True)
class Account:
    """JetStream's account. Limits: -1 is unlimited."""

    storage_bytes: int
    storage_limit_bytes: int
    streams: int
    streams_limit: int
    consumers: int
    consumers_limit: int


@dataclass(frozen=True, slots=True)
class KeptStream:
    """One of JetStream's streams."""

    name: str
    storage: str
    replicas: int
    messages: int
    stored_bytes: int
    replicas_lagging: int = 0


@dataclass(frozen=True, slots=True)
class StreamsKept:
    """All streams of the account, and whether the server belongs to a NATS cluster."""

    streams: tuple[KeptStream, ...]
    clustered: bool


@dataclass(frozen=True, slots=True)
class Monitored:
    """The answer of the monitoring port (`/jsz?config=1`), and the server that we talk to."""

    status: Mapping[str, object]
    connected_id: str


def jetstream(server: NatsServer) -> Finding:
    """Whether the server stores messages at all."""
    if not server.jetstream:
        return failure("JetStream is disabled", "add a block `jetstream` to nats.conf")
    return ok("JetStream is enabled")


def payload(server: NatsServer) -> Finding:
    """Whether the server takes the largest message of the services."""
    found = server.max_payload_bytes
    if found < PAYLOAD_BYTES_MIN:
        return failure(
            f"messages may have {size(found)}, and services send up to {size(PAYLOAD_BYTES_MIN)}",
            "set `max_payload: 1MB` in nats.conf",
            max_payload_bytes=found,
        )
    return ok(f"messages may have {size(found)}", max_payload_bytes=found)


def synced(found: Monitored) -> Finding:
    """Whether an acknowledged message survives a loss of power."""
    config = found.status.get("config")
    monitored = str(found.status.get("server_id", ""))
    if found.connected_id and monitored != found.connected_id:
        return skipped(
            "the monitoring port belongs to another NATS server than the one of the cluster",
            "name the right one with --nats-monitor",
        )
    if not isinstance(config, Mapping) or found.status.get("disabled"):
        return failure("JetStream is disabled", "add a block `jetstream` to nats.conf")
    if not config.get("sync_always"):
        return failure(
            "the server acknowledges metadata before it is on the disk: a loss of power can take "
            "it back",
            SYNC_REMEDY,
        )
    return ok("every write is synced before it is acknowledged")


def file_store(found: Monitored) -> Finding:
    """Whether the server's file store has room."""
    config = found.status.get("config")
    if not isinstance(config, Mapping):
        return failure("JetStream is disabled", "add a block `jetstream` to nats.conf")
    limit, used = _number(config, "max_storage"), _number(found.status, "storage")
    return _room("the file store", used, limit, "raise `max_file_store` in nats.conf")


def account_limits(account: Account) -> Finding:
    """Whether the account's limits leave room for metadata."""
    for things, used, limit in (
        ("streams", account.streams, account.streams_limit),
        ("consumers", account.consumers, account.consumers_limit),
    ):
        if 0 <= limit <= used:
            return failure(
                f"the account has all of its {limit:,} {things}",
                f"raise the account's limit of {things}",
            )
    used, limit = account.storage_bytes, account.storage_limit_bytes
    return _room("the account", used, limit, "raise the account's limit of file storage")


def streams(found: StreamsKept) -> Finding:
    """Whether the streams of the metadata exist, on files, with enough replicas."""
    known = {one.name: one for one in found.streams}
    own = [known[name] for name in EXPECTED if name in known]
    missing = [name for name in EXPECTED if name not in known]
    if not own:
        return skipped("no controller has created the metadata's streams yet")
    if missing:
        return failure(
            f"streams of the metadata are missing: {listed(missing)}",
            "restart a controller, which creates them; if they were deleted, restore a backup",
        )
    volatile = [one.name for one in own if one.storage != "file"]
    if volatile:
        return failure(
            f"streams of the metadata are kept in memory only: {listed(volatile)}",
            "back up the metadata, and restore it into a server with file storage",
        )
    lagging = [one.name for one in own if one.replicas_lagging]
    if lagging:
        return warning(
            f"replicas of {listed(lagging)} are offline or lag behind",
            "look at the other NATS servers: `nats server report jetstream`",
        )
    return _replicated(own, clustered=found.clustered)


def _replicated(own: list[KeptStream], *, clustered: bool) -> Finding:
    least = min(one.replicas for one in own)
    told = f"{len(own)} streams with {sum(one.messages for one in own):,} messages, "
    told += f"{size(sum(one.stored_bytes for one in own))}, {counted(least, 'replica')} each"
    figures = {"streams": len(own), "replicas": least}
    if clustered and least < 2:
        return warning(
            f"{told}: the loss of one NATS server stops the cluster, or loses metadata",
            "raise the replicas: `nats stream edit --replicas 3 NAME`",
            **figures,
        )
    return ok(told, **figures)


def _room(where: str, used: int, limit: int, remedy: str) -> Finding:
    if limit < 0:
        return ok(f"{where} holds {size(used)}; its size is not limited", used_bytes=used)
    told = f"{where} holds {size(used)} of at most {size(limit)}"
    figures = {"used_bytes": used, "limit_bytes": limit}
    if used >= limit:
        return failure(told, remedy, **figures)
    if used > USED_SHARE_MAX * limit:
        return warning(told, remedy, **figures)
    return ok(told, **figures)


def _number(found: Mapping[str, object], name: str) -> int:
    value = found.get(name)
    return value if isinstance(value, int) else 0
