"""Owners of one container's log in a stream: in turns and at once, paused and killed.

Each process opens the log under new container epochs, writes bursts of frames, flushes, releases,
and opens again when its view ends. Nothing but the epochs keeps two of them apart. Meanwhile the
servers lose, drop and delay messages and change their leader. At the end more readers open the log
on healthy servers, and the referee compares what all of them found.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from anabranch.common.errors import AnabranchError, Corrupt, LogNotHere, Unavailable
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.jetstream_log.log import StreamLog
from anabranch.segstore.ports import ContainerLog, FrameContents, LogAddress
from kit.log_driver import ScriptedSource
from kit.rng import Random, seeded
from kit.sim_stream import RELIABLE, SimClient, SimServers, StreamFaults
from kit.stream_log import around_of
from kit.stream_log_referee import Referee, Tiered, decoded, encoded
from kit.virtual_time import OrderedLoop, cancel_all

LOG_ID = "log-0"
MESSAGE_SIZE_MAX = 200
LIFE_S_MAX = 15.0
FAULTS_S_MAX = 12.0


@dataclass(slots=True)
class World:
    """One run: the servers, tier 2, and the epochs that the placement has given out."""

    rng: Random
    servers: SimServers
    tiered: Tiered = field(default_factory=Tiered)
    referee: Referee = field(default_factory=Referee)
    container_epoch: int = 0
    operation: int = 0
    broken: list[BaseException] = field(default_factory=list)
    """Damage that an opening met, and promises that an owner saw broken."""

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep an AssertionError for the end, since a callback of the loop cannot raise it."""
        try:
            yield
        except AssertionError as error:
            self.broken.append(error)
            raise

    def next_epoch(self) -> int:
        self.container_epoch += 1
        return self.container_epoch

    def new_operations(self, count: int) -> list[int]:
        self.operation += count
        return list(range(self.operation - count + 1, self.operation + 1))


class Source(ScriptedSource):
    """A container that tells the referee of what it acknowledges."""

    def __init__(
        self, world: World, container_epoch: int, history: list[int], ended: asyncio.Event
    ) -> None:
        super().__init__(next_sequence=len(history) + 1)
        self._container_epoch = container_epoch
        self.history = history
        self._world = world
        self._ended = ended

    def frame_durable(self, contents: FrameContents, address: LogAddress) -> None:
        with self._world.noting():
            super().frame_durable(contents, address)
            operations = decoded(self.durable[contents.first_sequence], contents.count)
            assert contents.first_sequence == len(self.history) + 1, "frames come in order"
            self.history += operations
            self._world.referee.acknowledge(
                self._container_epoch, contents.first_sequence, operations
            )

    def log_failed(self, error: AnabranchError) -> None:
        super().log_failed(error)
        self._ended.set()


class Owner:
    """One process: opens, serves and opens again, until it is killed."""

    def __init__(self, world: World, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._world = world
        self._rng = world.rng
        self._tasks: set[asyncio.Task[None]] = set()
        self.client = SimClient(world.servers, MESSAGE_SIZE_MAX)
        self.log = StreamLog(self.client, around_of(loop, self.spawn), SeededIds(number))
        self.lives = loop.create_task(self._run())
        self.epoch = 0

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def kill(self) -> None:
        """End the process at once; what it sent is on its way."""
        self.client.ended = True
        for task in [self.lives, *self._tasks]:
            task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                await self._live()
            except Corrupt as error:
                self._world.broken.append(error)
                return
            except AnabranchError:
                await asyncio.sleep(self._rng.random())

    async def _live(self) -> None:
        """Open under the next epoch, and serve until the view ends."""
        self.epoch = epoch = self._world.next_epoch()
        ended = asyncio.Event()
        view, source = await open_as(self._world, self.log, epoch, ended)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self._serve(view, source, epoch))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rng.random() * LIFE_S_MAX):
                    await ended.wait()
            serving.cancel()
        if not ended.is_set():
            view.close()
        await asyncio.sleep(self._rng.random() * 2)

    async def _serve(self, view: ContainerLog, source: Source, epoch: int) -> None:
        with suppress(AnabranchError), self._world.noting():
            while True:
                for _ in range(self._rng.randint(1, 6)):
                    self._write(source)
                view.ready()
                await asyncio.sleep(self._rng.random() * 1.5)
                if self._rng.random() < 0.2:
                    await self._flush(view, source, epoch)

    def _write(self, source: Source) -> None:
        operations = self._world.new_operations(self._rng.randint(1, 3))
        padding = self._rng.choice((0, 0, 0, 300))
        source.put(encoded(operations, padding), len(operations))

    async def _flush(self, view: ContainerLog, source: Source, epoch: int) -> None:
        """Move what is durable to tier 2; the release follows later."""
        history = list(source.history)
        self._world.tiered.flush(epoch, history)
        await asyncio.sleep(self._rng.random())
        await view.release(len(history))


async def open_as(
    world: World, log: StreamLog, epoch: int, ended: asyncio.Event
) -> tuple[ContainerLog, Source]:
    """Open the container as the lifecycle does: fence tier 2, open the log, replay."""
    history = world.tiered.fence(epoch)
    applied = len(history)
    source = Source(world, epoch, history, ended)
    view = await log.open_log(0, LOG_ID, epoch, source)
    try:
        async for frame in view.replay(applied):
            operations = decoded(frame.payload, frame.count)
            source.history += operations[len(source.history) + 1 - frame.first_sequence :]
            if world.rng.random() < 0.1:
                assert await view.read_aside(frame.address) == frame.payload
        with world.noting():
            world.referee.opened(epoch, list(source.history))
        await view.release(applied)
    except BaseException:
        view.close()
        raise
    source.next_sequence = len(source.history) + 1
    return view, source


def random_faults(rng: Random) -> StreamFaults:
    """Some kinds of faults, all of them rare."""

    def share() -> float:
        return rng.choice((0.0, 0.01, 0.03))

    return StreamFaults(
        lost=share(),
        unanswered=share(),
        told_unknown=share(),
        dropped=share(),
        late=share(),
        way_s_max=rng.choice((0.001, 0.05, 0.5)),
        apply_s_max=rng.choice((0.001, 0.05, 0.5)),
        purge_failed=rng.choice((0.0, 0.2)),
        shaken=rng.choice((0.0, 0.5)),
    )


async def _disturb(world: World, owners: list[Owner], new_owner: Callable[[], Owner]) -> None:
    """One thing goes wrong, or gets better."""
    rng, chosen = world.rng, world.rng.choice(owners)
    match rng.randint(0, 6):
        case 0 | 1:
            world.servers.change_leader(LOG_ID)
        case 2 | 3:
            world.servers.counts["paused owners"] += 1
            chosen.client.pause()
            asyncio.get_running_loop().call_later(rng.random() * 15, chosen.client.wake)
        case 4:
            world.servers.counts["killed owners"] += 1
            chosen.kill()
            owners.remove(chosen)
            owners.append(new_owner())
        case 5:
            world.servers.faults = random_faults(rng)
        case _:
            world.servers.faults = replace(RELIABLE, way_s_max=0.01, apply_s_max=0.01)


async def _story(world: World) -> None:
    loop = asyncio.get_running_loop()
    started = 0

    def new_owner() -> Owner:
        nonlocal started
        started += 1
        return Owner(world, started, loop)

    world.servers.create(LOG_ID)
    await StreamLog(
        SimClient(world.servers), around_of(loop, loop.create_task), SeededIds(0)
    ).create_log(0, LOG_ID)
    world.servers.faults = random_faults(world.rng)
    owners = [new_owner() for _ in range(world.rng.randint(1, 3))]
    until = loop.time() + FAULTS_S_MAX
    while loop.time() < until:
        await asyncio.sleep(world.rng.random() * 4)
        await _disturb(world, owners, new_owner)
    for owner in owners:
        owner.kill()
    assert not world.broken, f"an owner found: {world.broken[0]!r}"
    await _look_again(world, loop)


async def _look_again(world: World, loop: asyncio.AbstractEventLoop) -> None:
    """Open the log twice on healthy servers, when nothing is on its way any more."""
    world.servers.faults = RELIABLE
    await asyncio.sleep(StreamFaults().late_s_max + 1)
    for number in (98, 99):
        log = StreamLog(
            SimClient(world.servers, MESSAGE_SIZE_MAX),
            around_of(loop, loop.create_task),
            SeededIds(number),
        )
        try:
            view, source = await open_as(world, log, world.next_epoch(), asyncio.Event())
        except (Corrupt, LogNotHere, Unavailable) as error:
            raise AssertionError(f"the log cannot be opened: {error!r}") from error
        world.referee.check(world.container_epoch, source.history)
        view.close()


def random_stream_log(seed: int) -> Mapping[str, int]:
    """One seed; raises AssertionError if a promise is broken."""
    rng = seeded(seed)
    world = World(rng, SimServers(rng))
    with asyncio.Runner(loop_factory=OrderedLoop) as runner:
        try:
            runner.run(_story(world))
        finally:
            cancel_all(runner.get_loop())
    world.servers.counts["openings of a log"] = len(world.referee.found)
    world.servers.counts["acknowledged operations in streams"] = len(world.referee.acknowledged)
    return world.servers.counts
