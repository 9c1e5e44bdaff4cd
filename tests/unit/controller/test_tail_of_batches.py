"""No tail cut divides a batch of transactions, whatever happens while the lengths are asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, product
from typing import Any

import pytest

from anabranch.common.contracts.stream_queries import CutFound
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import segment_id
from anabranch.controller.domain.stream.events import (
    PlannedSegment,
    StreamCommitFinished,
    StreamCommitStarted,
    StreamEvent,
    StreamRolled,
    StreamRollMade,
    StreamScaled,
    StreamScaling,
    StreamSuccessorsMade,
    StreamUpdated,
)
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.projections import tail_cut
from kit.desks import one_by_one
from kit.transaction_desk import (
    FIRST,
    SECOND,
    START_MS,
    SUBJECT,
    TransactionWorld,
    transaction_world,
)

NAMES = {"s/x/0.#epoch.0": FIRST, "s/x/1.#epoch.0": SECOND}


@pytest.fixture
async def world() -> AsyncIterator[TransactionWorld]:
    async with transaction_world() as built:
        yield built


async def committing(world: TransactionWorld, length: int = 10) -> str:
    """One that is to be committed, with so many bytes beside each segment."""
    transaction = await world.begin_id()
    for number in (0, 1):
        world.segment(transaction, number).length = length
    await world.info("commit_transaction", transaction)
    return transaction


async def cut(world: TransactionWorld, **fields: Any) -> dict[int, int]:
    found = await world.ask("tail_cut", CutFound, **fields)
    return {one.segment_id: one.offset for one in found.segments}


def planted(world: TransactionWorld, segment: str, action: Callable[[], Awaitable[object]]) -> None:
    """Do that once, right before the length of that segment is told; others are told before."""
    others = asyncio.Event()
    actions = [action]

    async def tell(name: str) -> int:
        (length,) = await world.stores.segment_lengths([name])
        return length

    async def ask(name: str) -> int:
        if name != segment:
            length = await tell(name)
            others.set()
            return length
        await others.wait()
        if actions:
            await actions.pop()()
        return await tell(name)

    world.replace_desk(segment_lengths=one_by_one(ask))


async def test_a_batch_that_is_merged_between_two_questions_is_all_in_the_cut(
    world: TransactionWorld,
) -> None:
    """The first segment's length is told before the batch is there, the second's after."""
    before = await cut(world)
    planted(world, "s/x/1.#epoch.0", world.work)
    await committing(world)
    assert await cut(world) == {segment: length + 10 for segment, length in before.items()}


async def test_what_is_written_behind_a_batch_is_in_the_cut_as_well(
    world: TransactionWorld,
) -> None:
    before = await cut(world)

    async def come() -> None:
        await world.work()
        world.stores.segments["s/x/1.#epoch.0"].length += 5

    planted(world, "s/x/1.#epoch.0", come)
    await committing(world)
    assert await cut(world) == {FIRST: before[FIRST] + 10, SECOND: before[SECOND] + 15}


async def test_the_cut_waits_for_a_batch_that_is_half_merged(world: TransactionWorld) -> None:
    """Its merge into the second segment is done, the one into the first comes later."""
    before = await cut(world)
    await committing(world)
    assert await world.step()  # the batch begins
    await world.mirror.reach_heads()
    world.stores.segments["s/x/1.#epoch.0"].length += 10
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(cut(world))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not asked.done()
        world.stores.segments["s/x/1.#epoch.0"].length -= 10
        await world.work()
    assert asked.result() == {segment: length + 10 for segment, length in before.items()}


class Course:
    """Two batches, message by message and merge by merge; lengths are told at places in between.

    `lengths` are those of both segments. `ask` tells one when the course has come to its place.
    """

    def __init__(self, world: TransactionWorld, loaded: Loaded[Stream], sizes: Sequence[int]):
        self.loaded = loaded
        self.lengths = [0, 0]
        self.places = [0, 0]
        self.told = 0
        self._one_told = asyncio.Event()
        self._world = world
        self._at = 0
        self._acts: list[Callable[[], Awaitable[None]]] = []
        for size in sizes:
            merges = (partial(self._merge, segment, size) for segment in (0, 1))
            ends = partial(self._finish, size)
            self._acts += [self._start, *merges, ends]
        self.count = len(self._acts)

    def tell_at(self, first: int, second: int) -> None:
        """At which places the lengths of the segments are told."""
        self.places, self.told = [first, second], 0
        self._one_told = asyncio.Event()

    def restart(self) -> None:
        """The same again, behind what there is."""
        assert self._at == self.count
        self._at = 0

    async def come_to(self, place: int) -> None:
        while self._at < place:
            self._at += 1
            await self._acts[self._at - 1]()

    async def ask(self, name: str) -> int:
        segment = list(NAMES).index(name)
        mine, other = self.places[segment], self.places[1 - segment]
        if other < mine and not self.told:
            await self._one_told.wait()
        await self.come_to(mine)
        self.told += 1
        self._one_told.set()
        return self.lengths[segment]

    async def go_on(self) -> None:
        """The next one, if there is any."""
        await self.come_to(min(self._at + 1, self.count))

    async def _append(self, event: StreamEvent) -> None:
        self.loaded = await self._world.streams.append(self.loaded, [event])

    async def _start(self) -> None:
        await self._append(
            StreamCommitStarted(
                revision=self.loaded.revision + 1,
                reference_epoch=0,
                transactions=(f"{self.loaded.revision:032x}",),
                stream_epochs=(0,),
                at_ms=START_MS,
            )
        )

    async def _merge(self, segment: int, size: int) -> None:
        self.lengths[segment] += size

    async def _finish(self, size: int) -> None:
        ends = tuple(self.lengths) if size else (0, 0)
        await self._append(StreamCommitFinished(ends=ends, aborted=(), at_ms=START_MS))


@pytest.mark.parametrize(("sizes", "pause"), [((10, 10), 30), ((10, 0), 1)])
async def test_wherever_the_lengths_are_asked_each_batch_is_in_the_cut_or_is_not(
    world: TransactionWorld, sizes: tuple[int, int], pause: int
) -> None:
    """All places at which the question and both lengths can come in the course of two batches.

    Each writes as much to both segments, so a cut that divides none is as long in both."""
    loaded = await world.streams.load(SUBJECT)
    course = Course(world, loaded, sizes)
    world.replace_desk(segment_lengths=one_by_one(course.ask))
    places = range(course.count + 1)
    for began, first, second in product(places, places, places):
        if began not in (0, min(first, second)):
            continue
        there = course.lengths[0]
        await course.come_to(began)
        course.tell_at(first, second)
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(cut(world))
            while not asked.done():
                for _ in range(pause):
                    await asyncio.sleep(0)
                if course.told >= 2:
                    await course.go_on()
        await course.come_to(course.count)
        course.restart()
        found = asked.result()
        assert found[FIRST] == found[SECOND], (began, first, second)
        assert found[FIRST] - there in (0, *accumulate(sizes)), (began, first, second)


async def test_lengths_of_one_moment_are_asked_for_again_until_no_batch_is_merged(
    world: TransactionWorld,
) -> None:
    """Between two questions, and while one is asked, the course of the batches goes on."""
    loaded = await world.streams.load(SUBJECT)
    together = replace(loaded.state.config, together=True)
    updated = StreamUpdated(command_id="together", config=together)
    course = Course(world, await world.streams.append(loaded, [updated]), (10, 10))
    asked: list[int] = []

    async def lengths(segments: Sequence[str]) -> Sequence[int]:
        assert list(segments) == list(NAMES)
        asked.append(len(asked))
        await course.go_on()
        return list(course.lengths)

    world.replace_desk(segment_lengths=lengths)
    for place in range(course.count + 1):
        await course.come_to(place)
        async with asyncio.TaskGroup() as group:
            question = group.create_task(cut(world))
            while not question.done():
                for _ in range(30):
                    await asyncio.sleep(0)
                await course.go_on()
        found = question.result()
        assert found[FIRST] == found[SECOND], place
        await course.come_to(course.count)
        course.restart()
    assert len(asked) > course.count + 1, "some questions met a batch"


async def test_a_batch_without_bytes_takes_nothing_back(world: TransactionWorld) -> None:
    """The reach of the batch before it must not be lost, though only the last one is told."""
    parted = await world.begin_id(parts=True)
    before = await cut(world)

    async def come() -> None:
        await committing(world)
        await world.work()
        await world.info("commit_transaction", parted)
        await world.work()

    planted(world, "s/x/1.#epoch.0", come)
    assert await cut(world) == {segment: length + 10 for segment, length in before.items()}


async def test_a_roll_in_between_makes_it_begin_again(world: TransactionWorld) -> None:
    old = await world.begin_id()
    await world.split(FIRST, 0, 0.25, 0.5)
    await world.work()

    async def roll() -> None:
        await world.info("commit_transaction", old)
        await world.work()

    planted(world, "s/x/1.#epoch.0", roll)
    found = await world.ask("tail_cut", CutFound)
    assert found.stream_epoch == 3
    assert [one.offset for one in found.segments] == [0, 0, 0]


async def test_a_batch_that_does_not_end_makes_the_tail_unavailable(
    world: TransactionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_cut, "BATCH_DEADLINE_S", 0.0)
    await committing(world)
    await world.step()
    assert await world.refusal("tail_cut") == "unavailable"


def planned_segment(epoch: int, number: int, start: float, end: float) -> PlannedSegment:
    return PlannedSegment(segment_id=segment_id(epoch, number), key_start=start, key_end=end)


async def test_a_batch_for_which_the_stream_has_rolled_lies_before_the_tail(
    world: TransactionWorld,
) -> None:
    """The question comes between the roll and the end of its batch, which reaches nowhere."""
    loaded = await world.streams.load(SUBJECT)
    first, second = loaded.state.segments
    scaled = [planned_segment(1, 2, 0.0, 0.25), planned_segment(1, 3, 0.25, 1.0)]
    taken = [planned_segment(2, n, s.keys.start, s.keys.end) for n, s in enumerate((first, second))]
    renewed = [planned_segment(3, 2, 0.0, 0.25), planned_segment(3, 3, 0.25, 1.0)]
    for event in (
        StreamScaling(
            command_id="scale", revision=loaded.revision + 1, stream_epoch=1,
            sealed=(first.segment_id, second.segment_id), created=tuple(scaled), at_ms=START_MS,
        ),
        StreamSuccessorsMade(),
        StreamScaled(sizes=(0, 0)),
        StreamCommitStarted(
            revision=loaded.revision + 4, reference_epoch=0, transactions=("a" * 32,),
            stream_epochs=(0,), at_ms=START_MS,
        ),
        StreamRollMade(taken=tuple(taken), lengths=(10, 10), renewed=tuple(renewed)),
        StreamRolled(sizes=(0, 0), at_ms=START_MS),
    ):  # fmt: skip
        loaded = await world.streams.append(loaded, [event])
    world.replace_desk(segment_lengths=one_by_one(lambda _name: asyncio.sleep(0, 7)))
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(cut(world))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not asked.done()
        await world.streams.append(loaded, [StreamCommitFinished(ends=(), at_ms=START_MS)])
    assert asked.result() == {segment_id(3, 2): 7, segment_id(3, 3): 7}
