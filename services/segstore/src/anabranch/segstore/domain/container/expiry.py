"""When what a container remembers of its writers may be forgotten (pure).

A mark is kept for a writer that may repeat an append or go on; of one that was not heard of for
long enough it is dropped. Should the writer go on all the same it is refused as WriterExpired, for
it does not start at 1.
"""

from collections.abc import Mapping

from anabranch.common.tier2.state import Tombstone, WriterMark


def expired(mark: WriterMark, now_ms: int, limit_ms: int) -> bool:
    """Whether nothing of the writer was stored for `limit_ms`; never if the time is not known."""
    return 0 < mark.stored_ms < now_ms - limit_ms


def marks_to_keep(
    writers: Mapping[bytes, WriterMark], modified_ms: int, now_ms: int, limit_ms: int
) -> dict[bytes, WriterMark]:
    """The marks of a segment that have not expired.

    A mark without a time was recorded before times were: its writer was last heard of when the
    segment was last modified, at the latest.
    """
    dated = {
        writer_id: WriterMark(mark.last, mark.stored_ms or modified_ms)
        for writer_id, mark in writers.items()
    }
    return {
        writer_id: mark for writer_id, mark in dated.items() if not expired(mark, now_ms, limit_ms)
    }


def tombstone_expired(tombstone: Tombstone, now_ms: int, limit_ms: int) -> bool:
    """Whether the thing has been gone for `limit_ms`."""
    return tombstone.deleted_ms < now_ms - limit_ms
