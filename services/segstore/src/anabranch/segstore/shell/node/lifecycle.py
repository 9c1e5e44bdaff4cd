"""The life of a container on a store: from an assignment to an open container, and its restarts.

Each step of an opening fences or proves a condition of the next one, hence this order:

    1. take the next container epoch on the placement (compare-and-set, at every open)
    2. choose the log, and create a new one in the journal's list if none can be continued
    3. open tier 2: its fence manifest deposes older owners, its catalog is the state
    4. open the log under the epoch and replay the operations after the catalog; load nothing else
    5. report OPEN with the log id, then serve

    assigned ──open──► open ──failure──► failed ──after a pause──► assigned …
        │               │                   │ after five in a row
        │               └─asked to leave    └──► disabled ─┐
        │                 └─► closed, released             ├── enabled by an operator ──► assigned
        └──corruption, log or tier 2 not here──► offline ──┘

`closing.py` closes a container.

If the log of one container fails, only that container is opened again. A failure of the journal, or
of a sync of tier 2, ends the whole store, because the state of unsynced bytes is unknown.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from anabranch.common.errors import (
    AnabranchError,
    CorruptJournal,
    Defect,
    Deposed,
    DiskFailed,
    LogNotHere,
    OutcomeUnknown,
    SyncFailed,
    Unavailable,
    WrongHost,
)
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.common.runtime.ids import IdSource
from anabranch.common.workflow.containment import naming_defects
from anabranch.segstore.domain.container.life import Restart, after_failure
from anabranch.segstore.domain.storage.log_choice import choose_log, is_plain
from anabranch.segstore.ports import DurableDataLog, OpenTierTwo
from anabranch.segstore.shell.container.contained_source import ContainedSource
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.replay import Replay
from anabranch.segstore.shell.container.surroundings import Surroundings
from anabranch.segstore.shell.node.closing import close_container
from anabranch.segstore.shell.node.leftovers import end_leftovers
from anabranch.segstore.shell.node.placements import Placements
from anabranch.segstore.shell.node.store import OpenContainer, Store
from anabranch.segstore.shell.tables.parts import TableParts
from anabranch.segstore.shell.tables.serving import TableLoops
from anabranch.segstore.shell.tiering.collector import Collector
from anabranch.segstore.shell.tiering.eviction import evict
from anabranch.segstore.shell.tiering.flusher import Flusher, FlushLimits

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


def named_error(error: BaseException) -> AnabranchError:
    """The error with a code and a remedy, also for errors of the operating system and a
    cancellation."""
    if isinstance(error, AnabranchError):
        return error
    if isinstance(error, OSError):
        return DiskFailed("a read of stored bytes failed", cause=str(error))
    return Unavailable("the container is closing")


@dataclass(frozen=True, slots=True)
class Tiers:
    """The places of a container's state of record."""

    log: DurableDataLog
    open_tier_two: OpenTierTwo
    placements: Placements
    ids: IdSource


async def open_container(
    placement: Placement,
    tiers: Tiers,
    around: Surroundings,
    limits: FlushLimits,
    tables: TableParts,
) -> OpenContainer:
    """Steps 2 to 4, under the epoch of `placement`. No request reaches the container yet.

    Raises LogNotHere, TierTwoNotHere, Deposed, Corrupt errors, DiskFailed, Unavailable, OSError.
    """
    container = placement.container
    log_id = await _log_of(placement, tiers)
    tier_two = await tiers.open_tier_two(
        container,
        placement.container_epoch,
        log_id,
        new_log=not (placement.log_id or placement.previous_log),
        void=placement.void,
    )
    opened = Container(container, placement.container_epoch, tier_two, around)
    log = await tiers.log.open_log(
        container, log_id, placement.container_epoch, ContainedSource(opened)
    )
    try:
        replay = Replay(opened, tier_two)
        async for frame in log.replay(tier_two.applied_sequence):
            await replay.apply(frame)
            await around.clock.sleep(0)
        opened.serve(log)
        # An earlier process may have crashed between its manifest and its release.
        await log.release(tier_two.applied_sequence)
    except BaseException as error:
        log.close()
        opened.fail(named_error(error))
        raise
    flusher = Flusher(
        opened,
        tier_two,
        clock=around.clock,
        throttle=around.throttle,
        call_later=around.call_later,
        limits=limits,
        back_off_s=around.back_off_s,
    )
    collector = Collector(opened, tier_two, around.clock, flusher.hurry)
    loops = TableLoops(opened, tier_two, around, tables)
    return OpenContainer(opened, tier_two, flusher, collector, loops)


async def _log_of(placement: Placement, tiers: Tiers) -> str:
    """The id of the log to continue, which exists here. Raises LogNotHere, Unavailable."""
    container, log = placement.container, tiers.log
    here = await log.find_log(container, placement.log_id)
    newest = None
    if not is_plain(placement.log_id, here):
        newest = await tiers.open_tier_two.newest_log(container)
        if newest is not None and newest.log_id != placement.log_id:
            here = await log.find_log(container, newest.log_id)
    chosen = choose_log(container, placement.log_id, here, newest)
    if chosen is not None:
        return chosen
    if here.listing and here.listed is not None:
        _log.warning("removed an obsolete log", container=container, log=here.listed)
        await log.remove_log(container, here.listed)
    log_id = tiers.ids.new_id()
    await log.create_log(container, log_id)
    return log_id


async def _load(container: Container) -> None:
    """Load segments for waiting requests. Damage in tier 2 ends the container."""
    try:
        await container.loading.run(lambda: evict(container))
    except AnabranchError as error:
        container.fail(error)


async def _flush_and_collect(
    opened: OpenContainer, asked: asyncio.Event, around: Surroundings
) -> bool:
    """Run the loops of a container until it ends. Raises the error that ended it.

    Returns True if it was `asked` to leave and is closed.
    """
    ended: AnabranchError | OSError | None = None
    async with asyncio.TaskGroup() as group:
        closing = group.create_task(_close_when_asked(opened, asked, around))
        beside = [
            group.create_task(opened.collector.run()),
            group.create_task(_load(opened.container)),
            group.create_task(
                end_leftovers(opened.container, opened.tier_two, around.clock, around.back_off_s)
            ),
            group.create_task(opened.tier_two.leave_receipts()),
            group.create_task(opened.table_loops.run()),
            closing,
        ]
        try:
            await opened.flusher.run()
        except (AnabranchError, OSError) as error:
            ended = error
            # This also ends loops that missed their cancellation.
            opened.container.fail(named_error(error))
        finally:
            for task in beside:
                task.cancel()
    if closing.done() and not closing.cancelled() and closing.result():
        return True
    if ended is not None:
        raise ended
    return False


async def _close_when_asked(
    opened: OpenContainer, asked: asyncio.Event, around: Surroundings
) -> bool:
    """Close and end the container. False if closing failed, which also ended the container."""
    container = opened.container
    await asked.wait()
    _log.info("the container is closing, to leave this store", container=container.container)
    try:
        await close_container(opened, around.clock, around.back_off_s)
    except (AnabranchError, OSError) as error:
        container.fail(named_error(error))
        return False
    container.fail(Unavailable("the container moves to another store"))
    return True


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
        self._restarts = 0
        self._taken: Placement | None = None
        self._log_id = ""
        """The log of the last opening."""
        self._asked_to_leave = asyncio.Event()
        self.gave_up_epoch = 0
        """The container epoch under which the keeper gave up, until an operator enables the
        container."""

    def note_target(self, target: str) -> None:
        """Note whether the placement asks the container to move to the node `target`, or, with
        "", to stay."""
        if target:
            self._asked_to_leave.set()
        else:
            self._asked_to_leave.clear()

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
                    if await self._open_and_serve() and not await self._release():
                        self._store.unassign(self._container)
                        return
            except WrongHost:
                self._store.unassign(self._container)
                return
            except (AnabranchError, OSError) as caught:
                error = named_error(caught)
                if isinstance(error, Defect):
                    self._around.metrics.note_defect(error)
                if self._ends_store(error):
                    return
                if self._taken is None:
                    unreachable += 1
                    self._log_failure("cannot take over the placement, retrying", error)
                    await clock.sleep(self._around.back_off_s(unreachable))
                    continue
                unreachable = 0
                pause_s = await self._after(error, clock.monotonic() - began)
                if pause_s is None:
                    return
                await clock.sleep(pause_s)

    async def _open_and_serve(self) -> bool:
        """Serve until the container ends. Raises the error that ended it.

        Returns True if the container is closed and must be released.
        """
        self._store.note_state(self._container, PlacementState.ASSIGNED)
        taken = self._taken = await self._tiers.placements.take_epoch(self._container)
        self.note_target(taken.target)
        opened = await open_container(taken, self._tiers, self._around, self._limits, self._tables)
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
            if container.failure is not None:
                raise container.failure
            self._store.opened(opened)
            _log.info(
                "container open", container=self._container, container_epoch=taken.container_epoch
            )
            return await _flush_and_collect(opened, self._asked_to_leave, self._around)
        except AnabranchError as error:
            container.fail(error)
            raise
        finally:
            container.fail(Unavailable("the container is closing", container=self._container))

    async def _release(self) -> bool:
        """Release the closed container, retrying until it succeeds, because no other process can.

        Returns True if this store still owns it, as it does if the move was withdrawn.
        """
        assert self._taken is not None
        attempts = 0
        log = self._tiers.log
        if log.bound_to_store:
            await log.remove_log(self._container, self._log_id)
        while True:
            try:
                released = await self._tiers.placements.release(self._taken)
            except (Unavailable, OutcomeUnknown) as failure:
                attempts += 1
                self._log_failure("the container cannot be released yet", failure)
                await self._around.clock.sleep(self._around.back_off_s(attempts))
                continue
            _log.info("the container was released", container=self._container, to=released.owner)
            break
        if not log.bound_to_store:
            await self._remove_shared_log()
        return self._tiers.placements.is_mine(released)

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
                taken, opened.container.log.log_id, opened.tier_two.abandoned
            )
        except (Unavailable, OutcomeUnknown):
            self._taken = None
            raise

    async def _after(self, error: AnabranchError, served_s: float) -> float | None:
        """Decide and report the next move; returns the pause before the next try, or None to
        give up."""
        taken = self._taken
        assert taken is not None
        next_move = after_failure(error, self._restarts, served_s)
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
            return self._around.back_off_s(next_move.restarts)
        attempts = 1
        self.gave_up_epoch = taken.container_epoch
        while not await self._report_failed(taken, error, next_move.state):
            await self._around.clock.sleep(self._around.back_off_s(attempts))
            attempts += 1
        return None

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
                taken, restarts=self._restarts, reason=reason, state=state
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
