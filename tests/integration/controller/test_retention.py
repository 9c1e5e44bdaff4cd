"""A whole controller applies a retention policy, and the next one goes on with what it recorded."""

from anabranch.common.contracts.commands import CreateScope, CreateStream
from anabranch.common.contracts.stream_queries import GetRetentionPlan, RetentionPlan
from anabranch.common.model.stream import RetentionPolicy, RetentionType, StreamConfig
from kit.controller_caller import Caller, StartController, until
from kit.fake_stores import FakeSegmentStores

POLICY = RetentionPolicy(RetentionType.SIZE_BYTES, 100)
SEGMENT = "s/x/0.#epoch.0"


async def planned(caller: Caller) -> RetentionPlan:
    query = GetRetentionPlan(scope="s", stream="x")
    return await caller.ask("retention_plan", query, RetentionPlan)


async def recorded(caller: Caller) -> RetentionPlan:
    """Once the tail is stored: until then every dry run would record it at another time."""
    while True:
        first, second = await planned(caller), await planned(caller)
        if first.newest_ms == second.newest_ms is not None and first.at_ms < second.at_ms:
            return second


async def test_a_stream_is_truncated_by_its_policy_across_controllers(
    controller: StartController, caller: Caller, stores: FakeSegmentStores
) -> None:
    async with controller(retention_period_s=1.0):
        await caller.perform(CreateScope(command_id="c1", scope="s"))
        config = StreamConfig(retention=POLICY)
        await caller.perform(CreateStream(command_id="c2", scope="s", stream="x", config=config))
        early = await recorded(caller)
        length = stores.segments[SEGMENT].length
    stores.segments[SEGMENT].length += 250

    async with controller(retention_period_s=1.0):
        await until(lambda: stores.segments[SEGMENT].start == length)
        while not (plan := await planned(caller)).releases:
            pass

    assert (early.rule, early.recorded_cuts) == ("within_minimum", 1)
    assert [(one.bytes, one.rule) for one in plan.releases] == [(length, "minimum")]
    assert plan.refusal is None
