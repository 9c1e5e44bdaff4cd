"""The load report of a period, as a value, within the size limit of a message.

If not all segments fit, the report lists those with the most bytes, of any container, and no longer
claims that the others were idle. Sketches of keys take the room that is left.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

from anabranch.common.contracts.load import (
    LOAD_REPORT_SIZE_BYTES_MAX,
    ContainerLoad,
    KeySketch,
    LoadReport,
    MergedLoad,
    SegmentLoad,
)
from anabranch.segstore.domain.load.traffic import Counted, SegmentTraffic

SEGMENTS_MAX = 5000
"""At most this many segments are examined: more would hardly fit, and building a report must not
block the store."""

_ENTRY_OVERHEAD_SIZE_BYTES = len('{"segment":,"events":,"size":},')
_MERGED_OVERHEAD_SIZE_BYTES = len('"merged":{"events":,"size":,"over_ms":},')
_KEYS_OVERHEAD_SIZE_BYTES = len('"keys":,')


@dataclass(frozen=True, slots=True)
class Period:
    """A period of a store; times in milliseconds.

    node_id     the store
    session     drawn anew at each start of its process
    sequence    the number of its report
    start_ms    when the period began, as Unix time
    length_ms   how long it was
    due_ms      within which time the next report follows
    """

    node_id: str
    session: str
    sequence: int
    start_ms: int
    length_ms: int
    due_ms: int = 0


@dataclass(frozen=True, slots=True)
class ContainerTraffic:
    """A container that the store serves, and its counts in the period."""

    container: int
    container_epoch: int
    counted: Counted


def load_report(
    period: Period,
    containers: Sequence[ContainerTraffic],
    size_max: int = LOAD_REPORT_SIZE_BYTES_MAX,
) -> LoadReport:
    """The report; its JSON has at most `size_max` bytes, into which the containers alone always
    fit."""
    bare = _report(period, containers, [() for _ in containers], others_idle=False)
    left = size_max - len(encoded(bare))
    assert left >= 0, "a store serves too many containers for one message"
    listed, complete = _largest(containers, left)
    others_idle = complete and all(found.counted.complete for found in containers)
    return _report(period, containers, listed, others_idle=others_idle)


def encoded(report: LoadReport) -> bytes:
    """The message; omitted fields take no room in it."""
    return report.model_dump_json(exclude_none=True).encode()


def _report(
    period: Period,
    containers: Sequence[ContainerTraffic],
    listed: Sequence[Sequence[SegmentLoad]],
    *,
    others_idle: bool,
) -> LoadReport:
    loads = tuple(
        ContainerLoad(
            container=found.container,
            container_epoch=found.container_epoch,
            segments=tuple(segments),
        )
        for found, segments in zip(containers, listed, strict=True)
    )
    return LoadReport(
        node_id=period.node_id,
        session=period.session,
        sequence=period.sequence,
        start_ms=period.start_ms,
        length_ms=period.length_ms,
        due_ms=period.due_ms,
        containers=loads,
        others_idle=others_idle,
    )


def _largest(
    containers: Sequence[ContainerTraffic], size_max: int
) -> tuple[list[list[SegmentLoad]], bool]:
    """Per container the segments that fit, chosen by size, and whether all segments fit."""
    found = [(place, one) for place, of in enumerate(containers) for one in of.counted.segments]
    listed: list[list[SegmentLoad]] = [[] for _ in containers]
    left = size_max
    chosen: list[tuple[int, SegmentTraffic]] = []
    for place, one in nlargest(SEGMENTS_MAX, found, key=_weight):
        cost = _entry_size(one)
        if cost > left:
            break
        left -= cost
        chosen.append((place, one))
    for place, one in chosen:
        keys = one.keys
        left -= 0 if keys is None else _sketch_size(keys)
        listed[place].append(_load(one, keys if left >= 0 else None))
    return listed, len(chosen) == len(found)


def _weight(found: tuple[int, SegmentTraffic]) -> tuple[int, int, str]:
    _, one = found
    return one.size, one.events, one.segment


def _entry_size(one: SegmentTraffic) -> int:
    """An upper bound of the entry's size in the message, in bytes."""
    name = json.dumps(one.segment)
    size = _ENTRY_OVERHEAD_SIZE_BYTES + len(name) + len(f"{one.events}{one.size}")
    if not one.merged_events:
        return size
    merged = f"{one.merged_events}{one.merged_size}{one.merged_over_ms}"
    return size + _MERGED_OVERHEAD_SIZE_BYTES + len(merged)


def _sketch_size(keys: KeySketch) -> int:
    """An upper bound of its size in the message, in bytes."""
    return len(keys.model_dump_json()) + _KEYS_OVERHEAD_SIZE_BYTES


def _load(one: SegmentTraffic, keys: KeySketch | None) -> SegmentLoad:
    merged = None
    if one.merged_events:
        merged = MergedLoad(
            events=one.merged_events, size=one.merged_size, over_ms=one.merged_over_ms
        )
    return SegmentLoad(
        segment=one.segment, events=one.events, size=one.size, merged=merged, keys=keys
    )
