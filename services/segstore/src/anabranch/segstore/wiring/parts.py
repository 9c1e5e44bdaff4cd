"""The objects that exist before the store serves."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nats.aio.client import Client

from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore
from anabranch.common.adapters.redis_objects import RedisObjects
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.runtime.service import Lifetime
from anabranch.common.storage.ports import ChunkStorage
from anabranch.segstore.ports import DurableDataLog
from anabranch.segstore.settings import SegstoreSettings
from anabranch.segstore.shell.container.metrics import StoreMetrics
from anabranch.segstore.shell.container.pauses import BackOff
from anabranch.segstore.shell.container.tracing import Commits, StoreTracing

if TYPE_CHECKING:
    from anabranch.segstore.wiring.replication import Replication


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects that exist before the store serves."""

    settings: SegstoreSettings
    lifetime: Lifetime
    clock: Clock
    back_off_s: BackOff
    ids: IdSource
    log: DurableDataLog
    node_id: str
    session: str
    former_may_run: bool
    """Whether another process may still serve from the data directory."""
    join_token: str
    client: Client
    storage: ChunkStorage
    metrics: StoreMetrics
    commits: Commits
    tracing: StoreTracing | None
    replication: "Replication | None" = None
    """The parts of a store that replicates logs; `log` is then the replicated log."""

    place: RedisObjects | None = None
    """The Redis server of the cluster's objects; None: NATS holds them."""

    def objects(self, bucket: str) -> ObjectStore:
        if self.place is not None:
            return self.place.bucket(bucket)
        return JetStreamObjectStore(self.client, self.clock, bucket)


def call_later(seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
    return asyncio.get_running_loop().call_later(seconds, callback).cancel
