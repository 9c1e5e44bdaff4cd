"""Table segments in memory, with no index, no log and no recovery.

`FakeTable` is the plainest thing that keeps the contract of a table segment: a dict of entries, the
blocks as they would be stored, and the answers to the last requests of each client.
"""

from dataclasses import dataclass, field

from anabranch.common.contracts.tables import (
    TableDescription,
)
from anabranch.common.errors import (
    BadPacket,
    InvalidRequest,
    NotAtBoundary,
    OutcomeUnknown,
    SegmentSealed,
)
from anabranch.common.wire.messages import (
    REQUESTS_REMEMBERED,
    DescribeTable,
    GetEntries,
    Message,
    Request,
    ScanEntries,
    TableDescribed,
    TableRead,
    TableUpdated,
    UpdateTable,
)
from anabranch.common.wire.table import (
    GET_KEYS_MAX,
    UPDATE_ENTRIES_MAX,
    UPDATE_SIZE_BYTES_MAX,
    Copied,
    TableBlock,
    check_sizes,
    encode_copies,
    kept_entries,
    parse_table_block,
    stamped,
)
from anabranch.common.wire.table_columns import (
    ABSENT,
    ANY,
    NO_ROW,
    Refusal,
    Row,
    decode_keys,
    decode_numbers,
    encode_refusals,
    encode_rows,
    in_columns,
)
from kit.fake_segment import FakeSegment
from kit.fake_segstore import FakeSegmentStore


@dataclass
class FakeTable(FakeSegment):
    """A table segment. `number`: of its life; `entries`: table key → its row."""

    number: int = 1
    entries: dict[bytes, Row] = field(default_factory=dict)
    answers: dict[bytes, dict[int, TableUpdated]] = field(default_factory=dict)
    """By client and request number."""
    updates: list[TableBlock] = field(default_factory=list)
    """The blocks that updates have left, with the performed entries alone."""

    def answer(self, request: Request, payload: bytes) -> tuple[Message, bytes]:
        match request:
            case UpdateTable():
                return self._update(request, payload), b""
            case GetEntries():
                return self._get(request, payload)
            case ScanEntries():
                return self._scan(request)
            case DescribeTable():
                return self._described(), b""
        raise AssertionError(request)

    def restarted(self) -> None:
        """Requests that were refused as a whole are not in the log, and so forgotten."""
        for answers in self.answers.values():
            for number, told in tuple(answers.items()):
                if told.version == ABSENT:
                    del answers[number]

    # --- updates --------------------------------------------------------------------------

    def _update(self, request: UpdateTable, payload: bytes) -> TableUpdated:
        block = self._checked(request, payload)
        conditions, units = _terms(request, len(block.keys))
        answers = self.answers.setdefault(request.client_id, {})
        if request.request_number in answers:
            return answers[request.request_number]
        if request.request_number <= max(answers, default=0) - REQUESTS_REMEMBERED:
            raise OutcomeUnknown("no longer remembered", request=request.request_number)
        if self.sealed:
            raise SegmentSealed("the segment is sealed")
        same_life = request.segment_number == self.number
        kept, refusals = self._decided(block, conditions, units, same_life)
        offset = len(self.data)
        self._append(stamped(kept_entries(payload, kept, refusals), self.now_ms))
        told = TableUpdated(
            segment_number=self.number,
            version=offset if kept else ABSENT,
            refused=encode_refusals(refusals),
        )
        answers[request.request_number] = told
        if len(answers) > REQUESTS_REMEMBERED:
            del answers[min(answers)]
        return told

    def _checked(self, request: UpdateTable, payload: bytes) -> TableBlock:
        if len(payload) > UPDATE_SIZE_BYTES_MAX:
            raise InvalidRequest("too large", size=len(payload))
        block = parse_table_block(payload, 0)
        if not 0 < len(block.keys) <= UPDATE_ENTRIES_MAX:
            raise InvalidRequest("no entry, or too many", entries=len(block.keys))
        check_sizes(block)
        told = (block.client_id, block.request_number)
        if told != (request.client_id, request.request_number) or request.request_number < 1:
            raise InvalidRequest("the block and the request disagree")
        if block.copies or block.refusals or len(request.client_id) != 16:
            raise InvalidRequest("not an update")
        return block

    def _decided(
        self, block: TableBlock, conditions: list[int], units: list[int], same_life: bool
    ) -> tuple[list[int], list[Refusal]]:
        """The entries that are performed, and the refusals: each unit sees those before it."""
        versions = {key: row.version for key, row in self.entries.items() if self._lives(row)}
        kept: list[int] = []
        refusals: list[Refusal] = []
        first = 0
        for unit, count in enumerate(units):
            tried = dict(versions)
            for entry in range(first, first + count):
                key, wanted = block.keys[entry], conditions[entry]
                present = tried.get(key, ABSENT)
                if wanted != ANY and (wanted != present or (wanted >= 0 and not same_life)):
                    refusals.append(Refusal(unit, entry, present))
                    break
                tried[key] = len(self.data) + len(kept) + entry - first
                if block.values[entry] is None:
                    del tried[key]
            else:
                versions = tried
                kept += range(first, first + count)
            first += count
        return kept, refusals

    def _append(self, payload: bytes) -> None:
        """What is stored is what counts: the entries follow from the block."""
        block = parse_table_block(payload, len(self.data))
        if not block.copies:
            self.updates.append(block)
        self.data += payload
        self.boundaries.append(len(self.data))
        self.times.append(self.now_ms)
        columns = zip(block.keys, block.versions, block.expires_ms, block.values, strict=True)
        for key, version, expires_ms, value in columns:
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = Row(key, version, expires_ms, value)

    def compact(self, offset: int) -> None:
        """Copy the present entries of the blocks before a boundary to the end, and truncate."""
        if offset not in self.boundaries:
            raise NotAtBoundary("no block ends there", offset=offset)
        old = [row for row in self.entries.values() if row.version < offset and self._lives(row)]
        if old:
            copies = [Copied(row.key, row.version, row.expires_ms, row.value) for row in old]
            self._append(
                encode_copies(copies, client_id=bytes(16), request_number=1, time_ms=self.now_ms)
            )
        self.entries = {key: row for key, row in self.entries.items() if self._lives(row)}
        self.truncate(offset)

    # --- reads ----------------------------------------------------------------------------

    def _lives(self, row: Row) -> bool:
        return not 0 < row.expires_ms <= self.now_ms

    def _read_of(self, rows: list[Row], *, more: bool) -> tuple[Message, bytes]:
        told = TableRead(segment_number=self.number, length=len(self.data), more=more)
        return told, encode_rows(in_columns(rows))

    def _get(self, request: GetEntries, payload: bytes) -> tuple[Message, bytes]:
        keys = decode_keys(payload)
        if len(keys) > GET_KEYS_MAX:
            raise InvalidRequest("too many keys", keys=len(keys))
        rows: list[Row] = []
        size = 0
        for key in keys:
            row = self.entries.get(key)
            row = NO_ROW if row is None or not self._lives(row) else row._replace(key=b"")
            size += len(row.value)
            if rows and size > request.size_max:
                return self._read_of(rows, more=True)
            rows.append(row)
        return self._read_of(rows, more=False)

    def _scan(self, request: ScanEntries) -> tuple[Message, bytes]:
        rows: list[Row] = []
        size = 0
        for key in sorted(self.entries):
            row = self.entries[key]
            in_range = key >= request.start and (not request.end or key < request.end)
            if not in_range or not self._lives(row):
                continue
            row = row if request.values else row._replace(value=b"")
            size += len(key) + len(row.value)
            if rows and (len(rows) == request.count_max or size > request.size_max):
                return self._read_of(rows, more=True)
            rows.append(row)
        return self._read_of(rows, more=False)

    def _described(self) -> TableDescribed:
        size = sum(len(row.key) + len(row.value) for row in self.entries.values())
        return TableDescribed(
            segment_number=self.number, start=self.start, length=len(self.data),
            indexed=len(self.data), entries=len(self.entries), live_size=size, sealed=self.sealed,
        )  # fmt: skip


def _terms(request: UpdateTable, count: int) -> tuple[list[int], list[int]]:
    """(conditions, units), one condition for each entry."""
    conditions = list(decode_numbers(request.conditions, "q")) or [ANY] * count
    units = list(decode_numbers(request.units, "I")) or [count]
    if len(conditions) != count or min(conditions) < ANY:
        raise BadPacket("the conditions do not fit the entries")
    if sum(units) != count or not all(units):
        raise InvalidRequest("the units do not fit the entries")
    return conditions, units


def segments_of(described: TableDescription, store: FakeSegmentStore) -> list[FakeTable]:
    """The table segments of the partitions."""
    found = [store.segments[each.segment] for each in described.partitions]
    assert all(isinstance(each, FakeTable) for each in found)
    return [each for each in found if isinstance(each, FakeTable)]
