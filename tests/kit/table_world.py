"""A store with table segments on simulated disks: slow indexes that are lost, damaged or old.

Calls of the indexes take virtual time, as in threads: what calls them may be cancelled while they
go on, and other work happens meanwhile. When a life ends by a crash, the indexes lose some of their
last writes; between lives, and sometimes within one, they are damaged in other ways. Clocks go on
from life to life, and are set back or forward a little.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import Clock
from anabranch.common.wire.messages import (
    DescribeTable,
    GetEntries,
    Message,
    ScanEntries,
    TableDescribed,
    TableRead,
    TableUpdated,
    UpdateTable,
)
from anabranch.common.wire.table_columns import Row, decode_rows, encode_keys, encode_numbers
from anabranch.segstore.adapters.table_index import rows
from anabranch.segstore.adapters.table_index.memory import MemoryIndexes
from anabranch.segstore.domain.container.circumstances import Given
from anabranch.segstore.domain.container.operations import DecodedOperation
from anabranch.segstore.domain.table import answer, space
from anabranch.segstore.domain.table.tail import TailEntry
from anabranch.segstore.handlers.tables import TableDesk
from anabranch.segstore.ports import FrameContents, LogAddress, ReplayedFrame
from anabranch.segstore.ports_table import IndexState
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.memory.catch_up import CatchUp
from anabranch.segstore.shell.tables import compactor, indexer, passes
from anabranch.segstore.shell.tables.parts import TableLimits, TableParts
from kit.rng import Random, seeded
from kit.simdisk import Crashed
from kit.store_world import Client, Life, Script, World, _answer
from kit.table_index import write
from kit.table_log import Sent
from kit.table_parts import DIRECTORY
from kit.table_referee import TableReferee
from kit.virtual_time import OrderedLoop, VirtualClock, VirtualTimeLoop

T = TypeVar("T")

KEYS = (b"\0", *(b"key %d" % number for number in range(9)), b"\xff\xff")

CALL_S = (0.0, 0.0, 0.001, 0.01, 0.3)
SKEW_MS_MAX = 3000
REMEMBERED = 4
SMALL = TableLimits(
    unindexed_max=20_000, hot_size_max=3000, live_share=0.8, compact_size_min=500, compact_s=2.0
)


@contextmanager
def small_steps() -> Iterator[None]:
    """Everything about tables is done in small pieces, so that much happens between them, and few
    requests are remembered."""
    with (
        patch.object(compactor, "WINDOW_SIZE_BYTES", 600),
        patch.object(space, "COPIES_SIZE_BYTES_MAX", 300),
        patch.object(passes, "ENTRIES_MAX", 6),
        patch.object(indexer, "READ_SIZE_BYTES_MAX", 700),
        patch.object(answer, "REQUESTS_REMEMBERED", REMEMBERED),
        patch.object(rows, "REQUESTS_REMEMBERED", REMEMBERED),
    ):
        yield


@contextmanager
def observed(referee: TableReferee) -> Iterator[None]:
    """The referee sees every durable operation before anything follows from it."""
    frame_durable, replay = Container.frame_durable, Container.replay

    def seen_durable(self: Container, contents: FrameContents, address: LogAddress) -> None:
        if self.failure is None:
            for item in self._queue._taken[0].operations:
                referee.durable(item.sequence, item.operation)
        frame_durable(self, contents, address)

    def seen_again(
        self: Container, frame: ReplayedFrame, operations: list[DecodedOperation]
    ) -> None:
        for found in operations:
            referee.durable(found.sequence, found.operation)
        replay(self, frame, operations)

    with (
        patch.object(Container, "frame_durable", seen_durable),
        patch.object(Container, "replay", seen_again),
    ):
        yield


class SlowCalls:
    """Makes the calls of indexes at some later time, and answers still later.

    If the caller is cancelled, the call goes on. `in_order`: one after the other.
    """

    def __init__(self, world: "TableWorld", rng: Random, *, in_order: bool) -> None:
        self._world = world
        self._rng = rng
        self._turn = asyncio.Lock() if in_order else None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        task = loop.create_task(self._perform(work, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await answer

    async def _perform(self, work: Callable[[], T], answer: asyncio.Future[T]) -> None:
        async with self._turn or nullcontext():
            await asyncio.sleep(self._rng.choice(CALL_S))
            if self._world.process_is_dead:
                raise Crashed
            result, error = None, None
            try:
                result = work()
            except (AnabranchError, AssertionError) as raised:
                error = raised
            await asyncio.sleep(self._rng.choice(CALL_S))
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]


@dataclass
class TableWorld(World):
    """`pace` seeds the times of the indexes' calls."""

    container_count: int = 1
    pace: int = 0
    limits_of_tables: TableLimits = SMALL
    indexes: MemoryIndexes = field(default_factory=MemoryIndexes)
    referee: TableReferee = field(default_factory=TableReferee)
    ends_hard: bool = True
    """A life ends by a kill, even if no disk call crashed."""
    was_ended: bool = False
    older: dict[Path, Any] = field(default_factory=dict)
    """The contents of indexes at earlier times."""

    @property
    def process_is_dead(self) -> bool:
        return self.was_ended or self.journal_disk.dead or self.tier_disk.dead

    def new_loop(self) -> OrderedLoop:
        return OrderedLoop()

    def clock(self, loop: VirtualTimeLoop) -> VirtualClock:
        return VirtualClock(loop, self.referee.now_ms)

    def table_parts(self, catch_up: CatchUp, clock: Clock) -> TableParts:
        rng = seeded(self.pace + self.lives)
        return TableParts(
            indexes=self.indexes,
            directory=DIRECTORY,
            reading=SlowCalls(self, rng, in_order=False),
            writing=SlowCalls(self, rng, in_order=True),
            catch_up=catch_up,
            limits=self.limits_of_tables,
        )

    def run(self, script: Script) -> bool:
        """As `World.run`; then some of the last writes of the indexes are lost."""
        self.was_ended = False
        rng = seeded(self.pace + 31 * self.lives)
        clocks: list[Clock] = []

        async def watched(life: Life) -> None:
            clocks.append(life.clock)
            await script(life)
            self.was_ended = self.ends_hard

        try:
            with observed(self.referee), small_steps():
                return super().run(watched)
        finally:
            for clock in clocks:
                now_ms = self.referee.note_time(clock.now_ms())
                self.referee.now_ms = now_ms + rng.randrange(-SKEW_MS_MAX, SKEW_MS_MAX)
            for directory in tuple(self.indexes._contents):
                self.indexes.crash(directory, rng.randrange(100))
            self.indexes._open.clear()

    # --- faults of the indexes ----------------------------------------------------------------

    def hurt_index(self, rng: Random, other: "TableWorld") -> str:
        """Do something to the index of a store that is not running; returns what."""
        contents = self.indexes._contents
        directory = DIRECTORY / "0"
        draw = rng.random()
        if directory not in contents or draw < 0.4:
            return ""
        older = self.older.get(directory)
        if older is None or rng.random() < 0.3:
            self.older[directory] = deepcopy(contents[directory])
        if draw < 0.5:
            del contents[directory]
            return "indexes deleted"
        if draw < 0.6:
            self.indexes.damage(directory)
            return "indexes that could not be opened"
        if draw < 0.7:
            self.indexes.damage(directory, rng.randrange(1000))
            return "flipped bits in indexes"
        if draw < 0.8 and older is not None:
            contents[directory] = deepcopy(older)
            return "indexes replaced by older ones"
        if draw < 0.9 and directory in other.indexes._contents:
            contents[directory] = deepcopy(other.indexes._contents[directory])
            return "indexes of another store"
        del contents[directory]
        self._index_another_log(directory, rng)
        return "indexes of other logs"

    def _index_another_log(self, directory: Path, rng: Random) -> None:
        """Make an index of a log that looks like this one, up to the checksum of a block."""
        index = self.indexes.open(directory)
        for log in self.referee.living.values():
            if log.blocks:
                last = rng.choice(log.blocks)
                state = IndexState(log.number, complete_from=0)
                entry = TailEntry(rng.randrange(last.end), 0, b"of another log")
                write(index, state, last.end, (last.offset, 1), {rng.choice(KEYS): entry}, {})
        index.close()

    def flip_a_bit(self, rng: Random) -> bool:
        """Damage a row of an index, which may be in use; False if there is none."""
        directory = DIRECTORY / "0"
        if directory not in self.indexes._contents:
            return False
        self.indexes.damage(directory, rng.randrange(1000))
        return True


class TableCaller(Client):
    """One connection of a client of tables."""

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._tables = TableDesk(life.store, self._read_replied, life.spawn)

    def update(self, sent: Sent) -> Coroutine[None, None, TableUpdated]:
        """Send the request, at once; then wait for the answer. Raises what the store answers."""
        request = UpdateTable(
            segment=sent.segment,
            client_id=sent.client_id,
            request_number=sent.number,
            conditions=encode_numbers(sent.conditions, "q"),
            units=encode_numbers(sent.units, "I"),
            segment_number=sent.segment_number,
        )
        request_id, waiting = self._new_request()
        self._control.ask(
            request, lambda reply: self._replied(reply, request_id), Given(sent.payload)
        )
        return _updated(waiting)

    async def get(self, segment: str, keys: list[bytes]) -> tuple[TableRead, list[Row]]:
        """Read the entries of these keys; raises what the store answers."""
        return await self._read(GetEntries(segment=segment), encode_keys(keys))

    async def scan(self, request: ScanEntries) -> tuple[TableRead, list[Row]]:
        """Read a page; raises what the store answers."""
        return await self._read(request, b"")

    async def describe(self, segment: str) -> TableDescribed:
        request_id, waiting = self._new_request()
        self._tables.ask(request_id, DescribeTable(segment=segment), b"")
        reply = await _answer(waiting)
        assert isinstance(reply, TableDescribed)
        return reply

    async def _read(
        self, request: GetEntries | ScanEntries, payload: bytes
    ) -> tuple[TableRead, list[Row]]:
        request_id, waiting = self._new_request()
        self._tables.ask(request_id, request, payload)
        reply, columns = await self._both(waiting)
        assert isinstance(reply, TableRead)
        return reply, decode_rows(columns)

    async def _both(self, waiting: asyncio.Future[tuple[Message, bytes]]) -> tuple[Message, bytes]:
        await _answer(waiting)
        return waiting.result()


async def _updated(waiting: asyncio.Future[tuple[Message, bytes]]) -> TableUpdated:
    reply = await _answer(waiting)
    assert isinstance(reply, TableUpdated)
    return reply
