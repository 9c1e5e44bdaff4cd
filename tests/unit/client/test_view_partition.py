"""What a view saves in one partition, and what it does when another process was faster."""

from collections.abc import Callable

import pytest

from anabranch.client.reading.events import Event
from anabranch.client.reading.frontier import Position
from anabranch.client.serializers import JsonSerializer
from anabranch.client.tables.stored import StoredUpdate
from anabranch.client.tables.units import Performed, Refused
from anabranch.client.views import partition as module
from anabranch.client.views.counts import ViewCounts
from anabranch.client.views.partition import PartitionView, SegmentShare
from anabranch.client.views.positions import decode_position, position_key
from anabranch.client.views.rows import Row, Rows
from anabranch.common.errors import BadPacket, FormatTooNew, InvalidRequest
from anabranch.common.model.reader_group import group_ref
from anabranch.common.wire.table_columns import ABSENT
from kit.view_table import NUMBER, MemoryPartition

GROUP = group_ref("s/g")
A, B = "s/x/0.#epoch.0", "s/x/1.#epoch.0"
BLOCK = 100
Fold = Callable[[list[str] | None, Event], list[str] | None]


def append(row: list[str] | None, event: Event) -> list[str] | None:
    """The payloads of all events of the row; "drop" removes it."""
    if event.payload == b"drop":
        return None
    row = row if row is not None else []
    row.append(event.payload.decode())
    return row


def event(segment: str, number: int, payload: str) -> Event:
    return Event(payload.encode(), None, 0, segment, number // 3 * BLOCK, number % 3)


def share(segment: str, *rows: str, first: int = 0) -> SegmentShare[bytes]:
    """Events for these rows: ``row`` or ``row=payload``; the event's number without one."""
    events = []
    for number, text in enumerate(rows, first):
        row, _, payload = text.partition("=")
        events.append((row.encode(), event(segment, number, payload or str(number))))
    return SegmentShare(segment, events, place(first + len(rows)))


def place(number: int) -> Position:
    """Of the event with this number in its segment."""
    return Position(number // 3 * BLOCK, number % 3)


class Process:
    """One process of the view, on partitions that others use too."""

    def __init__(self, rows: MemoryPartition, fold: Fold = append, cache: int = 10_000) -> None:
        self.rows = rows
        self.counts = ViewCounts()
        self.view: PartitionView[bytes, list[str]] = PartitionView(
            3, GROUP, fold=fold, values=JsonSerializer(), rows=Rows(cache), counts=self.counts
        )

    def read(self) -> list[bytes]:
        keys = self.view.missing()
        if keys:
            self.view.found(keys, self.rows.look_up(keys))
        return keys

    def told(self, outcome: Performed | Refused) -> None:
        if isinstance(outcome, Performed):
            self.view.performed(outcome)
        else:
            self.view.refused(outcome)

    def save(self, *shares: SegmentShare[bytes]) -> list[StoredUpdate]:
        """All of it; the updates that were sent."""
        self.view.begin(shares)
        sent = []
        while not self.view.is_done:
            self.read()
            update = self.view.next_update()
            if update is not None:
                sent.append(update)
                self.told(self.rows.perform(update))
        return sent

    def send(self, *shares: SegmentShare[bytes]) -> StoredUpdate:
        """The first update, which is not performed yet."""
        self.view.begin(shares)
        self.read()
        update = self.view.next_update()
        assert update is not None
        return update


@pytest.fixture
def rows() -> MemoryPartition:
    return MemoryPartition()


def saved(rows: MemoryPartition, segment: str) -> Position | None:
    found = rows.rows.get(position_key(GROUP, segment))
    return None if found is None else decode_position(found[1])


def contents(rows: MemoryPartition) -> dict[str, list[str]]:
    json = JsonSerializer()
    return {key.decode(): json.deserialize(value) for key, value in rows.values().items()}


# --- one process ---------------------------------------------------------------------------------


def test_events_are_folded_in_order_and_saved_with_the_position_after_them(
    rows: MemoryPartition,
) -> None:
    (update,) = Process(rows).save(share(A, "x", "y", "x"))
    assert contents(rows) == {"x": ["0", "2"], "y": ["1"]}
    assert saved(rows, A) == Position(BLOCK)
    assert update.conditions == [ABSENT, ABSENT, ABSENT]


def test_segments_of_a_round_are_saved_by_one_update(rows: MemoryPartition) -> None:
    (update,) = Process(rows).save(share(A, "x=a", "y"), share(B, "x=b"))
    assert contents(rows)["x"] == ["a", "b"]
    assert list(update.keys) == [position_key(GROUP, A), position_key(GROUP, B), b"x", b"y"]
    assert (saved(rows, A), saved(rows, B)) == (place(2), place(1))


def test_a_row_that_is_none_is_removed_and_folded_from_nothing_again(rows: MemoryPartition) -> None:
    process = Process(rows)
    process.save(share(A, "x", "x=drop"))
    assert contents(rows) == {}
    process.save(share(A, "x", "x=drop", "y", first=2))
    process.save(share(A, "x", "y=drop", first=5))
    assert contents(rows) == {"x": ["5"]}
    assert process.counts.conflicts == 0


def test_rows_and_positions_that_were_just_saved_are_not_read_again(rows: MemoryPartition) -> None:
    process = Process(rows)
    process.save(share(A, "x", "y=drop", "z"))
    process.view.begin([share(A, "x", "z", first=3)])
    assert process.read() == []
    update = process.view.next_update()
    assert update is not None
    assert update.segment_number == NUMBER
    assert isinstance(rows.perform(update), Performed)


def test_a_row_that_was_dropped_from_a_small_memory_is_read_again(rows: MemoryPartition) -> None:
    process = Process(rows, cache=600)
    process.save(share(A, "x", "y", "z"))
    process.view.begin([share(A, "x", "z", first=3)])
    assert process.read() == [b"x"]
    process.save(share(A, "x", "z", first=3))
    assert contents(rows)["x"] == ["0", "3"]


def test_a_fold_that_changes_no_row_saves_the_position_alone(rows: MemoryPartition) -> None:
    process = Process(rows, fold=lambda row, _: row or ["once"])
    process.save(share(A, "x"))
    (update,) = process.save(share(A, "x", "x", first=1))
    assert update.keys == [position_key(GROUP, A)]
    assert saved(rows, A) == Position(BLOCK)


def test_an_event_that_changed_no_row_is_skipped_when_it_comes_again(rows: MemoryPartition) -> None:
    process = Process(rows)
    process.save(share(A, "x=drop"))
    process.save(share(B, "x"))
    process.save(share(A, "x=drop"))
    assert contents(rows) == {"x": ["0"]}


def test_a_round_with_many_rows_is_saved_in_steps_that_each_hold_a_position(
    rows: MemoryPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_ROWS_MAX", 4)
    process = Process(rows)
    sent = process.save(share(A, *"abacdefa"), share(B, *"gx"))
    assert [len(update.keys) for update in sent] == [4, 4, 4, 2]
    assert contents(rows)["a"] == ["0", "2", "7"]
    assert set(contents(rows)) == set("abcdefgx")
    assert (saved(rows, A), saved(rows, B)) == (place(8), place(2))


def test_a_round_with_large_rows_is_saved_in_steps(
    rows: MemoryPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_SIZE_BYTES_MAX", 100)
    process = Process(rows)
    big = "." * 60
    sent = process.save(share(A, f"a={big}", f"b={big}", f"c={big}"), share(B, f"d={big}"))
    assert len(sent) == 4
    assert set(contents(rows)) == set("abcd")
    assert (saved(rows, A), saved(rows, B)) == (place(3), place(1))


def test_a_step_that_is_halved_twice_holds_each_segment_once(
    rows: MemoryPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_SIZE_BYTES_MAX", 100)
    monkeypatch.setattr(module, "STEP_ROWS_MAX", 6)
    process = Process(rows)
    big = "." * 60
    process.save(share(A, *(f"{row}={big}" for row in "abcdefgh")))
    assert set(contents(rows)) == set("abcdefgh")
    assert saved(rows, A) == place(8)


def test_a_row_over_the_limit_is_refused(
    rows: MemoryPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "VALUE_SIZE_BYTES_MAX", 8)
    with pytest.raises(InvalidRequest, match="too large"):
        Process(rows).save(share(A, "x=123456789"))


def test_positions_of_many_segments_are_read_again_instead_of_kept(
    rows: MemoryPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POSITIONS_MAX", 1)
    process = Process(rows)
    process.save(share(A, "x"), share(B, "y"))
    process.view.begin([share(A, "x", first=1)])
    assert process.read() == [position_key(GROUP, A)]


# --- another process -----------------------------------------------------------------------------


def test_events_that_the_rows_reflect_are_skipped(rows: MemoryPartition) -> None:
    Process(rows).save(share(A, "x", "y", "x"))
    process = Process(rows)
    process.save(share(A, "x", "y", "x", "y", "x"))
    assert contents(rows) == {"x": ["0", "2", "4"], "y": ["1", "3"]}
    assert (process.counts.skipped, process.counts.folded) == (3, 2)
    assert process.save(share(A, "x", "y")) == []


def test_an_update_of_a_process_that_was_replaced_is_refused(rows: MemoryPartition) -> None:
    zombie, owner = Process(rows), Process(rows)
    late = zombie.send(share(A, "x", "y"))
    owner.save(share(A, "x", "y", "x"))
    zombie.told(rows.perform(late))
    zombie.read()
    assert zombie.view.next_update() is None
    assert zombie.view.is_done
    assert contents(rows) == {"x": ["0", "2"], "y": ["1"]}


def test_the_owner_continues_behind_a_late_update_of_the_process_it_replaced(
    rows: MemoryPartition,
) -> None:
    zombie, owner = Process(rows), Process(rows)
    late = zombie.send(share(A, "x", "y"))
    first = owner.send(share(A, "x", "y", "x"))
    zombie.told(rows.perform(late))
    assert isinstance(rows.perform(first), Refused)
    owner.save(share(A, "x", "y", "x"))
    assert contents(rows) == {"x": ["0", "2"], "y": ["1"]}
    assert saved(rows, A) == place(3)


def test_a_row_that_another_segment_changed_is_read_and_folded_again(rows: MemoryPartition) -> None:
    one, other = Process(rows), Process(rows)
    one.save(share(A, "x"))
    other.save(share(B, "x=b"))
    one.save(share(A, "x", first=1))
    other.save(share(B, "x=c", first=1))
    assert contents(rows)["x"] == ["0", "b", "1", "c"]
    assert (one.counts.conflicts, other.counts.conflicts) == (1, 1)
    assert (one.counts.folded, other.counts.folded) == (2, 2)


def test_a_row_that_was_changed_in_place_by_the_fold_is_read_again_after_a_refusal(
    rows: MemoryPartition,
) -> None:
    one, other = Process(rows), Process(rows)
    one.save(share(A, "x"))
    update = one.send(share(A, "x", first=1))
    other.save(share(B, "y"))
    one.told(rows.perform(update))
    assert contents(rows)["x"] == ["0", "1"]


@pytest.mark.parametrize("was_performed", [True, False])
def test_after_an_unknown_outcome_the_position_row_decides(
    rows: MemoryPartition, was_performed: bool
) -> None:
    process = Process(rows)
    update = process.send(share(A, "x", "y"))
    if was_performed:
        rows.perform(update)
    process.view.unclear()
    process.read()
    again = process.view.next_update()
    assert (again is None) == was_performed
    if again is not None:
        process.told(rows.perform(again))
    assert contents(rows) == {"x": ["0"], "y": ["1"]}
    assert isinstance(rows.perform(update), Refused), "whenever it may come"


def test_an_update_of_unknown_outcome_that_comes_late_wins_or_loses_against_its_repeat(
    rows: MemoryPartition,
) -> None:
    process = Process(rows)
    update = process.send(share(A, "x"))
    process.view.unclear()
    process.read()
    again = process.view.next_update()
    rows.perform(update)
    assert again is not None
    process.told(rows.perform(again))
    process.read()
    assert process.view.next_update() is None
    assert contents(rows) == {"x": ["0"]}


# --- what cannot be ------------------------------------------------------------------------------


def test_a_position_of_a_newer_release_is_refused(rows: MemoryPartition) -> None:
    rows.rows[position_key(GROUP, A)] = (0, b"\x02")
    with pytest.raises(FormatTooNew):
        Process(rows).save(share(A, "x"))


def test_a_partition_that_becomes_another_segment_is_refused(rows: MemoryPartition) -> None:
    process = Process(rows)
    process.save(share(A, "x"))
    process.view.begin([share(A, "y", first=1)])
    keys = process.view.missing()
    with pytest.raises(BadPacket):
        process.view.found(keys, rows.look_up(keys)._replace(segment_number=NUMBER + 1))


def test_an_error_of_the_fold_is_raised_and_nothing_is_saved(rows: MemoryPartition) -> None:
    def fail(row: object, event: Event) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Process(rows, fold=fail).save(share(A, "x"))
    assert rows.rows == {}


# --- the memory of rows --------------------------------------------------------------------------


def row(size: int) -> Row:
    return Row(1, bytes(size))


def test_the_rows_that_were_used_last_are_remembered() -> None:
    memory = Rows(1_000)
    for key in (b"a", b"b", b"c"):
        memory.put(key, row(50))
    assert memory.get(b"a") == row(50)
    memory.put(b"d", row(50))
    assert memory.get(b"b") is None
    assert [memory.get(key) is not None for key in (b"a", b"c", b"d")] == [True] * 3


def test_a_row_larger_than_the_memory_is_not_remembered() -> None:
    memory = Rows(1_000)
    memory.put(b"a", row(50))
    memory.put(b"b", row(2_000))
    assert (memory.get(b"a"), memory.get(b"b")) == (None, None)


def test_a_row_is_replaced_and_forgotten() -> None:
    memory = Rows(1_000)
    for _ in range(100):
        memory.put(b"a", row(400))
    assert memory.get(b"a") is not None
    memory.drop(b"a")
    memory.drop(b"a")
    assert memory.get(b"a") is None
    for key in (b"b", b"c", b"d"):
        memory.put(key, row(50))
    memory.clear()
    assert memory.get(b"d") is None
