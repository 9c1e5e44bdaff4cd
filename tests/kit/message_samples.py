"""One message of every kind with every field set, for tests of what carries messages."""

from anabranch.common.errors import SegmentTruncated
from anabranch.common.wire import messages as m

SEGMENT = "scope/stream/0.#epoch.0"
WRITER = bytes(range(16))
STAMP = m.Stamp(1, 2)
UPDATE = m.AttributeUpdate(WRITER, "replace-if-equals", 7, None)
_OF = {"segment": SEGMENT, "container_epoch": 3, "trace_parent": "00-1-2-01", "token": "t"}

SAMPLES: tuple[m.Message, ...] = (
    m.Hello(node_id="node-1"),
    m.KeepAlive(),
    m.CreateSegment(stamp=STAMP, **_OF),  # type: ignore[arg-type]
    m.SealSegment(segment=SEGMENT, stamp=STAMP),
    m.DeleteSegment(segment=SEGMENT, stamp=STAMP),
    m.GetSegmentInfo(segment=SEGMENT, even_gone=True),
    m.LocateOffset(segment=SEGMENT, offset=5),
    m.LocateTime(segment=SEGMENT, time_ms=5),
    m.LocateEvent(segment=SEGMENT, event_index=5),
    m.SetupAppend(segment=SEGMENT, writer_id=WRITER, session=1),
    m.Append(session=1, first_event_number=1, count=1, trace_parent="00-1-2-01"),
    m.ReadSegment(segment=SEGMENT, offset=0, size_max=1000, wait_ms=1),
    m.FlushContainer(container=0),
    m.AppendOnce(segment=SEGMENT, writer_id=WRITER, first_event_number=1, count=1),
    m.TruncateSegment(segment=SEGMENT, stamp=STAMP, offset=5),
    m.CheckTruncation(segment=SEGMENT, stamp=STAMP, offset=5),
    m.MergeSegments(segment=SEGMENT, stamp=STAMP, sources=("scope/stream/1.#epoch.0",)),
    m.MergeBatch(segment=SEGMENT, stamp=STAMP, parts=(f"{SEGMENT}#transaction.{1:032x}", 5)),
    m.UpdateAttributes(
        segment=SEGMENT, stamp=STAMP, client_id=WRITER, request_number=1, updates=(UPDATE,)
    ),
    m.GetAttributes(segment=SEGMENT, attributes=(WRITER,)),
    m.ConditionalAppend(
        segment=SEGMENT, writer_id=WRITER, first_event_number=1, count=1,
        expected_length=0, updates=(UPDATE,),
    ),
    m.Done(),
    m.SegmentInfo(
        segment=SEGMENT, start=1, length=9, tiered_length=5, sealed=True, event_count=3,
        container=0, container_epoch=3, sealed_in_tier_two=True, modified_ms=77,
        start_event_count=2,
    ),
    m.Sealed(length=9),
    m.OffsetLocated(offset=9),
    m.EventLocated(offset=9, event_index=3),
    m.AppendSetup(session=1, last_event_number=3, sealed=True),
    m.Appended(session=1, last_event_number=3, length=9, event_count=3),
    m.SegmentRead(offset=1, at_tail=True),
    m.failed(SegmentTruncated("gone", segment=SEGMENT, start=4), session=1),
    m.Truncated(start=5),
    m.SegmentsMerged(merged=(m.MergedSegment("scope/stream/1.#epoch.0", 9, 5),)),
    m.BatchMerged(end=14),
    m.AttributeValues(values=(m.AttributeValue(WRITER, -5),)),
)  # fmt: skip
