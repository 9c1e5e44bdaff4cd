"""The invariants of every decision on a stream, checked on (before, after) of each append.

The numbers are those of docs/invariants.md.
"""

import itertools

from pydantic import TypeAdapter

from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.model.names import epoch_of, number_of
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.common.model.topics import is_backing
from anabranch.controller.domain import operations
from anabranch.controller.domain.stream import backing, intents
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.evolve import evolve
from anabranch.controller.domain.stream.history import EpochRecord
from anabranch.controller.domain.stream.intents import IntentKind
from anabranch.controller.domain.stream.retention_set import (
    CUTS_MAX,
    NO_RETENTION_SET,
    RELEASES_KEPT,
)
from anabranch.controller.domain.stream.state import MACHINE, Stream
from anabranch.controller.domain.stream.subscribers import SUBSCRIBERS_MAX
from anabranch.controller.domain.stream.subscriptions import FORMER_MAX, NO_SUBSCRIPTIONS

_PENDING_IN = {
    StreamState.CREATING: {IntentKind.CREATE},
    StreamState.ACTIVE: {
        IntentKind.UPDATE,
        IntentKind.SCALE,
        IntentKind.TRUNCATE,
        IntentKind.COMMIT,
        IntentKind.SEAL,
    },
    StreamState.SEALED: {IntentKind.TRUNCATE},
    StreamState.DELETING: {IntentKind.DELETE},
}


def check(before: Stream, after: Stream) -> None:
    """Assert the invariants of one decision."""
    assert (before.status, after.status) in MACHINE.moves, "STREAM-1: moves only as its table says"
    is_new = not before.is_live
    expected = before.incarnation + 1 if is_new else before.incarnation
    assert after.incarnation == expected, "STREAM-2: an incarnation begins by creation, by one"
    _check_numbers(before, after, is_new=is_new)
    if after.is_live:
        _check_cover(after.segments)
        _check_topic(before, after, is_new=is_new)
        _check_history(after)
        _check_operations(after)
    if after.status is StreamState.ACTIVE:
        assert after.has_joined_scope, "STREAM-7: lives only in a scope that was seen open"
    _check_intents(after)
    _check_scale(after)
    _check_subscribers(before, after, is_new=is_new)
    _check_retention(before, after, is_new=is_new)
    if not is_new and after.is_live:
        _check_epochs(before, after)
        _check_head(before, after)
        _check_outcomes(before, after)


def _check_numbers(before: Stream, after: Stream, *, is_new: bool) -> None:
    assert after.highest_number >= before.highest_number, "STREAM-3: numbers are never reused"
    had = set() if is_new else set(_numbers(before))
    fresh = [number for number in _numbers(after) if number not in had]
    lowest = min(fresh, default=before.highest_number + 1)
    assert lowest > before.highest_number, "STREAM-3: a new segment has a new number"
    assert len(fresh) == len(set(fresh)), "STREAM-3: no two new segments have the same number"
    planned = _planned_numbers(after)
    if planned != _planned_numbers(before):
        lowest = min(planned, default=before.highest_number + 1)
        assert lowest > before.highest_number, "STREAM-3: only a roll keeps numbers"


def _numbers(stream: Stream) -> list[int]:
    """The numbers of the current segments, and of those that a pending scale creates."""
    present = [number_of(segment.segment_id) for segment in stream.segments]
    return [*present, *_planned_numbers(stream)]


def _planned_numbers(stream: Stream) -> list[int]:
    scale = intents.find(stream.intents, IntentKind.SCALE)
    if scale is None or scale.scale is None:
        return []
    return [number_of(segment.segment_id) for segment in scale.scale.created]


def _check_cover(segments: tuple[SegmentRange, ...]) -> None:
    assert segments, "STREAM-4: a live stream has segments"
    assert segments[0].keys.start == 0.0, "STREAM-4: the key space is covered from its start"
    assert segments[-1].keys.end == 1.0, "STREAM-4: the key space is covered to its end"
    for left, right in itertools.pairwise(segments):
        assert left.keys.end == right.keys.start, "STREAM-4: ranges touch and do not overlap"


def _check_topic(before: Stream, after: Stream, *, is_new: bool) -> None:
    if after.ref is None or not is_backing(after.ref.stream):
        return
    assert backing.is_shaped(after.segments), "STREAM-26: a topic's partitions come before the rest"
    if is_new:
        return
    partitions = before.segments[:-1]
    kept = after.segments[: len(partitions)]
    assert kept == partitions, "STREAM-26: a partition keeps its segment, and so its container"


def _check_intents(after: Stream) -> None:
    kinds = [intent.kind for intent in after.intents]
    assert len(kinds) == len(set(kinds)), "STREAM-5: at most one intent of a kind is pending"
    allowed = _PENDING_IN.get(after.status, set()) if after.status is not None else set()
    assert set(kinds) <= allowed, "STREAM-5: an intent is pending only where it can be performed"
    must = {StreamState.CREATING, StreamState.DELETING}
    assert kinds or after.status not in must, "STREAM-5: whoever is on the way was asked"
    assert IntentKind.SEAL not in kinds[:-1], "STREAM-5: sealing is the last thing accepted"
    performable = [i for i in after.intents if i.kind is not IntentKind.SEAL or i.is_drained]
    revisions = [intent.revision for intent in performable]
    assert revisions == sorted(set(revisions)), "STREAM-11: a later intent has a higher stamp"
    drained = [intent for intent in after.intents if intent.is_drained]
    assert not drained or len(after.intents) == 1, "STREAM-18: what is drained commits no more"


def _check_operations(after: Stream) -> None:
    count = len(after.operations)
    assert count <= operations.OPERATION_COUNT_MAX, "STREAM-6: operations are bounded"
    running = sorted(operations.running(after.operations))
    waiting = sorted(intents.commands_of(after.intents))
    assert running == waiting, "STREAM-12: an operation runs as long as an intent has it"


def _check_scale(after: Stream) -> None:
    count = len(after.segments)
    found = intents.find(after.intents, IntentKind.SCALE)
    if found is not None:
        plan = found.scale
        assert plan is not None, "STREAM-8: a pending scale has a plan"
        present = {s.segment_id for s in after.segments}
        assert set(plan.sealed) <= present, "STREAM-8: a scale seals current segments"
        assert plan.stream_epoch == after.stream_epoch + 1, "STREAM-8: it begins the next epoch"
        epochs = {epoch_of(s.segment_id) for s in plan.created}
        assert epochs == {plan.stream_epoch}, "STREAM-8: a segment's id holds its epoch"
        stay = [s for s in after.segments if s.segment_id not in set(plan.sealed)]
        _check_cover(tuple(sorted((*stay, *plan.created), key=lambda s: s.keys.start)))
        count = plan.count_after(count)
    if after.status is StreamState.ACTIVE:
        minimum = after.config.scaling.min_segments
        assert count >= minimum, "STREAM-13: never fewer segments than the policy asks for"


def _check_epochs(before: Stream, after: Stream) -> None:
    if after.stream_epoch == before.stream_epoch:
        assert after.segments == before.segments, "STREAM-9: within an epoch the segments stay"
        return
    added = [r for r in after.epochs if r.stream_epoch > before.stream_epoch]
    assert len(added) in (1, 2), "STREAM-9: a scale adds one epoch, a roll two"
    for was, now in itertools.pairwise((before.epochs[-1], *added)):
        assert now.stream_epoch == was.stream_epoch + 1, "STREAM-9: epochs follow each other"
        assert now.created_ms > was.created_ms, "STREAM-9: a later epoch begins later"
    gone = {s.segment_id for s in before.segments} - {s.segment_id for s in after.segments}
    replaced = {s.segment_id for s in added[0].sealed}
    assert gone == replaced, "STREAM-10: what was replaced is recorded as sealed"
    if len(added) == 2:
        _check_roll(before, after, *added)


def _check_head(before: Stream, after: Stream) -> None:
    if after.head == before.head:
        return
    pending = intents.find(before.intents, IntentKind.TRUNCATE)
    plan = None if pending is None else pending.truncation
    assert plan is not None, "STREAM-22: only a truncation moves the head"
    assert plan.is_checked, "STREAM-22: nothing is truncated before the stores were asked for all"
    assert after.head == plan.cut, "STREAM-22: a truncated stream begins at the cut"


def _check_roll(before: Stream, after: Stream, taken: EpochRecord, renewed: EpochRecord) -> None:
    _check_cover(taken.created)
    passed = {s.segment_id for s in taken.created}
    assert passed == {s.segment_id for s in renewed.sealed}, "STREAM-19: what is taken is sealed"
    assert renewed.created == after.segments, "STREAM-19: after a roll all segments are new"
    same = [(number_of(s.segment_id), s.keys) for s in before.segments]
    assert same == [(number_of(s.segment_id), s.keys) for s in after.segments], (
        "STREAM-19: a roll leaves numbers and keys as they are"
    )
    reference = before.epochs[-1].reference_epoch
    assert renewed.reference_epoch == reference, "STREAM-19: and the logical epoch"
    assert taken.reference_epoch != reference, "STREAM-19: nobody rolls to where he is"


def _check_outcomes(before: Stream, after: Stream) -> None:
    added = after.outcome_count - before.outcome_count
    assert added >= 0, "STREAM-20: outcomes are never taken back"
    assert added <= len(after.outcomes), "STREAM-20: what is new is not archived at once"
    earlier = after.outcomes[: len(after.outcomes) - added]
    kept = before.outcomes[len(before.outcomes) - len(earlier) :]
    assert earlier == kept, "STREAM-20: what is remembered does not change"
    batch = intents.find(before.intents, IntentKind.COMMIT)
    now = intents.find(after.intents, IntentKind.COMMIT)
    if batch is None or batch.commit is None:
        return
    if now is not None and now.commit is not None:
        assert now.commit.transactions == batch.commit.transactions, "STREAM-21: a batch is fixed"
        return
    ended = {o.transaction_id for o in after.outcomes[len(earlier) :] if o.is_committed}
    assert ended == set(batch.commit.transactions), "STREAM-21: a batch ends whole"


def _check_history(after: Stream) -> None:
    kept = [record.stream_epoch for record in after.epochs]
    first = after.archived_epochs
    assert kept, "STREAM-14: the state keeps the current epoch"
    assert kept == list(range(first, first + len(kept))), "STREAM-14: what is kept follows chunks"
    if after.status is StreamState.SEALED:
        lengths = [segment.segment_id for segment in after.sealed]
        present = [segment.segment_id for segment in after.segments]
        assert lengths == present, "STREAM-15: of a sealed stream all lengths are known"


def _check_subscribers(before: Stream, after: Stream, *, is_new: bool) -> None:
    known = after.subscriptions
    if not after.is_live:
        assert known == NO_SUBSCRIPTIONS, "STREAM-16: what is deleted has no subscribers"
    names = [one.subscriber for one in known.present]
    assert names == sorted(set(names)), "STREAM-16: a subscriber subscribes once"
    left = {one.subscriber for one in known.former}
    assert not left & set(names), "STREAM-16: who has left is no subscriber"
    bounds = len(names) <= SUBSCRIBERS_MAX and len(known.former) <= FORMER_MAX
    assert bounds, "STREAM-16: subscribers are bounded"
    for one in () if is_new else before.subscriptions.present:
        now = known.find(one.subscriber)
        assert now is None or now.standing >= one.standing, "STREAM-17: generations go forward"


def _check_retention(before: Stream, after: Stream, *, is_new: bool) -> None:
    known = after.retention
    if not after.is_live:
        assert known == NO_RETENTION_SET, "STREAM-23: a deleted stream remembers no cuts"
    if after.config.retention is None:
        assert not known.cuts, "STREAM-23: cuts are recorded for a policy alone"
    assert len(known.cuts) <= CUTS_MAX, "STREAM-23: recorded cuts are bounded"
    for earlier, later in itertools.pairwise(known.cuts):
        assert earlier.at_ms < later.at_ms, "STREAM-24: a cut is recorded after the ones before it"
        assert earlier.size_bytes <= later.size_bytes, "STREAM-24: and lies at or behind them"
    assert len(known.releases) <= min(known.release_count, RELEASES_KEPT), "STREAM-25: bounded"
    if not is_new and after.is_live:
        freed = known.released_bytes - before.retention.released_bytes
        assert freed >= 0, "STREAM-25: released bytes are never taken back"
        assert not freed or after.head != before.head, "STREAM-25: only a truncation gives up"


STREAM: Aggregate[Stream, StreamEvent] = Aggregate(
    kind="stream",
    initial=Stream(),
    evolve=evolve,
    check=check,
    events=TypeAdapter(list[StreamEvent]),
    states=TypeAdapter(Stream),
)
