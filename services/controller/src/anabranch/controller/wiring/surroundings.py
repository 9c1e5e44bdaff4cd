"""The dependencies of every part of a controller."""

from dataclasses import dataclass

from nats.aio.client import Client

from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore
from anabranch.common.adapters.redis_objects import RedisObjects
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource, Rng
from anabranch.common.workflow.containment import Containment
from anabranch.controller.settings import Settings
from anabranch.controller.workflows.observed import Observer


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Settings, the connection to NATS, clock and randomness, telemetry, containment of defects.

    `place`: the Redis server of the cluster's objects; None: NATS holds them.
    """

    settings: Settings
    client: Client
    clock: Clock
    ids: IdSource
    rng: Rng
    observer: Observer
    containment: Containment
    place: RedisObjects | None = None

    def objects(self, bucket: str) -> ObjectStore:
        """The bucket with this name."""
        if self.place is not None:
            return self.place.bucket(bucket)
        return self.objects_in_nats(bucket)

    def objects_in_nats(self, bucket: str) -> ObjectStore:
        """The bucket of NATS with this name."""
        return JetStreamObjectStore(self.client, self.clock, bucket)
