"""The life of a container on a store: from an assignment to an open container, and its restarts.

Each step of an opening fences or proves a condition of the next one, hence this order:

    1. take the lease of the store's session, then the next container epoch on the placement
       (compare-and-set, at every open)
    2. choose the log, and create a new one in the journal's list if none can be continued
    3. open tier 2: its fence manifest deposes older owners, its catalog is the state
    4. open the log under the epoch and replay the operations after the catalog; load nothing else
    5. report OPEN with the log id, then serve

    assigned ──open──► open ──failure──► failed ──after a pause──► assigned …
        │               │                   │ after five in a row
        │               └─asked to leave    └──► disabled ─┐
        │                 └─► closed, released             ├── enabled by an operator ──► assigned
        ├──corruption, log or tier 2 not here──► offline ──┘
        └──no whole copy of a replicated log──► electing ──a controller──► assigned, anywhere

`closing.py` closes a container.

A container with a shared log may have failed on other stores before. Its restarts are counted over
all of them, by the placement. If the store's session ends, its containers with shared logs end, and
each is opened again under the next session unless it was placed elsewhere.

If the log of one container fails, only that container is opened again. A failure of the journal, or
of a sync of tier 2, ends the whole store, because the state of unsynced bytes is unknown.
"""

from collections.abc import Callable

import structlog

from anabranch.common.errors import (
    AnabranchError,
    CorruptJournal,
    Defect,
    Deposed,
    LogNotHere,
    OutcomeUnknown,
    SessionOver,
    SyncFailed,
    Unavailable,
    WrongHost,
)
from anabranch.common.model.cluster import REPLICATED, Placement, PlacementState
from anabranch.common.workflow.containment import naming_defects
from anabranch.segstore.domain.container.life import (
    SERVED_WELL_S,
    Restart,
    after_failure,
    shared_log_pauses,
)
from anabranch.segstore.shell.container.surroundings import Surroundings
from anabranch.segstore.shell.node.closing import Leave, LeaveRequest
from anabranch.segstore.shell.node.opening import Tiers, open_container
from anabranch.segstore.shell.node.placements import hands_over
from anabranch.segstore.shell.node.serving import named_error, serve_until_end
from anabranch.segstore.shell.node.store import OpenContainer, Store
from anabranch.segstore.shell.tables.parts import TableParts
from anabranch.segstore.shell.tiering.flusher import FlushLimits

_log = structlog.get_logger(__name__)


def told_reason(error: AnabranchError, container: int, state: PlacementState) -> str:
    """The reason that operators see for a container's end, with a command to run if it stays
    closed."""
    reason = f"{error.code}: {error}"
    if state is not PlacementState.OFFLINE:
        return reason
    in_journal = isinstance(error, CorruptJournal | LogNotHere)
    command = (
        "`anabranch segstore journal DIRECTORY`"
        if in_journal
        else f"`anabranch tier2 verify --container {container}`"
    )
    return f"{reason}; inspect with {command}"


UNREACHABLE_MAX = 2
"""Pauses before the next try for a placement grow up to those after so many failures, if the log
is on the same servers: they answer about a second after their return."""


class ContainerKeeper:
    """Keeps one container open for as long as it is assigned here."""

    def __init__(
        self,
        container: int,
        *,
        store: Store,
        tiers: Tiers,
        around: Surroundings,
        limits: FlushLimits,
        tables: TableParts,
        store_failed: Callable[[AnabranchError], None],
    ) -> None:
        self._container = container
        self._store = store
        self._tiers = tiers
        self._around = around
        self._limits = limits
        self._tables = tables
        self._store_failed = store_failed
        self._shared = not tiers.log.bound_to_store
        """Whether other stores can open the container."""
        self._restarts: int | None = None
        """Failures in a row; None until the first epoch is taken."""
        self._served_from_s: float | None = None
        """When the last opening began to serve; None if it did not."""
        self._taken: Placement | None = None
        self._log_id = ""
        """The log of the last opening."""
        self._leave_request = LeaveRequest()
        self.gave_up_epoch = 0
        """The container epoch under which the keeper gave up, until an operator enables the
        container."""
        self._newest_epoch = 0
        """The highest container epoch that the placement is known to have."""
        self.releasing = False
        """Whether the container is closed, and only its release is left to do."""

    def note_target(self, target: str, *, in_sync: bool = False) -> None:
        """Note whether the placement asks the container to move to the node `target`, or, with
        "", to stay. `in_sync`: whether the target can continue the log."""
        self._leave_request.note(asked=bool(target), hands_over=in_sync)

    def note_epoch(self, container_epoch: int) -> None:
        """Note the epoch of the placement.

        If another process of this node took it, the container ends, and is opened again. That
        process may have ended since, so no other one would open the container.
        """
        self._newest_epoch = max(self._newest_epoch, container_epoch)
        self._store.end_below(self._container, self._newest_epoch, self._overtaken())

    def _overtaken(self) -> Deposed:
        return Deposed(
            "another process took a higher container epoch for this node",
            container=self._container,
            found=self._newest_epoch,
        )

    async def run(self) -> None:
        """Open, serve, restart. Returns when the container is offline, disabled or another
        store's."""
        clock = self._around.clock
        unreachable = 0
        self._store.assign(self._container)
        while not self._store.stopping:
            began = clock.monotonic()
            self._taken = None
            try:
                with naming_defects("a loop of a container", OSError):
                    left = await self._open_and_serve()
                    if left is not None and not await self._release(left):
                        self._store.unassign(self._container)
                        return
            except WrongHost:
                self._store.unassign(self._container)
                return
            except SessionOver as over:
                self._log_failure("the container ended with the session of its store", over)
            except (AnabranchError, OSError) as caught:
                error = named_error(caught)
                if isinstance(error, Defect):
                    self._around.metrics.note_defect(error)
                if self._ends_store(error):
                    return
                if self._taken is None:
                    unreachable += 1
                    self._log_failure("cannot take over the placement, retrying", error)
                    await clock.sleep(self._around.back_off_s(self._grown(unreachable)))
                    continue
                unreachable = 0
                pause_s = await self._after(error, clock.monotonic() - began)
                if pause_s is None:
                    return
                await clock.sleep(pause_s)

    def _grown(self, unreachable: int) -> int:
        return min(unreachable, UNREACHABLE_MAX) if self._shared else unreachable

    async def _open_and_serve(self) -> Leave | None:
        """Serve until the container ends. Raises the error that ended it.

        Returns how the container left, if it is closed and must be released.
        """
        self._store.note_state(self._container, PlacementState.ASSIGNED)
        self._served_from_s = None
        lease = await self._around.session.joined()
        taken = self._taken = await self._tiers.placements.take_epoch(self._container)
        self.note_target(taken.target, in_sync=hands_over(taken))
        if self._restarts is None:
            self._restarts = taken.restarts if self._shared else 0
        opened = await open_container(
            taken, self._tiers, self._around, self._limits, self._tables, lease=lease
        )
        container = opened.container
        self._log_id = container.log.log_id

        def ended() -> None:
            self._store.closed(opened)
            opened.flusher.stop()
            if container.journal_failure is not None:
                self._store_failed(container.journal_failure)

        container.on_ended = ended
        try:
            await self._report_open(taken, opened)
            lease.check_session()
            if self._newest_epoch > taken.container_epoch:
                raise self._overtaken()
            if container.failure is not None:
                raise container.failure
            self._store.opened(opened)
            self._served_from_s = self._around.clock.monotonic()
            _log.info(
                "container open", container=self._container, container_epoch=taken.container_epoch
            )
            forget = self._forget_failures if self._shared and taken.restarts else None
            return await serve_until_end(opened, self._leave_request, self._around, forget)
        except AnabranchError as error:
            container.fail(error)
            raise
        finally:
            container.fail(Unavailable("the container is closing", container=self._container))

    async def _release(self, left: Leave) -> bool:
        """Release the closed container, retrying until it succeeds, because no other process can.

        Returns True if this store still owns it, as it does if the move was withdrawn.
        """
        self.releasing = True
        try:
            return await self._release_closed(left)
        finally:
            self.releasing = False

    async def _release_closed(self, left: Leave) -> bool:
        assert self._taken is not None
        attempts = 0
        log, placements = self._tiers.log, self._tiers.placements
        if log.bound_to_store:
            await log.remove_log(self._container, self._log_id)
        release = placements.hand_over if left is Leave.HANDED_OVER else placements.release
        while True:
            try:
                released = await release(self._taken)
            except (Unavailable, OutcomeUnknown) as failure:
                attempts += 1
                self._log_failure("the container cannot be released yet", failure)
                await self._around.clock.sleep(self._around.back_off_s(attempts))
                continue
            _log.info("the container was released", container=self._container, to=released.owner)
            break
        if not log.bound_to_store and left is Leave.FLUSHED:
            await self._remove_shared_log()
        return placements.is_mine(released)

    async def _remove_shared_log(self) -> None:
        """Delete the closed log, which no other store continues since the placement was released.

        If that fails, only its stream is left behind.
        """
        try:
            await self._tiers.log.remove_log(self._container, self._log_id)
        except Unavailable as failure:
            self._log_failure("the stream of the closed log was not deleted", failure)

    def _ends_store(self, error: AnabranchError) -> bool:
        """Whether the failure ends the whole store, because this process cannot open the
        container again."""
        failure = error if isinstance(error, SyncFailed) else self._tiers.log.failure
        if failure is None:
            return False
        self._log_failure("the container's failure ends the store", error)
        self._store_failed(failure)
        return True

    async def _report_open(self, taken: Placement, opened: OpenContainer) -> None:
        """Report OPEN. A failure to reach the placements does not count as one of the container."""
        try:
            await self._tiers.placements.report_open(
                taken,
                opened.container.log.log_id,
                self._tiers.log.journal_id if self._shared else "",
                opened.tier_two.abandoned,
            )
        except (Unavailable, OutcomeUnknown):
            self._taken = None
            raise

    async def _forget_failures(self) -> None:
        """Reset the placement's restarts once the container has served well.

        The next failure may happen on another store. If the placement cannot be reached, only the
        count stays too high.
        """
        assert self._taken is not None
        await self._around.clock.sleep(SERVED_WELL_S)
        try:
            await self._tiers.placements.report_well(self._taken)
        except AnabranchError as failure:
            self._log_failure("cannot reset the count of the container's restarts", failure)
        else:
            self._restarts = 0

    async def _after(self, error: AnabranchError, served_s: float) -> float | None:
        """Decide and report the next move; returns the pause before the next try, or None to
        give up."""
        taken = self._taken
        assert taken is not None
        assert self._restarts is not None
        replicated = taken.log_home == REPLICATED
        next_move = after_failure(error, self._restarts, served_s, replicated=replicated)
        self._restarts = next_move.restarts
        self._log_failure("the container failed", error)
        if isinstance(error, Defect):
            _log.error(
                "a defect ended a container",
                container=self._container,
                exc_info=error.__cause__,
            )
        if isinstance(next_move, Restart):
            await self._report_failed(taken, error, PlacementState.FAILED)
            return self._around.back_off_s(self._pauses(error, next_move.restarts))
        attempts = 1
        self.gave_up_epoch = taken.container_epoch
        while not await self._report_failed(taken, error, next_move.state):
            await self._around.clock.sleep(self._around.back_off_s(attempts))
            attempts += 1
        return None

    def _pauses(self, error: AnabranchError, restarts: int) -> int:
        if not self._shared:
            return restarts
        served_s = 0.0
        if self._served_from_s is not None:
            served_s = self._around.clock.monotonic() - self._served_from_s
        return shared_log_pauses(error, restarts, served_s)

    async def _report_failed(
        self, taken: Placement, error: AnabranchError, state: PlacementState
    ) -> bool:
        """Report the failure. False if the placement could not be reached.

        The keeper repeats the report of a final state, because no other process would make it.
        """
        self._store.note_state(self._container, state)
        reason = told_reason(error, self._container, state)
        try:
            await self._tiers.placements.report_failed(
                taken, restarts=self._restarts or 0, reason=reason, state=state
            )
        except (Deposed, WrongHost) as failure:
            self._log_failure("the container's failure no longer matters", failure)
        except (Unavailable, OutcomeUnknown) as failure:
            self._log_failure("cannot report the container's failure", failure)
            return False
        return True

    def _log_failure(self, event: str, error: AnabranchError) -> None:
        _log.warning(
            event,
            container=self._container,
            code=error.code,
            error=str(error),
            remedy=error.remedy_for("command"),
            restarts=self._restarts,
        )
