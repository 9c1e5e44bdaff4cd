"""Processes of a view in any interleaving, with lost answers: every event is folded once.

A *process* works on the segments that it believes to own, as real ones do: it begins at the group's
position, folds round after round, and the group learns of its rounds only while it is the owner. A
process that was replaced goes on with what it has begun. Requests are performed at any later time,
whether the process still waits for them or not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.client.reading.events import Event
from anabranch.client.reading.frontier import Position
from anabranch.client.serializers import JsonSerializer
from anabranch.client.tables.lookups import Found
from anabranch.client.tables.stored import StoredUpdate
from anabranch.client.tables.units import Performed
from anabranch.client.views.counts import ViewCounts
from anabranch.client.views.partition import PartitionView, SegmentShare
from anabranch.client.views.rows import Rows
from anabranch.common.model.reader_group import group_ref
from kit.thorough import one_in
from kit.view_table import MemoryPartition

GROUP = group_ref("s/g")
SEGMENTS = ("s/x/0.#epoch.0", "s/x/1.#epoch.0")
EVENTS = 12
OWN_ROWS = 2
"""Rows of events of one segment alone; one of them is removed now and then."""

Row = list[list[int]]


def fold(row: Row | None, event: Event) -> Row | None:
    """The numbers of the events since the row was removed, with the numbers of their segments."""
    number = event.event_index
    if number % 5 == 4 and row_of(event) != b"shared":
        return None
    row = row or []
    row.append([SEGMENTS.index(event.segment), number])
    return row


def row_of(event: Event) -> bytes:
    """Every third event belongs to a row that all segments change."""
    if event.event_index % 3 == 0:
        return b"shared"
    return f"{event.segment}:{event.event_index % OWN_ROWS}".encode()


EVENTS_OF = {
    segment: [Event(b"", None, 0, segment, 0, number) for number in range(EVENTS)]
    for segment in SEGMENTS
}


def expected() -> dict[bytes, Row]:
    """A plain fold of all events of rows that only one segment changes."""
    rows: dict[bytes, Row | None] = {}
    for events in EVENTS_OF.values():
        for event in events:
            if row_of(event) != b"shared":
                rows[row_of(event)] = fold(rows.get(row_of(event)), event)
    return {key: row for key, row in rows.items() if row is not None}


@dataclass
class World:
    """`acked`: the group's positions; `owners`: of the segments."""

    partition: MemoryPartition = field(default_factory=MemoryPartition)
    acked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SEGMENTS, 0))
    owners: dict[str, "Process"] = field(default_factory=dict)
    late: list[StoredUpdate] = field(default_factory=list)
    """Updates that no process waits for any more."""

    def take_over(self, segments: tuple[str, ...], cache: int) -> "Process":
        process = Process(self, {segment: self.acked[segment] for segment in segments}, cache)
        for segment in segments:
            self.owners[segment] = process
        return process


class Process:
    """One process, and the request that it waits for."""

    def __init__(self, world: World, begin: Mapping[str, int], cache: int) -> None:
        self._world = world
        self._at = dict(begin)
        self._round: dict[str, int] = {}
        self.view: PartitionView[bytes, Row] = PartitionView(
            0, GROUP, fold=fold, values=JsonSerializer(), rows=Rows(cache), counts=ViewCounts()
        )
        self._read: tuple[list[bytes], Found] | None = None
        self.sent: StoredUpdate | None = None

    @property
    def is_idle(self) -> bool:
        return self.view.is_done and all(at == EVENTS for at in self._at.values())

    def step(self, size: int, is_lost: bool) -> None:
        """The next thing that it does; an answer that `is_lost` does not come."""
        if self.sent is not None:
            self._answered(self.sent, is_lost)
        elif self._read is not None:
            (keys, found), self._read = self._read, None
            self.view.found(keys, found)
            self.sent = self.view.next_update()
        elif self.view.is_done:
            self._end_round()
            self._begin_round(size)
        elif keys := self.view.missing():
            self._read = keys, self._world.partition.look_up(keys)
        else:
            self.sent = self.view.next_update()

    def _answered(self, update: StoredUpdate, is_lost: bool) -> None:
        self.sent = None
        if is_lost:
            self._world.late.append(update)
            self.view.unclear()
            return
        outcome = self._world.partition.perform(update)
        if isinstance(outcome, Performed):
            self.view.performed(outcome)
        else:
            self.view.refused(outcome)

    def _begin_round(self, size: int) -> None:
        self._round = {segment: min(EVENTS, at + size) for segment, at in self._at.items()}
        shares = []
        for segment, end in self._round.items():
            events = [(row_of(each), each) for each in EVENTS_OF[segment][self._at[segment] : end]]
            if events:
                shares.append(SegmentShare(segment, events, Position(0, end)))
        self.view.begin(shares)

    def _end_round(self) -> None:
        for segment, end in self._round.items():
            self._at[segment] = end
            if self._world.owners[segment] is self:
                self._world.acked[segment] = end


@settings(max_examples=300 // one_in(4), deadline=None)
@given(st.data())
def test_every_event_is_folded_once_in_any_interleaving(data: st.DataObject) -> None:
    world = World()
    caches = st.sampled_from((0, 100_000))
    alive = [world.take_over(SEGMENTS, data.draw(caches))]
    for _ in range(data.draw(st.integers(0, 80))):
        match data.draw(st.sampled_from(("step",) * 8 + ("take over", "late", "die"))):
            case "step" if alive:
                process = data.draw(st.sampled_from(alive))
                process.step(data.draw(st.integers(1, 5)), data.draw(st.integers(0, 5)) == 0)
            case "take over":
                some = data.draw(st.sampled_from((SEGMENTS, SEGMENTS[:1], SEGMENTS[1:])))
                alive.append(world.take_over(some, data.draw(caches)))
            case "late" if world.late:
                number = data.draw(st.integers(0, len(world.late) - 1))
                world.partition.perform(world.late.pop(number))
            case "die" if len(alive) > 1:
                dead = alive.pop(data.draw(st.integers(0, len(alive) - 1)))
                if dead.sent is not None:
                    world.late.append(dead.sent)
    last = world.take_over(SEGMENTS, 0)
    while not last.is_idle:
        last.step(5, is_lost=False)
    for process in alive:  # none of them may do any more harm
        for _ in range(20):
            process.step(5, is_lost=False)
    for update in world.late:
        world.partition.perform(update)
    json = JsonSerializer()
    found = {key: json.deserialize(row) for key, row in world.partition.values().items()}
    shared = found.pop(b"shared")
    assert found == expected()
    for number, segment in enumerate(SEGMENTS):
        of_segment = [event for by, event in shared if by == number]
        assert of_segment == [
            each.event_index for each in EVENTS_OF[segment] if row_of(each) == b"shared"
        ]
