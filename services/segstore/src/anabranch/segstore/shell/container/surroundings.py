"""What a container is given by the store around it."""

from dataclasses import dataclass, field

from anabranch.common.runtime.clock import Clock
from anabranch.segstore.shell.container.metrics import StoreMetrics, uncounted
from anabranch.segstore.shell.container.pauses import BackOff
from anabranch.segstore.shell.container.throttle import Throttle
from anabranch.segstore.shell.container.tracing import StoreTracing
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.memory.tail import CallLater


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the containers of one store share."""

    clock: Clock
    cache: Cache
    throttle: Throttle
    call_later: CallLater
    back_off_s: BackOff
    metrics: StoreMetrics = field(default_factory=uncounted)
    tracing: StoreTracing | None = None
    residency: ResidencyLimits = field(default_factory=ResidencyLimits)
