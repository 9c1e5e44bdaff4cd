"""Registers a store with the cluster, and reads the number of containers at the start.

The store rewrites its record as a sign of life, and marks it *stopped* after a clean shutdown. The
record is never deleted, because containers may be placed on the store. Each confirmed beat renews
the lease of the store's session. If a controller has ended the session, the store begins another
one, and its record names that from the next beat on.

If the record says that the store is not registered, the store waits without beats until there is an
SPU with its node id. Its containers with shared logs end at once and fail over meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable
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
    ObjectExists,
    OutcomeUnknown,
    ProcessReplaced,
    RevisionConflict,
    SessionOver,
    Unavailable,
)
from anabranch.common.eventsourcing.beats import LAST_WORD_S_MAX, Beats
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.model.cluster import NodeRecord
from anabranch.common.model.joining import join_proof
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.segstore.shell.node.session import StoreSession

POLL_S = 0.25
WAIT_POLL_S = 0.5

_log = structlog.get_logger(__name__)


def _nothing(_reason: str) -> None:
    return


async def _always() -> bool:
    return True


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
        is_registered: Callable[[], Awaitable[bool]] = _always,
        reported: Callable[[str], None] = _nothing,
    ) -> None:
        """`is_registered`: whether there is an SPU with the node's id. `reported` gets the reason
        why the store waits for that, and "" when it waits no more."""
        self._is_registered = is_registered
        self._reported = reported
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
                    session = self._end_session(over)
                    await self._wait_for_registration()
                    self._beats.begin(session)
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

    def _end_session(self, over: SessionOver) -> str:
        """End the session with all that relies on it; returns the id of the next one."""
        session = self._ids.new_id()
        _log.warning(
            "a controller ended the session of this store: another session begins",
            code=over.code,
            former=self._session.id,
            session=session,
            remedy=over.remedy_for("command"),
        )
        self._session.over(session, over)
        return session

    async def _wait_for_registration(self) -> None:
        """Return once the store may begin a session. While it waits, its record says so."""
        refused = False
        while True:
            try:
                waiting = await self._is_unregistered(announce=refused)
            except (Unavailable, OutcomeUnknown, ObjectExists):
                waiting = True
            if not waiting:
                break
            if not refused:
                self._log_refused()
            refused = True
            await self._clock.sleep(WAIT_POLL_S)
        if refused:
            _log.info("an SPU with the node id of this store is registered")
            self._reported("")

    async def _is_unregistered(self, *, announce: bool) -> bool:
        """Whether the record says that the store is not registered, and no SPU has its node id.

        `announce`: write the record again if the controllers have forgotten the store. Raises
        Unavailable, OutcomeUnknown, ObjectExists.
        """
        name = self._node.node_id
        found = await self._nodes.get(name)
        if found is not None and not _is_unregistered(found):
            return False
        if await self._is_registered():
            return False
        if found is None and announce:
            waiting = replace(self._record(), over=True, unregistered=True)
            await self._nodes.create(name, node_to_bytes(waiting))
        return found is not None or announce

    def _log_refused(self) -> None:
        _log.warning(
            "the controllers refuse this store, because no SPU with its node id is registered; it "
            "waits",
            node=self._node.node_id,
            remedy="register an SPU of this name: `anabranch spu register --help`",
        )
        self._reported("no SPU with this store's node id is registered")

    async def end(self) -> None:
        """Mark the record as stopped; call this after `run` has ended."""
        await self._beats.end(node_to_bytes(replace(self._record(), stopped=True)))
        try:
            async with asyncio.timeout(LAST_WORD_S_MAX):
                await self._end_unregistered()
        except (TimeoutError, Unavailable, OutcomeUnknown, RevisionConflict) as why:
            _log.warning("cannot announce the end of this process", error=repr(why))

    async def _end_unregistered(self) -> None:
        """Mark the record of an unregistered store as stopped, so that it is soon forgotten."""
        found = await self._nodes.get(self._node.node_id)
        if found is not None and _is_unregistered(found):
            last_word = replace(node_from_bytes(found.value), stopped=True)
            await self._nodes.update(found.key, node_to_bytes(last_word), found.revision)


def _is_unregistered(found: StoredObject) -> bool:
    try:
        return node_from_bytes(found.value).unregistered
    except Corrupt:
        return False


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
