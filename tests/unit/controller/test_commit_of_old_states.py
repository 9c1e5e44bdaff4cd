"""Committing by a controller that knows streams and transactions as of some time ago."""

from functools import partial

import pytest

from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.model.transaction import TransactionState
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.workflow.runner import run_to_rest
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.stream.state import StreamStep
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.invariants import TRANSACTION
from anabranch.controller.domain.transaction.state import Transaction
from kit.workflow_world import STEPS, SUBJECT, World


def commit(found: Loaded[Transaction], now_ms: int) -> list[TransactionEvent]:
    return list(decide.commit(found.state, now_ms=now_ms))


async def test_a_batch_waits_if_the_stream_was_loaded_before_an_epoch_of_its_transactions() -> None:
    world = World()
    old = await world.reach(StreamStep.MAKE_SUCCESSORS)
    await run_to_rest(world.workflow(), SUBJECT)
    await world.begin("1")
    await world.commit("1")
    await world.mirror.reach_head(shard_of_subject(SUBJECT))

    with pytest.raises(StillWaiting):
        await STEPS[StreamStep.START_COMMIT](world.context, old)

    await world.rest()
    assert (await world.transaction("1")).status is TransactionState.COMMITTED


async def test_a_controller_ends_what_it_began_and_another_one_decided() -> None:
    world = World()
    await world.reach(StreamStep.MAKE_SUCCESSORS)
    await run_to_rest(world.workflow(), SUBJECT)
    await world.begin("1")
    other = Repository(world.store, TRANSACTION, SeededIds(9))
    await other.transact(world.subject_of("1"), partial(commit, now_ms=world.clock.now_ms()))

    await world.rest()

    assert (await world.transaction("1")).status is TransactionState.COMMITTED
