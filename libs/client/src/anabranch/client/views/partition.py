"""Decides the updates of a view in one partition. Pure.

    shares ──divided──► step ──missing──► look-up ──found──► folded ──next_update──► update
              ▲                                                                       │
              ├──performed: the step is done ◄────────────────────────────────────────┤
              └──refused, unclear: read again, because another process may be faster ◄─┘

A *share* is the events of one segment that belong to rows of this partition. A *step* is as many of
them as one update can save. The update holds the changed rows and the position row of every segment
in the step. Each of them is conditional on the version that was read. A position row therefore
tells exactly which events the rows reflect, in any fate of the update, and whichever process sends
it; `docs/design/client.md` has the argument. This also holds for events that change no row: if such
an event came again after a later event of its row, it might change the row.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from anabranch.client.reading.events import Event
from anabranch.client.reading.frontier import Position
from anabranch.client.serializers import Serializer, serialized
from anabranch.client.tables.lookups import Found
from anabranch.client.tables.stored import StoredUpdate
from anabranch.client.tables.units import ENTRY_OVERHEAD_BYTES, Performed, Refused
from anabranch.client.views.counts import ViewCounts
from anabranch.client.views.positions import decode_position, encode_position, position_key
from anabranch.client.views.rows import Row, Rows
from anabranch.common.errors import BadPacket, InvalidRequest
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.model.table import VALUE_SIZE_BYTES_MAX
from anabranch.common.wire.table import GET_KEYS_MAX, UPDATE_ENTRIES_MAX
from anabranch.common.wire.table_columns import ABSENT

E = TypeVar("E")
V = TypeVar("V")

STEP_ROWS_MAX = min(UPDATE_ENTRIES_MAX, GET_KEYS_MAX)
"""Rows and position rows of one step."""
STEP_SIZE_BYTES_MAX = 4 * 1024 * 1024
"""Of one update. A step of a single event may have more."""
POSITIONS_MAX = 4096
"""Positions that are kept between rounds; the others are read again."""


class SegmentShare(NamedTuple, Generic[E]):
    """Events of one segment, each with the table key of its row, and the position after them."""

    segment: str
    events: Sequence[tuple[bytes, Event[E]]]
    end: Position


class _Saved(NamedTuple):
    """A position row: its version, or ABSENT, and the position after the last saved event."""

    version: int
    position: Position


class _Sent(NamedTuple):
    """The content of the update that has no answer yet."""

    positions: Sequence[tuple[str, Position]]
    rows: Sequence[tuple[bytes, bytes | None]]


class PartitionView(Generic[E, V]):
    """One partition of a view. Call `begin`, and then `missing`, `found` and `next_update` in turn,
    until `is_done`."""

    def __init__(
        self,
        index: int,
        group: GroupRef,
        *,
        fold: Callable[[V | None, Event[E]], V | None],
        values: Serializer[V],
        rows: Rows,
        counts: ViewCounts,
    ) -> None:
        self.index = index
        self._group = group
        self._fold = fold
        self._values = values
        self._cached = rows
        self._counts = counts
        self._segment_number = 0
        self._positions: dict[str, _Saved] = {}
        self._pending: list[SegmentShare[E]] = []
        self._step: list[SegmentShare[E]] = []
        self._rows: dict[bytes, Row] = {}
        """The rows of the step, as they were read."""
        self._sent = _Sent((), ())

    def begin(self, shares: Iterable[SegmentShare[E]]) -> None:
        """Take the shares of a round. Forgets those of an unfinished one."""
        self._pending, self._step = list(shares), []
        self._rows.clear()
        if len(self._positions) > POSITIONS_MAX:
            self._positions.clear()

    @property
    def is_done(self) -> bool:
        """Whether every event is saved."""
        return not self._step and not self._pending

    # --- reading --------------------------------------------------------------------------

    def missing(self) -> list[bytes]:
        """The table keys to look up before `next_update`: position rows first, then rows."""
        self._skip_saved()
        if not self._step:
            self._step, self._pending = _divided(self._pending, STEP_ROWS_MAX)
        segments = [each.segment for each in self._step if each.segment not in self._positions]
        return [position_key(self._group, each) for each in segments] + self._missing_rows()

    def _missing_rows(self) -> list[bytes]:
        missing: list[bytes] = []
        for stored in dict.fromkeys(stored for each in self._step for stored, _ in each.events):
            if stored not in self._rows:
                row = self._cached.get(stored)
                if row is None:
                    missing.append(stored)
                else:
                    self._rows[stored] = row
        return missing

    def found(self, keys: Sequence[bytes], found: Found) -> None:
        """Take the rows of these keys, which `missing` has returned.

        Raises CorruptBlock, FormatTooNew for a position row that cannot be read; BadPacket.
        """
        if self._segment_number not in (0, found.segment_number):
            raise BadPacket("a partition has become another segment", index=self.index)
        self._segment_number = found.segment_number
        segments = {position_key(self._group, each.segment): each.segment for each in self._step}
        for key, version, value in zip(keys, found.versions, found.values, strict=True):
            if (segment := segments.get(key)) is not None:
                position = Position(0) if version == ABSENT else decode_position(value)
                self._positions[segment] = _Saved(version, position)
            else:
                self._rows[key] = Row(version, None if version == ABSENT else value)

    def _skip_saved(self) -> None:
        """Drop the events that the rows of this partition reflect already."""
        step: list[SegmentShare[E]] = []
        for share in self._step:
            saved = self._positions.get(share.segment)
            events = share.events
            if saved is not None and events[0][1].position < saved.position:
                events = [each for each in events if each[1].position >= saved.position]
                self._counts.skipped += len(share.events) - len(events)
            if events:
                step.append(share._replace(events=events))
        self._step = step

    # --- folding --------------------------------------------------------------------------

    def next_update(self) -> StoredUpdate | None:
        """The update that saves the step; None if there is nothing to save.

        Raises SerializationFailed, InvalidRequest (a row is too large), and the errors of the fold.
        """
        self._skip_saved()
        while self._step:
            changed = self._folded()
            size = sum(len(key) + len(value or b"") for key, value in changed)
            size += ENTRY_OVERHEAD_BYTES * len(changed)
            if size <= STEP_SIZE_BYTES_MAX or not self._halve():
                return self._update(changed)
        return None

    def _folded(self) -> list[tuple[bytes, bytes | None]]:
        """The rows that the step changes, with their new values; None removes."""
        fold, rows = self._fold, dict[bytes, V | None]()
        for share in self._step:
            for stored, event in share.events:
                row = rows[stored] if stored in rows else self._loaded(stored)
                rows[stored] = fold(row, event)
        changed: list[tuple[bytes, bytes | None]] = []
        for stored, row in rows.items():
            value = None if row is None else self._serialized(row)
            if value != self._rows[stored].value:
                changed.append((stored, value))
        return changed

    def _loaded(self, stored: bytes) -> V | None:
        value = self._rows[stored].value
        return None if value is None else self._values.deserialize(value)

    def _serialized(self, row: V) -> bytes:
        value = serialized(self._values, row)
        if len(value) > VALUE_SIZE_BYTES_MAX:
            raise InvalidRequest(
                "a row of a view is too large",
                remedy="fold into smaller rows", size=len(value), limit=VALUE_SIZE_BYTES_MAX,
            )  # fmt: skip
        return value

    def _halve(self) -> bool:
        """Leave half of the step's events to later steps; False if it has only one."""
        count = sum(len(each.events) for each in self._step)
        if count == 1:
            return False
        self._step, later = _divided_at(self._step, (count + 1) // 2)
        self._pending = _joined(later, self._pending)
        return True

    def _update(self, changed: Sequence[tuple[bytes, bytes | None]]) -> StoredUpdate:
        positions = [(each.segment, each.end) for each in self._step]
        self._sent = _Sent(positions, changed)
        saved = [self._positions[segment].version for segment, _ in positions]
        return StoredUpdate(
            [position_key(self._group, segment) for segment, _ in positions]
            + [stored for stored, _ in changed],
            [encode_position(end) for _, end in positions] + [value for _, value in changed],
            saved + [self._rows[stored].version for stored, _ in changed],
            self._segment_number,
        )

    # --- outcomes -------------------------------------------------------------------------

    def performed(self, outcome: Performed) -> None:
        """Note that the update was performed: the step is done."""
        version = outcome.version
        for segment, end in self._sent.positions:
            self._positions[segment] = _Saved(version, end)
            version += 1
        for stored, value in self._sent.rows:
            self._rows[stored] = Row(ABSENT if value is None else version, value)
            version += 1
        self._counts.saved += len(self._sent.rows)
        for stored, row in self._rows.items():
            self._cached.put(stored, row)
        self._end_step()

    def refused(self, outcome: Refused) -> None:
        """Note that another process has changed a row of the update: all of them are read again.

        If it is a position row, the other process has the segment now, or had it before.
        """
        self._counts.conflicts += 1
        if outcome.entry < len(self._sent.positions):
            del self._positions[self._sent.positions[outcome.entry][0]]
        self._forget_rows()

    def unclear(self) -> None:
        """Note that the update may have been performed, and may still be: the position rows say."""
        for segment, _ in self._sent.positions:
            del self._positions[segment]
        self._forget_rows()

    def _forget_rows(self) -> None:
        for stored in self._rows:
            self._cached.drop(stored)
        self._rows.clear()

    def _end_step(self) -> None:
        self._counts.folded += sum(len(each.events) for each in self._step)
        self._step = []
        self._rows.clear()


def _divided(
    shares: Sequence[SegmentShare[E]], rows_max: int
) -> tuple[list[SegmentShare[E]], list[SegmentShare[E]]]:
    """The first events, with at most so many rows and position rows, and the others."""
    if sum(len(each.events) + 1 for each in shares) <= rows_max:
        return list(shares), []
    rows = set[bytes]()
    count = 0
    for positions, share in enumerate(shares, 1):
        for stored, _ in share.events:
            rows.add(stored)
            if len(rows) + positions > rows_max:
                return _divided_at(shares, count)
            count += 1
    return list(shares), []


def _divided_at(
    shares: Sequence[SegmentShare[E]], count: int
) -> tuple[list[SegmentShare[E]], list[SegmentShare[E]]]:
    """The first `count` events, and the others."""
    first: list[SegmentShare[E]] = []
    for number, share in enumerate(shares):
        if count >= len(share.events):
            first.append(share)
            count -= len(share.events)
        elif count:
            here, there = share.events[:count], share.events[count:]
            first.append(SegmentShare(share.segment, here, there[0][1].position))
            return first, [share._replace(events=there), *shares[number + 1 :]]
        else:
            return first, list(shares[number:])
    return first, []


def _joined(
    first: Sequence[SegmentShare[E]], others: Sequence[SegmentShare[E]]
) -> list[SegmentShare[E]]:
    """All of them, with the two parts of a divided share as one."""
    if first and others and first[-1].segment == others[0].segment:
        events = [*first[-1].events, *others[0].events]
        return [*first[:-1], others[0]._replace(events=events), *others[1:]]
    return [*first, *others]
