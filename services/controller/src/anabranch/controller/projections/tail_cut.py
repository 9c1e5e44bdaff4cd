"""The tails of streams, as cuts that divide no commit batch.

Queries use it; so may any part that records a cut of a stream during writes, such as policies,
watermarks and exports.

The stores return lengths one by one. A batch may therefore be merged into a segment before its
length is read, and into another segment after its length was read. Let `finished` be the number of
batches that had finished before any length was requested, and `begun` the number of batches that
had begun after all lengths were received; both are read at the head. A batch is stored as begun
before any of it is merged, and as finished after all of it is. So every length includes all batches
up to `finished`, and none after `begun`.

If the numbers are equal, no batch can be divided. Otherwise the answer waits until batch `begun`,
or a later one, has finished; then the stream's state has the end of the batches in every segment.
Batches lie in a segment in their order, and a finished batch reaches at least as far in every
segment as the batches before it (`CommitsSeen`). The larger of the length and that end therefore
includes, in every segment, all batches up to the awaited one. It includes nothing of a later batch,
because the end lies before that batch, which had not begun when the lengths were read.

If a batch rolled the stream meanwhile, or a scale replaced segments, the procedure starts again.

A short transaction is one unit of its container's log, and may span the segments of a stream that
keeps them together (ADR 18). One request then returns all lengths at one moment, which divides no
short transaction. The end of a batch is another moment, so these lengths are never extended: the
answer waits for a moment at which no batch is being merged.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import NotFound, StreamNotFound, Unavailable
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import SegmentId, StreamRef, segment_name
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.stream import intents
from anabranch.controller.domain.stream.answers import ref_of
from anabranch.controller.domain.stream.intents import IntentKind
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.projections.mirror import Mirror

LENGTHS_AT_ONCE_MAX = 32
LENGTHS_DEADLINE_S = 5.0
BATCH_DEADLINE_S = 5.0
TAIL_ATTEMPTS_MAX = 3
MOMENTS_MAX = 100
"""Requests for the lengths of segments that are together, of which one must meet no batch."""


class Tail(NamedTuple):
    """The lengths in bytes of the current segments of `stream`, which is as of the head."""

    stream: Stream
    lengths: dict[SegmentId, int]


@dataclass(frozen=True, slots=True)
class TailCuts:
    """Finds tails. `segment_lengths(segments)`: at one moment, of segments of one container."""

    mirror: Mirror
    segment_lengths: Callable[[Sequence[str]], Awaitable[Sequence[int]]]

    async def of(self, ref: StreamRef) -> Tail:
        """The current segments with their lengths, from the stores; of a sealed stream, from its
        state.

        Raises StreamNotFound, Corrupt, Unavailable.
        """
        for _ in range(TAIL_ATTEMPTS_MAX):
            stream = (await self._at_head(ref)).state
            if stream.sealed:
                return Tail(stream, {sealed.segment_id: sealed.size for sealed in stream.sealed})
            if stream.config.together:
                told = await self._between_batches(stream)
            else:
                told = await self._undivided(stream, await self._asked_lengths(stream))
            if told is not None:
                return Tail(stream, told)
        raise Unavailable(
            "every attempt met a change of the stream's segments",
            remedy="ask again",
            stream=str(ref),
            attempts=TAIL_ATTEMPTS_MAX,
        )

    async def _at_head(self, ref: StreamRef) -> Loaded[Stream]:
        loaded = await self.mirror.stream_at_head(ref)
        if loaded is None or not loaded.state.is_live:
            raise StreamNotFound("no such stream", stream=str(ref))
        return loaded

    async def _between_batches(self, before: Stream) -> dict[SegmentId, int] | None:
        """The lengths at a moment at which no batch was being merged; None if the stream's segments
        changed. Raises Unavailable if no such moment comes."""
        for _ in range(MOMENTS_MAX):
            quiet = await self._with_finished(await self._at_head(ref_of(before)), None)
            if quiet is None or quiet.stream_epoch != before.stream_epoch:
                return None
            lengths = await self._asked_lengths(before)
            after = (await self._at_head(ref_of(before))).state
            if after.incarnation != before.incarnation:
                return None
            if _batches_begun(after) == quiet.commits.count:
                return lengths
        raise Unavailable(
            "batches of long transactions follow each other without a pause",
            remedy="ask again",
            stream=str(ref_of(before)),
        )

    async def _undivided(
        self, before: Stream, lengths: dict[SegmentId, int]
    ) -> dict[SegmentId, int] | None:
        """The lengths, extended to the ends of batches that were merged meanwhile.

        `before` is the stream at the head before any length was requested. Returns None if batches
        came in between and the stream has other segments by now.
        """
        head = await self._at_head(ref_of(before))
        begun = _batches_begun(head.state)
        if head.state.incarnation != before.incarnation:
            return None
        if begun == before.commits.count:
            return lengths
        now = await self._with_finished(head, begun)
        if now is None or now.stream_epoch != before.stream_epoch:
            return None
        assert now.commits.stream_epoch == now.stream_epoch, "a batch finished in this epoch"
        # A batch that rolled the stream to this epoch lies before the whole epoch.
        ends = now.commits.ends or (0,) * len(before.segments)
        reached = zip(before.segments, ends, strict=True)
        return {s.segment_id: max(lengths[s.segment_id], end) for s, end in reached}

    async def _with_finished(self, head: Loaded[Stream], batches: int | None) -> Stream | None:
        """The stream once so many batches have finished (None: all that have begun); None if it is
        gone. Raises Unavailable."""
        ref, shard = ref_of(head.state), shard_of_subject(head.subject)
        try:
            async with asyncio.timeout(BATCH_DEADLINE_S):
                while True:
                    loaded = self.mirror.stream(ref)
                    assert loaded is not None, "it was there at the head"
                    stream = loaded.state
                    if not stream.is_live or stream.incarnation != head.state.incarnation:
                        return None
                    wanted = _batches_begun(stream) if batches is None else batches
                    if stream.commits.count >= wanted:
                        return stream
                    await self.mirror.moved(shard)
        except TimeoutError as error:
            raise Unavailable(
                "the merge of a batch of transactions does not end",
                remedy="ask again",
                stream=str(ref),
            ) from error

    async def _asked_lengths(self, stream: Stream) -> dict[SegmentId, int]:
        ref = ref_of(stream)
        lengths: dict[SegmentId, int] = {}

        async def ask(asked: Sequence[SegmentId]) -> None:
            told = await self.segment_lengths([segment_name(ref, segment) for segment in asked])
            lengths.update(zip(asked, told, strict=True))

        segments = [s.segment_id for s in stream.segments]
        questions = [segments] if stream.config.together else [[each] for each in segments]
        try:
            async with asyncio.timeout(LENGTHS_DEADLINE_S):
                await for_each(questions, LENGTHS_AT_ONCE_MAX, ask)
        except TimeoutError as error:
            silent = segment_name(ref, next(s for s in segments if s not in lengths))
            raise Unavailable(
                "the segment stores did not return all lengths in time",
                segment=silent,
                told=len(lengths),
                asked=len(segments),
            ) from error
        except NotFound as error:
            # It was created a moment later, or a truncation deleted it a moment ago.
            raise Unavailable(
                "a segment does not exist; the stream is changing",
                remedy="ask again",
                stream=str(ref),
                cause=str(error),
            ) from error
        return lengths


def _batches_begun(stream: Stream) -> int:
    is_pending = intents.find(stream.intents, IntentKind.COMMIT) is not None
    return stream.commits.count + is_pending
