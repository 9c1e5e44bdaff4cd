"""A store keeps the copies that other stores lead from holding up its journal."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from anabranch.common.contracts.cluster import placement_key, placement_to_bytes
from anabranch.common.errors import Unavailable
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import REPLICATED, LogCopy, Placement
from anabranch.common.runtime.clock import SystemClock
from anabranch.segstore.ports_replica import Replicas, ReplicationFacts
from anabranch.segstore.shell.node.copy_keeping import ABOVE_S_MAX, CopyKeeping

NODE = "store-2"
BOUND = 1000


@dataclass
class FakeKept:
    """`KeptCopies` that remembers. `tiered`: the copies of which tier 2 has everything."""

    tiered: set[int] = field(default_factory=set)
    asked: list[int] = field(default_factory=list)
    kept: int = 0
    tidied: list[Placement] = field(default_factory=list)
    failing: bool = False
    _dropped: set[int] = field(default_factory=set)

    async def unpin(self, container: int) -> bool:
        if self.failing:
            raise Unavailable("no")
        self.asked.append(container)
        return container in self.tiered

    def drop(self, container: int) -> None:
        self._dropped.add(container)

    def keep_dropped(self) -> None:
        self.kept += 1
        self._dropped.clear()

    @property
    def dropped(self) -> Sequence[int]:
        return sorted(self._dropped)

    async def tidy(self, placements: Iterable[Placement]) -> None:
        self.tidied += placements


@dataclass
class FakeLogs:
    """`ReplicatedLogs` that remembers."""

    heard: list[tuple[int, int, Replicas]] = field(default_factory=list)
    led: dict[int, ReplicationFacts] = field(default_factory=dict)

    def continue_above(self, container: int, applied_sequence: int) -> None:
        raise AssertionError

    def replicas_changed(self, container: int, container_epoch: int, replicas: Replicas) -> None:
        self.heard.append((container, container_epoch, replicas))

    def describe(self, container: int) -> ReplicationFacts | None:
        return self.led.get(container)


class SetClock(SystemClock):
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class World:
    def __init__(self) -> None:
        self.clock = SetClock()
        self.copies = FakeKept()
        self.logs = FakeLogs()
        self.objects = InMemoryObjectStore()
        self.size = 0
        self.here = {5: "a-log"}
        self.keeping = CopyKeeping(
            self.copies,
            self.logs,
            self.objects,
            node_id=NODE,
            logs=lambda: self.here,
            bytes_max=BOUND,
            journal_size=lambda: self.size,
            clock=self.clock,
            back_off_s=lambda _: 0.0,
        )

    async def look_long_above_the_bound(self) -> None:
        self.size = BOUND + 1
        self.keeping.hurry(frozenset({5}))
        await self.keeping.look()
        assert self.copies.dropped == []
        self.clock.now_s += ABOVE_S_MAX + 1
        await self.keeping.look()

    async def place(self, placement: Placement, *, watched: bool = True) -> None:
        key, value = placement_key(placement.container), placement_to_bytes(placement)
        found = await self.objects.get(key)
        if found is None:
            await self.objects.create(key, value)
        else:
            await self.objects.update(key, value, found.revision)
        if watched:
            self.keeping.note(placement)


def placed(**fields: object) -> Placement:
    standard = {"replicas": ("store-1", NODE), "log_id": "a-log", "log_home": REPLICATED}
    return Placement(5, **{**standard, **fields})  # type: ignore[arg-type]


async def test_a_copy_that_is_needed_stays() -> None:
    world = World()
    await world.place(placed())
    await world.keeping.look()
    assert world.copies.tidied == []
    assert world.copies.asked == []


@pytest.mark.parametrize(
    "changed", [{"replicas": ("store-1",)}, {"log_id": "b-log"}, {"replicas": ()}]
)
async def test_a_copy_that_is_needed_no_more_is_removed_by_a_placement_read_anew(
    changed: dict[str, object],
) -> None:
    world = World()
    await world.place(placed(**changed))
    newest = placed(**changed, container_epoch=9, isr=(LogCopy(NODE, "a-copy"),))
    await world.place(newest, watched=False)
    await world.keeping.look()
    assert world.copies.tidied == [newest]


async def test_a_copy_that_pins_the_oldest_file_asks_its_leader_for_a_flush() -> None:
    world = World()
    await world.place(placed())
    world.size = BOUND
    world.keeping.hurry(frozenset({5, 6}))
    await world.keeping.look()
    assert world.copies.asked == [5]
    assert world.copies.dropped == []


async def test_a_copy_leaves_the_isr_when_the_journal_stays_above_its_bound() -> None:
    world = World()
    await world.place(placed())
    await world.look_long_above_the_bound()
    assert world.copies.dropped == [5]
    assert world.copies.tidied == [placed()]


async def test_a_copy_that_cannot_be_asked_leaves_the_isr_too() -> None:
    world = World()
    world.copies.failing = True
    await world.look_long_above_the_bound()
    assert world.copies.dropped == [5]


async def test_a_copy_of_which_tier_2_has_everything_is_not_dropped() -> None:
    world = World()
    world.copies.tiered.add(5)
    await world.look_long_above_the_bound()
    assert world.copies.dropped == []


async def test_a_leader_has_time_to_relieve_the_journal() -> None:
    world = World()
    world.size = BOUND + 1
    world.keeping.hurry(frozenset({5}))
    for size in (BOUND + 1, BOUND, BOUND + 1):
        world.size = size
        await world.keeping.look()
        world.clock.now_s += ABOVE_S_MAX * 2 / 3
    await world.keeping.look()
    assert world.copies.dropped == []


async def test_dropped_copies_obey_leaders_again_when_the_journal_is_small() -> None:
    world = World()
    world.copies.drop(5)
    world.size = BOUND // 2
    await world.keeping.look()
    assert world.copies.dropped == [5]
    world.size = BOUND // 2 - 1
    await world.keeping.look()
    assert world.copies.dropped == []


async def test_the_logs_that_the_store_leads_hear_of_their_replicas() -> None:
    world = World()
    isr = (LogCopy(NODE, "a-copy"),)
    await world.place(placed(container_epoch=7, isr=isr, isr_min=2))
    assert world.logs.heard == [(5, 7, Replicas(("store-1", NODE), isr, 2))]


async def test_a_damaged_placement_keeps_no_other_one_from_being_followed() -> None:
    world = World()
    await world.objects.create(placement_key(4), b"{damaged")
    await world.place(placed(container_epoch=7), watched=False)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        running = group.create_task(world.keeping.run())
        while not world.logs.heard:  # noqa: ASYNC110  the keeping tells nobody
            await asyncio.sleep(0)
        running.cancel()
    assert [container for container, _, _ in world.logs.heard] == [5]


async def test_a_log_hears_once_of_changes_that_it_missed_while_it_was_opened() -> None:
    world = World()
    await world.place(placed(container_epoch=7))
    leader = LogCopy(NODE, "a-copy")
    for epoch in (7, 7, 8):
        world.logs.led[5] = ReplicationFacts(5, epoch, leader, frozenset({leader}), 2, ())
        await world.keeping.look()
    assert len(world.logs.heard) == 3


async def test_a_look_notes_the_replication_of_the_logs_that_the_store_leads() -> None:
    world = World()
    leader = LogCopy(NODE, "a-copy")
    facts = ReplicationFacts(5, 7, leader, frozenset({leader}), 2, ())
    world.logs.led[5] = facts
    world.here = {5: "a-log", 6: "b-log"}
    await world.keeping.look()
    assert world.keeping.facts == (facts,)
