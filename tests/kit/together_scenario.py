"""Seeded random lives of two stores that store groups of appends, beside ordinary writers.

Each seed draws the sizes of everything, a handful of lives with clients that repeat, seal, delete,
flush and read, and how each life ends. The container moves between the stores. After every turn of
the event loop the durable state is looked at: no group may be there in part. Two undisturbed lives
at the end must show everything.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from unittest.mock import patch

from anabranch.common.model.names import TOGETHER_FIRST
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import GetLengths, Lengths, Stamp
from anabranch.segstore.adapters import group as commits
from anabranch.segstore.domain.container.evolve import SegmentMap
from kit.moving_container import MovingContainer
from kit.rng import seeded
from kit.simdisk import SimDisk
from kit.store_check import check_everything
from kit.store_requests import create, delete, flush, seal
from kit.store_scenario import disturb, end_machine, live_once
from kit.store_world import NODE, Client, Life, World
from kit.store_writer import WriterScript
from kit.together_referee import Has, TogetherReferee
from kit.together_writer import GroupWriter, endure
from kit.two_stores import OTHER
from kit.virtual_time import OrderedLoop

SEGMENT_COUNT = 4
WRITER_COUNT = 2


End = Callable[[Client, str, Stamp], Coroutine[None, None, None]]


class WatchedLoop(OrderedLoop):
    """A virtual loop that calls `on_turn` between its turns."""

    def __init__(self) -> None:
        super().__init__()
        self.on_turn: Callable[[], None] = _nothing

    def _process_events(self, event_list: list[object]) -> None:
        super()._process_events(event_list)
        try:
            self.on_turn()
        except BaseException:
            self.on_turn = _nothing
            raise


class TogetherWorld(World):
    """A store whose loop is watched."""

    def new_loop(self) -> WatchedLoop:
        return WatchedLoop()


def _nothing() -> None:
    return


class TogetherWork:
    """What clients do, over all lives. `worlds`: the two stores."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = seeded(seed)
        first = TogetherWorld(
            container_count=1,
            journal_file_size=rng.choice((2048, 6 * 1024, 64 * 1024)),
            flush_bytes=rng.choice((1024, 8 * 1024, 1024 * 1024)),
            cache_bytes=rng.choice((0, 4 * 1024, 1024 * 1024)),
            segments_in_memory=(1, 2, 3, 100)[seed % 4],
        )
        second = replace(first, node=OTHER, journal_disk=SimDisk(), lives=1000)
        self.worlds = {NODE: first, OTHER: second}
        self.moving = MovingContainer(first.objects)
        self.referee = TogetherReferee()
        self.history = first.history
        self._revision = 1
        self._slot_of: dict[str, int] = {}
        """Every segment, and its place in the stream: a later one there is its successor."""
        self._segments = [""] * SEGMENT_COUNT
        self._looked_at = 0
        for slot in range(SEGMENT_COUNT):
            self._new_segment(slot)
        self._known_before = list(self._segments)
        """The segments as a client knows them that has not heard of the last seals."""
        self._groups = [
            GroupWriter(self.history, self.referee, seeded(seed * 10 + number), self._successor)
            for number in range(rng.randrange(1, 4))
        ]
        self._writers = [
            WriterScript(segment, rng.randbytes(16), self.history, rng)
            for segment in self._segments[:WRITER_COUNT]
        ]
        self.checked = 0
        """How often everything was read."""

    def owner(self) -> World:
        """The store that the container is placed on."""
        return self.worlds[self.moving.owner()]

    def _new_segment(self, slot: int) -> str:
        name = f"s/t/{TOGETHER_FIRST + len(self._slot_of)}.#epoch.0"
        self._slot_of[name] = slot
        self._segments[slot] = name
        return name

    def _stamp(self) -> Stamp:
        self._revision += 1
        return Stamp(1, self._revision)

    def _successor(self, segment: str) -> str:
        """The segment in its place now, which may be itself."""
        return self._segments[self._slot_of[segment]]

    # --- lives --------------------------------------------------------------------------------

    async def working_life(self, life: Life) -> None:
        """Random requests; sometimes the container leaves at the end."""
        self._watch(life)
        if not await self.moving.until_open_or_left(life):
            return
        client = Client(life)
        for _ in range(self.rng.randrange(10, 60)):
            for _ in range(self.rng.choice((1, 1, 2, 8))):
                self._act(life, client)
            if self.rng.random() < 0.5:
                await life.clock.sleep(self.rng.choice((0.0, 0.002, 0.05, 1.0)))
        if self.rng.random() < 0.4:
            self.referee.counts["moves of groups"] += 1
            await self.moving.ask_to_leave(life)
            for _ in range(5):
                self._act(life, client)
                await life.clock.sleep(self.rng.choice((0.0, 0.002)))
            await self.moving.until_left(life)
        await life.clock.sleep(self.rng.choice((0, 1, 40)))

    def _act(self, life: Life, client: Client) -> None:
        rng = self.rng
        draw = rng.random()
        if draw < 0.5:
            life.spawn(endure(self._write_group(client)))
        elif draw < 0.68:
            life.spawn(endure(self._append(client, rng.choice(self._writers))))
        elif draw < 0.74:
            life.spawn(endure(rng.choice(self._groups).repeat(client)))
        elif draw < 0.80:
            life.spawn(endure(flush(client, 0)))
        elif draw < 0.90:
            life.spawn(endure(self._read(client)))
        elif draw < 0.95:
            life.spawn(endure(self._ask_lengths(client)))
        elif draw < 0.99:
            life.spawn(endure(self._end(client, seal)))
        elif draw < 0.992:
            life.spawn(endure(self._end(client, delete)))

    async def _write_group(self, client: Client) -> None:
        if self.rng.random() < 0.3:
            self._known_before = list(self._segments)
        segments = list(self._segments if self.rng.random() < 0.6 else self._known_before)
        for segment in segments:
            if segment not in client.life.world.created:
                await create(client, segment, Stamp(1, 1))
        await self.rng.choice(self._groups).write(client, segments)

    async def _append(self, client: Client, writer: WriterScript) -> None:
        if writer.beginning or writer.segment not in client.life.world.created:
            return
        if (not writer.alive or writer.client is not client) and not await writer.begin(client):
            return
        for _ in range(self.rng.randrange(1, 4)):
            writer.send(client, self.rng.randrange(1, 3))

    async def _end(self, client: Client, end: End) -> None:
        """Create a successor of a segment, and then seal or delete the segment."""
        segment = self.rng.choice(self._segments)
        successor = self._new_segment(self._slot_of[segment])
        await create(client, successor, Stamp(1, 1))
        await end(client, segment, self._stamp())
        self.referee.counts["segments sealed or deleted under groups"] += 1

    async def _read(self, client: Client) -> None:
        """Read all segments, one after another."""
        names = [name for name in self._segments if name in client.life.world.created]
        self.rng.shuffle(names)
        contents = [(name, (await client.read_all(name))[0]) for name in names]
        self.referee.check_read(contents)
        self.referee.counts["reads of groups"] += 1

    async def _ask_lengths(self, client: Client) -> None:
        names = tuple(name for name in self._slot_of if name in client.life.world.created)
        if names:
            reply = await client.control(GetLengths(segment=names[0], segments=names))
            assert isinstance(reply, Lengths)
            self.referee.told(dict(zip(names, reply.lengths, strict=True)))
            self.referee.counts["lengths of several segments"] += 1

    # --- looking ------------------------------------------------------------------------------

    def _watch(self, life: Life) -> None:
        for writer in self._groups:
            writer.new_life()
        self._looked_at = 0
        assert isinstance(life.loop, WatchedLoop)
        life.loop.on_turn = lambda: self._look(life)

    def _look(self, life: Life) -> None:
        """What a reader could see between two turns of the loop."""
        for opened in life.store.open_containers():
            state = opened.container.applied.state
            if state.sequence != self._looked_at:
                self._looked_at = state.sequence
                self.referee.check(self.referee.latest(), _seen_in(state))
                self.referee.counts["states that were searched for parts of groups"] += 1

    async def last_life(self, life: Life) -> None:
        """Everything is there. If the container is to leave, it leaves, and nothing is read."""
        self._watch(life)
        found = await self.moving.placement()
        if not await self.moving.until_open_or_left(life) or (found is not None and found.target):
            await self.moving.until_left(life)
            return
        await check_everything(life)
        client = Client(life)
        contents = {
            name: (await client.read_all(name))[0]
            for name in sorted(life.world.created - self.history.deleted)
        }
        self.referee.check_whole(contents)
        self.checked += 1


def _seen_in(state: SegmentMap) -> Has:
    def has(segment: str, pen: bytes, last: int) -> bool | None:
        known = state.segments.get(segment)  # it may have been evicted
        if not isinstance(known, SegmentState):
            return None
        return state.last_event_number(known.number, pen) >= last

    return has


def random_together(seed: int) -> Mapping[str, int]:
    """Two stores of this seed. Raises when a promise is broken; returns what was counted."""
    work = TogetherWork(seed)
    rng = work.rng
    with (
        patch.object(commits, "FRAME_SIZE_BYTES_AIM", rng.choice((300, 1500, 1 << 22))),
        patch.object(commits, "WRITE_SIZE_BYTES_AIM", rng.choice((500, 4000, 1 << 24))),
    ):
        for _ in range(rng.randrange(3, 7)):
            world = work.owner()
            disturb(world.journal_disk, rng)
            disturb(world.tier_disk, rng)
            live_once(world, work.working_life)
            end_machine(world, rng)
        while work.checked < 2:
            world = work.owner()
            assert world.run(work.last_life)
            end_machine(world, rng)
    return work.referee.counts
