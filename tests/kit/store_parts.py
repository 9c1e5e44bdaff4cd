"""Parts of a segment store for tests: the arguments that most of them do not care about."""

from collections.abc import Callable

from anabranch.common.runtime.clock import Clock
from anabranch.segstore.shell.container.lease import NoSession, Session
from anabranch.segstore.shell.container.metrics import StoreMetrics, uncounted
from anabranch.segstore.shell.container.pauses import drawn_from
from anabranch.segstore.shell.container.surroundings import Surroundings
from anabranch.segstore.shell.container.throttle import Throttle, ThrottleLimits
from anabranch.segstore.shell.container.tracing import StoreTracing
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.catch_up import CatchUp
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.memory.tail import CallLater
from anabranch.segstore.shell.node.store import Store
from kit.rng import seeded


def a_throttle(
    limits: ThrottleLimits | None = None,
    journal_size: Callable[[], int] = lambda: 0,
    no_room: Callable[[], bool] = lambda: False,
) -> Throttle:
    """A throttle of a store whose journal is empty and has room."""
    return Throttle(limits or ThrottleLimits(), journal_size=journal_size, no_room=no_room)


def a_store(
    container_count: int,
    catch_up: CatchUp,
    *,
    on_changed: Callable[[], object] = lambda: None,
    metrics: StoreMetrics | None = None,
) -> Store:
    """A store without a door and without metrics."""
    return Store(
        container_count, on_changed=on_changed, metrics=metrics or uncounted(), catch_up=catch_up
    )


def surroundings(
    clock: Clock,
    cache: Cache,
    throttle: Throttle,
    call_later: CallLater,
    *,
    metrics: StoreMetrics | None = None,
    tracing: StoreTracing | None = None,
    residency: ResidencyLimits | None = None,
    session: Session | None = None,
) -> Surroundings:
    """What the containers of a test share; nothing is counted and nothing traced."""
    return Surroundings(
        clock=clock,
        cache=cache,
        throttle=throttle,
        call_later=call_later,
        back_off_s=drawn_from(seeded(0)),
        metrics=metrics or uncounted(),
        tracing=tracing,
        residency=residency or ResidencyLimits(),
        session=session or NoSession(),
    )
