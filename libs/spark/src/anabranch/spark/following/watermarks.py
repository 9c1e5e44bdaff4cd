"""The watermark of a stream at the end of a micro-batch.

A watermark promises that events behind its cut are not older. At the end of a micro-batch, the last
watermark therefore counts whose cut lies before this end: a later one would promise too much of the
events between the end and its cut.
"""

from anabranch.client.client import Client
from anabranch.client.reading.times.log import WatermarkLog
from anabranch.common.errors import InvalidRequest, SegmentNotFound, SegmentTruncated
from anabranch.common.model.names import StreamRef
from anabranch.common.model.watermark import Watermark
from anabranch.spark.following.offsets import Point


def is_before(mark: Watermark, end: Point) -> bool:
    """Whether the watermark's cut lies at or before `end`, for certain.

    A segment that `end` does not name lies before it if it is older than all that `end` names; one
    between them may lie anywhere.
    """
    places = {int(at.segment_id): at.offset for at in end.cut}
    oldest = min(places)
    return all(
        row.offset <= places[row.segment_id]
        if row.segment_id in places
        else row.segment_id < oldest
        for row in mark.cut
    )


async def watermark_at(client: Client, stream: StreamRef, end: Point) -> int | None:
    """The stream's watermark at `end` in Unix ms; None: it has none before that."""
    log = WatermarkLog(stream, end.incarnation, client.ranges().calls)
    try:
        found, _ = await log.seek(lambda mark: is_before(mark, end))
    except (SegmentNotFound, SegmentTruncated, InvalidRequest):
        return None  # The stream has no watermarks, or they are being truncated.
    return None if found is None else found.watermark.lower_ms
