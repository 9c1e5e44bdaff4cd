"""Domain events go once two snapshots and some time lie behind them, and not before."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest

from anabranch.common.contracts.commands import CreateScope, DeleteScope
from anabranch.common.contracts.subjects import scope_events, shard_of_subject
from anabranch.common.errors import Unavailable
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.repository import SNAPSHOT_EVERY, Loaded, Repository
from anabranch.common.model.names import ScopeName
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.workflow.containment import Containment
from anabranch.controller.domain.scope import decide as scope_decide
from anabranch.controller.domain.scope.state import (
    SCOPE,
    Scope,
    ScopeDeleted,
    ScopeEvent,
)
from anabranch.controller.periodic.trim_events import EventTrimmer, purgeable_below
from kit.loud import loud
from kit.rng import seeded

SUBJECT = scope_events(ScopeName("s"))
SHARD = shard_of_subject(SUBJECT)
DAY_S = 24 * 3600.0


class Clock(SystemClock):
    time_ms = 1_000_000

    def now_ms(self) -> int:
        return self.time_ms


class World:
    """One scope that is created and deleted again and again."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.store = InMemoryEventStore(self.clock.now_ms)
        self.scopes = Repository(self.store, SCOPE, SeededIds(1))
        self.ids: Iterator[int] = count()
        self.purges: list[tuple[str, int]] = []
        self.owned = True
        self.known: list[Loaded[Scope]] = []
        self.broken: dict[str, Exception] = {}

    async def grow(self, messages: int) -> None:
        for _ in range(messages):
            await self.scopes.transact(SUBJECT, self._next)

    def _next(self, loaded: Loaded[Scope]) -> list[ScopeEvent]:
        if loaded.state.pending:
            return [ScopeDeleted()]
        command = DeleteScope if loaded.state.is_live else CreateScope
        asked = command(command_id=str(next(self.ids)), scope="s")
        return list(scope_decide.decide(loaded.state, asked, now_ms=0))

    async def trimmer(self, containment: Containment | None = None) -> EventTrimmer:
        seen = Loaded(SUBJECT, SCOPE.initial)
        async for message in self.store.scan(SHARD, SUBJECT):
            seen = self.scopes.fold(seen, message)
        self.known = [seen]

        async def purge(subject: str, below: int) -> None:
            if subject in self.broken:
                raise self.broken[subject]
            self.purges.append((subject, below))
            await self.store.purge(subject, below)

        return EventTrimmer(
            lambda: self.known,
            purge,
            lambda _: self.owned,
            clock=self.clock,
            trim_after_s=DAY_S,
            containment=containment or loud(self.clock),
        )

    async def kinds(self) -> list[str]:
        return [m.kind async for m in self.store.scan(SHARD, SUBJECT)]


async def test_what_lies_below_the_last_but_one_snapshot_goes_when_the_last_is_old() -> None:
    world = World()
    await world.grow(2 * SNAPSHOT_EVERY + 5)
    before = await world.scopes.load(SUBJECT)
    world.clock.time_ms += int(DAY_S * 1000)

    await (await world.trimmer()).trim()

    assert (await world.kinds()).index("snapshot") == 0
    assert (await world.kinds()).count("snapshot") == 2
    assert len(await world.kinds()) == SNAPSHOT_EVERY + 2 + 5
    assert await world.scopes.load(SUBJECT) == before


async def test_a_young_snapshot_and_a_single_one_let_nothing_go() -> None:
    world = World()
    await world.grow(2 * SNAPSHOT_EVERY)
    world.clock.time_ms += int(DAY_S * 1000) - 1
    await (await world.trimmer()).trim()
    single = World()
    await single.grow(SNAPSHOT_EVERY + 1)
    single.clock.time_ms += int(DAY_S * 1000)
    await (await single.trimmer()).trim()

    assert world.purges == single.purges == []


def test_a_snapshot_of_unknown_age_is_young() -> None:
    loaded = Loaded(SUBJECT, SCOPE.initial, snapshot_sequence=9, earlier_snapshot_sequence=4)

    assert purgeable_below(loaded, 10**15, 1) == 0


async def test_others_aggregates_are_left_to_them_and_nothing_is_purged_twice() -> None:
    world = World()
    await world.grow(2 * SNAPSHOT_EVERY)
    world.clock.time_ms += int(DAY_S * 1000)
    trimmer = await world.trimmer()
    world.owned = False
    await trimmer.trim()
    assert world.purges == []
    world.owned = True
    for _ in range(2):
        await trimmer.trim()

    assert len(world.purges) == 1


async def test_a_purge_that_failed_is_asked_for_again() -> None:
    world = World()
    await world.grow(2 * SNAPSHOT_EVERY)
    world.clock.time_ms += int(DAY_S * 1000)
    trimmer = await world.trimmer()
    working = trimmer._purge

    async def failing(subject: str, below: int) -> None:
        raise Unavailable("away")

    trimmer._purge = failing
    with pytest.raises(Unavailable):
        await trimmer.trim()
    trimmer._purge = working
    await trimmer.trim()

    assert len(world.purges) == 1


@pytest.mark.parametrize("error", [KeyError("a defect"), Unavailable("the shard's leader is away")])
async def test_one_aggregate_that_cannot_be_trimmed_keeps_no_other(error: Exception) -> None:
    world = World()
    await world.grow(2 * SNAPSHOT_EVERY + 5)
    world.clock.time_ms += int(DAY_S * 1000)
    containment = Containment(world.clock, seeded(0))
    trimmer = await world.trimmer(containment)
    others = [replace(world.known[0], subject=f"{SUBJECT}{number}") for number in range(9)]
    world.known = [*world.known, *others]
    world.broken = {SUBJECT: error}

    for _ in range(2):
        with suppress(Unavailable):
            await trimmer.trim()

    assert {subject for subject, _ in world.purges} == {one.subject for one in others}
    defects = [one.subject for one in containment.all()]
    assert defects == ([SUBJECT] if isinstance(error, KeyError) else [])


async def test_what_the_mirror_knows_no_more_is_forgotten() -> None:
    world = World()
    await world.grow(2 * SNAPSHOT_EVERY + 5)
    world.clock.time_ms += int(DAY_S * 1000)
    trimmer = await world.trimmer()
    await trimmer.trim()
    assert list(trimmer._trimmed) == [SUBJECT]
    world.known = []

    await trimmer.trim()

    assert trimmer._trimmed == {}
