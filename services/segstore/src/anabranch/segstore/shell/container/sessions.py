"""Append sessions: a writer's claim on a segment, over one connection.

    setup ──► alive ──► over      by a refusal, by a newer setup of the same writer and segment
                                  (on any connection), or by the end of the connection or the
                                  container

A session that is over answers every further append with SessionEnded, until the next setup.
"""

from collections import Counter
from collections.abc import Callable

from anabranch.common.wire.messages import Message, SetupAppend

Send = Callable[[Message, int], None]
"""(message, request id)."""


class AppendSession:
    """One session; compared by identity."""

    __slots__ = ("alive", "number", "segment", "send", "session", "writer_id")

    def __init__(
        self, session: int, segment: str, number: int, writer_id: bytes, send: Send
    ) -> None:
        self.session = session
        self.segment = segment
        self.number = number
        self.writer_id = writer_id
        self.send = send
        self.alive = True


class LiveSessions:
    """The one live session per (segment, writer id) of a container."""

    def __init__(self) -> None:
        self._live: dict[tuple[int, bytes], AppendSession] = {}
        self._segments: Counter[str] = Counter()

    def begin(self, request: SetupAppend, number: int, send: Send) -> AppendSession:
        """Make a session the live one of its writer on the segment `number`, and end an older
        one."""
        key = (number, request.writer_id)
        session = AppendSession(request.session, request.segment, *key, send)
        older = self._live.get(key)
        if older is not None:
            self.end(older)
        self._live[key] = session
        self._segments[session.segment] += 1
        return session

    def end(self, session: AppendSession) -> None:
        """End the session; harmless if it is over."""
        session.alive = False
        key = (session.number, session.writer_id)
        if self._live.get(key) is session:
            del self._live[key]
            self._segments[session.segment] -= 1
            if not self._segments[session.segment]:
                del self._segments[session.segment]

    def any_on(self, segment: str) -> bool:
        """Whether the segment has a live session."""
        return segment in self._segments

    def is_live(self, number: int, writer_id: bytes) -> bool:
        """Whether the writer has a live session on the segment."""
        return (number, writer_id) in self._live

    def end_all(self) -> None:
        """End all sessions, because the container ends."""
        for session in self._live.values():
            session.alive = False
        self._live.clear()
        self._segments.clear()
