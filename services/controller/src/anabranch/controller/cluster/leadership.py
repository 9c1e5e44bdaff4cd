"""Keeps one controller leading: follows the leader's record, and takes it if its session is over.

Owns: the record as last seen by the watch. `domain/leadership.py` decides; it explains why two
leaders at once for a moment do no harm.
"""

import asyncio
from collections.abc import Callable

import structlog

from anabranch.common.contracts.cluster import (
    LEADER_KEY,
    controller_from_bytes,
    leader_from_bytes,
    leader_to_bytes,
)
from anabranch.common.errors import (
    Corrupt,
    FormatTooNew,
    ObjectExists,
    Retry,
    RevisionConflict,
    Unknown,
)
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.model.cluster import LeaderRecord
from anabranch.common.runtime.clock import Clock
from anabranch.controller.cluster.membership import Membership
from anabranch.controller.domain.cluster.leadership import Lead, Take, next_role
from anabranch.controller.domain.cluster.liveness import Kind

LOOK_S = 1.0
RETRY_S = 0.5
CALL_S_MAX = 2.0
FORGET_S = 24 * 3600.0

_NOT_TAKEN = (Retry, Unknown, Corrupt, ObjectExists, RevisionConflict)
_log = structlog.get_logger(__name__)


class Leadership:
    """Whether this controller leads, and the current leader."""

    def __init__(
        self, cluster: ObjectStore, controllers: ObjectStore, members: Membership, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._controllers = controllers
        self._members = members
        self._clock = clock
        self._stored: StoredObject | None = None
        self._found: LeaderRecord | None = None
        self._listed = False
        self._too_new = False
        self._led_term = 0
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        members.on_change(self._changed.set)

    @property
    def leader(self) -> LeaderRecord | None:
        """The leader as far as known; None if its session is over."""
        found = self._found
        return found if found is not None and not self._seems_over(found) else None

    @property
    def leading(self) -> bool:
        """Whether this controller leads. False while it does not see its own beats."""
        me, found = self._members.me, self._found
        if found is None or not self._members.seeing:
            return False
        return (found.controller_id, found.session) == (me.controller_id, me.session)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the leader's record changes."""
        self._listeners.append(listener)

    async def serve(self) -> None:
        """Follow the record, and take it when needed, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._decide())

    async def _watch(self) -> None:
        while True:
            try:
                async for found in self._cluster.watch():
                    if found is None:
                        self._listed = True
                    elif found.key == LEADER_KEY:
                        self._learn(found)
                    self._changed.set()
            except Retry as error:
                _log.warning("the watch of the leader was interrupted", error=str(error))
            await self._clock.sleep(RETRY_S)

    def _learn(self, found: StoredObject) -> None:
        self._stored, self._too_new = found, False
        try:
            self._found = leader_from_bytes(found.value) if found.value else None
        except Corrupt as error:
            # A damaged record is replaced; a record of a newer release must not be.
            self._too_new = isinstance(error, FormatTooNew)
            remedy = error.remedy_for("command")
            _log.error("the leader's record cannot be read", error=str(error), remedy=remedy)
            self._found = None
        if self._found is not None:
            _log.info(
                "a controller leads",
                controller=self._found.controller_id,
                term=self._found.term,
            )
        for listener in self._listeners:
            listener()

    async def _decide(self) -> None:
        while True:
            self._changed.clear()
            try:
                async with asyncio.timeout(CALL_S_MAX):
                    await self._step()
            except (TimeoutError, *_NOT_TAKEN) as error:
                # Another controller was faster, or the outcome is unknown: the watch will show the
                # winner.
                _log.info("cannot change the leader's record", why=repr(error))
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _step(self) -> None:
        if not self._listed or self._too_new or not self._members.complete:
            return
        me, found = self._members.me, self._found
        role = next_role(
            found,
            me.controller_id,
            me.session,
            over=found is not None and self._seems_over(found),
            seeing=self._members.seeing,
        )
        if isinstance(role, Lead) and role.term != self._led_term:
            self._led_term = role.term
            _log.info("this controller leads", term=role.term)
        if isinstance(role, Lead):
            await self._members.forget(FORGET_S)
        if not isinstance(role, Take):
            return
        if found is not None and await self._is_there(found):
            return
        value = leader_to_bytes(role.record)
        if self._stored is None or not self._stored.value:
            await self._cluster.create(LEADER_KEY, value)
        else:
            await self._cluster.update(LEADER_KEY, value, self._stored.revision)

    def _seems_over(self, found: LeaderRecord) -> bool:
        standing = self._members.standing(Kind.CONTROLLER, found.controller_id)
        if standing is None:
            return self._members.complete
        return not standing.live or standing.seen.session != found.session

    async def _is_there(self, found: LeaderRecord) -> bool:
        """Whether the leader's record of itself shows that it lives, although the watch lags
        behind.

        If the leader was seen and judged dead, the verdict stands and its record is not read again.
        """
        standing = self._members.standing(Kind.CONTROLLER, found.controller_id)
        if standing is not None and not standing.live:
            return False
        stored = await self._controllers.get(found.controller_id)
        if stored is None:
            return False
        return controller_from_bytes(stored.value).session == found.session
