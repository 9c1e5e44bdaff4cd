"""How a controller learns that a carried transaction has ended: by its stream, or by a chunk."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from anabranch.common.contracts.subjects import (
    shard_of_subject,
    transaction_events,
    transaction_outcomes,
)
from anabranch.common.errors import CorruptEvent
from anabranch.common.model.stream import StreamState
from anabranch.common.model.transaction import TransactionState
from anabranch.controller.domain.stream import state as stream_state
from anabranch.controller.domain.stream.commits import REMEMBERED_MS_MIN
from anabranch.controller.domain.transaction import decide
from anabranch.controller.workflows import archive_outcomes
from kit.carried_desk import an_id, asked, submit
from kit.fed_mirror import fed_mirror
from kit.transaction_desk import REF, START_MS, SUBJECT, TransactionWorld, transaction_world

COMMITTING, COMMITTED = TransactionState.COMMITTING, TransactionState.COMMITTED


@pytest.fixture
async def world() -> AsyncIterator[TransactionWorld]:
    async with transaction_world() as built:
        yield built


@contextmanager
def archiving_at_once(chunks_max: int = 2) -> Iterator[None]:
    with (
        patch.object(stream_state, "OUTCOMES_KEPT", 0),
        patch.object(stream_state, "OUTCOMES_PER_CHUNK", 1),
        patch.object(archive_outcomes, "OUTCOMES_PER_CHUNK", 1),
        patch.object(archive_outcomes, "OUTCOME_CHUNKS_MAX", chunks_max),
    ):
        yield


async def archived(world: TransactionWorld, number: int = 0) -> None:
    """Commit one whose outcome goes to a chunk; of the stream only a snapshot is left."""
    with archiving_at_once():
        await submit(world, number=number)
        await world.work()
    stream = await world.streams.snapshot(await world.streams.load(SUBJECT))
    await world.store.purge(SUBJECT, stream.sequence)


async def test_a_controller_that_starts_later_knows_it_by_the_chunk(
    world: TransactionWorld,
) -> None:
    await archived(world)
    assert await world.status(an_id()) == COMMITTING
    mirror = fed_mirror(world.store)
    await mirror.reach_heads()
    assert mirror.transactions.get(REF, 1, an_id()) is None
    assert mirror.transactions.slots.has_ended(transaction_events(REF, 1, an_id()))
    assert mirror.transactions.slots.done()


async def test_what_may_be_in_an_unreadable_chunk_is_not_committed(
    world: TransactionWorld,
) -> None:
    await archived(world)
    (chunk,) = await world.store.load(transaction_outcomes(REF, 1, 0))
    world.store.damage(shard_of_subject(chunk.subject), chunk.sequence, b"[]")
    mirror = fed_mirror(world.store)
    await mirror.reach_heads()
    stream = mirror.stream(REF)
    assert stream is not None
    with pytest.raises(CorruptEvent):
        await mirror.decided_at(REF, 1, stream.sequence)


async def test_a_chunk_is_kept_until_each_transaction_is_purged_or_recorded(
    world: TransactionWorld,
) -> None:
    await archived(world)
    world.clock.at_ms += REMEMBERED_MS_MIN + 1

    async def another(number: int) -> Sequence[int]:
        await submit(world, number=number, transaction_id=an_id(number, world.clock.at_ms))
        await world.work()
        stream = world.mirror.stream(REF)
        assert stream is not None
        return [each.chunk for each in stream.state.outcome_chunks]

    with archiving_at_once(chunks_max=1):
        assert await another(1) == [0, 1]
        assert await world.status(an_id()) == COMMITTING
        assert await another(2) == [0, 1, 2]
        assert await world.status(an_id()) == COMMITTED
        assert await another(3) == [1, 2, 3]
        await world.purge(an_id(1, world.clock.at_ms))
        world.clock.at_ms += REMEMBERED_MS_MIN + 1
        assert await another(4) == [2, 3, 4]
        assert await another(5) == [3, 4, 5]


async def test_a_late_record_says_nothing_to_a_mirror_that_has_dropped_it(
    world: TransactionWorld,
) -> None:
    await submit(world)
    await world.work()
    slots = world.mirror.transactions.slots
    ((slot, number),) = slots.done().items()
    slots.purged(slot, number)
    await world.decide(an_id(), lambda seen: decide.committed(seen, START_MS))
    await world.folded()
    assert not world.mirror.damaged()


@pytest.mark.parametrize("change", [{"status": StreamState.DELETED}, {"incarnation": 2}])
async def test_a_stream_that_was_deleted_has_no_transactions_left(
    world: TransactionWorld, change: dict[str, Any]
) -> None:
    """Its chunks are deleted with it, so a mirror that starts later finds no outcome."""
    await submit(world)
    await world.folded()
    stream, known = world.mirror.stream(REF), world.mirror.transactions
    assert stream is not None
    known.drop_ended(stream.state, stream.state)
    assert known.count(REF, 1) == 1
    known.drop_ended(stream.state, replace(stream.state, **change))
    assert known.count(REF, 1) == 0


async def test_outcomes_are_kept_as_long_as_ids_are_in_time(world: TransactionWorld) -> None:
    """However many transactions end in that time."""
    with archiving_at_once():
        for number in range(6):
            await submit(world, number=number)
            await world.work()
        await world.purge(an_id())
        assert (await submit(world)).state is COMMITTED
        world.clock.at_ms += REMEMBERED_MS_MIN + 1
        await submit(world, number=9, transaction_id=an_id(9, world.clock.at_ms))
        await world.work()
        assert await world.refusal("commit_events", **asked()) == "id-out-of-time"
