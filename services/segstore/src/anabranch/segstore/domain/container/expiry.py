"""The expiry of writers' marks and tombstones in a container (pure).

A mark is kept while its writer may repeat an append or continue, and dropped after a long silence.
If the writer continues anyway it gets WriterExpired, because its event numbers do not start at 1.
"""

from collections.abc import Mapping

from anabranch.common.tier2.state import Tombstone, WriterMark


def expired(mark: WriterMark, now_ms: int, limit_ms: int) -> bool:
    """Whether the writer stored nothing for `limit_ms`; False if its time is unknown."""
    return 0 < mark.stored_ms < now_ms - limit_ms


def marks_to_keep(
    writers: Mapping[bytes, WriterMark], modified_ms: int, now_ms: int, limit_ms: int
) -> dict[bytes, WriterMark]:
    """The marks of a segment that have not expired.

    A mark without a time was recorded before marks had times. Its writer stored its last event no
    later than the last change of the segment.
    """
    dated = {
        writer_id: WriterMark(mark.last, mark.stored_ms or modified_ms)
        for writer_id, mark in writers.items()
    }
    return {
        writer_id: mark for writer_id, mark in dated.items() if not expired(mark, now_ms, limit_ms)
    }


def tombstone_expired(tombstone: Tombstone, now_ms: int, limit_ms: int) -> bool:
    """Whether the segment has been gone for `limit_ms`."""
    return tombstone.deleted_ms < now_ms - limit_ms
