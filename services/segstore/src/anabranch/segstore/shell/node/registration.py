"""Registers a store with the cluster, and reads the number of containers at the start.

The store rewrites its record as a sign of life, and marks it *stopped* after a clean shutdown. The
record is never deleted, because containers may be placed on the store. Each confirmed beat renews
the lease of the store's session. If a controller has ended the session, the store begins another
one, and its record names that from the next beat on.
"""

from collections.abc import Callable
from dataclasses import replace

import structlog

from anabranch.common.contracts.cluster import (
    CONSTANTS_KEY,
    ClusterConstants,
    node_from_bytes,
    node_to_bytes,
)
from anabranch.common.errors import (
    AnabranchError,
    Corrupt,
    ProcessReplaced,
    SessionOver,
    Unavailable,
)
from anabranch.common.eventsourcing.beats import Beats
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import NodeRecord
from anabranch.common.model.joining import join_proof
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.segstore.shell.node.session import StoreSession

POLL_S = 0.25

_log = structlog.get_logger(__name__)


class Announcement:
    """The node's record, rewritten at intervals; it replaces the record of an earlier start.

    `node` gets the session's id and the proof that the store has the token of the cluster. `failed`
    is called if another store has taken the node's id.
    """

    def __init__(
        self,
        nodes: ObjectStore,
        node: NodeRecord,
        session: StoreSession,
        *,
        join_token: str,
        ids: IdSource,
        clock: Clock,
        failed: Callable[[AnabranchError], None],
    ) -> None:
        self._nodes = nodes
        self._node = node
        self._session = session
        self._join_token = join_token
        self._ids = ids
        self._clock = clock
        self._failed = failed
        self._beats = Beats(
            nodes,
            node.node_id,
            session.id,
            encode=lambda beat: node_to_bytes(replace(self._record(), beat=beat)),
            session_in=lambda value: node_from_bytes(value).session,
            over_in=lambda value: node_from_bytes(value).over,
            confirmed=session.renewed,
            clock=clock,
        )

    def _record(self) -> NodeRecord:
        session = self._session
        proof = join_proof(self._join_token, self._node.node_id, session.id)
        return replace(self._node, session=session.id, lease_s=session.lease_s, proof=proof)

    async def run(self) -> None:
        """Announce until cancelled, or until another store takes the id."""
        try:
            while True:
                try:
                    await self._beats.run()
                except SessionOver as over:
                    self._begin_again(over)
        except ProcessReplaced as error:
            self._failed(error)

    async def wait_for_former(self) -> None:
        """Let no container be opened before the lease of the record's session is over. Call it
        before `run`, if another process may still serve under this node's id."""
        while True:
            try:
                found = await self._nodes.get(self._node.node_id)
                break
            except Unavailable:
                await self._clock.sleep(POLL_S)
        if found is None:
            return
        try:
            lease_s = node_from_bytes(found.value).lease_s
        except Corrupt:
            lease_s = self._session.lease_s
        self._session.wait_for_former(lease_s)

    def _begin_again(self, over: SessionOver) -> None:
        """Begin another session, in whose name the next beat is sent."""
        session = self._ids.new_id()
        _log.warning(
            "a controller declared this store dead: another session begins",
            code=over.code,
            former=self._session.id,
            session=session,
            remedy=over.remedy_for("command"),
        )
        self._session.over(session, over)
        self._beats.begin(session)

    async def end(self) -> None:
        """Mark the record as stopped; call this after `run` has ended."""
        await self._beats.end(node_to_bytes(replace(self._record(), stopped=True)))


async def container_count(cluster: ObjectStore, clock: Clock) -> int:
    """The cluster's number of containers, as soon as the controller has written it."""
    while True:
        try:
            found = await cluster.get(CONSTANTS_KEY)
            if found is not None:
                return ClusterConstants.parsed(found.value).containers
        except Unavailable:
            pass  # retried below: a store may start before its message server
        await clock.sleep(POLL_S)
