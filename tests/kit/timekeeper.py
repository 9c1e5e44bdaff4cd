"""A controller that is told the time by writers."""

from anabranch.common.contracts import writer_times as times
from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.contracts.queries import QueryFailed
from anabranch.common.errors import InvalidRequest
from kit.fake_controller import FakeController


class Timekeeper(FakeController):
    """Keeps the last mark of each writer, and refuses a time that goes back."""

    def answer(self, name: str, data: bytes) -> Contract:
        if name not in times.QUERIES:
            return super().answer(name, data)
        query = times.QUERIES[name].query.model_validate_json(data)
        marks = vars(self).setdefault("marks", {})
        if isinstance(query, times.RemoveWriter):
            return times.WriterRemoved(was_known=marks.pop(query.writer_id, None) is not None)
        assert isinstance(query, times.NoteTime)
        known = marks.get(query.writer_id)
        if known is not None and query.timestamp_ms < known.timestamp_ms:
            error = InvalidRequest("the time goes back", noted_ms=known.timestamp_ms)
            return QueryFailed(error=ErrorBody.of(error))
        marks[query.writer_id] = query
        return times.TimeNoted(incarnation=1)
