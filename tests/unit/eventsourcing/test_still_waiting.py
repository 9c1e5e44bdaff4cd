"""A step that waits for something else is no failure, and is looked at again soon."""

import asyncio
from typing import Literal

import pytest
from pydantic import TypeAdapter

from anabranch.common.contracts.base import Contract
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.repository import Loaded, Repository
from anabranch.common.runtime.ids import SeededIds, system_rng
from anabranch.common.workflow.runner import REST_S_MAX, Runner, Workflow, run_to_rest
from anabranch.common.workflow.waiting import StillWaiting
from kit.loud import loud

SUBJECT = "ana.evt.1.scope.lamp"


class Lit(Contract):
    kind: Literal["lit"] = "lit"


LAMP: Aggregate[bool, Lit] = Aggregate(
    kind="lamp",
    initial=False,
    evolve=lambda *_: True,
    check=lambda *_: None,
    events=TypeAdapter(list[Lit]),
    states=TypeAdapter(bool),
)


class FakeClock:
    """Notes how long is slept, and lets every sleep end at once."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []

    def now_ms(self) -> int:
        return 1

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await asyncio.sleep(0)


async def test_a_step_that_waits_runs_again_within_a_second_until_it_can_go_on() -> None:
    repository = Repository(InMemoryEventStore(), LAMP, SeededIds(1))
    clock, lit = FakeClock(), asyncio.Event()
    failures: list[int] = []

    async def light(_loaded: Loaded[bool]) -> Lit:
        failures.append(len(runner.failures()))
        if len(failures) < 4:
            raise StillWaiting("somebody else has the matches")
        lit.set()
        return Lit()

    workflow = Workflow(repository, lambda is_lit: None if is_lit else "light", {"light": light})
    runner = Runner(workflow, clock, system_rng(), containment=loud(clock))
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(runner.serve())
        runner.wake(SUBJECT)
        async with asyncio.timeout(5):
            await lit.wait()
        serving.cancel()

    assert failures == [0, 0, 0, 0]
    assert len(clock.sleeps) == 3
    assert all(0 < pause <= REST_S_MAX for pause in clock.sleeps)


async def test_waiting_is_believed_of_a_state_in_memory_that_turns_out_to_be_the_head() -> None:
    performed = await _performed(is_behind=False)

    assert performed == [1]


async def test_a_step_that_waits_on_an_old_state_is_performed_again_on_the_head() -> None:
    performed = await _performed(is_behind=True)

    assert performed == [1, 2]


async def _performed(*, is_behind: bool) -> list[int]:
    """The revisions on which a step that always waits is performed, beginning with what is known:
    the first of one message, or of two."""
    store = InMemoryEventStore()
    repository = Repository(store, LAMP, SeededIds(1))
    await repository.transact(SUBJECT, lambda _: [Lit()])
    if is_behind:
        await Repository(store, LAMP, SeededIds(2)).transact(SUBJECT, lambda _: [Lit()])
    performed: list[int] = []

    async def wait(loaded: Loaded[bool]) -> Lit:
        performed.append(loaded.revision)
        raise StillWaiting("for ever")

    with pytest.raises(StillWaiting):
        await run_to_rest(Workflow(repository, lambda _: "wait", {"wait": wait}), SUBJECT)
    return performed
