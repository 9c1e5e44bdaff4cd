"""An opening that does not come to its end gives back all that it took."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from anabranch.common.errors import CorruptJournal
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import Placement
from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.memory_log import MemoryLog
from anabranch.segstore.ports_replica import Replicas, ReplicationFacts
from anabranch.segstore.shell.container.lease import NO_LEASE
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.catch_up import new_catch_up
from anabranch.segstore.shell.node.opening import Tiers, open_container
from anabranch.segstore.shell.node.placements import Placements
from anabranch.segstore.shell.tiering.flusher import FlushLimits
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from kit.container_driver import LOG_ID
from kit.live_store import NODE, call_later
from kit.store_parts import a_throttle, surroundings
from kit.table_parts import table_parts
from kit.tiered_driver import TieredDriver


class Opening:
    """The container of a driver, to be opened once more under the next epoch."""

    def __init__(self, driver: TieredDriver) -> None:
        self.cache = Cache(1 << 20)
        self.throttle = a_throttle()
        self.log = MemoryLog(driver.frames, lambda _: None)
        ids = SeededIds(2)
        placements = Placements(InMemoryObjectStore(), NODE)
        open_tier_two = OpenContainerTierTwo(driver.storage, ids, driver.time)
        self._tiers = Tiers(self.log, open_tier_two, placements, ids)

    def use(self, log: "Above") -> None:
        """Open from this log, which stores replicate."""
        self.log = log
        self._tiers = replace(self._tiers, log=log, replicated=log)

    async def run(self, clock: Clock) -> None:
        around = surroundings(clock, self.cache, self.throttle, call_later)
        placement = Placement(0, (NODE,), container_epoch=2, log_id=LOG_ID)
        tables = table_parts(new_catch_up(self.cache, clock, call_later))
        await open_container(placement, self._tiers, around, FlushLimits(), tables, lease=NO_LEASE)

    def check_nothing_is_held(self) -> None:
        assert (self.cache.used, self.throttle.untiered, self.throttle.pending) == (0, 0, 0)
        assert self.log._views == {}


@pytest.fixture
def driver() -> Iterator[TieredDriver]:
    driver = TieredDriver()
    driver.create()
    session = driver.setup()
    driver.append(session, 1, [b"a" * 100])
    driver.commit()
    driver.append(session, 2, [b"b" * 100])
    driver.append(session, 3, [b"c" * 100])
    driver.commit()
    yield driver
    driver.finish()


class Above(MemoryLog):
    """A log that notes up to where tier 2 has the container's operations, as replicas do."""

    above = -1

    def continue_above(self, container: int, applied_sequence: int) -> None:
        assert container not in self._views, "before the log is opened"
        self.above = applied_sequence

    def replicas_changed(self, container: int, container_epoch: int, replicas: Replicas) -> None:
        raise NotImplementedError

    def describe(self, container: int) -> ReplicationFacts | None:
        raise NotImplementedError


def test_a_replicated_log_continues_above_the_operations_in_tier_two(driver: TieredDriver) -> None:
    driver.flush()
    applied = driver.container.applied.flushed_sequence
    assert applied > 0

    async def opened() -> None:
        opening = Opening(driver)
        log = Above(driver.frames, lambda _: None)
        opening.use(log)
        await opening.run(SystemClock())
        assert log.above == applied

    driver.wait(opened())


class CancellingClock(SystemClock):
    """Whoever sleeps is cancelled."""

    async def sleep(self, seconds: float) -> None:
        raise asyncio.CancelledError


def test_a_cancelled_opening_holds_nothing(driver: TieredDriver) -> None:
    async def cancelled() -> None:
        opening = Opening(driver)
        with pytest.raises(asyncio.CancelledError):
            await opening.run(CancellingClock())
        opening.check_nothing_is_held()

    driver.wait(cancelled())


def test_an_opening_that_meets_damage_within_a_frame_holds_nothing(driver: TieredDriver) -> None:
    last = max(driver.frames.payloads)
    payload = driver.frames.payloads[last]
    driver.frames.payloads[last] = payload[:-1] + b"?"

    async def damaged() -> None:
        opening = Opening(driver)
        with pytest.raises(CorruptJournal):
            await opening.run(SystemClock())
        opening.check_nothing_is_held()

    driver.wait(damaged())
