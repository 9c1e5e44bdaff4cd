"""Opens a container under a container epoch that its store has just taken on the placement.

    choose the log, or create one ──► open tier 2: its fence manifest deposes older owners
      ──► open the log under the epoch ──► replay the operations that tier 2 lacks

Tier 2 comes first: a new owner of a shared log then starts at least at the state up to which older
owners may have removed frames. `lifecycle.py` says why the epoch is taken before and the placement
changed after.
"""

from dataclasses import dataclass

import structlog

from anabranch.common.errors import LogNotHere, Unavailable
from anabranch.common.model.cluster import Placement
from anabranch.common.runtime.ids import IdSource
from anabranch.common.tier2.manifest import LogBinding
from anabranch.segstore.domain.storage.log_choice import choose_log, is_plain
from anabranch.segstore.ports import DurableDataLog, OpenTierTwo, TierTwo
from anabranch.segstore.ports_replica import ReplicatedLogs
from anabranch.segstore.shell.container.contained_source import ContainedSource
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.lease import Lease
from anabranch.segstore.shell.container.replay import Replay
from anabranch.segstore.shell.container.surroundings import Surroundings
from anabranch.segstore.shell.node.placements import Placements
from anabranch.segstore.shell.node.serving import named_error
from anabranch.segstore.shell.node.store import OpenContainer
from anabranch.segstore.shell.tables.parts import TableParts
from anabranch.segstore.shell.tables.serving import TableLoops
from anabranch.segstore.shell.tiering.collector import Collector
from anabranch.segstore.shell.tiering.flusher import Flusher, FlushLimits

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Tiers:
    """The places of a container's state of record."""

    log: DurableDataLog
    open_tier_two: OpenTierTwo
    placements: Placements
    ids: IdSource
    replicated: ReplicatedLogs | None = None
    """The same place as `log`, if stores replicate the logs."""


async def open_container(
    placement: Placement,
    tiers: Tiers,
    around: Surroundings,
    limits: FlushLimits,
    tables: TableParts,
    *,
    lease: Lease,
) -> OpenContainer:
    """Steps 2 to 4, under the epoch of `placement`. No request reaches the container yet.

    `lease` is that of the session under which the epoch was taken.

    Raises LogNotHere, TierTwoNotHere, Deposed, Corrupt errors, DiskFailed, Unavailable, OSError.
    """
    container = placement.container
    chosen = await _log_of(placement, tiers)
    tier_two = await _tier_two_of(placement, tiers, chosen)
    if tiers.replicated is not None:
        tiers.replicated.continue_above(container, tier_two.applied_sequence)
    opened = Container(container, placement.container_epoch, tier_two, around, lease)
    log = await tiers.log.open_log(
        container, chosen.log_id, placement.container_epoch, ContainedSource(opened)
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


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The log to continue. `looked`: whether the newest manifest counted, which named `newest`."""

    log_id: str
    newest: LogBinding | None = None
    looked: bool = False


async def _log_of(placement: Placement, tiers: Tiers) -> _Chosen:
    """The log to continue, which exists here. Raises LogNotHere, Unavailable."""
    container, log = placement.container, tiers.log
    here = await log.find_log(container, placement.log_id)
    if is_plain(placement.log_id, here):
        return _Chosen(placement.log_id or await _new_log(container, tiers))
    newest = await tiers.open_tier_two.newest_log(container)
    if newest is not None and newest.log_id != placement.log_id:
        here = await log.find_log(container, newest.log_id)
    log_id = choose_log(container, placement.log_id, here, newest, log.journal_id)
    if log_id is None:
        if here.listing and here.listed is not None:
            _log.warning("removed an obsolete log", container=container, log=here.listed)
            await log.remove_log(container, here.listed)
        log_id = await _new_log(container, tiers)
    return _Chosen(log_id, newest, looked=True)


async def _new_log(container: int, tiers: Tiers) -> str:
    log_id = tiers.ids.new_id()
    await tiers.log.create_log(container, log_id)
    return log_id


async def _tier_two_of(placement: Placement, tiers: Tiers, chosen: _Chosen) -> TierTwo:
    """Open tier 2 for the chosen log.

    A process that took an older epoch may write its fence manifest, with another log, after the
    choice and before our fence. The choice is then outdated: another opening continues in that log.
    Raises the errors of `open_container`.
    """
    container = placement.container
    try:
        return await tiers.open_tier_two(
            container,
            placement.container_epoch,
            chosen.log_id,
            new_log=not (placement.log_id or placement.previous_log),
            void=placement.void,
        )
    except LogNotHere as error:
        if not chosen.looked or await tiers.open_tier_two.newest_log(container) == chosen.newest:
            raise
        raise Unavailable(
            "another opening of the container chose a log at the same time",
            container=container, log_id=chosen.log_id,
        ) from error  # fmt: skip
