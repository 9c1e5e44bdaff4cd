"""Every workflow of the controller, struck at every one of its requests.

A plot is told by one caller on a clear network, so that its requests are the same every time, with
a blow at one request of the controller that does the work. It is `killed` before the request leaves
or after it was performed, and another one goes on, which may be killed in its turn; or it
`stood_still` there, while another one did all of it and what follows; or it `dozed`, alone. The end
is judged by the referee, and then two more controllers in a row must find nothing left to do.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from anabranch.common.adapters.jetstream_events import APPEND_DEADLINE_S, RESOLVE_BUDGET_S
from anabranch.common.contracts import commands
from anabranch.common.contracts.commands import Command, NewRange
from anabranch.common.contracts.reader_groups import (
    CreateReaderGroup,
    DeleteReaderGroup,
    ResetReaderGroup,
)
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.contracts.tables import CreateTable, DeleteTable, SealTable
from anabranch.common.model.hashing import SHARD_COUNT, shard_of
from anabranch.common.model.names import StreamRef, segment_id, stream_ref
from anabranch.common.model.reader_group import GroupRetention, GroupStream, ReaderGroupConfig
from anabranch.common.model.stream import SegmentOffset, fixed
from anabranch.common.model.table import TableConfig
from kit.control_callers import Caller
from kit.control_world import World
from kit.rng import seeded
from kit.sim_controller import CONTAINER_COUNT, SimController, first_of
from kit.simbus import simulated_readers
from kit.simlink import Blow
from kit.virtual_time import VirtualClock, run_virtual

REF: StreamRef = stream_ref("s/x")
NAMED: Mapping[str, Any] = {"scope": REF.scope, "stream": REF.stream}
REST_S = 120.0

When = Literal["before", "after"]
T = TypeVar("T")


@dataclass(frozen=True)
class Plot:
    """`before` is done undisturbed; `work` is asked for at once and struck; a controller that stood
    still wakes after `follows` is done too. `is_long`: so long that whoever goes on is left alone.
    """

    before: Sequence[Command]
    work: Sequence[Command]
    follows: Sequence[Command] = ()
    is_long: bool = False


def _scope(number: int = 0) -> Command:
    return commands.CreateScope(command_id=f"scope{number}", scope=REF.scope)


def _close(number: int = 0) -> Command:
    return commands.DeleteScope(command_id=f"close{number}", scope=REF.scope)


def _create(number: int = 0) -> Command:
    return commands.CreateStream(command_id=f"create{number}", **NAMED, config=fixed(4))


def _seal(number: int = 0) -> Command:
    return commands.SealStream(command_id=f"seal{number}", **NAMED)


def _delete(number: int = 0) -> Command:
    return commands.DeleteStream(command_id=f"delete{number}", **NAMED)


_SCALE = commands.ScaleStream(
    command_id="scale",
    **NAMED,
    seal=(segment_id(0, 0), segment_id(0, 1)),
    new_ranges=(
        NewRange(key_start=0, key_end=0.125),
        NewRange(key_start=0.125, key_end=0.375),
        NewRange(key_start=0.375, key_end=0.5),
    ),
)
_UPDATE = commands.UpdateStream(command_id="update", **NAMED, config=fixed(3))
_TRUNCATE = commands.TruncateStream(
    command_id="truncate",
    **NAMED,
    cut=(
        SegmentOffset(segment_id(0, 2), 10),
        SegmentOffset(segment_id(0, 3), 20),
        SegmentOffset(segment_id(1, 4), 5),
        SegmentOffset(segment_id(1, 5), 0),
        SegmentOffset(segment_id(1, 6), 5),
    ),
)
_BETWEEN = _TRUNCATE.model_copy(
    update={
        "command_id": "between",
        "cut": (*_TRUNCATE.cut[:-1], SegmentOffset(segment_id(1, 6), 7)),
    }
)
_TO_SUCCESSORS = _TRUNCATE.model_copy(
    update={"cut": tuple(SegmentOffset(at.segment_id, 0) for at in _TRUNCATE.cut)}
)


def _small() -> Command:
    return commands.CreateStream(command_id="small", **NAMED, config=fixed(1))


_GROUP: Mapping[str, Any] = {"scope": REF.scope, "group": "g"}


def _group(number: int = 0, retention: str = "automatic") -> Command:
    asked = ReaderGroupConfig((GroupStream(str(REF)),), retention=GroupRetention(retention))
    return CreateReaderGroup(command_id=f"group{number}", **_GROUP, config=asked)


def _ungroup(number: int = 0) -> Command:
    return DeleteReaderGroup(command_id=f"ungroup{number}", **_GROUP)


_REGROUP = ResetReaderGroup(
    command_id="regroup",
    **_GROUP,
    config=ReaderGroupConfig((GroupStream(str(REF)),), retention=GroupRetention.MANUAL),
)
_TABLE: Mapping[str, Any] = {"scope": REF.scope, "table": "t"}


def _table(number: int = 0) -> Command:
    config = TableConfig(partition_count=3)
    return CreateTable(command_id=f"table{number}", **_TABLE, config=config)


def _drop(number: int = 0) -> Command:
    return DeleteTable(command_id=f"drop{number}", **_TABLE)


_FREEZE = SealTable(command_id="freeze", **_TABLE)
_AGAIN = (_seal(8), _delete(8), _create(8))

PLOTS: Mapping[str, Plot] = {
    "create scope": Plot((), (_scope(),), (_close(8), _scope(8))),
    "create": Plot((_scope(),), (_create(),), _AGAIN),
    "scale": Plot((_scope(), _create()), (_SCALE,), _AGAIN),
    "update that scales": Plot((_scope(), _create()), (_UPDATE,), _AGAIN),
    "truncate": Plot((_scope(), _create(), _SCALE), (_TRUNCATE,), _AGAIN),
    "truncate within an append": Plot((_scope(), _create(), _SCALE), (_BETWEEN, _TRUNCATE)),
    "truncate what is being made": Plot((_scope(), _create()), (_SCALE, _TO_SUCCESSORS)),
    "update behind a scale": Plot((_scope(), _create()), (_SCALE, _UPDATE)),
    "seal": Plot((_scope(), _create(), _SCALE), (_seal(),), (_delete(8), _create(8))),
    "delete": Plot((_scope(), _create(), _SCALE, _seal()), (_delete(),), (_create(8),)),
    "create again": Plot((_scope(), _create(), _seal(), _delete()), (_create(1),), _AGAIN),
    "delete scope": Plot((_scope(),), (_close(),), (_scope(8), _create(8))),
    "delete scope with a stream": Plot((_scope(), _create()), (_close(),), (_seal(8), _delete(8))),
    "delete scope with all in it": Plot(
        (_scope(), _create(), _SCALE),
        (_close().model_copy(update={"recursive": True}),),
        (_scope(8), _create(8)),
    ),
    "delete while it is created": Plot((_scope(),), (_create(), _delete()), (_create(8),)),
    "create in a closing scope": Plot((_scope(),), (_close(), _create()), (_scope(8), _create(8))),
    "create reader group": Plot((_scope(), _small()), (_group(),), (_ungroup(8), _group(8))),
    "reset reader group": Plot((_scope(), _small(), _group()), (_REGROUP,), (_ungroup(8),)),
    "delete reader group": Plot(
        (_scope(), _small(), _group()), (_ungroup(),), (_group(8),), is_long=True
    ),
    "delete reader group while it is created": Plot(
        (_scope(), _small()), (_group(), _ungroup()), (_group(8),)
    ),
    "delete scope with a reader group": Plot(
        (_scope(), _small(), _group()),
        (_close().model_copy(update={"recursive": True}),),
        (_scope(8), _create(8), _group(8)),
        is_long=True,
    ),
    "create table": Plot((_scope(),), (_table(),), (_drop(8), _table(8))),
    "seal table": Plot((_scope(), _table()), (_FREEZE,), (_drop(8), _table(8))),
    "delete table": Plot((_scope(), _table()), (_drop(),), (_table(8),)),
    "delete table while it is created": Plot((_scope(),), (_table(), _drop()), (_table(8),)),
    "delete scope with a table": Plot(
        (_scope(), _table()),
        (_close().model_copy(update={"recursive": True}),),
        (_scope(8), _table(8)),
    ),
    "several at once": Plot(
        (_scope(), _create(), _SCALE), (_TRUNCATE, _UPDATE, _seal(1), _seal(2))
    ),
}


class Told:
    """One telling of a plot: who is struck, and how many requests the work took."""

    def __init__(self, plot: Plot, group: asyncio.TaskGroup) -> None:
        self._plot = plot
        self._group = group
        self.world = World(seeded(1), VirtualClock(asyncio.get_running_loop()))
        self._caller = Caller(self.world, "caller", (REF,), 1.0)
        self.begun_at = 0

    async def begin(self) -> SimController:
        """The controller that has done everything before the work."""
        controller = await self.start()
        for command in self._plot.before:
            await self._caller.send(command)
            await self._rest()
            self._write()
        self.begun_at = controller.link.calls
        return controller

    async def start(self) -> SimController:
        """One more controller, ready."""
        controller = self.world.new_controller(self._group)
        await self._until(lambda: controller.is_caught_up)
        return controller

    async def work(self) -> None:
        """Ask for the work, and wait until it is done."""
        async with asyncio.TaskGroup() as group:
            for command in self._plot.work:
                group.create_task(self._caller.send(command))
            await self._until(lambda: self._is_done(self._plot.work))

    async def replace(self, gone: Callable[[], bool], next_call: int = 0) -> None:
        """Another controller when the first one is gone, and one more if that is killed too."""
        await self._until(gone)
        second = self.world.new_controller(self._group)
        if next_call:
            second.link.blow = Blow(next_call, "after", lambda: self.world.kill(second))
            rested = self.world.is_at_rest
            await self._until(lambda: second not in self.world.controllers or rested())
            self.world.new_controller(self._group)

    async def ask(self, command: Command) -> None:
        """Ask for one thing more; its answer is enough."""
        await self._caller.send(command)

    async def follow(self) -> None:
        """Ask for what follows, one after another."""
        for command in self._plot.follows:
            await self._caller.send(command)
            await self._rest()

    async def end(self) -> None:
        """Judge, twice reopened. Raises AssertionError."""
        await self._rest()
        for controller in list(self.world.controllers):
            self.world.kill(controller)
        heads = [len(log) for log in self.world.server.logs]
        for _ in range(2):
            last = await self.start()
            await self.world.clock.sleep(1)
            self.world.judge()
            assert heads == [len(log) for log in self.world.server.logs], "it did more at rest"
            self.world.kill(last)

    def _is_done(self, asked: Sequence[Command]) -> bool:
        known = {handled.command_id for handled in self.world.handled}
        return all(one.command_id in known for one in asked) and self.world.is_at_rest()

    def _write(self) -> None:
        for name in sorted(self.world.segments.known):
            for _ in range(4):
                self.world.segments.write(name, 5)

    async def _rest(self) -> None:
        await self._until(self.world.is_at_rest)

    async def _until(self, condition: Callable[[], bool]) -> None:
        assert await self.world.wait_until(condition, REST_S), (
            self.world.wrong, self.world.referee.wrong,
        )  # fmt: skip


def changing_requests(plot: Plot) -> list[int]:
    """The numbers, from 1, of the work's requests that change something, when nobody strikes."""

    async def tell() -> list[int]:
        async with asyncio.TaskGroup() as group:
            told = Told(plot, group)
            controller = await told.begin()
            await told.work()
            calls = [call - told.begun_at for call in controller.link.changing]
            await told.end()
        return [call for call in calls if call > 0]

    return _run(tell)


def killed(plot: Plot, call: int, when: When, next_call: int = 0) -> None:
    """The controller is killed at its request `call`, and the next one after its `next_call`."""

    async def tell() -> None:
        async with asyncio.TaskGroup() as group:
            told = Told(plot, group)
            world, first = told.world, await told.begin()
            first.link.blow = Blow(told.begun_at + call, when, lambda: world.kill(first))
            async with asyncio.TaskGroup() as both:
                both.create_task(told.replace(lambda: first not in world.controllers, next_call))
                both.create_task(told.work())
            await told.end()

    _run(tell)


def stood_still(plot: Plot, call: int, when: When) -> None:
    """The controller stands still at its request `call`; it wakes when all is done without it."""

    async def tell() -> None:
        async with asyncio.TaskGroup() as group:
            told = Told(plot, group)
            first = await told.begin()
            first.link.blow = Blow(told.begun_at + call, when, first.link.pause)
            async with asyncio.TaskGroup() as both:
                both.create_task(told.replace(lambda: first.link.is_paused))
                both.create_task(told.work())
            await told.follow()
            first.link.resume()
            await told.world.clock.sleep(REST_S)
            await told.end()

    _run(tell)


def dozed(plot: Plot, call: int, when: When) -> None:
    """The controller stands still at its request `call` until it cannot know any more what became
    of it; nobody takes its place."""

    async def tell() -> None:
        async with asyncio.TaskGroup() as group:
            told = Told(plot, group)
            only = await told.begin()
            only.link.blow = Blow(told.begun_at + call, when, only.link.pause)

            async def wake() -> None:
                await told.world.wait_until(lambda: only.link.is_paused, REST_S)
                await told.world.clock.sleep(APPEND_DEADLINE_S + RESOLVE_BUDGET_S + 1)
                only.link.resume()

            async with asyncio.TaskGroup() as both:
                both.create_task(wake())
                both.create_task(told.work())
            await told.end()

    _run(tell)


def overtaken(work: Command, by: Command, call: int, when: When) -> None:
    """A controller stands still at its request `call` of a command's work in an open scope; another
    one decides and does `by`, and then the first one goes on."""

    async def tell() -> None:
        async with asyncio.TaskGroup() as group:
            told = Told(Plot((_scope(),), (work,)), group)
            first = await told.begin()
            first.link.blow = Blow(told.begun_at + call, when, first.link.pause)

            async def overtake() -> None:
                await told.world.wait_until(lambda: first.link.is_paused, REST_S)
                told.world.new_controller(group)
                await told.ask(by)
                await told.world.clock.sleep(3)
                first.link.resume()

            async with asyncio.TaskGroup() as both:
                both.create_task(overtake())
                both.create_task(told.work())
            await told.end()

    _run(tell)


def lagging(seed: int) -> None:
    """A stream is made, and its scope is to be deleted by a controller that is seconds behind."""

    async def tell() -> None:
        async with asyncio.TaskGroup() as group:
            world = World(seeded(seed), VirtualClock(asyncio.get_running_loop()))
            of_scope = frozenset({shard_of(REF.scope)})
            behind, other = world.new_controller(group), world.new_controller(group)
            behind.client.lag_s = 6.0
            behind.own(of_scope)
            other.own(frozenset(range(SHARD_COUNT)) - of_scope)
            caller = Caller(world, "caller", (REF,), 1.0)
            for command in (_scope(), _create(), _close()):
                await caller.send(command)
            stream = stream_events(REF)
            await world.wait_until(lambda: bool(world.stream(stream).segments), REST_S)
            while not world.is_at_rest():
                await caller.look(REF)
                await world.clock.sleep(0.2)
            await caller.look(REF)
            await world.clock.sleep(10)
            world.judge()
            for controller in list(world.controllers):
                controller.kill()

    _run(tell)


def queued_up(asked: Sequence[Command], away: Sequence[int] = range(CONTAINER_COUNT)) -> None:
    """All is asked for while containers are away, so that little ends before all is decided."""

    async def tell() -> None:
        async with asyncio.TaskGroup() as group:
            told = Told(Plot((_scope(), _create()), asked), group)
            await told.begin()
            told.world.segments.down.update(away)
            for command in asked:
                await told.ask(command)
            told.world.segments.down.clear()
            await told.end()

    _run(tell)


CREATE, CLOSE = _create(), _close()
TRUNCATE_FIRST = _TRUNCATE.model_copy(
    update={"cut": tuple(SegmentOffset(segment_id(0, number), 10) for number in range(4))}
)
WISHES: Sequence[Command] = (_SCALE, TRUNCATE_FIRST, _seal(1), _seal(2))
SAME_SCALES: Sequence[Command] = (_SCALE, _SCALE.model_copy(update={"command_id": "same"}))
OTHER_SCALES: Sequence[Command] = (
    _SCALE,
    _SCALE.model_copy(
        update={"command_id": "other", "new_ranges": (NewRange(key_start=0, key_end=0.5),)}
    ),
)


def _run(tell: Callable[[], Coroutine[None, None, T]]) -> T:
    try:
        with simulated_readers():
            return run_virtual(tell())
    except BaseExceptionGroup as failures:
        raise first_of(failures) from failures
