"""Plans are performed through the dispatchers, and one broken object does not stop the others."""

import asyncio
from collections.abc import Sequence

from anabranch.common.contracts.objects import SPU
from anabranch.common.errors import InvalidName
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.objects import Spu, SpuResolution, SpuSpec, SpuStatus
from anabranch.common.runtime.ids import system_rng
from anabranch.common.workflow.containment import Containment
from anabranch.controller.cluster.objects.dispatcher import Dispatcher
from anabranch.controller.cluster.topics.containing import reduced
from anabranch.controller.cluster.topics.performing import Performer
from anabranch.controller.domain.cluster.objects.actions import Apply, UpdateStatus
from kit.virtual_time import VirtualClock, run_virtual

ONLINE = SpuStatus(SpuResolution.ONLINE)


def spu(number: int) -> Spu:
    return Spu(f"spu-{number}", SpuSpec(number), SpuStatus())


def test_a_performed_plan_is_seen_before_the_next_one_is_made() -> None:
    async def told() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        containment = Containment(clock, system_rng())
        dispatcher = Dispatcher(SPU, InMemoryObjectStore(), clock, containment=containment)
        performer = Performer([dispatcher])
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(dispatcher.serve())
            await clock.sleep(0.1)
            assert await performer.step([Apply(SPU, spu(at)) for at in range(5)]) == 0.0
            assert len(dispatcher.store.objects) == 5
            assert await performer.step([]) is None
            seen = dispatcher.store.objects["spu-1"]
            update = UpdateStatus(SPU, seen, ONLINE)
            assert await performer.step([update]) == 0.0
            assert dispatcher.store.objects["spu-1"].status == ONLINE
            assert await performer.step([update]) is None, "it was decided on an older revision"
            serving.cancel()

    run_virtual(told())


def test_objects_that_break_a_plan_have_none_and_the_others_have_theirs() -> None:
    async def told() -> None:
        containment = Containment(VirtualClock(asyncio.get_running_loop()), system_rng())

        def plan(names: Sequence[str]) -> list[str]:
            if "defect" in names:
                raise ValueError("a defect")
            if "invalid" in names:
                raise InvalidName("not a name")
            return list(names)

        whole = {"a": ["a1", "a2"], "b": ["b1"]}
        assert reduced(containment, "test", plan, whole) == [["a1", "a2", "b1"]]
        broken = {"x": ["defect"], **whole, "y": ["invalid"]}
        assert reduced(containment, "test", plan, broken) == [["a1", "a2"], ["b1"]]
        assert containment.counts

    run_virtual(told())
