"""Combines the findings in the blocks with those in the descriptions → the report. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anabranch.spark.pipelines.auditing import descriptions
from anabranch.spark.pipelines.auditing.findings import (
    CHECKS,
    Finding,
    Found,
    check_report,
    found_of,
    joined,
)
from anabranch.spark.pipelines.auditing.report import AuditReport, SegmentSummary, StreamSummary
from anabranch.spark.tables.stored import Stored, StoredStream

Sums = Mapping[str, Any]
"""By segment: a row of `block_checks.segment_sums`."""


def concluded(
    tier2: str,
    stored: Stored,
    sums: Sequence[Any],
    found: dict[str, tuple[list[Finding], int]],
    seconds: float,
) -> AuditReport:
    """The report without plots, from the sums of the segments and the findings in the blocks."""
    of_segment = {row["segment"]: row for row in sums}
    streams = tuple(_stream_summary(stream, of_segment) for stream in stored.streams)
    own = [
        *descriptions.lost_findings(stored),
        *(each for stream in stored.streams for each in _own_findings(stream, of_segment)),
    ]
    examined = _examined(stored, sums, streams)
    checks = []
    for check in CHECKS:
        listed, total = found.get(check.name, ([], 0))
        result = joined(
            Found(listed, total), found_of(each for each in own if each.check == check.name)
        )
        checks.append(check_report(check, examined[check.name], result))
    return AuditReport(
        tier2=tier2,
        healthy=not any(check.damage_count for check in checks),
        streams=streams,
        blocks=examined["blocks"],
        events=examined["duplicates"],
        stored_bytes=examined["bytes"],
        seconds=round(seconds, 3),
        checks=tuple(checks),
    )


def _own_findings(stream: StoredStream, sums: dict[str, Any]) -> Iterator[Finding]:
    yield from descriptions.epoch_findings(stream)
    yield from descriptions.size_findings(stream)
    yield from descriptions.merge_findings(stream)
    name = str(stream.told.ref)
    for segment in stream.segments:
        state, (start, end) = segment.state, segment.bounds
        row = sums.get(segment.name)
        if state is None or (start == end and row is None):
            continue
        first, last = (start, start) if row is None else (row["first_offset"], row["end_offset"])
        if (first, last) != (start, end):
            yield Finding(
                "bytes", name, segment.name, first if first != start else last,
                f"its blocks cover {first} to {last}, and its catalog has {start} to {end}",
            )  # fmt: skip
        events = 0 if row is None else row["events"] or 0
        wanted = state.event_count - state.start_event_count
        if state.start_event_count >= 0 and not (row and row["damages"]) and events != wanted:
            yield Finding(
                "counts", name, segment.name, None,
                f"its blocks hold {events:,} events, and its catalog has {wanted:,}",
            )  # fmt: skip


def _stream_summary(stream: StoredStream, sums: dict[str, Any]) -> StreamSummary:
    segments = tuple(
        SegmentSummary(
            each.name, each.keys.start, each.keys.end, *each.bounds,
            **{} if row is None else {
                name: row[name] or 0 for name in ("blocks", "events", "writers", "damages")
            } | {name: row[name] for name in ("first_ms", "last_ms")},
        )
        for each in stream.segments
        for row in (sums.get(each.name),)
    )  # fmt: skip
    told = stream.told
    return StreamSummary(
        stream=str(told.ref),
        state=told.state.value,
        epoch=told.epochs[-1].stream_epoch,
        segment_count=len(told.epochs[-1].segments),
        events=sum(each.events for each in segments),
        stored_bytes=sum(each.stored_bytes for each in segments),
        segments=segments,
    )


def _examined(
    stored: Stored, sums: Sequence[Any], streams: Sequence[StreamSummary]
) -> dict[str, int]:
    """The number of things that each check looked at."""
    events = sum(stream.events for stream in streams)
    segments = [each for stream in stored.streams for each in stream.segments]
    return {
        "descriptions": len(stored.streams) + len({each.container for each in segments}),
        "epochs": sum(len(descriptions.epochs_of(stream)) for stream in stored.streams),
        "sizes": sum(each.sealed_size is not None and not each.is_deleted for each in segments),
        "blocks": sum(row["blocks"] for row in sums),
        "bytes": sum(stream.stored_bytes for stream in streams),
        "numbers": sum(row["writers"] for row in sums),
        "duplicates": events,
        "keys": sum(row["keyed_events"] or 0 for row in sums),
        "counts": len(sums),
        "transactions": sum(len(descriptions.merges_of(each)) for each in stored.streams),
    }


def merge_places(stream: StoredStream) -> Iterator[tuple[str, int, str]]:
    """Where merged segments begin and end in retained bytes: (segment, offset, finding if that is
    inside a block)."""
    for tombstone, segment in descriptions.merges_of(stream):
        place = tombstone.merged
        assert place is not None
        for verb, at in (("begins", place.offset), ("ends", place.offset + place.length)):
            if segment.bounds[0] < at < segment.bounds[1]:
                yield segment.name, at, f"the merged {tombstone.name} {verb} inside a block"
