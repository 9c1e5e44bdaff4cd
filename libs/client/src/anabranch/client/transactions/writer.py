"""Writes to the segments of a transaction, which belong to it alone and are never replaced.

If one of them takes no more events, the transaction has ended: the writer asks the controller for
the outcome, and writing raises TransactionEnded. No reader has seen these events yet, so the writer
hands nothing over to successors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.client.runtime import Runtime
from anabranch.client.serializers import Serializer
from anabranch.client.settings import WriterSettings
from anabranch.client.transactions.fate import Fate
from anabranch.client.wire.control import SegmentDirectory
from anabranch.client.writing.appender import SegmentAppender
from anabranch.client.writing.lane_writer import LaneWriter, T
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.errors import AnabranchError
from anabranch.common.wire.codec import require_zstd


@dataclass(frozen=True, slots=True)
class Writing:
    """The settings and connections to write with."""

    directory: SegmentDirectory
    runtime: Runtime
    settings: WriterSettings


class TransactionWriter(LaneWriter[T]):
    """The writer of a whole transaction or of one part. See the module."""

    def __init__(self, fate: Fate, writing: Writing, serializer: Serializer[T] | None) -> None:
        super().__init__(
            fate.calls.stream,
            directory=writing.directory,
            runtime=writing.runtime,
            settings=writing.settings,
            serializer=serializer,
        )
        self._fate = fate

    @property
    def transaction_id(self) -> str:
        """32 hexadecimal digits, by which any process can resume it."""
        return self._fate.transaction_id

    async def _open_lanes(self, segments: Sequence[SegmentInStream]) -> None:
        """Raises CodecMissing."""
        if self._settings.compression is not None:
            require_zstd()
        await self._directory.prepare(segment.name for segment in segments)
        self._runtime.open_parts.add(self)
        self._lanes.open(segments)
        self._fate.attach(self._fail)

    async def flush(self) -> None:
        """Wait until everything written so far is durable; readers see it only after the commit.

        Raises the writer's failure, and TransactionEnded also if nothing was pending.

        ::

            await txn.flush()
        """
        await super().flush()
        if (failure := self._fate.failure) is not None:
            raise failure

    async def close(self) -> None:
        """Stop without waiting for acknowledgements, and without an outcome; repeatable."""
        self._fate.detach(self._fail)
        await super().close()

    def _appender_ended(self, appender: SegmentAppender, error: AnabranchError) -> None:
        if not self._ended:
            self._run(self._end_because_of(appender, error))

    async def _end_because_of(self, appender: SegmentAppender, error: AnabranchError) -> None:
        clock = self._runtime.clock
        reason = await self._fate.reason_of(error, clock, self._new_backoff())
        told = {"stream": str(self.stream), "transaction": self.transaction_id}
        reason.fields = {**reason.fields, **told, "segment": appender.segment}
        self._fail(reason)
