"""Whatever replicas do in whatever order: all of them end in what the log says.

A schedule is what several replicas do, one after the other or together, while connections are
lost and the store restarts. In the end every replica, a fresh one included, is in the state that
folding the whole log gives, and the log has each update that was decided exactly once.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.client import StateSynchronizer
from anabranch.common.wire.messages import Appended, Message, SegmentRead
from kit.client_bench import STREAM, Bench, bench
from kit.fake_segstore import Direction, Fault, no_faults
from kit.shared_state import SHARED, History, HistoryCodec, names, stored_entries
from kit.thorough import one_in

Shared = StateSynchronizer[History, str]
REPLICAS = 3
ACTIONS = ("update", "append", "fetch", "compact", "replace", "lose a reply", "restart")

Step = tuple[int, str, bool]
"""Which replica does what; True: together with what comes next."""

steps = st.lists(
    st.tuples(st.integers(0, REPLICAS - 1), st.sampled_from(ACTIONS), st.booleans()),
    max_size=25,
)


@dataclass
class Run:
    """One schedule. `decided`: updates whose calls returned."""

    bench: Bench
    replicas: list[Shared]
    decided: set[str] = field(default_factory=set)
    losses: int = 0
    restarting: bool = False

    def at_packet(self, at: Direction, message: Message) -> Fault | None:
        if at == "out" and isinstance(message, Appended | SegmentRead) and self.losses:
            self.losses -= 1
            return Fault.DROP
        return None

    async def perform(self, number: int, step: Step) -> None:
        name = f"update {number}"
        shared = self.replicas[step[0]]
        match step[1]:
            case "update":
                await shared.update(lambda state: [] if name in names(state) else [name])
                self.decided.add(name)
            case "append":
                await shared.append([name])
                self.decided.add(name)
            case "fetch":
                await shared.fetch()
            case "compact":
                await shared.compact()
            case "replace":
                await shared.replace(lambda state: (*state, (name, 0)))
                self.decided.add(name)
            case "lose a reply":
                self.losses += 1
            case "restart" if not self.restarting:
                self.restarting = True
                await self.bench.store.restart()
                self.restarting = False


def folded(entries: list[tuple[bytes, int]]) -> History:
    state: History = ()
    codec = HistoryCodec()
    for entry, revision in entries:
        body = entry[1:]
        if entry[:1] == b"\x00":
            state = codec.decode_state(body)
        else:
            state = codec.apply(state, codec.decode_update(body), revision=revision)
    return state


async def play(schedule: list[Step]) -> None:
    async with bench() as b, AsyncExitStack() as stack:
        replicas = [b.client.state_synchronizer(STREAM, HistoryCodec(), SHARED) for _ in range(4)]
        for each in replicas:
            await stack.enter_async_context(each)
        await replicas[0].initialize(())
        run = Run(b, replicas)
        b.store.fault = run.at_packet
        together: list[tuple[int, Step]] = []
        for number, step in enumerate([*schedule, (0, "fetch", False)]):
            together.append((number, step))
            if not step[2]:
                async with asyncio.TaskGroup() as group:
                    for at, what in together:
                        group.create_task(run.perform(at, what))
                together = []
        b.store.fault = no_faults
        for replica in replicas:
            await replica.fetch()
        expected = folded(stored_entries(b.segments[0]))
        assert [replica.state for replica in replicas] == [expected] * 4
        assert {replica.revision for replica in replicas} == {len(b.segments[0].data)}
        assert sorted(names(expected)) == sorted(run.decided)


@example(
    schedule=[
        (0, "update", False), (0, "compact", False), (0, "compact", False), (0, "compact", True),
        (1, "update", True), (2, "append", True), (1, "lose a reply", False),
        (1, "update", False), (2, "fetch", False),
    ]
)  # fmt: skip
@given(schedule=steps)
@settings(max_examples=60 // one_in(4))
def test_replicas_of_any_schedule_end_in_what_the_log_says(schedule: list[Step]) -> None:
    asyncio.run(play(schedule))
