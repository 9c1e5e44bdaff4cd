"""Checks of the descriptions of streams in tier 2, without their bytes. Pure.

epochs        the segments of each epoch cover [0, 1) without a hole or an overlap
sizes         a sealed segment's length in its catalog is the size with which it was sealed
transactions  a merged segment lies inside its target; which segments are not merged yet
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import transaction_segment
from anabranch.common.tier2.state import Tombstone
from anabranch.spark.pipelines.auditing.findings import FLUSH, Finding
from anabranch.spark.tables.rows import lives_of
from anabranch.spark.tables.stored import Stored, StoredSegment, StoredStream


def lost_findings(stored: Stored) -> list[Finding]:
    """The findings of `descriptions`."""
    lost = (*stored.lost, *(each for stream in stored.streams for each in stream.lost))
    return [Finding("descriptions", each.stream, each.segment, None, each.text) for each in lost]


def epochs_of(stream: StoredStream) -> Mapping[int, list[KeyRange]]:
    """The key ranges of each known epoch. An export of an older release has the present one."""
    told, lives = stream.told, lives_of(stream)
    present = told.epochs[-1]
    past = range(present.stream_epoch) if told.earlier else range(0)
    return {
        **{epoch: [life.keys for life in lives if life.is_in(epoch)] for epoch in past},
        present.stream_epoch: [part.keys for part in present.segments],
    }


def epoch_findings(stream: StoredStream) -> Iterator[Finding]:
    """A finding per hole and overlap, with the epochs that have it."""
    faults: dict[str, list[int]] = {}
    for epoch, ranges in epochs_of(stream).items():
        for fault in cover_faults(ranges):
            faults.setdefault(fault, []).append(epoch)
    for fault, epochs in faults.items():
        where = f"epoch {epochs[0]}" if len(epochs) == 1 else f"epochs {epochs[0]} to {epochs[-1]}"
        yield Finding("epochs", str(stream.told.ref), "", None, f"{where}: {fault}")


def cover_faults(ranges: Iterable[KeyRange]) -> list[str]:
    """The holes and overlaps that keep the ranges from covering [0, 1) exactly."""
    ordered = [(0.0, 0.0), *sorted((each.start, each.end) for each in ranges), (1.0, 1.0)]
    faults: list[str] = []
    reached = 0.0
    for (_, end), (start, _) in pairwise(ordered):
        reached = max(reached, end)
        if start > reached:
            faults.append(f"no segment takes the keys from {reached:g} to {start:g}")
        elif start < reached and start < 1.0:
            faults.append(f"two segments take the keys from {start:g} to {reached:g}")
    return faults


def size_findings(stream: StoredStream) -> Iterator[Finding]:
    """Compare sealed sizes with the catalogs."""
    unknown = {each.segment for each in stream.lost}
    for segment in stream.segments:
        if segment.sealed_size is None or segment.is_deleted or segment.name in unknown:
            continue
        told = _size_fault(segment, segment.sealed_size)
        if told is not None:
            text, is_damage = told
            yield Finding("sizes", str(stream.told.ref), segment.name, None, text, is_damage)


def _size_fault(segment: StoredSegment, size: int) -> tuple[str, bool] | None:
    """The fault, and whether it is damage."""
    state = segment.state
    if state is None:
        if size == 0:
            return None
        return (
            f"tier 2 has none of its {size:,} bytes: a truncation deleted it, or no store has "
            f"flushed it; {FLUSH}", False,
        )  # fmt: skip
    if state.length == size:
        return None
    text = f"it was sealed with {size:,} bytes, and tier 2 has {state.length:,}"
    if state.length < size and not state.sealed:
        return f"{text}: the rest is not flushed yet; {FLUSH}", False
    return text, True


def merge_findings(stream: StoredStream) -> Iterator[Finding]:
    """Merged segments beyond the end of their targets, and segments that are not merged."""
    name = str(stream.told.ref)
    for tombstone, segment in merges_of(stream):
        place, state = tombstone.merged, segment.state
        assert place is not None
        assert state is not None
        if place.offset + place.length > state.length:
            yield Finding(
                "transactions", name, segment.name, place.offset,
                f"{tombstone.name} was merged here with {place.length:,} bytes, beyond the end "
                f"at {state.length:,}",
            )  # fmt: skip
    unmerged = [state for state in stream.unmerged if state.length]
    ids = {known.transaction for each in unmerged if (known := transaction_segment(each.name))}
    if ids:
        size = sum(state.length for state in unmerged)
        yield Finding(
            "transactions", name, "", None,
            f"{len(ids)} transactions have {size:,} bytes that are not merged: they are open, or "
            f"tier 2 does not know their end yet", is_damage=False,
        )  # fmt: skip


def merges_of(stream: StoredStream) -> list[tuple[Tombstone, StoredSegment]]:
    """Records of merged segments with bytes, whose target is a present segment of the stream."""
    segments = {segment.name: segment for segment in stream.segments}
    found = []
    for tombstone in stream.merged:
        place = tombstone.merged
        assert place is not None
        segment = segments[place.target]
        if place.length and segment.state and segment.state.number == place.target_number:
            found.append((tombstone, segment))
    return found
