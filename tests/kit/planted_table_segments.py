"""Known bugs of table segments, planted on purpose: the simulation must find each of them.

Each is a context manager under which a store behaves as if one line were missing or wrong.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

from msgspec import structs

from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.block import parse_header
from anabranch.common.wire.messages import Request, UpdateTable
from anabranch.common.wire.table import (
    Copied,
    TableBlock,
    encode_copies,
    kept_entries,
    parse_table_block,
)
from anabranch.common.wire.table_columns import EntryColumns, Refusal
from anabranch.segstore.adapters.table_index import index as row_indexes
from anabranch.segstore.adapters.table_index.rows import _ENTRY, _VALUE, STATE, head
from anabranch.segstore.domain.container.answer import VERBS
from anabranch.segstore.domain.container.circumstances import Answer, Circumstances, InIndex
from anabranch.segstore.domain.container.decide import NO_CHANGE
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.operations import AppendOperation, Operation
from anabranch.segstore.domain.table import answer as answers
from anabranch.segstore.domain.table.answer import CompactTable
from anabranch.segstore.domain.table.decide import Present, Terms, decide_units
from anabranch.segstore.domain.table.space import Latest, Window
from anabranch.segstore.domain.table.tail import (
    Findings,
    TableChange,
    TableTail,
    TailEntry,
    change_of,
)
from anabranch.segstore.ports_table import IndexState, TableIndex
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.tables import indexer as indexers
from anabranch.segstore.shell.tables import passes
from anabranch.segstore.shell.tables.compactor import Compactor
from anabranch.segstore.shell.tables.indexer import Indexer, Ready
from anabranch.segstore.shell.tables.parts import HotEntries
from anabranch.segstore.shell.tables.passes import IndexPass
from anabranch.segstore.shell.tables.tables import Tables

Planted = Callable[[], AbstractContextManager[object]]


def _answer(request: type[Request], careless: Callable[..., Any]) -> AbstractContextManager[object]:
    rows = cast("dict[type[Request], Any]", VERBS)
    return patch.dict(rows, {request: replace(rows[request], answer=careless)})


# --- decisions ------------------------------------------------------------------------------------


def findings_not_checked() -> AbstractContextManager[object]:
    """A finding of the index is believed, although the tail has dropped updates since."""

    def valid(
        _tail: TableTail, known: SegmentState, findings: Findings | None, _keys: frozenset[bytes]
    ) -> Findings | None:
        return findings if findings is not None and findings.number == known.number else None

    return patch.object(answers, "_valid", valid)


def expired_kept_by_conditions() -> AbstractContextManager[object]:
    """A condition sees an entry that has expired."""

    def version_of(entry: TailEntry | None, _now_ms: int) -> int:
        return entry.version if entry is not None and entry.value is not None else -1

    return patch.object(answers, "version_of", version_of)


def units_not_whole() -> AbstractContextManager[object]:
    """The entries of a refused unit before the one that is refused are performed."""
    real = decide_units

    def decide(
        block: TableBlock, terms: Terms, offset: int, present: Present, *, same_life: bool
    ) -> tuple[Sequence[int], tuple[Refusal, ...]]:
        kept, refusals = real(block, terms, offset, present, same_life=same_life)
        firsts = {unit: first for unit, first, _ in terms.spans()}
        more = [at for each in refusals for at in range(firsts[each.unit], each.entry)]
        return sorted([*kept, *more]), refusals

    return patch.object(answers, "decide_units", decide)


def refusals_forgotten() -> AbstractContextManager[object]:
    """A request is answered that it is refused, and the log does not have it."""
    real = answers.answer_update_table

    def careless(state: SegmentMap, request: Any, around: Circumstances) -> Answer | InIndex:
        answer = real(state, request, around)
        if isinstance(answer, Answer) and isinstance(answer.decision, AppendOperation):
            change = answer.decision.change
            if change is not None and not change.block.keys:
                return replace(answer, decision=NO_CHANGE)
        return answer

    return _answer(UpdateTable, careless)


def index_not_asked_for_repeats() -> AbstractContextManager[object]:
    """A repeat is recognised only as long as its first performance is in the tail."""
    return patch.object(answers, "_new_since", lambda known, *_: known.length)


def rebuilt_index_knows_all() -> AbstractContextManager[object]:
    """What an index that was built anew does not remember was never performed."""
    real = answers._valid

    def careless(
        tail: TableTail, known: SegmentState, findings: Findings | None, keys: frozenset[bytes]
    ) -> Findings | None:
        valid = real(tail, known, findings, keys)
        return valid and replace(valid, complete_from=0)

    return patch.object(answers, "_valid", careless)


def window_not_heeded() -> AbstractContextManager[object]:
    """What is older than the remembered requests was never performed."""
    answer = answers.answer_update_table

    def careless(state: SegmentMap, request: Any, around: Circumstances) -> Answer | InIndex:
        with patch.object(answers, "REQUESTS_REMEMBERED", 1 << 30):
            return answer(state, request, around)

    return _answer(UpdateTable, careless)


def time_moves_back() -> AbstractContextManager[object]:
    """A table is of the time of its store's clock."""
    return patch.object(answers, "time_in", lambda _known, now_ms: now_ms)


@contextmanager
def batch_in_two_operations() -> Iterator[None]:
    """The refusals of an update and its entries are logged by two operations."""
    real = Container._perform

    def perform(self: Container, decision: Any) -> None:
        change = decision.change if isinstance(decision, AppendOperation) else None
        if change is None or change.block.copies or len(change.block.keys) < 2:
            real(self, decision)
            return
        for part in _halves(decision):
            real(self, part)

    with patch.object(Container, "_perform", perform):
        yield


def _halves(operation: AppendOperation) -> Iterator[Operation]:
    payload = bytes(operation.payload)
    count = parse_header(payload).event_count
    offset = operation.offset
    for kept in (range(count // 2), range(count // 2, count)):
        data = kept_entries(payload, kept, ())
        change = change_of(parse_table_block(data, offset), offset, data)
        yield structs.replace(
            operation, offset=offset, payload=data, payload_crc=change.crc, change=change,
            event_count=len(kept),
        )  # fmt: skip
        offset += len(data)


# --- the tail and the index -----------------------------------------------------------------------


@contextmanager
def requests_not_indexed() -> Iterator[None]:
    """The index gets the entries of updates, and not their requests."""
    real = passes.merged

    def merged(changes: Iterable[TableChange]) -> IndexPass:
        return replace(real(changes), requests={})

    with patch.object(indexers, "merged", merged), patch.object(passes, "merged", merged):
        yield


def removals_not_indexed() -> AbstractContextManager[object]:
    """The row of a key stays when the key is removed."""
    real = indexers.Indexer._found

    async def found(self: Indexer, known: SegmentState, state: IndexState) -> IndexPass:
        merged = await real(self, known, state)
        values = enumerate(merged.entries.values)
        puts = [at for at, value in values if value is not None]
        return replace(merged, entries=merged.entries.at(puts))

    return patch.object(Indexer, "_found", found)


def anchor_not_checked() -> AbstractContextManager[object]:
    """An index is continued, whatever its last block was."""

    async def continues(_self: Indexer, known: SegmentState, state: IndexState) -> bool:
        return known.start <= state.indexed <= known.length

    return patch.object(Indexer, "_continues", continues)


def continued_behind_a_truncation() -> AbstractContextManager[object]:
    """An index that ends before the segment's start is continued from there."""
    real = Indexer._state

    async def state_of(self: Indexer, known: SegmentState) -> IndexState:
        stored = self._states.get(known.number)
        if stored is None:
            stored = await self._held.read(lambda index: index.state(known.number))
        if stored is None or stored.indexed >= known.start:
            return await real(self, known)

        def skip(index: TableIndex) -> IndexState:
            anchor = (stored.anchor, stored.anchor_crc)
            return index.write(stored, known.start, anchor, EntryColumns((), (), (), ()), {})

        self._states[known.number] = await self._held.write(skip)
        return self._states[known.number]

    return patch.object(Indexer, "_state", state_of)


def rebuilt_over_old_rows() -> AbstractContextManager[object]:
    """The rows of an index that does not fit stay when it is built anew."""

    def clear(index: Any, number: int) -> None:
        key = head(number, STATE)
        index._rows.delete_range(key, key + b"\0")

    return patch.object(row_indexes.RowIndex, "clear", clear)


def damage_not_noticed() -> AbstractContextManager[object]:
    """The checksums of rows are not verified."""

    def decode(keys: Sequence[bytes], rows: Sequence[bytes]) -> EntryColumns:
        heads = [_ENTRY.unpack_from(row) for row in rows]
        versions, expires_ms = [at for at, _ in heads], [until for _, until in heads]
        return EntryColumns(keys, versions, expires_ms, [row[_VALUE] for row in rows])

    return patch.object(row_indexes, "decode_entries", decode)


def tail_dropped_before_it_is_indexed() -> AbstractContextManager[object]:
    """Updates count as indexed when they are handed to the index, and leave the tails at once."""

    async def index(self: Indexer, known: SegmentState, state: IndexState) -> None:
        number = known.number
        found = await self._found(known, state)
        self._states[number] = replace(state, indexed=found.end)
        self._drop(number, found.end)

        def write(index: TableIndex) -> None:
            self._states[number] = index.write(
                state, found.end, found.anchor, found.entries, found.requests
            )

        await self._held.write(write)

    return patch.object(Indexer, "_pass", index)


def hot_entry_not_replaced() -> AbstractContextManager[object]:
    """An entry that was read stays as it was when the tail drops a later one."""
    return patch.object(HotEntries, "replace", lambda *_: None)


def reads_not_joined() -> AbstractContextManager[object]:
    """A get of many keys does not look at the tail again after the index was read."""
    real = Tables._find

    async def find(self: Tables, segment: str, keys: Sequence[bytes], *, keep: bool) -> Any:
        before = self._in_memory(self._known(segment).number, keys)
        known, found = await real(self, segment, keys, keep=keep)
        return known, found | before

    return patch.object(Tables, "_find", find)


@contextmanager
def scan_does_not_wait() -> Iterator[None]:
    """A scan reads what the index has, which may lack acknowledged updates."""
    real, scan = Indexer.ready, Tables.scan
    scans = ContextVar("scans", default=False)

    async def ready(self: Indexer, number: int, offset: int) -> Ready:
        return await real(self, number, 0 if scans.get() else offset)

    async def hasty(self: Tables, request: Any) -> Any:
        scans.set(True)
        return await scan(self, request)

    with patch.object(Indexer, "ready", ready), patch.object(Tables, "scan", hasty):
        yield


# --- compaction -----------------------------------------------------------------------------------


def copied_without_condition() -> AbstractContextManager[object]:
    """A copy is appended whatever happened to its key since."""
    real = answers.answer_compact

    def careless(state: SegmentMap, request: CompactTable, around: Circumstances) -> Any:
        with patch.object(answers, "_is_present", lambda _entry, _version: True):
            return real(state, request, around)

    return _answer(CompactTable, careless)


def truncated_before_copied() -> AbstractContextManager[object]:
    """The log is truncated before its live entries are copied."""
    real = Compactor._ask

    async def move(self: Compactor, known: SegmentState, window: Window, latest: Latest) -> None:
        held: list[tuple[Any, Any]] = []

        async def later(request: Any, given: Any) -> None:
            if isinstance(request, CompactTable):
                held.append((request, given))
            else:
                await real(self, request, given)
                for each in held:
                    await real(self, *each)

        with patch.object(self, "_ask", later):
            await moved(self, known, window, latest)

    moved = Compactor._move
    return patch.object(Compactor, "_move", move)


def copies_get_new_versions() -> AbstractContextManager[object]:
    """A copy is an update: its entries have the versions of their new places."""
    real = answers.answer_compact

    def careless(state: SegmentMap, request: CompactTable, around: Circumstances) -> Any:
        answer = real(state, request, around)
        if isinstance(answer, Answer) and isinstance(answer.decision, AppendOperation):
            change = answer.decision.change
            assert change is not None
            data = bytes(answer.decision.payload)
            block = parse_table_block(data, 0)
            copies = [
                Copied(key, change.offset + at, until, value or b"")
                for at, (key, until, value) in enumerate(
                    zip(block.keys, block.expires_ms, block.values, strict=True)
                )
            ]
            payload = encode_copies(
                copies, client_id=block.client_id, request_number=1, time_ms=block.time_ms
            )
            new = change_of(parse_table_block(payload, change.offset), change.offset, payload)
            decision = structs.replace(
                answer.decision, payload=payload, payload_crc=new.crc, change=new
            )
            return replace(answer, decision=decision)
        return answer

    return _answer(CompactTable, careless)


TABLE_BUGS: dict[str, Planted] = {
    "findings not checked": findings_not_checked,
    "expired kept by conditions": expired_kept_by_conditions,
    "units not whole": units_not_whole,
    "refusals forgotten": refusals_forgotten,
    "index not asked for repeats": index_not_asked_for_repeats,
    "rebuilt index knows all": rebuilt_index_knows_all,
    "window not heeded": window_not_heeded,
    "time moves back": time_moves_back,
    "batch in two operations": batch_in_two_operations,
    "requests not indexed": requests_not_indexed,
    "removals not indexed": removals_not_indexed,
    "anchor not checked": anchor_not_checked,
    "continued behind a truncation": continued_behind_a_truncation,
    "rebuilt over old rows": rebuilt_over_old_rows,
    "damage not noticed": damage_not_noticed,
    "tail dropped before it is indexed": tail_dropped_before_it_is_indexed,
    "hot entry not replaced": hot_entry_not_replaced,
    "reads not joined": reads_not_joined,
    "scan does not wait": scan_does_not_wait,
    "copied without condition": copied_without_condition,
    "truncated before copied": truncated_before_copied,
    "copies get new versions": copies_get_new_versions,
}
