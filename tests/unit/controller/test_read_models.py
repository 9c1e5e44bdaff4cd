"""The parts of the mirror that answers lean on: shared readings of heads, kept answers."""

import asyncio

import pytest

from anabranch.common.errors import Unavailable
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.handlers.desk.kept_answers import ENTRY_SIZE_BYTES, Kept, KeptAnswers
from anabranch.controller.projections.heads import SharedHeads


class Heads:
    """Readings that end when they are told to; each is one higher than the one before."""

    def __init__(self) -> None:
        self.readings: list[asyncio.Future[int]] = []

    async def read(self, _shard: int) -> int:
        self.readings.append(asyncio.get_running_loop().create_future())
        return await self.readings[-1]


async def turn() -> None:
    """Let every task go on as far as it can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_question_never_gets_a_reading_that_began_before_it() -> None:
    heads = Heads()
    shared = SharedHeads(heads.read)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(shared.last_sequence(3))
        await turn()
        late = [group.create_task(shared.last_sequence(3)) for _ in range(10)]
        await turn()
        assert len(heads.readings) == 1, "the late ones wait"
        heads.readings[0].set_result(7)
        await turn()
        assert first.result() == 7
        assert not any(task.done() for task in late)
        assert len(heads.readings) == 2, "one reading for all of them"
        heads.readings[1].set_result(8)
    assert [task.result() for task in late] == [8] * 10


async def test_shards_are_read_side_by_side() -> None:
    heads = Heads()
    shared = SharedHeads(heads.read)
    async with asyncio.TaskGroup() as group:
        for shard in range(SHARD_COUNT):
            group.create_task(shared.last_sequence(shard))
        await turn()
        assert len(heads.readings) == SHARD_COUNT
        for reading in heads.readings:
            reading.set_result(1)


async def test_a_reading_that_fails_fails_for_all_who_shared_it_and_for_nobody_else() -> None:
    heads = Heads()
    shared = SharedHeads(heads.read)

    async def ask() -> str | int:
        try:
            return await shared.last_sequence(0)
        except Unavailable:
            return "unavailable"

    async with asyncio.TaskGroup() as group:
        first = group.create_task(ask())
        await turn()
        late = [group.create_task(ask()) for _ in range(3)]
        await turn()
        heads.readings[0].set_exception(Unavailable("no leader"))
        await turn()
        heads.readings[1].set_exception(Unavailable("no leader"))
        await turn()
        assert len(heads.readings) == 2, "nobody tries again by itself"
        last = group.create_task(ask())
        await turn()
        heads.readings[2].set_result(9)
    assert (first.result(), last.result()) == ("unavailable", 9)
    assert [task.result() for task in late] == ["unavailable"] * 3


async def test_one_who_gives_up_reading_leaves_it_to_those_who_wait() -> None:
    heads = Heads()
    shared = SharedHeads(heads.read)
    async with asyncio.TaskGroup() as group:
        reader = group.create_task(shared.last_sequence(0))
        await turn()
        waiting = group.create_task(shared.last_sequence(0))
        await turn()
        reader.cancel()
        await turn()
        assert len(heads.readings) == 2
        heads.readings[1].set_result(5)
    assert waiting.result() == 5


def state(subject: str) -> Loaded[Stream]:
    return Loaded(subject, Stream())


def test_answers_are_kept_up_to_a_size_and_the_least_asked_for_goes() -> None:
    kept = KeptAnswers(size_bytes_max=3 * (ENTRY_SIZE_BYTES + 11))
    for name in (b"a", b"b", b"c"):
        kept.keep("describe", name, Kept(state("s"), b"0123456789", at_head=False))
    assert kept.find("describe", b"a") is not None
    kept.keep("describe", b"d", Kept(state("s"), b"0123456789", at_head=False))

    found = [name for name in (b"a", b"b", b"c", b"d") if kept.find("describe", name)]
    assert found == [b"a", b"c", b"d"]
    assert kept.size_bytes == 3 * (ENTRY_SIZE_BYTES + 11)


def test_a_newer_answer_takes_the_place_of_the_older_one() -> None:
    kept = KeptAnswers()
    newer = state("s")
    kept.keep("describe", b"a", Kept(state("s"), b"0123456789", at_head=False))
    kept.keep("describe", b"a", Kept(newer, b"01", at_head=False))
    assert kept.find("describe", b"a") == Kept(newer, b"01", at_head=False)
    assert kept.find("other", b"a") is None
    assert kept.size_bytes == ENTRY_SIZE_BYTES + 3


@pytest.mark.parametrize("size", [1, ENTRY_SIZE_BYTES])
def test_an_answer_that_does_not_fit_is_not_kept(size: int) -> None:
    kept = KeptAnswers(size_bytes_max=size)
    kept.keep("describe", b"a", Kept(state("s"), b"0123456789", at_head=False))
    assert kept.find("describe", b"a") is None
    assert kept.size_bytes == 0
