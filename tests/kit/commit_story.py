"""Batches of transactions in the scenarios of streams: what their events hold, and what follows.

    event stream_commit_started transactions=a,b opened_in=0,0
    event stream_roll_made       event stream_rolled       event stream_commit_finished

Transactions are told by a letter. Everything else of these events follows from the stream, as the
workflow makes it; every segment has 20 bytes when it is sealed, 30 when a batch ends.
"""

from collections.abc import Sequence

from anabranch.common.contracts.stream_queries import Successor
from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import SegmentRange
from anabranch.controller.domain.stream import commits
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.intents import IntentKind, find
from anabranch.controller.domain.stream.segment_answers import successors
from anabranch.controller.domain.stream.state import Stream
from kit.story_fields import told

AT_MS = 2000


def commit_fields(stream: Stream, revision: int, given: dict[str, object]) -> dict[str, object]:
    """The fields of the event of that kind."""
    history = History(stream.epochs)
    match given["kind"]:
        case "stream_commit_started":
            opened_in = [int(word) for word in str(given.pop("opened_in")).split(",")]
            letters = str(given.pop("transactions")).split(",")
            return {
                "revision": revision,
                "reference_epoch": history.records[opened_in[0]].reference_epoch,
                "transactions": [letter * 32 for letter in letters],
                "stream_epochs": opened_in,
                "at_ms": AT_MS,
            }
        case "stream_roll_made":
            pending = find(stream.intents, IntentKind.COMMIT)
            assert pending is not None
            assert pending.commit is not None
            original = history.segments_of(pending.commit.reference_epoch)
            taken = commits.duplicates(original, stream.stream_epoch + 1)
            renewed = commits.duplicates(stream.segments, stream.stream_epoch + 2)
            lengths = [20] * len(taken)
            return {"taken": _planned(taken), "lengths": lengths, "renewed": _planned(renewed)}
        case "stream_rolled":
            return {"sizes": [20] * len(stream.segments), "at_ms": AT_MS}
        case _:
            pending = find(stream.intents, IntentKind.COMMIT)
            assert pending is not None
            assert pending.commit is not None
            ends = [] if pending.commit.has_rolled else [30] * len(stream.segments)
            return {"ends": ends, "at_ms": AT_MS}


def _planned(segments: Sequence[SegmentRange]) -> list[dict[str, object]]:
    return [
        {"segment_id": s.segment_id, "key_start": s.keys.start, "key_end": s.keys.end}
        for s in segments
    ]


def shown_epochs(history: History) -> list[str]:
    """A line for each: its number, the epoch that it repeats, its cause, its segments by key."""
    return [
        f"epoch {record.stream_epoch} as {record.reference_epoch} by {record.cause}: "
        + ",".join(told(s.segment_id) for s in history.segments_of(record.stream_epoch))
        for record in history.records
    ]


def shown_successors(stream: Stream, history: History, segment: SegmentId) -> str:
    """``<segment> <status> <successor><all that it replaces> …``"""
    found = successors(stream, history, segment)
    return " ".join([told(segment), found.status, *map(_shown, found.successors)])


def _shown(found: Successor) -> str:
    replaced = ",".join(told(SegmentId(before)) for before in found.predecessors)
    return f"{told(SegmentId(found.segment_id))}<{replaced}"
