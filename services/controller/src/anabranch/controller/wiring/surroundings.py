"""What every part of a controller is built in."""

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
    """Settings, the connection to NATS, what is random or passes, and where defects end."""

    settings: Settings
    client: Client
    clock: Clock
    ids: IdSource
    rng: Rng
    observer: Observer
    containment: Containment

    def objects(self, bucket: str) -> JetStreamObjectStore:
        """A KV bucket."""
        return JetStreamObjectStore(self.client, self.clock, bucket)
