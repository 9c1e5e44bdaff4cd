"""The objects that the store gives each of its containers."""

from dataclasses import dataclass, field

from anabranch.common.runtime.clock import Clock
from anabranch.segstore.shell.container.lease import Session
from anabranch.segstore.shell.container.metrics import StoreMetrics
from anabranch.segstore.shell.container.pauses import BackOff
from anabranch.segstore.shell.container.throttle import Throttle
from anabranch.segstore.shell.container.topic_storage import TopicStorage
from anabranch.segstore.shell.container.tracing import StoreTracing
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.memory.tail import CallLater


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The objects that the containers of one store share."""

    clock: Clock
    cache: Cache
    throttle: Throttle
    call_later: CallLater
    back_off_s: BackOff
    metrics: StoreMetrics
    tracing: StoreTracing | None
    residency: ResidencyLimits
    session: Session
    topic_storage: TopicStorage = field(default_factory=TopicStorage)
