"""Builds the periodic jobs; `periodic.job` describes how they run."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from anabranch.common.adapters.chunk_transient import transient_chunk_storage
from anabranch.common.contracts.load import LoadReport
from anabranch.common.eventsourcing.store_clock import StoreClock
from anabranch.common.model.names import StreamRef
from anabranch.controller.adapters.redis_timer_wheel import RedisTimerWheel
from anabranch.controller.cluster.buckets import Buckets
from anabranch.controller.domain.kinds import STREAMS, TRANSACTIONS
from anabranch.controller.domain.policies.gauge import Heard
from anabranch.controller.domain.policies.watermark import LastLook
from anabranch.controller.metrics import ControllerMetrics
from anabranch.controller.periodic.advance_watermarks import Sources, WatermarkAdvancer
from anabranch.controller.periodic.expire_transactions import Known, TransactionExpirer
from anabranch.controller.periodic.export_streams import StreamExporter
from anabranch.controller.periodic.job import Job
from anabranch.controller.periodic.purge_transactions import Purge, TransactionPurger
from anabranch.controller.periodic.retain_streams import StreamRetainer
from anabranch.controller.periodic.retain_topics import TopicRetainer, TopicView
from anabranch.controller.periodic.scale_streams import Scale, Seen, StreamScaler
from anabranch.controller.periodic.trim_events import EventTrimmer
from anabranch.controller.ports import TransactionTimers
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.scaling import ScalingStates
from anabranch.controller.projections.tail_cut import TailCuts
from anabranch.controller.projections.watermark_log import WatermarkLog
from anabranch.controller.wiring.cluster import LEASE_PREFIX
from anabranch.controller.wiring.surroundings import Surroundings
from anabranch.controller.workflows.context import WorkContext

TIER_TWO_CALL_S_MAX = 30.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Jobs:
    """`all` periodic jobs, and the parts of them that other components use.

    `expirer` learns of taken buckets, `purger` and `retainer` count for the metrics, and `exporter`
    learns of changed streams (None without tier 2). `scaler` learns of changed streams, load and
    taken buckets (None if auto-scaling is off), and `scaling` holds its findings. `advancer` counts
    for the metrics; it and `timers` are None without Redis.
    """

    all: tuple[Job, ...]
    expirer: TransactionExpirer
    purger: TransactionPurger
    retainer: StreamRetainer
    exporter: StreamExporter | None
    scaler: StreamScaler | None
    scaling: ScalingStates
    advancer: WatermarkAdvancer | None
    timers: TransactionTimers | None

    def reshaped(self, subject: str) -> None:
        """Tell the exporter that a stream's shape changed."""
        if self.exporter is not None:
            self.exporter.wake(subject)
        if self.scaler is not None:
            self.scaler.reshaped(subject)

    def learn(self, report: LoadReport) -> None:
        """A store told its load."""
        if self.scaler is not None:
            self.scaler.learn(report)

    def last_look(self, stream: StreamRef, incarnation: int) -> LastLook | None:
        """What was found of the watermark; None if another controller looks after the stream."""
        return None if self.advancer is None else self.advancer.last_look(stream, incarnation)

    def buckets_taken(self) -> None:
        """Look at once at the buckets that this controller took."""
        self.expirer.sweep_soon()
        if self.scaler is not None:
            self.scaler.sweep_soon()

    async def close(self) -> None:
        """Close the connections."""
        if self.timers is not None:
            await self.timers.close()


@dataclass(frozen=True, slots=True)
class Scaling:
    """The needs of auto-scaling: how the load of a segment is known, how a scale is decided, and
    where its findings are kept."""

    heard: Callable[[str], Heard | None]
    scale: Scale
    states: ScalingStates


def build_jobs(
    around: Surroundings,
    context: WorkContext,
    mirror: Mirror,
    *,
    buckets: Buckets,
    store_clock: StoreClock,
    purge: Purge,
    scaling: Scaling,
    retained: TopicView,
) -> Jobs:
    """Build all periodic jobs."""
    url = around.settings.redis_url
    timers = RedisTimerWheel(url, LEASE_PREFIX) if url else None
    expirer = TransactionExpirer(
        Known(mirror.transactions, mirror, lambda: buckets.owned_shards),
        context.repositories[TRANSACTIONS],
        timers,
        clock=around.clock,
        on_expired=around.observer.metrics.expired,
        containment=around.containment,
    )
    slots = mirror.transactions.slots
    purger = TransactionPurger(
        slots,
        mirror.reached,
        purge,
        buckets.owns_shard,
        around.clock,
        move=context.gates.move,
        containment=around.containment,
    )
    exporter = _exporter(around, mirror, context)
    retainer = _retainer(around, mirror, context, buckets, store_clock)
    topic_retainer = _topic_retainer(
        around, mirror, context, buckets=buckets, store_clock=store_clock, retained=retained
    )
    trimmer = _trimmer(around, mirror, buckets, purge)
    scaler = _scaler(around, mirror, buckets, scaling)
    advancer = _advancer(around, mirror, context, buckets)
    return Jobs(
        all=(
            trimmer.job(),
            expirer.job(),
            purger.job(),
            retainer.job(),
            topic_retainer.job(),
            *((exporter.job(),) if exporter is not None else ()),
            *((scaler.job(),) if scaler is not None else ()),
            *((advancer.job(),) if advancer is not None else ()),
        ),
        expirer=expirer,
        purger=purger,
        retainer=retainer,
        exporter=exporter,
        scaler=scaler,
        scaling=scaling.states,
        advancer=advancer,
        timers=timers,
    )


def _exporter(around: Surroundings, mirror: Mirror, context: WorkContext) -> StreamExporter | None:
    settings = around.settings
    if not settings.tier2_url:
        _log.info("streams are not exported to tier 2", unset="ANABRANCH_CONTROLLER_TIER2_URL")
        return None
    return StreamExporter(
        mirror.shaped_streams,
        context.histories.once,
        partial(
            transient_chunk_storage,
            settings.tier2_url,
            around.clock,
            around.ids,
            limit_s=TIER_TWO_CALL_S_MAX,
            options=settings.tier2_options,
        ),
        settings.container_count,
        clock=around.clock,
        containment=around.containment,
    )


def _retainer(
    around: Surroundings,
    mirror: Mirror,
    context: WorkContext,
    buckets: Buckets,
    store_clock: StoreClock,
) -> StreamRetainer:
    """Two that look at the same stream do no harm: one decision is stored."""
    return StreamRetainer(
        mirror.retained_streams,
        TailCuts(mirror, context.stores.segment_lengths).of,
        context.histories,
        context.repositories[STREAMS],
        buckets.owns_aggregate,
        now_ms=lambda: store_clock.store_ms(around.clock.now_ms()),
        clock=around.clock,
        period_s=around.settings.retention_period_s,
        containment=around.containment,
    )


def _topic_retainer(
    around: Surroundings,
    mirror: Mirror,
    context: WorkContext,
    *,
    buckets: Buckets,
    store_clock: StoreClock,
    retained: TopicView,
) -> TopicRetainer:
    """Two that look at the same topic do no harm: the later truncation changes nothing."""
    return TopicRetainer(
        retained,
        mirror.readable_stream,
        context.stores,
        context.commands,
        buckets.owns_aggregate,
        now_ms=lambda: store_clock.store_ms(around.clock.now_ms()),
        clock=around.clock,
        ids=around.ids,
        period_s=around.settings.topic_retention_period_s,
        containment=around.containment,
    )


def _trimmer(around: Surroundings, mirror: Mirror, buckets: Buckets, purge: Purge) -> EventTrimmer:
    """Two controllers may trim the same aggregate: a purge names the sequence below which it
    deletes.
    """
    return EventTrimmer(
        mirror.folded,
        purge,
        buckets.owns_aggregate,
        clock=around.clock,
        containment=around.containment,
        trim_after_s=around.settings.trim_after_s,
    )


def _scaler(
    around: Surroundings, mirror: Mirror, buckets: Buckets, scaling: Scaling
) -> StreamScaler | None:
    profile = scaling.states.profile
    if profile is None:
        _log.info("auto-scaling is off", setting="ANABRANCH_CONTROLLER_SCALING")
        return None
    return StreamScaler(
        Seen(mirror, buckets.owns_aggregate, scaling.heard, mirror.transactions.oldest_ms),
        scaling.scale,
        scaling.states,
        profile,
        clock=around.clock,
        metrics=around.observer.metrics,
        containment=around.containment,
    )


def _advancer(
    around: Surroundings, mirror: Mirror, context: WorkContext, buckets: Buckets
) -> WatermarkAdvancer | None:
    """Two that look at the same stream do no harm: one watermark is appended."""
    if context.writer_times is None:
        return None
    return WatermarkAdvancer(
        Sources(
            context.writer_times,
            mirror,
            context.histories,
            lambda: buckets.owned,
            buckets.count,
        ),
        WatermarkLog(context.stores, around.ids),
        clock=around.clock,
        period_s=around.settings.watermark_period_s,
        containment=around.containment,
    )


def counting_outcomes(metrics: ControllerMetrics, buckets: Buckets) -> Callable[[str, str], None]:
    """Count decided outcomes of transactions in owned buckets, so that each counts once."""

    def count(subject: str, outcome: str) -> None:
        if buckets.owns_aggregate(subject):
            metrics.decided(outcome)

    return count
