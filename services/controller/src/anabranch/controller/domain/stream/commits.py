"""How a stream commits its transactions: batches, and rolling. Pure.

Transactions commit in the order in which their outcomes were decided. A *batch* is the longest run
at the beginning of that order whose transactions belong to one logical epoch. It is an intent of
the stream, so it takes turns with scales and truncations. A transaction writes beside the segments
of the epoch in which it was opened, so:

    the batch's epoch is          its data goes to
    the current one, logically    the current segments of the same numbers
    an older one                  duplicates of the older epoch's segments, which follow the
                                  current ones as an epoch of their own (A+1), and are followed by
                                  duplicates of the current ones (A+2): the stream *rolls*

A duplicate has the number and the keys of its original and another epoch. Its *reference epoch* is
that of the original. Transactions opened before and after a roll therefore belong to one logical
epoch and need no second roll. For every key the order is: earlier events, the transactions, later
events.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

from pydantic import PlainSerializer, TypeAdapter

from anabranch.common.model.names import SegmentId, number_of, segment_id
from anabranch.common.model.stream import SegmentRange
from anabranch.common.model.transaction import TransactionState
from anabranch.controller.domain.stream.causes import ROLL
from anabranch.controller.domain.stream.history import EpochRecord, SealedSegment
from anabranch.controller.domain.stream.intents import CommitPlan, ScalePlan
from anabranch.controller.domain.stream.rows import reading

BATCH_MAX = 100
SOURCES_MAX = 1_000
"""Segments that a batch of several transactions may merge into one segment."""
CARRIED_SIZE_BYTES_MAX = 256 * 1024
NAMES_SIZE_BYTES_MAX = 32 * 1024
"""Blocks, and names of sources for one segment, of a batch that carries blocks: the batch has one
request for each segment."""
OUTCOMES_KEPT = 500
OUTCOMES_PER_CHUNK = 500
OUTCOME_CHUNKS_MAX = 400
"""Per stream; beyond it the oldest are deleted even if they have not expired, but not before
`REMEMBERED_MS_MIN`."""
REMEMBERED_MS_MIN = 300_000
"""An outcome is remembered for so long in any case, so that a late copy of a carried transaction
finds it: far longer than its id is in time (`CARRIED_AGE_MS_MAX`)."""


class Committing(NamedTuple):
    """A transaction that is to be committed. `sources`: the number of its segments that are merged
    into each segment of the stream. `size`: the bytes of the blocks that it carries; `names_size`:
    the bytes of the sources' names for one segment.
    """

    transaction_id: str
    stream_epoch: int
    sources: int = 1
    size: int = 0
    names_size: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a transaction. `stream_epoch`: the epoch in which it was opened."""

    transaction_id: str
    is_committed: bool
    stream_epoch: int
    ended_ms: int

    @property
    def state(self) -> TransactionState:
        return TransactionState.COMMITTED if self.is_committed else TransactionState.ABORTED


_OutcomeRow = tuple[str, bool, int, int]


def _outcome_rows(outcomes: tuple[Outcome, ...]) -> list[_OutcomeRow]:
    return [(o.transaction_id, o.is_committed, o.stream_epoch, o.ended_ms) for o in outcomes]


Outcomes = Annotated[
    tuple[Outcome, ...],
    reading(TypeAdapter(list[_OutcomeRow]), lambda row: Outcome(*row)),
    PlainSerializer(_outcome_rows),
]
"""Oldest first; rows in JSON."""


@dataclass(frozen=True, slots=True)
class OutcomeChunk:
    """A chunk of outcomes. `first_id` and `last_id`: the lowest and the highest id in it."""

    chunk: int
    first_id: str
    last_id: str
    ended_ms: int

    def may_hold(self, transaction: str) -> bool:
        """Whether it may hold that transaction; False is certain."""
        return self.first_id <= transaction <= self.last_id


@dataclass(frozen=True, slots=True)
class CommitsSeen:
    """The last finished batch: the number of batches up to it, and their ends in the segments of
    `stream_epoch`, in the order of their keys (empty after a roll). As long as the epoch stays the
    same, the ends only grow.
    """

    count: int = 0
    stream_epoch: int = 0
    ends: tuple[int, ...] = ()


def next_batch(
    committing: Sequence[Committing], reference_of: Callable[[int], int]
) -> Sequence[Committing]:
    """The first batch of these transactions, which are in commit order.

    `reference_of(stream epoch)` is its reference epoch. The batch is empty only if they are.
    """
    batch: list[Committing] = []
    sources = size = names_size = 0
    for found in committing[:BATCH_MAX]:
        is_other = batch and reference_of(found.stream_epoch) != reference_of(batch[0].stream_epoch)
        sources += found.sources
        size += found.size
        names_size += found.names_size
        if batch and (is_other or not _fit(sources, size, names_size)):
            break
        batch.append(found)
    return batch


def _fit(sources: int, size: int, names_size: int) -> bool:
    """Whether several transactions may be one batch; one that carries blocks fits in a request."""
    if sources > SOURCES_MAX:
        return False
    return not size or (size <= CARRIED_SIZE_BYTES_MAX and names_size <= NAMES_SIZE_BYTES_MAX)


def duplicates(segments: Iterable[SegmentRange], stream_epoch: int) -> tuple[SegmentRange, ...]:
    """The same segments, by number and keys, in another epoch, in the given order."""
    return tuple(
        SegmentRange(segment_id(stream_epoch, number_of(s.segment_id)), s.keys) for s in segments
    )


def rolled_epochs(
    current: EpochRecord,
    segments: Sequence[SegmentRange],
    plan: CommitPlan,
    sizes: Sequence[int],
    at_ms: int,
) -> tuple[EpochRecord, EpochRecord]:
    """The two epochs that a roll adds after the `current` one.

    `segments` are those of the current epoch, and `sizes` their final sizes.
    """
    roll = plan.roll
    assert roll is not None
    taken = EpochRecord(
        stream_epoch=current.stream_epoch + 1,
        reference_epoch=plan.reference_epoch,
        created_ms=max(at_ms, current.created_ms + 1),
        created=roll.taken,
        sealed=_sealed(segments, sizes),
        cause=ROLL,
    )
    renewed = EpochRecord(
        stream_epoch=current.stream_epoch + 2,
        reference_epoch=current.reference_epoch,
        created_ms=taken.created_ms + 1,
        created=roll.renewed,
        sealed=_sealed(roll.taken, roll.lengths),
        cause=ROLL,
    )
    return taken, renewed


def _sealed(segments: Iterable[SegmentRange], sizes: Iterable[int]) -> tuple[SealedSegment, ...]:
    pairs = zip(segments, sizes, strict=True)
    return tuple(SealedSegment(segment.segment_id, size) for segment, size in pairs)


def migrated(scale: ScalePlan, renewed: Sequence[SegmentRange], stream_epoch: int) -> ScalePlan:
    """A waiting scale after the stream rolled to `stream_epoch`: the same numbers."""
    assert not scale.is_made, "what has begun is not overtaken"
    by_number = {number_of(s.segment_id): s.segment_id for s in renewed}
    return replace(
        scale,
        stream_epoch=stream_epoch + 1,
        sealed=tuple(SegmentId(by_number[number_of(old)]) for old in scale.sealed),
        created=duplicates(scale.created, stream_epoch + 1),
    )
