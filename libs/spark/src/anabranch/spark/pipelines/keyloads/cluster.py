"""Asks for the current segments of a stream, and scales it."""

import asyncio
from collections.abc import Sequence

from pyspark.sql import SparkSession

from anabranch.client import connect
from anabranch.common.errors import StreamNotFound
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import stream_ref
from anabranch.spark.pipelines.keyloads.shares import Divided, Segment

CLIENT_NAME = "anabranch-keyload"
SCALE_S_MAX = 120.0


def current_segments(
    session: SparkSession, stream: str, source: tuple[str, str]
) -> tuple[int, list[Segment]]:
    """The epoch, and its segments by their keys. Raises StreamNotFound."""
    ref = stream_ref(stream)
    reader = session.read.format("anabranch").option(*source)
    told = reader.option("table", "streams").load(stream).select("epoch").first()
    if told is None:
        raise StreamNotFound("the stream does not exist", stream=stream)
    table = reader.option("table", "segments").load(str(ref))
    columns = ("segment_id", "segment", "key_start", "key_end")
    rows = table.where("sealed_epoch IS NULL").select(*columns).orderBy("key_start").collect()
    return told[0], [Segment(row[0], row[1], KeyRange(row[2], row[3])) for row in rows]


def scale(where: str, stream: str, epoch: int, found: Sequence[Divided]) -> None:
    """Replace the divided segments by their parts, in one scale. Raises ScaleRefused if the stream
    has been scaled since the epoch, and the errors of the client."""
    asyncio.run(_scale(where, stream, epoch, [each for each in found if each.parts]))


async def _scale(where: str, stream: str, epoch: int, split: Sequence[Divided]) -> None:
    async with asyncio.timeout(SCALE_S_MAX), connect(where, name=CLIENT_NAME) as client:
        await client.streams.scale(
            stream,
            [each.segment_id for each in split],
            [(part.start, part.end) for each in split for part in each.parts],
            expected_epoch=epoch,
        )
