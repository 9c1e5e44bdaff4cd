"""What the mirror knows of transactions, and how long; where outcomes are kept after that."""

import pytest

from anabranch.common.contracts.subjects import (
    shard_of_subject,
    transaction_gate,
    transaction_outcomes,
)
from anabranch.common.errors import Corrupt, ObjectNotFound
from anabranch.common.model.transaction import drawn_ms
from anabranch.common.workflow.runner import run_to_rest
from anabranch.controller.domain.stream.commits import OUTCOMES_KEPT, OUTCOMES_PER_CHUNK
from anabranch.controller.domain.stream.state import TransactionsSeen
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.outcomes import OutcomeHistory
from kit.fed_mirror import fed_mirror
from kit.workflow_world import CREATE, DELETE, REF, SCALE, SEAL, SUBJECT, World, many_outcomes

DAYS_MS = 24 * 3600 * 1000


@pytest.fixture
async def world() -> World:
    """With a stream of three segments."""
    world = World()
    await world.open_scope()
    await world.command(CREATE)
    await world.rest()
    return world


async def listed(world: World, mirror: Mirror) -> str:
    """The transactions that it knows of the stream, in its order."""
    sequence = (await world.streams.load(SUBJECT)).sequence
    found = await mirror.transactions_at(REF, 1, sequence)
    return "".join(one.state.transaction_id[0] for one in found)


async def test_what_is_to_be_committed_comes_first_in_the_order_of_its_outcomes(
    world: World,
) -> None:
    for name in "12345":
        await world.begin(name)
    for name in "425":
        await world.commit(name)

    await world.mirror.reach_heads()
    later = fed_mirror(world.store)
    await later.reach_heads()

    assert await listed(world, world.mirror) == "42513"
    assert await listed(world, later) == "42513"
    decided = await world.mirror.decided_at(REF, 1, 0)
    assert [one.state.transaction_id[0] for one in decided] == list("425")


async def test_a_transaction_is_dropped_when_its_stream_says_what_became_of_it(
    world: World,
) -> None:
    for name in "123":
        await world.begin(name)
    await world.commit("2")
    await world.abort("3")
    await world.mirror.reach_heads()
    assert world.mirror.transactions.count(REF, 1) == 3

    stream = (await world.rest()).state
    await world.mirror.reach_heads()

    assert await listed(world, world.mirror) == "1"
    assert world.mirror.known(world.subject_of("2")) is None
    assert world.mirror.seen(stream) == TransactionsSeen()


async def test_what_was_aborted_meanwhile_is_noted_with_the_batch(world: World) -> None:
    for name in "12":
        await world.begin(name)
    await world.abort("2")
    await run_to_rest(world.transaction_workflow(), world.subject_of("2"))
    await world.commit("1")
    before = (await world.streams.load(SUBJECT)).revision

    rested = await world.rest()

    assert rested.revision == before + 2
    assert {o.transaction_id[0]: o.is_committed for o in rested.state.outcomes} == {
        "1": True,
        "2": False,
    }


async def test_what_the_stream_has_to_do_is_seen_as_of_its_own_last_event(world: World) -> None:
    await world.begin("1")
    await world.mirror.reach_heads()
    await world.commit("1")
    loaded = await world.command(SCALE)
    assert not world.mirror.seen(loaded.state).to_commit

    await world.mirror.settle(loaded)

    assert world.mirror.seen(loaded.state).to_commit


async def test_none_is_committed_past_an_outcome_that_cannot_be_read(world: World) -> None:
    for name in "12":
        await world.begin(name)
        await world.commit(name)
    loaded = await world.transactions.load(world.subject_of("1"))
    world.store.damage(shard_of_subject(loaded.subject), loaded.sequence, b"[]")
    mirror = fed_mirror(world.store)
    await mirror.reach_heads()

    with pytest.raises(Corrupt):
        await mirror.decided_at(REF, 1, 0)


async def test_a_damaged_transaction_is_told_and_healed_by_its_next_snapshot(
    world: World,
) -> None:
    await world.begin("1", parts="a")
    subject = world.subject_of("1")
    loaded = await world.transactions.load(subject)
    shard = int(subject.split(".")[2])
    world.store.damage(shard, loaded.sequence, b"[]")
    mirror = fed_mirror(world.store)
    await mirror.reach_heads()
    assert list(mirror.damaged()) == [subject]
    assert mirror.known(subject) is None

    healed = await world.transactions.snapshot(loaded)
    await mirror.reach_heads()

    assert mirror.damaged() == {}
    assert mirror.known(subject) == healed


# --- outcomes -----------------------------------------------------------------------------------


async def test_outcomes_that_the_stream_need_not_keep_are_found_in_chunks(world: World) -> None:
    await many_outcomes(world)

    stream = (await world.rest()).state

    assert len(stream.outcomes) == OUTCOMES_KEPT
    outcomes = OutcomeHistory(world.chunks)
    for number in (0, OUTCOMES_PER_CHUNK - 1, OUTCOMES_PER_CHUNK):
        found = await outcomes.find(stream, f"{number:032x}")
        assert found is not None
        assert found.ended_ms == number
    assert await outcomes.find(stream, "f" * 32) is None


async def test_chunks_are_given_up_when_they_are_old_enough(world: World) -> None:
    await many_outcomes(world)
    await world.rest()
    world.clock.ms = 2 * DAYS_MS
    await many_outcomes(world)

    stream = (await world.rest()).state

    assert [each.chunk for each in stream.outcome_chunks] == [1, 2]
    with pytest.raises(ObjectNotFound):
        await world.chunks.read(transaction_outcomes(REF, 1, 0))
    await world.chunks.read(transaction_outcomes(REF, 1, 1))


async def test_the_gate_of_a_deleted_stream_is_forgotten(world: World) -> None:
    await world.begin("1")
    await world.abort("1")
    await world.command(SEAL)
    await world.rest()
    await world.mirror.reach_heads()
    assert list(world.mirror.transactions._gates) == [transaction_gate(REF, 1)]

    await world.command(DELETE)
    await world.rest()
    await world.mirror.reach_heads()

    assert world.mirror.transactions._gates == {}


async def test_the_oldest_transaction_whose_events_are_not_merged_is_known(world: World) -> None:
    """Its id tells when it began; an aborted one brings nothing any more."""
    mirror = world.mirror
    await mirror.reach_heads()
    assert mirror.transactions.oldest_ms(await world.stream()) == 0
    for name in "213":
        await world.begin(name)
    await mirror.reach_heads()
    assert mirror.transactions.oldest_ms(await world.stream()) == drawn_ms("1" * 32)
    await world.abort("1")
    await world.rest()
    assert mirror.transactions.oldest_ms(await world.stream()) == drawn_ms("2" * 32)
