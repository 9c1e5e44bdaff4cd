"""Chunks of the outcomes of transactions that have left their streams' states.

Owns: the most recently used chunks, and indexes of the outcomes in the states of the streams that
were asked about last. A chunk never changes. The stream's state names the lowest and the highest
transaction id of each chunk, and so the chunks that may hold a transaction.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from anabranch.common.contracts.subjects import (
    transaction_events,
    transaction_leftovers,
    transaction_outcomes,
    transaction_slot,
)
from anabranch.common.errors import CorruptEvent, FormatTooNew, ObjectNotFound
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.message import KIND_CHUNK
from anabranch.common.eventsourcing.ports import EventMessage
from anabranch.common.model.names import StreamRef
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream.commits import Outcome, Outcomes
from anabranch.controller.domain.stream.state import Stream

CHUNK_FORMAT = 1
KEPT_CHUNKS_MAX = 64
INDEXED_STREAMS_MAX = 64
FORGOTTEN_AT_ONCE_MAX = 8
SLOTS_AT_ONCE_MAX = 4


@dataclass(frozen=True, slots=True)
class _Chunk:
    format: int
    outcomes: Outcomes


_CHUNKS = TypeAdapter(_Chunk)


class _Index(NamedTuple):
    outcomes: Outcomes
    by_id: Mapping[str, Outcome]


class OutcomeHistory:
    """See `OutcomeChunks`."""

    def __init__(self, chunks: HistoryChunks) -> None:
        self._chunks = chunks
        self._kept: OrderedDict[str, dict[str, Outcome]] = OrderedDict()
        self._indexes: OrderedDict[StreamRef, _Index] = OrderedDict()

    async def archive(self, stream: Stream, outcomes: Sequence[Outcome]) -> None:
        """See `OutcomeChunks.archive`."""
        last = stream.outcome_chunks[-1].chunk if stream.outcome_chunks else -1
        body = _CHUNKS.dump_json(_Chunk(CHUNK_FORMAT, tuple(outcomes)))
        await self._chunks.put(_subject(stream, last + 1), body)

    async def forget(self, stream: Stream, chunks: Sequence[int]) -> None:
        """See `OutcomeChunks.forget`."""

        async def forget(chunk: int) -> None:
            await self._chunks.delete(_subject(stream, chunk))

        await for_each(chunks, FORGOTTEN_AT_ONCE_MAX, forget)

    async def forget_all(self, stream: Stream, below_sequence: int) -> None:
        """See `OutcomeChunks.forget_all`."""
        assert stream.ref is not None
        for pattern in transaction_leftovers(stream.ref, stream.incarnation):
            await self._chunks.delete_all(pattern, below_sequence)

    async def unpurged(self, stream: Stream, chunk: int) -> Sequence[Outcome]:
        """See `OutcomeChunks.unpurged`."""
        assert stream.ref is not None
        ref, incarnation = stream.ref, stream.incarnation
        found = (await self._read(_subject(stream, chunk))).values()
        by_subject = {transaction_events(ref, incarnation, o.transaction_id): o for o in found}
        held: set[str] = set()

        async def look(slot: str) -> None:
            held.update(await self._chunks.held(slot))

        slots = sorted({transaction_slot(subject) for subject in by_subject})
        await for_each(slots, SLOTS_AT_ONCE_MAX, look)
        return [outcome for subject, outcome in by_subject.items() if subject in held]

    async def find(self, stream: Stream, transaction: str) -> Outcome | None:
        """See `OutcomeChunks.find`."""
        if (recent := self._recent(stream).get(transaction)) is not None:
            return recent
        for chunk in reversed(stream.outcome_chunks):
            if chunk.may_hold(transaction):
                found = (await self._read(_subject(stream, chunk.chunk))).get(transaction)
                if found is not None:
                    return found
        return None

    def _recent(self, stream: Stream) -> Mapping[str, Outcome]:
        """The outcomes in the stream's state by id. Looking for each submission, most of which are
        new, would go through all of them."""
        assert stream.ref is not None
        index = self._indexes.pop(stream.ref, None)
        if index is None or index.outcomes is not stream.outcomes:
            by_id = {outcome.transaction_id: outcome for outcome in stream.outcomes}
            index = _Index(stream.outcomes, by_id)
        self._indexes[stream.ref] = index
        if len(self._indexes) > INDEXED_STREAMS_MAX:
            self._indexes.popitem(last=False)
        return index.by_id

    async def _read(self, subject: str) -> dict[str, Outcome]:
        kept = self._kept.pop(subject, None)
        if kept is None:
            try:
                body = await self._chunks.read(subject)
            except ObjectNotFound:  # deleted meanwhile
                return {}
            kept = {outcome.transaction_id: outcome for outcome in _decoded(body)}
        self._kept[subject] = kept
        while len(self._kept) > KEPT_CHUNKS_MAX:
            self._kept.popitem(last=False)
        return kept


def outcomes_of(message: EventMessage) -> Sequence[Outcome]:
    """The outcomes in a chunk, from its message. Raises CorruptEvent, FormatTooNew."""
    if message.kind != KIND_CHUNK:
        raise CorruptEvent(
            "a message is not a chunk of outcomes",
            subject=message.subject, sequence=message.sequence,
        )  # fmt: skip
    return _decoded(message.body)


def _decoded(body: bytes) -> Sequence[Outcome]:
    try:
        chunk = _CHUNKS.validate_json(body)
    except ValidationError as error:
        raise CorruptEvent("a chunk of outcomes cannot be understood") from error
    if chunk.format > CHUNK_FORMAT:
        raise FormatTooNew(
            "a newer release wrote a chunk of outcomes",
            found=chunk.format,
            supported=CHUNK_FORMAT,
        )
    return chunk.outcomes


def _subject(stream: Stream, chunk: int) -> str:
    assert stream.ref is not None
    return transaction_outcomes(stream.ref, stream.incarnation, chunk)
