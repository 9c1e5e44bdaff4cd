"""Setups and appends, within the sessions of one connection or without a session.

`AppendDesk` keeps the connection's sessions under the numbers that the client chose. An append is a
dictionary look-up and a call of the container, and never waits; a setup waits until its segment is
resident.

A door without connections serves `AppendOnce`, a control request that names segment and writer
itself, and `setup_without_session`. One writer may mix both kinds: the result of an append depends
on the writer's event numbers alone, so a late or repeated append is a duplicate, a gap or the next
one, by whichever path it arrives. A mix can cost the writer its session, because a refusal ends it.
"""

from anabranch.common.errors import AnabranchError, SessionEnded
from anabranch.common.wire.messages import Append, SetupAppend, failed
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.replies import Deliver
from anabranch.segstore.shell.container.sessions import AppendSession, Send
from anabranch.segstore.shell.node.store import Store

SESSIONS_MAX = 10_000


class AppendDesk:
    """The append sessions of one connection. `send` writes to it."""

    def __init__(self, store: Store, send: Send) -> None:
        self._store = store
        self._send = send
        self._sessions: dict[int, tuple[Container, AppendSession]] = {}
        self._setups: dict[int, SetupAppend] = {}
        """The last waiting setup of each session number."""

    def setup(self, request_id: int, request: SetupAppend) -> None:
        """SetupAppend → AppendSetup. Ends an older session with the same number in any case."""
        self._end(request.session)
        self._setups[request.session] = request

        def refuse(error: AnabranchError) -> None:
            if self._setups.get(request.session) is request:
                del self._setups[request.session]
            self._send(failed(error, request.session), request_id)

        try:
            container = self._store.find(request.segment, request.container_epoch).container
            container.load_first(
                (request.segment,), lambda: self._set_up(container, request_id, request), refuse
            )
        except AnabranchError as error:
            refuse(error)

    def _set_up(self, container: Container, request_id: int, request: SetupAppend) -> None:
        """Raises SessionEnded if the connection closed or a newer setup took the number while
        this waited."""
        if self._setups.get(request.session) is not request:
            raise SessionEnded("the append session ended before its segment was loaded")
        del self._setups[request.session]
        self._make_room()
        session = container.setup(request, request_id, self._send)
        if session is not None:
            self._sessions[request.session] = (container, session)

    def append(self, request_id: int, request: Append, payload: bytes) -> None:
        """Append → Appended."""
        found = self._sessions.get(request.session)
        try:
            if found is None:
                raise SessionEnded("the connection has no such append session")
            container, session = found
            container.append(session, request_id, request, payload)
        except AnabranchError as error:
            self._end(request.session)
            self._send(failed(error, request.session), request_id)

    def _make_room(self) -> None:
        """Drop the sessions that are over, or else the oldest one.

        Clients do not announce that they no longer use a session. A writer that still uses the
        dropped session gets SessionEnded and sets up again.
        """
        if len(self._sessions) < SESSIONS_MAX:
            return
        over = [number for number, (_, found) in self._sessions.items() if not found.alive]
        for number in over or [next(iter(self._sessions))]:
            self._end(number)

    def _end(self, number: int) -> None:
        found = self._sessions.pop(number, None)
        if found is not None:
            container, session = found
            container.sessions.end(session)

    def close(self) -> None:
        """End all sessions, because the connection is gone."""
        self._setups.clear()
        for number in tuple(self._sessions):
            self._end(number)


def setup_without_session(store: Store, request: SetupAppend, deliver: Deliver) -> None:
    """SetupAppend → AppendSetup. Ends the writer's older session and opens no new one.

    A session would have no connection whose end ends it. Raises WrongHost, Unavailable.
    """
    container = store.find(request.segment, request.container_epoch).container

    def set_up() -> None:
        session = container.setup(request, 0, lambda message, _: deliver(message))
        if session is not None:
            container.sessions.end(session)

    container.load_first(
        (request.segment,), set_up, lambda error: deliver(failed(error, request.session))
    )
