"""Requests to note, list and remove writer marks, which Redis keeps per stream incarnation."""

from anabranch.common.contracts import writer_times as asked
from anabranch.common.contracts.base import Contract
from anabranch.common.errors import Unavailable
from anabranch.controller.handlers.desk.desk import QueryDesk, Table, meant_stream
from anabranch.controller.handlers.desk.pages import page_of
from anabranch.controller.ports import WriterTimes

PAGE_SIZE_MAX = 200
"""A mark may name a thousand segments, so a page holds fewer marks than other pages."""


async def note_time(desk: QueryDesk, query: asked.NoteTime) -> Contract:
    """Keep the writer's mark. Raises StreamNotFound, ScopeNotFound, InvalidRequest, Overloaded,
    Unavailable."""
    times = times_of(desk)
    stream = (await meant_stream(desk, query, query.incarnation)).state
    assert stream.ref is not None
    positions = tuple(sorted(query.positions))
    await times.note(stream.ref, stream.incarnation, query.writer_id, query.timestamp_ms, positions)
    return asked.TimeNoted(incarnation=stream.incarnation)


async def remove_writer(desk: QueryDesk, query: asked.RemoveWriter) -> Contract:
    """Remove the writer's mark. Raises StreamNotFound, ScopeNotFound, Unavailable."""
    times = times_of(desk)
    stream = (await meant_stream(desk, query, query.incarnation)).state
    assert stream.ref is not None
    was_known = await times.remove(stream.ref, stream.incarnation, query.writer_id)
    return asked.WriterRemoved(was_known=was_known)


async def list_writer_marks(desk: QueryDesk, query: asked.ListWriterMarks) -> Contract:
    """The marks, a page at a time. Raises StreamNotFound, ScopeNotFound, Unavailable."""
    times = times_of(desk)
    stream = (await meant_stream(desk, query, None)).state
    assert stream.ref is not None
    count = min(query.page_size, PAGE_SIZE_MAX)
    found = await times.page(stream.ref, stream.incarnation, query.page_token, count)
    marks, more = page_of(found.marks, count)
    return asked.WriterMarkList(
        incarnation=stream.incarnation,
        now_ms=found.now_ms,
        marks=marks,
        next_page_token=marks[-1].writer_id if more else found.following,
    )


def times_of(desk: QueryDesk) -> WriterTimes:
    """Where marks are kept. Raises Unavailable without Redis."""
    if desk.writer_times is None:
        raise Unavailable(
            "this cluster does not record writers' times",
            remedy="run the controllers with Redis: set ANABRANCH_CONTROLLER_REDIS_URL",
        )
    return desk.writer_times


QUERIES: Table = {"list_writer_marks": (asked.ListWriterMarks, list_writer_marks)}

ACTIONS: Table = {
    "note_time": (asked.NoteTime, note_time),
    "remove_writer": (asked.RemoveWriter, remove_writer),
}
