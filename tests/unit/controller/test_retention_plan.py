"""What a retention policy would do is told by the same decision that does it."""

import pytest

from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.stream_queries import GetRetentionPlan, RetentionPlan
from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.model.stream import (
    RetentionPolicy,
)
from anabranch.controller.handlers.registry import answer_query
from kit.desks import query_desk
from kit.retained_world import AN_HOUR, BY_SIZE, BY_TIME, HOUR_MS, Retained
from kit.workflow_world import REF, SUBJECT


@pytest.fixture
def world() -> Retained:
    return Retained()


async def planned(world: Retained) -> RetentionPlan:
    """As a caller is answered."""
    await world.mirror.reach_head(shard_of_subject(SUBJECT))
    desk = query_desk(
        world.mirror, segment_lengths=world.segments.segment_lengths, history=world.histories.of,
        now_ms=world.clock.now_ms,
    )  # fmt: skip
    query = GetRetentionPlan(scope=REF.scope, stream=REF.stream)
    request = Envelope(query.model_dump_json().encode())
    return RetentionPlan.model_validate_json(await answer_query(desk, "retention_plan", request))


async def test_a_dry_run_says_what_the_next_look_does_and_changes_nothing(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.write(10, 20, 30)
    early = await planned(world)
    assert (early.rule, early.kept_bytes, early.recorded_cuts) == ("within_minimum", 60, 1)
    assert early.next_ms == world.clock.ms + HOUR_MS
    await world.later(0)
    world.clock.ms += HOUR_MS
    stored = await world.events()

    plan = await planned(world)
    assert await world.events() == stored
    stream = await world.later(0)

    assert (plan.rule, plan.cut, plan.freed_bytes) == ("minimum", stream.head, 60)
    done = await planned(world)
    assert [(one.bytes, one.rule) for one in done.releases] == [(60, "minimum")]
    assert (done.release_count, done.released_bytes) == (1, 60)


async def test_a_dry_run_names_who_holds_what_and_until_when(world: Retained) -> None:
    await world.create(RetentionPolicy(BY_TIME, HOUR_MS, 3 * HOUR_MS))
    await world.subscribe(4, 4, 4)
    world.write(10, 10, 10)
    began_ms = world.clock.ms
    await world.later(0)
    await world.later(HOUR_MS)

    plan = await planned(world)

    assert (plan.rule, plan.next_ms) == ("held", began_ms + 3 * HOUR_MS)
    assert [(one.subscriber, one.bytes) for one in plan.holders] == [("s/g", 18)]


async def test_a_dry_run_by_size_says_how_much_is_missing(world: Retained) -> None:
    await world.create(RetentionPolicy(BY_SIZE, 100))
    world.write(10, 10, 10)
    await world.later(0)

    assert (await planned(world)).next_bytes == 100
    world.write(0, 0, 40)
    assert (await planned(world)).next_bytes == 60


async def test_a_dry_run_tells_that_there_is_no_policy_and_what_was_refused(
    world: Retained,
) -> None:
    await world.create(None)
    assert (await planned(world)).rule == "none"
    await world.configure(AN_HOUR)
    world.write(10, 10, 10)
    await world.later(0)
    world.segments.append_size = 100
    world.write(2, 2, 2)
    await world.later(HOUR_MS)

    plan = await planned(world)

    assert plan.refusal is not None
    assert (plan.refusal.code, plan.refused_ms) == ("not-at-boundary", world.clock.ms)
