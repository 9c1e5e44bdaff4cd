"""The dependencies of every part of a controller."""

from dataclasses import dataclass

from nats.aio.client import Client

from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource, Rng
from anabranch.common.workflow.containment import Containment
from anabranch.controller.settings import Settings
from anabranch.controller.workflows.observed import Observer


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Settings, the connection to NATS, clock and randomness, telemetry, containment of defects."""

    settings: Settings
    client: Client
    clock: Clock
    ids: IdSource
    rng: Rng
    observer: Observer
    containment: Containment

    def objects(self, bucket: str) -> JetStreamObjectStore:
        """The KV bucket with this name."""
        return JetStreamObjectStore(self.client, self.clock, bucket)
