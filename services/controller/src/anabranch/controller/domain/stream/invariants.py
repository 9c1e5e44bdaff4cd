"""What every decision on a stream must keep, checked on (before, after) of each append."""

import itertools

from pydantic import TypeAdapter

from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.model.names import epoch_of, number_of
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.controller.domain import operations
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.intents import IntentKind
from anabranch.controller.domain.stream.state import Stream, evolve

_MOVES: frozenset[tuple[StreamState | None, StreamState | None]] = frozenset(
    {
        (None, StreamState.CREATING),
        (StreamState.DELETED, StreamState.CREATING),
        (StreamState.CREATING, StreamState.CREATING),
        (StreamState.CREATING, StreamState.DELETED),
        (StreamState.CREATING, StreamState.ACTIVE),
        (StreamState.ACTIVE, StreamState.ACTIVE),
        (StreamState.ACTIVE, StreamState.SEALED),
        (StreamState.SEALED, StreamState.SEALED),
        (StreamState.SEALED, StreamState.DELETING),
        (StreamState.DELETING, StreamState.DELETING),
        (StreamState.DELETING, StreamState.DELETED),
    }
)
_PENDING_IN = {
    StreamState.CREATING: {IntentKind.CREATE},
    StreamState.ACTIVE: {IntentKind.SCALE, IntentKind.TRUNCATE, IntentKind.SEAL},
    StreamState.DELETING: {IntentKind.DELETE},
}


def check(before: Stream, after: Stream) -> None:
    """Assert the invariants of one decision."""
    assert (before.status, after.status) in _MOVES, "a stream moves only as its table says"
    is_new = not before.is_live
    expected = before.incarnation + 1 if is_new else before.incarnation
    assert after.incarnation == expected, "an incarnation begins only by creation, and by one"
    assert after.highest_number >= before.highest_number, "segment numbers are never reused"
    if is_new:
        lowest = min(number_of(s.segment_id) for s in after.segments)
        assert lowest > before.highest_number, "a new life's segments have new numbers"
    if after.is_live:
        _check_cover(after.segments)
        assert after.stream_epoch >= before.stream_epoch or is_new, "epochs only grow"
    assert len(after.operations) <= operations.OPERATION_COUNT_MAX, "operations are bounded"
    if after.status is StreamState.ACTIVE:
        assert after.has_joined_scope, "a stream lives only in a scope that was seen open"
    _check_intents(after)
    if not is_new and after.is_live:
        _check_epochs(before, after)


def _check_intents(after: Stream) -> None:
    kinds = [intent.kind for intent in after.intents]
    assert len(kinds) == len(set(kinds)), "at most one intent of a kind is pending"
    allowed = _PENDING_IN.get(after.status, set()) if after.status is not None else set()
    assert set(kinds) <= allowed, "an intent is pending only where its work can be done"
    must = {StreamState.CREATING, StreamState.DELETING}
    assert kinds or after.status not in must, "whoever is on the way has somebody who asked"
    assert IntentKind.SEAL not in kinds[:-1], "sealing is the last thing accepted"
    for intent in after.intents:
        if intent.scale is None:
            continue
        present = {s.segment_id for s in after.segments}
        assert set(intent.scale.sealed) <= present, "a scale seals segments of the current epoch"
        assert intent.scale.stream_epoch == after.stream_epoch + 1, "a scale begins the next epoch"
        epochs = {epoch_of(s.segment_id) for s in intent.scale.created}
        assert epochs == {intent.scale.stream_epoch}, "a segment's id holds its epoch"


def _check_epochs(before: Stream, after: Stream) -> None:
    if after.stream_epoch == before.stream_epoch:
        assert after.segments == before.segments, "within an epoch the segments stay"
        return
    assert after.stream_epoch == before.stream_epoch + 1, "epochs follow each other"
    was, now = before.epochs[-1], after.epochs[-1]
    assert now.created_ms > was.created_ms, "a later epoch begins later"
    gone = {s.segment_id for s in before.segments} - {s.segment_id for s in after.segments}
    assert gone == {s.segment_id for s in now.sealed}, "what a scale replaced is recorded as sealed"


def _check_cover(segments: tuple[SegmentRange, ...]) -> None:
    assert segments, "a live stream has segments"
    assert segments[0].keys.start == 0.0, "the key space is covered from its start"
    assert segments[-1].keys.end == 1.0, "the key space is covered to its end"
    for left, right in itertools.pairwise(segments):
        assert left.keys.end == right.keys.start, "key ranges touch and do not overlap"


STREAM: Aggregate[Stream, StreamEvent] = Aggregate(
    kind="stream",
    initial=Stream(),
    evolve=evolve,
    check=check,
    events=TypeAdapter(list[StreamEvent]),
    states=TypeAdapter(Stream),
)
