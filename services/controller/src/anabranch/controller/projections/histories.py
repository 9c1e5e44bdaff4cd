"""Histories of streams, assembled from history chunks and the stream's state.

Owns: the most recently used histories, up to a number of segments. Changes need no invalidation:
epochs never change, so a kept history lacks only the latest epochs, and these are in the stream's
state or in chunks. A caller that cannot wait uses `known`, which raises `HistoryNotLoaded` if it
would have to.
"""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from anabranch.common.contracts.subjects import stream_history
from anabranch.common.errors import CorruptEvent
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.model.names import StreamRef
from anabranch.controller.domain.stream.archive import decode_chunk, encode_chunk, holds
from anabranch.controller.domain.stream.history import EpochRecord, History
from anabranch.controller.domain.stream.state import Stream

KEPT_SEGMENTS_MAX = 100_000
"""The total over all kept histories; a segment takes about 400 bytes."""


class HistoryNotLoaded(Exception):
    """The epochs of `stream` are not all in memory; `Histories.of` fetches them."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(str(stream.ref))
        self.stream = stream


class Histories:
    """See `StreamHistories`. A stream that was never created, or is deleted, has no history."""

    def __init__(self, chunks: HistoryChunks) -> None:
        self._chunks = chunks
        self._kept: OrderedDict[tuple[StreamRef, int], History] = OrderedDict()
        self._segment_count = 0

    async def of(self, stream: Stream) -> History:
        """All epochs of the stream. Raises Unavailable, CorruptEvent, FormatTooNew."""
        try:
            return self.known(stream)
        except HistoryNotLoaded:
            records = await self._archived(stream)
            return self._keep(stream, History([*records, *stream.epochs]))

    async def once(self, stream: Stream) -> History:
        """As `of`, for a caller that looks at every stream and seldom comes back.

        A history that the stream's state has anyway is not kept.
        """
        if stream.archived_epochs or _key(stream) in self._kept:
            return await self.of(stream)
        return _whole(stream, History(stream.epochs))

    async def archive(self, stream: Stream, epochs: Sequence[EpochRecord]) -> None:
        """Store the stream's next history chunk. Idempotent. Raises Unavailable, CorruptEvent."""
        subject = _subject(stream, stream.archived_chunks)
        await self._chunks.put(subject, encode_chunk(epochs), partial(holds, epochs=epochs))

    def known(self, stream: Stream) -> History:
        """All epochs of the stream, without waiting. Raises HistoryNotLoaded."""
        kept = self._kept.get(_key(stream))
        if kept is None or len(kept.records) < stream.archived_epochs:
            if stream.archived_epochs:
                raise HistoryNotLoaded(stream)
            return self._keep(stream, History(stream.epochs))
        if len(kept.records) > stream.stream_epoch + 1:  # `stream` is an older state
            return History(kept.records[: stream.stream_epoch + 1])
        missing = [r for r in stream.epochs if r.stream_epoch >= len(kept.records)]
        return self._keep(stream, kept.extended(*missing) if missing else kept)

    async def _archived(self, stream: Stream) -> list[EpochRecord]:
        records: list[EpochRecord] = []
        for chunk in range(stream.archived_chunks):
            body = await self._chunks.read(_subject(stream, chunk))
            records.extend(decode_chunk(body, len(records)))
        if len(records) != stream.archived_epochs:
            raise CorruptEvent(
                "history chunks hold other epochs than the stream's state says",
                stream=str(stream.ref),
                expected=stream.archived_epochs,
                found=len(records),
            )
        return records

    def _keep(self, stream: Stream, history: History) -> History:
        history = _whole(stream, history)
        before = self._kept.pop(_key(stream), None)
        self._kept[_key(stream)] = history
        self._segment_count += len(history.lives) - (len(before.lives) if before else 0)
        while self._segment_count > KEPT_SEGMENTS_MAX and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._segment_count -= len(oldest.lives)
        return history


def _whole(stream: Stream, history: History) -> History:
    """The history with the end of a sealed stream."""
    return history.ended(stream.sealed) if stream.sealed and not history.is_ended else history


def _subject(stream: Stream, chunk: int) -> str:
    assert stream.ref is not None
    return stream_history(stream.ref, stream.incarnation, chunk)


def _key(stream: Stream) -> tuple[StreamRef, int]:
    assert stream.ref is not None
    return stream.ref, stream.incarnation
