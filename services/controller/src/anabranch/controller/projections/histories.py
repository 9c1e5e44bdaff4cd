"""Histories of streams: what history chunks hold and what the state keeps, put together.

Owns: the histories asked for last. Nothing has to be told of changes: epochs never change, so a
history that was kept only lacks the epochs since, and these are in the stream's state or in chunks.
Who cannot wait asks `known`, and is told by `HistoryNotLoaded` when he has to.
"""

from collections import OrderedDict

from anabranch.common.contracts.subjects import stream_history
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.model.names import StreamRef
from anabranch.controller.domain.stream.archive import decode_chunk
from anabranch.controller.domain.stream.history import EpochRecord, History
from anabranch.controller.domain.stream.state import Stream

KEPT_EPOCHS_MAX = 50_000
"""Of all histories that are kept, together; an epoch takes about a kilobyte."""


class HistoryNotLoaded(Exception):
    """The epochs of `stream` are not all in memory; `Histories.of` fetches them."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(str(stream.ref))
        self.stream = stream


class Histories:
    """See `StreamHistories`. A stream that was never created, or is deleted, has none."""

    def __init__(self, chunks: HistoryChunks) -> None:
        self._chunks = chunks
        self._kept: OrderedDict[tuple[StreamRef, int], History] = OrderedDict()
        self._epoch_count = 0

    async def of(self, stream: Stream) -> History:
        """All epochs of the stream. Raises Unavailable, CorruptEvent, FormatTooNew."""
        try:
            return self.known(stream)
        except HistoryNotLoaded:
            records = await self._archived(stream)
            return self._keep(stream, History([*records, *stream.epochs]))

    def known(self, stream: Stream) -> History:
        """The same, without waiting. Raises HistoryNotLoaded."""
        kept = self._kept.get(_key(stream))
        if kept is None or len(kept.records) < stream.archived_epochs:
            if stream.archived_epochs:
                raise HistoryNotLoaded(stream)
            return self._keep(stream, History(stream.epochs))
        if len(kept.records) > stream.stream_epoch + 1:  # of a state older than the last one
            return History(kept.records[: stream.stream_epoch + 1])
        missing = [r for r in stream.epochs if r.stream_epoch >= len(kept.records)]
        return self._keep(stream, kept.extended(*missing) if missing else kept)

    async def _archived(self, stream: Stream) -> list[EpochRecord]:
        assert stream.ref is not None
        records: list[EpochRecord] = []
        for chunk in range(stream.archived_chunks):
            subject = stream_history(stream.ref, stream.incarnation, chunk)
            records.extend(decode_chunk(await self._chunks.read(subject), len(records)))
        return records[: stream.archived_epochs]

    def _keep(self, stream: Stream, history: History) -> History:
        if stream.sealed and not history.is_ended:
            history = history.ended(stream.sealed)
        before = self._kept.pop(_key(stream), None)
        self._kept[_key(stream)] = history
        self._epoch_count += len(history.records) - (len(before.records) if before else 0)
        while self._epoch_count > KEPT_EPOCHS_MAX and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._epoch_count -= len(oldest.records)
        return history


def _key(stream: Stream) -> tuple[StreamRef, int]:
    assert stream.ref is not None
    return stream.ref, stream.incarnation
