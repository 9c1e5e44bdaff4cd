"""A view in virtual time: processes that run it, as readers of a simulated group, and its table.

The group, its log and its streams are those of `group_world`, with its referee. The table answers
late, or never; a request that got no answer may still be performed when its caller has given up, is
dead, or has been replaced.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TypeVar
from zlib import crc32

from anabranch.client.backoff import Backoff
from anabranch.client.groups.reader import GroupReader
from anabranch.client.reading.events import Event, EventBatch
from anabranch.client.reading.frontier import FUTURE, Position
from anabranch.client.serializers import JsonSerializer
from anabranch.client.settings import BackoffSettings
from anabranch.client.tables.lookups import Found
from anabranch.client.tables.stored import StoredUpdate
from anabranch.client.tables.units import Outcome, Performed
from anabranch.client.views.counts import ViewCounts
from anabranch.client.views.partition import PartitionView
from anabranch.client.views.rounds import Recipe
from anabranch.client.views.rows import Rows
from anabranch.client.views.session import ViewSession
from anabranch.common.errors import OutcomeUnknown, Unavailable
from anabranch.common.model.reader_group import group_ref
from kit.group_process import SimProcess
from kit.group_referee import Session
from kit.group_streams import SimEvent, SimSegment
from kit.group_world import Interrupted, SimReader, World
from kit.simlink import CLEAR
from kit.view_table import MemoryPartition

T = TypeVar("T")

GROUP = group_ref("sim/view")
SHORT_S = (0.0005, 0.02)
SLOW_S = (0.1, 3.0)
PATIENCE_S = (0.5, 4.0)
"""After so long without an answer a call has failed."""

PERFORMED = "updates of a view's table"
REFUSED = "updates of a view's table that were refused"
UNKNOWN = "updates of a view's table without an answer"
LATE = "updates of a view's table performed when their callers had given up"
FAILED = "processes of a view that failed"
SKIPPED = "events that a view skipped because its rows reflected them"


class SimTable:
    """The partitions, and the way there. `weather` is that of the group's log."""

    def __init__(self, world: World, partition_count: int) -> None:
        self.world = world
        self.partitions = [MemoryPartition() for _ in range(partition_count)]

    def values(self) -> dict[str, list[int]]:
        """The rows of the program."""
        json = JsonSerializer()
        return {
            key.decode(): json.deserialize(value)
            for each in self.partitions
            for key, value in each.values().items()
        }

    def of(self, process: SimProcess) -> "SimTableHandle":
        """The table as a process reaches it."""
        return SimTableHandle(self, process)


class SimTableHandle:
    """A `ViewTable` of one process."""

    def __init__(self, table: SimTable, process: SimProcess) -> None:
        self._table = table
        self._process = process
        self._world = table.world
        self._rng = table.world.rng

    @property
    def partition_count(self) -> int:
        return len(self._table.partitions)

    def places(self, keys: Sequence[str]) -> tuple[Sequence[int], Sequence[bytes]]:
        stored = [key.encode() for key in keys]
        return [crc32(key) % self.partition_count for key in stored], stored

    async def look_up(self, index: int, keys: Sequence[bytes]) -> "asyncio.Future[Found]":
        partition = self._table.partitions[index]
        return self._sent(lambda: partition.look_up(keys), Unavailable("no store answers"))

    async def update(self, index: int, update: StoredUpdate) -> "asyncio.Future[Outcome]":
        partition, counts = self._table.partitions[index], self._world.counts

        def perform() -> Outcome:
            outcome = partition.perform(update)
            counts[PERFORMED if isinstance(outcome, Performed) else REFUSED] += 1
            if told.done() and isinstance(outcome, Performed):
                counts[LATE] += 1
            return outcome

        told = self._sent(perform, OutcomeUnknown("no reply to an update in time"))
        return told

    def _sent(self, perform: Callable[[], T], unanswered: Exception) -> "asyncio.Future[T]":
        """Perform the request some time, and answer some time, or neither."""
        loop, weather = self._world.loop, self._world.log.weather
        told: asyncio.Future[T] = loop.create_future()

        def arrive() -> None:
            answer = perform()
            if self._rng.random() >= weather.lost:
                loop.call_later(self._delay_s(), _tell, told, answer)

        is_away = loop.time() < self._process.away_until_s
        if weather is CLEAR or (not is_away and self._rng.random() >= weather.lost):
            loop.call_later(self._delay_s(), arrive)
        elif self._rng.random() < 0.5:
            loop.call_later(self._rng.uniform(*SLOW_S) * 3, arrive)

        def give_up() -> None:
            if not told.done():
                if isinstance(unanswered, OutcomeUnknown):
                    self._world.counts[UNKNOWN] += 1
                told.set_exception(unanswered)
                told.exception()

        if weather is not CLEAR or is_away:
            loop.call_later(self._rng.uniform(*PATIENCE_S), give_up)
        return told

    def _delay_s(self) -> float:
        is_slow = self._rng.random() < self._world.log.weather.slow
        return self._rng.uniform(*(SLOW_S if is_slow else SHORT_S))


def _tell(told: "asyncio.Future[T]", answer: T) -> None:
    if not told.done():
        told.set_result(answer)


# --- the program ---------------------------------------------------------------------------------


def row_of(event: Event) -> str | None:
    """A row of the event's key, or one for several keys, or none."""
    number = int(event.payload)
    if number % 7 == 3:
        return None
    return f"shared-{number % 2}" if number % 4 == 1 else f"key-{event.key}"


def fold(row: list[int] | None, event: Event) -> list[int] | None:
    """The numbers of the row's events since it was removed."""
    number = int(event.payload)
    if number % 5 == 0 and not str(row_of(event)).startswith("shared"):
        return None
    row = row or []
    row.append(number)
    return row


RECIPE: Recipe[bytes, str, list[int]] = Recipe(row_of, fold, None, JsonSerializer())


class SimViewReader(SimReader):
    """A process that runs the view on `table`."""

    table: SimTable

    async def _consume(self, reader: GroupReader, session: Session) -> str:
        world, counts = self.world, ViewCounts()
        cache = world.rng.choice((0, 1_000, 1_000_000))

        def new_partition(index: int) -> PartitionView[bytes, list[int]]:
            return PartitionView(
                index, GROUP, fold=fold, values=JsonSerializer(), rows=Rows(cache), counts=counts
            )

        work: ViewSession[bytes, str, list[int]] = ViewSession(
            _Watched(self, reader, session),
            self.table.of(self.process),
            RECIPE,
            new_partition=new_partition,
            new_backoff=lambda: Backoff(BackoffSettings(), world.rng, inf),
            clock=self.process.clock,
            round_events=world.rng.choice((1, 5, 1000)),
        )
        try:
            await work.run(self._wishes_to_end)
        except (Interrupted, asyncio.CancelledError):
            session.leaves_behind = True
            raise
        except Unavailable:
            world.counts[FAILED] += 1
            session.leaves_behind = True
            return "failed"
        finally:
            world.counts[SKIPPED] += counts.skipped
        return "left" if self.wish == "leave" else "end"

    async def _wishes_to_end(self) -> bool:
        if self.wish == "throw":
            raise Interrupted
        return self.wish == "leave"


class _Watched:
    """A `ViewReader` that tells the group's referee of what it hands out."""

    def __init__(self, process: SimViewReader, reader: GroupReader, session: Session) -> None:
        self._process = process
        self._reader = reader
        self._session = session

    async def next_batch(self) -> EventBatch | None:
        return self._given(await self._reader.next_batch())

    def next_batch_nowait(self) -> EventBatch | None:
        return self._given(self._reader.next_batch_nowait())

    def _given(self, batch: EventBatch | None) -> EventBatch | None:
        if batch is not None:
            process = self._process
            events = [process.world.events[int(payload)] for payload in batch.payloads]
            ownership = self._reader.ownership(batch.segment)
            process.world.referee.handed_out(self._session, batch.segment, ownership, events)
            process._in_hand.append((batch.segment, events))
        return batch

    def ack(self) -> None:
        self._process._done(self._session)
        self._reader.ack()


# --- the truth -----------------------------------------------------------------------------------


def expected_events(world: World, start: Mapping[str, Position]) -> dict[str, list[SimEvent]]:
    """Segment → its events from the group's first start on."""
    found: dict[str, list[SimEvent]] = {}
    pending: list[SimSegment] = []
    for name, position in start.items():
        segment = world.segments[name]
        if position != FUTURE:
            found[name] = segment.between(position, segment.end)
            pending.append(segment)
    while pending:
        for after in pending.pop().after:
            if after.name not in found:
                found[after.name] = after.between(Position(0), after.end)
                pending.append(after)
    return found


def wrong_rows(world: World, table: SimTable, start: Mapping[str, Position]) -> str | None:
    """The first row that is not the plain fold of its events; None: there is none."""
    rows = table.values()
    expected = expected_events(world, start)
    plain: dict[str, list[int] | None] = {}
    shared: dict[str, Counter[int]] = {}
    for _, event in sorted((each.number, each) for of in expected.values() for each in of):
        stored = Event(b"%d" % event.number, str(event.cell), 0, "", 0, 0)
        row = row_of(stored)
        if row is None:
            continue
        if row.startswith("shared"):
            shared.setdefault(row, Counter())[event.number] += 1
        else:
            plain[row] = fold(plain.get(row), stored)
    for row, numbers in plain.items():
        if rows.get(row) != numbers:
            return f"{row} is {rows.get(row)} and should be {numbers}"
    for row, events in shared.items():
        if Counter(rows.get(row, [])) != events:
            return f"{row} has events twice or not at all: {rows.get(row)}, not {events}"
    kept = {row for row, numbers in plain.items() if numbers is not None} | shared.keys()
    return f"rows of nothing: {rows.keys() - kept}" if rows.keys() - kept else None
