"""The streams and key-value buckets of the metadata: created, replicated, and on servers that sync.

A controller prepares them at its start, and looks again once a minute: a cluster of NATS servers
may have grown, and a server that was away may have come back with another configuration. Replicas
are only ever added. A server that is away is not asked, because it confirms nothing meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from nats.aio.client import Client

from anabranch.common.adapters.jetstream_events import create_streams
from anabranch.common.adapters.jetstream_objects import create_bucket
from anabranch.common.adapters.nats_connection import is_clustered, server_id
from anabranch.common.adapters.nats_monitor import ask_servers, jetstream_server_count
from anabranch.common.adapters.redis_objects import RedisObjects
from anabranch.common.contracts import subjects
from anabranch.common.errors import AnabranchError, MetadataNotSynced, Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.controller.adapters.parked_commands import create_parked_stream
from anabranch.controller.domain.durability import (
    ReplicaSetting,
    check_redis,
    check_synced,
    doubt,
    wanted_replicas,
)

BUCKETS = (*subjects.METADATA_BUCKETS, subjects.CONTROLLERS_BUCKET)
ASK_BUDGET_S = 20.0
"""How long a monitoring port may be silent: a server that is away counts as away after 10 s."""
PAUSE_S = 0.5
PERIOD_S = 60.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Replication:
    """What the operator wants: the replicas, the monitoring ports, whether servers must sync."""

    replicas: ReplicaSetting
    monitor_urls: Sequence[str]
    is_checked: bool


class MetadataStreams:
    """See the module. `place`: the Redis server of the objects; None: NATS holds them."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        wanted: Replication,
        place: RedisObjects | None = None,
        *,
        place_is_checked: bool = True,
    ) -> None:
        self._client = client
        self._clock = clock
        self._wanted = wanted
        self._place = place
        self._place_is_checked = place_is_checked
        self._buckets = BUCKETS if place is None else (subjects.CLUSTER_BUCKET,)

    async def prepare(self, *, ask_budget_s: float = ASK_BUDGET_S) -> None:
        """Ensure all of them. Idempotent.

        While a monitoring port is silent it tries again, until `ask_budget_s` is used up. Raises
        Unavailable, also while the servers choose a leader; MetadataNotSynced.
        """
        deadline = self._clock.monotonic() + ask_budget_s
        while (doubted := await self.ensure()) is not None:
            if self._clock.monotonic() >= deadline:
                raise doubted
            await self._clock.sleep(PAUSE_S)

    async def serve(self) -> None:
        """Ensure all of them once a minute, until cancelled."""
        while True:
            await self._clock.sleep(PERIOD_S)
            try:
                found: AnabranchError | None = await self.ensure()
            except (MetadataNotSynced, Unavailable) as error:
                found = error
            if found is not None:
                _log.warning("the replicas of the metadata are in doubt", error=str(found))

    async def ensure(self) -> MetadataNotSynced | None:
        """Ensure all of them once; returns the error of a server whose answer is missing.

        Raises Unavailable, MetadataNotSynced (a server does not sync).
        """
        wanted = self._wanted
        if self._place is not None and self._place_is_checked:
            check_redis(await self._place.durability())
        if not wanted.is_checked:
            await self._create(wanted_replicas(wanted.replicas, await self._server_count()))
            return None
        asked = await ask_servers(wanted.monitor_urls)
        connected = await server_id(self._client)
        own = [one.name for one in asked if one.server_id == connected]
        doubted = doubt(asked, connected, own)
        if not is_clustered(self._client):  # nothing may be created on a server that loses it
            check_synced(asked, own)
            if doubted is not None and asked:
                raise doubted
        if doubted is not None:
            return doubted
        servers = await self._create(wanted_replicas(wanted.replicas, await self._server_count()))
        check_synced(asked, servers)
        return doubt(asked, connected, servers)

    async def _server_count(self) -> int | None:
        if not is_clustered(self._client):
            return 1
        return await jetstream_server_count(self._wanted.monitor_urls)

    async def _create(self, replicas: int) -> set[str]:
        servers = await create_streams(self._client, replicas)
        servers.update(await create_parked_stream(self._client, replicas))
        for bucket in self._buckets:
            servers.update(await create_bucket(self._client, bucket, replicas))
        return servers
