"""Transient segments of one connection: created through it, and deleted when it closes.

    create ──► remembered ──connection ends──► deletions queued in the containers' logs

The desk remembers a name before its container decides, so it never forgets a segment that exists.
When the connection closes, names of segments that were refused, merged or deleted are skipped. A
container that has been reopened since has already deleted its transient segments itself.
"""

from anabranch.common.errors import Overloaded
from anabranch.common.model.names import transient_name
from anabranch.common.runtime.ids import IdSource
from anabranch.common.wire.messages import CreateTransient, failed
from anabranch.segstore.domain.container.circumstances import Given
from anabranch.segstore.domain.container.operations import WRITER_ID_SIZE_BYTES
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.replies import Deliver
from anabranch.segstore.shell.node.store import Store

TRANSIENTS_MAX = 64
"""The limit for one connection."""


class TransientDesk:
    """The transient segments of one connection."""

    def __init__(self, store: Store, ids: IdSource) -> None:
        self._store = store
        self._ids = ids
        self._made: dict[str, Container] = {}
        self._closed = False

    def create(self, request: CreateTransient, deliver: Deliver) -> None:
        """CreateTransient → SegmentCreated.

        Raises Overloaded at the connection's limit, WrongHost, Unavailable.
        """
        container = self._store.find(request.segment, request.container_epoch).container
        half = WRITER_ID_SIZE_BYTES // 2
        unique = request.writer_id[:half].ljust(half, b"\0") + self._ids.new_bytes()[half:]
        name = transient_name(request.segment, unique)

        def create() -> None:
            if self._closed:  # the connection closed during the load and would never delete it
                return
            self._make_room()
            self._made[name] = container
            container.ask(request, deliver, Given(name=name))

        container.load_first((request.segment, name), create, lambda error: deliver(failed(error)))

    def _make_room(self) -> None:
        """Forget the segments that no longer exist, once the limit is reached. Raises
        Overloaded."""
        if len(self._made) < TRANSIENTS_MAX:
            return
        made = self._made
        self._made = {name: found for name, found in made.items() if found.has_transient(name)}
        if len(self._made) >= TRANSIENTS_MAX:
            raise Overloaded(
                "the connection has too many transient segments",
                remedy="merge or delete some of them, or use another connection",
                limit=TRANSIENTS_MAX,
            )

    def close(self) -> None:
        """Delete the segments, because the connection is gone."""
        self._closed = True
        made, self._made = self._made, {}
        for name, container in made.items():
            container.end_transients((name,))
