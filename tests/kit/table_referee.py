"""Judges everything that clients of table segments were told.

The referee knows what clients sent, what they were answered, and every block that became durable
(`table_log.py`). It holds:

- TAB-1  an update is acknowledged only once it is durable, and then it stays
- TAB-2  a request has one effect and one answer, or OutcomeUnknown, however often it arrives
- TAB-3  units are performed whole, in the order of the versions, and only if their conditions hold
- TAB-4  every read shows the entries of one moment between its beginning and its end
- TAB-5  compaction loses no entry and brings none back
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.common.errors import AnabranchError, OutcomeUnknown, SegmentSealed
from anabranch.common.model.names import SegmentKind
from anabranch.common.wire.messages import TableDescribed, TableRead, TableUpdated
from anabranch.common.wire.table_columns import ABSENT, NO_ROW, Row, decode_refusals
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    CreateOperation,
    DeleteOperation,
    Operation,
    TruncateOperation,
)
from kit.history import HistoryViolation
from kit.table_log import Entry, Sent, TableLog
from kit.virtual_time import START_MS


@dataclass(frozen=True)
class Reading:
    """A read that began at a time, when the table had at least everything before `low`."""

    log: TableLog | None
    low: int
    time_ms: int
    values: bool = True


@dataclass
class TableReferee:
    """All tables of one container."""

    logs: dict[int, TableLog] = field(default_factory=dict)
    living: dict[str, TableLog] = field(default_factory=dict)
    sent: dict[tuple[str, bytes, int], Sent] = field(default_factory=dict)
    horizon_ms: int = 0
    now_ms: int = START_MS
    """Where the clock of the next life begins."""
    counts: Counter[str] = field(default_factory=Counter)

    def note_time(self, now_ms: int) -> int:
        """A clock shows this time; returns it."""
        self.horizon_ms = max(self.horizon_ms, now_ms)
        return now_ms

    # --- what becomes durable -----------------------------------------------------------------

    def durable(self, sequence: int, operation: Operation) -> None:
        """The operation is durable; when the log is replayed, for another time."""
        match operation:
            case AppendOperation(number=number) if number in self.logs:
                self.note_time(operation.time_ms)
                self._append(self.logs[number], operation)
            case CreateOperation(segment, kind=SegmentKind.TABLE) if sequence not in self.logs:
                self.logs[sequence] = self.living[segment] = TableLog(segment, sequence)
            case TruncateOperation(segment, time_ms=time_ms, offset=offset):
                log = self.living.get(segment)
                if log is not None and offset > log.start:
                    self.note_time(time_ms)
                    log.truncate(offset, self.horizon_ms)
                    self.counts["compactions of tables"] += 1
            case DeleteOperation(segment) if segment in self.living:
                self.living.pop(segment).is_gone = True
            case _:
                pass

    def _append(self, log: TableLog, operation: AppendOperation) -> None:
        is_new = operation.offset == log.length
        data = bytes(operation.payload)
        log.append(operation.offset, data, self._sent, self.horizon_ms)
        if is_new:
            copies = log.blocks[-1].parsed.copies
            self.counts["blocks of copies" if copies else "updates of tables"] += 1

    def _sent(self, segment: str, client_id: bytes, number: int) -> Sent:
        found = self.sent.get((segment, client_id, number))
        if found is None:
            raise HistoryViolation(f"request {number} of {client_id.hex()} was never sent")
        return found

    # --- updates ------------------------------------------------------------------------------

    def answered(self, sent: Sent, told: TableUpdated) -> None:
        """The store acknowledged the request."""
        block = sent.block
        if block is None:
            raise HistoryViolation(f"{sent} was acknowledged, and is not durable")
        refusals = block.parsed.refusals
        version = ABSENT if len(refusals) == len(sent.units) else block.offset
        log = self.logs[told.segment_number]
        right = (told.version, decode_refusals(told.refused)) == (version, refusals)
        if not right or block not in log.blocks:
            raise HistoryViolation(f"{sent} was answered {told}, but is {block.parsed}")
        if sent.told not in (None, told):
            raise HistoryViolation(f"{sent} got another answer: {told}, not {sent.told}")
        if sent.told is not None:
            self.counts["repeats that got the first answer"] += 1
        sent.told = told
        log.floor = max(log.floor, block.end)
        self.counts["updates refused in part" if refusals else "updates performed"] += 1

    def failed(self, sent: Sent, error: AnabranchError) -> None:
        """The store refused the request as such, or does not know."""
        if isinstance(error, OutcomeUnknown):
            self.counts["unknown outcomes"] += 1
            if sent.attempts == 1:
                raise HistoryViolation(f"{sent} was sent once, and its outcome is unknown")
        elif isinstance(error, SegmentSealed):
            if sent.block is not None:
                raise HistoryViolation(f"{sent} was refused after it had been performed: {error}")
            sent.refused_for_good = True
        self.counts[f"updates that met {error.code}"] += 1

    # --- reads --------------------------------------------------------------------------------

    def begin(self, segment: str, now_ms: int, *, values: bool = True) -> Reading:
        """A read of the table begins, with or without `values`."""
        log = self.living.get(segment)
        return Reading(log, log.floor if log else 0, self.note_time(now_ms), values)

    def got(
        self, reading: Reading, keys: Sequence[bytes], reply: TableRead, rows: Sequence[Row]
    ) -> None:
        """The rows of these keys were read; of the first ones, if there are `more`."""
        if len(rows) > len(keys) or (len(rows) < len(keys) and not reply.more) or not rows:
            raise HistoryViolation(f"{len(keys)} keys have {len(rows)} rows")
        found = dict(zip(keys, rows, strict=False))
        self._check(reading, reply, found, lambda _: found)

    def scanned(
        self, reading: Reading, bounds: tuple[bytes, bytes], reply: TableRead, rows: Sequence[Row]
    ) -> None:
        """The entries with keys in the bounds were read; the first ones, if there are `more`."""
        start, end = bounds
        keys = [row.key for row in rows]
        if keys != sorted(set(keys)) or (reply.more and not keys):
            raise HistoryViolation(f"a scan is out of order: {keys}")
        if any(key < start or (end and key >= end) for key in keys):
            raise HistoryViolation(f"a scan of {bounds} returned {keys}")
        found = {row.key: row for row in rows}

        def expected(log: TableLog) -> Sequence[bytes]:
            last = keys[-1] if reply.more else None
            return [
                key
                for key in log.updates
                if key >= start and (not end or key < end) and (last is None or key <= last)
            ]

        self._check(reading, reply, found, expected)

    def _check(
        self,
        reading: Reading,
        reply: TableRead,
        rows: Mapping[bytes, Row],
        expected: Callable[[TableLog], Iterable[bytes]],
    ) -> None:
        log = reading.log
        if log is None or log.number != reply.segment_number:
            return
        low = max(reading.low, reply.length)
        if reply.length > log.length:
            raise HistoryViolation(f"{log.name}: read {reply.length} of {log.length} bytes")
        keys = {*rows, *expected(log)}
        low = next(position for position in log.positions(reading.low) if position >= low)
        for position in log.positions(low):
            if self._fits(log, position, reading, {key: rows.get(key, NO_ROW) for key in keys}):
                log.floor = max(log.floor, position)
                self.counts["reads of tables"] += 1
                return
        present = {key: log.entry(key, log.length) for key in sorted(keys)}
        raise HistoryViolation(
            f"{log.name}: from {reading.low} to {log.length} there was no moment with {rows}; "
            f"in the end there is {present}"
        )

    def _fits(
        self, log: TableLog, position: int, reading: Reading, rows: Mapping[bytes, Row]
    ) -> bool:
        """Whether a read may have found these rows when the log ended at the position."""
        now_ms = max(reading.time_ms, log.time_at(position))
        for key, row in rows.items():
            entry = log.entry(key, position) or Entry(ABSENT, 0, None)
            if row.version == ABSENT:
                if not entry.may_be_missed(self.horizon_ms):
                    return False
            elif (
                (row.version, row.expires_ms) != entry[:2]
                or not entry.may_be_seen(now_ms)
                or (reading.values and row.value != entry.value)
            ):
                return False
        return True

    def described(self, reading: Reading, told: TableDescribed) -> None:
        """The index was described. It counts some expired entries, and while it is being built,
        it lacks those that compaction has moved behind it."""
        log = reading.log
        if log is None or log.number != told.segment_number:
            return
        if not reading.low <= told.length <= log.length or told.indexed > told.length:
            raise HistoryViolation(f"{log.name}: {told} is not between {reading.low} and the end")
        if told.indexed < told.length:
            return
        entries = {key: log.entry(key, told.indexed) for key in log.updates}
        there = {key: found for key, found in entries.items() if found and found.value is not None}
        if all(found.expires_ms == 0 for found in there.values()):
            size = sum(len(key) + len(found.value or b"") for key, found in there.items())
            if (told.entries, told.live_size) != (len(there), size):
                raise HistoryViolation(f"{log.name}: {told}, but there are {there}")
