"""Where the metadata is stored, and whether the NATS servers keep what they acknowledge. Pure.

With one replica an acknowledged message must be on the disk, and with three a power cut may take
all servers at once. By default a server syncs every two minutes, and a loss of power loses
everything since. Only its monitoring port tells whether it syncs every write.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from anabranch.common.errors import MetadataNotSynced
from anabranch.common.model.nats_server import MonitoredServer

SYNC_SETTING = "ANABRANCH_CONTROLLER_NATS_SYNC"
MONITOR_SETTING = "ANABRANCH_CONTROLLER_NATS_MONITOR_URL"
REPLICAS = 3
_UNLESS = f"or set {SYNC_SETTING}=unchecked if a loss of power may take the last metadata with it"

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
