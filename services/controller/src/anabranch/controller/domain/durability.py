"""Where the metadata is stored, and whether the NATS servers keep what they acknowledge. Pure.

With one replica an acknowledged message must be on the disk, and with three a power cut may take
all servers at once. By default a server syncs every two minutes, and a loss of power loses
everything since. Only its monitoring port tells whether it syncs every write.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from anabranch.common.errors import MetadataNotSynced
from anabranch.common.model.nats_server import MonitoredServer
from anabranch.common.model.redis_server import RedisDurability

SYNC_SETTING = "ANABRANCH_CONTROLLER_NATS_SYNC"
MONITOR_SETTING = "ANABRANCH_CONTROLLER_NATS_MONITOR_URL"
REPLICAS = 3
_UNLESS = f"or set {SYNC_SETTING}=unchecked if a loss of power may take the last metadata with it"

OBJECTS_SYNC_SETTING = "ANABRANCH_CONTROLLER_OBJECTS_SYNC"
_UNLESS_REDIS = (
    f"or set {OBJECTS_SYNC_SETTING}=unchecked if a loss of power may take the last objects with it"
)
REDIS_OLDEST = (6, 2)

ReplicaSetting = Literal["auto", "1", "3"]


def wanted_replicas(setting: ReplicaSetting, server_count: int | None) -> int:
    """The replicas of each stream, given the number of servers; None: the number is unknown."""
    if setting != "auto":
        return int(setting)
    return REPLICAS if server_count is not None and server_count >= REPLICAS else 1


def check_synced(asked: Sequence[MonitoredServer], servers: Iterable[str]) -> None:
    """Require that each of the `servers`, by name, that has answered syncs every write.

    Raises MetadataNotSynced.
    """
    syncs = {server.name: server.syncs for server in asked}
    for name in sorted(servers):
        if not syncs.get(name, True):
            raise MetadataNotSynced(
                "the NATS server acknowledges metadata before it is on the disk",
                remedy="write `sync_interval: always` into the block `jetstream` of the server's "
                f"configuration, {_UNLESS}",
                server=name,
            )


def doubt(
    asked: Sequence[MonitoredServer], connected_to: str, servers: Iterable[str]
) -> MetadataNotSynced | None:
    """The error of a server that has not answered; None if all have.

    These are the server with the id `connected_to`, and those named in `servers`. A later answer
    may remove the doubt, because the server may be starting.
    """
    if not asked:
        return MetadataNotSynced(
            "the NATS monitoring port does not answer, so the durability of the metadata "
            "is unknown",
            remedy=f"give the server `http: …` and the controller {MONITOR_SETTING}, {_UNLESS}",
        )
    if all(server.server_id != connected_to for server in asked):
        return MetadataNotSynced(
            "the NATS monitoring port belongs to another server",
            remedy=f"correct {MONITOR_SETTING}, {_UNLESS}",
            monitored=asked[0].server_id,
            connected=connected_to,
        )
    for name in sorted(set(servers) - {server.name for server in asked}):
        return MetadataNotSynced(
            "no monitoring port of a NATS server that stores metadata answers",
            remedy=f"name the monitoring URLs of all servers in {MONITOR_SETTING}, separated "
            f"by commas, {_UNLESS}",
            server=name,
        )
    return None


def check_redis(found: RedisDurability) -> None:
    """Require that the Redis server of the objects keeps everything that it acknowledges.

    Raises MetadataNotSynced, also if the server does not tell a setting.
    """
    if _version(found.version) < REDIS_OLDEST:
        raise MetadataNotSynced(
            "the Redis server of the objects is too old, or does not tell its version",
            remedy="use Redis 6.2 or newer, or a server that is compatible with it",
            version=found.version,
        )
    if found.role != "master":
        raise MetadataNotSynced(
            "the Redis server of the objects is a replica, which may lack acknowledged objects",
            remedy="name the primary server",
            role=found.role,
        )
    for setting, wanted, given in (
        ("appendonly", "yes", found.appendonly),
        ("appendfsync", "always", found.appendfsync),
        ("no-appendfsync-on-rewrite", "no", found.no_appendfsync_on_rewrite),
        ("maxmemory-policy", "noeviction", found.maxmemory_policy),
    ):
        if given != wanted:
            raise MetadataNotSynced(
                "the Redis server of the objects may lose acknowledged objects",
                remedy=f"write `{setting} {wanted}` into its configuration, {_UNLESS_REDIS}",
                setting=setting,
                found=given or "not told",
            )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())
