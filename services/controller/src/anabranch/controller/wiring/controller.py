"""All parts of a controller, connected but not started."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import nats.errors
import structlog
from nats.aio.client import Client

from anabranch.common.adapters.jetstream_events import JetStreamEventStore
from anabranch.common.contracts import subjects
from anabranch.common.contracts.load import LoadReport
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.store_clock import StoreClock
from anabranch.common.runtime.clock import Clock
from anabranch.controller.adapters.command_queue import CommandQueue
from anabranch.controller.adapters.command_sender import NatsCommandSender
from anabranch.controller.adapters.load_reports import LoadReportListener
from anabranch.controller.adapters.parked_commands import JetStreamParkedCommands
from anabranch.controller.adapters.query_server import QueryServer
from anabranch.controller.adapters.redis_writer_times import RedisWriterTimes
from anabranch.controller.adapters.segment_requests import NatsSegmentStores
from anabranch.controller.cluster.heads import HeadWatch
from anabranch.controller.cluster.rates import Rates
from anabranch.controller.cluster.topics.retained import RetainedTopics
from anabranch.controller.domain.kinds import APPLICATIONS, TRANSACTIONS
from anabranch.controller.handlers.commands import handle_command
from anabranch.controller.handlers.deciding.desk import CommandDesk
from anabranch.controller.handlers.deciding.streams import decide_stream
from anabranch.controller.handlers.desk.desk import QueryDesk
from anabranch.controller.handlers.desk.kept_answers import KeptAnswers
from anabranch.controller.handlers.desk.parked import ParkedDesk, resume
from anabranch.controller.handlers.desk.transactions import TransactionDesk
from anabranch.controller.handlers.registry import ANSWERED_BY, SLOW, answer_query
from anabranch.controller.metrics import ControllerMetrics
from anabranch.controller.ports import WriterTimes
from anabranch.controller.projections.histories import Histories
from anabranch.controller.projections.load_reports import LoadReports
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.notices import FoldListener
from anabranch.controller.projections.outcomes import OutcomeHistory
from anabranch.controller.projections.quarantine import Fold
from anabranch.controller.projections.scaling import ScalingStates
from anabranch.controller.projections.watermark_log import WatermarkLog
from anabranch.controller.wiring.cluster import LEASE_PREFIX, Cluster, build_cluster
from anabranch.controller.wiring.jobs import Jobs, Scaling, build_jobs, counting_outcomes
from anabranch.controller.wiring.runners import Runners, build_runners
from anabranch.controller.wiring.surroundings import Surroundings
from anabranch.controller.wiring.topics import Topics, build_topics
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.repositories import Repositories

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Controller:
    """The parts of a running controller."""

    around: Surroundings
    mirror: Mirror
    listener: FoldListener
    runners: Runners
    cluster: Cluster
    topics: Topics
    heads: HeadWatch
    load: LoadReportListener
    queries: QueryServer
    commands: CommandQueue
    writer_times: WriterTimes | None
    jobs: Jobs

    def buckets_changed(self, taken: frozenset[int], lost: frozenset[int]) -> None:
        """Take up the work of the taken buckets, and stop the work of the lost ones."""
        _log.info("buckets changed", taken=sorted(taken), lost=sorted(lost))
        self.commands.own(self.cluster.buckets.owned_shards)
        self.runners.let_go()
        if taken:
            self.sweep()
            self.jobs.buckets_taken()

    def sweep(self) -> None:
        """Wake the runners for every aggregate with work; they skip aggregates of other owners."""
        for subject in self.mirror.with_work():
            self.runners.wake(subject)

    def watch(self, metrics: ControllerMetrics) -> None:
        """Register the metrics' sources; call it once."""
        buckets = self.cluster.buckets
        metrics.watch(
            active=self.runners.active_count,
            failing=lambda: len(self.runners.failures()),
            folds=lambda: self.mirror.folds,
        )
        contained = self.around.containment
        metrics.watch_defects(defects=lambda: contained.counts, parked=contained.parked_counts)
        metrics.watch_buckets(
            owned=lambda: len(buckets.owned),
            by_rendezvous=lambda: int(buckets.by_rendezvous),
            changes=lambda: {("taken",): buckets.taken_count, ("lost",): buckets.lost_count},
            parked=lambda: self.commands.parked_count,
        )
        metrics.watch_cluster(
            members=self.cluster.count_members,
            holds=self.cluster.holds,
            leads=lambda: int(self.cluster.leadership.leading),
        )
        metrics.watch_containers(
            containers=self.cluster.count_containers, counts=self.cluster.balancer.counts
        )
        self.topics.watch(metrics)
        metrics.watch_scaling(self.jobs.scaling.count_verdicts)
        metrics.watch_transactions(
            ages=self.mirror.transactions.tally.ages,
            purged=lambda: self.jobs.purger.purged_count,
        )
        metrics.watch_retention(self.jobs.retainer.counts)
        if self.jobs.advancer is not None:
            metrics.watch_watermarks(self.jobs.advancer.counts)


def build(around: Surroundings, bucket_count: int) -> Controller:
    """Build all parts of a controller."""
    client, clock = around.client, around.clock
    store = JetStreamEventStore(client, clock)
    # A decision is first tried on the state that the mirror, which is built later, has folded.
    repositories = Repositories(store, around.ids, lambda subject: mirror.known(subject))  # noqa: PLW0108
    cluster = build_cluster(around, bucket_count, lambda: topics.registered())  # noqa: PLW0108
    listener = FoldListener(
        lambda subject: runners.wake(subject),  # noqa: PLW0108
        lambda subject: jobs.reshaped(subject),  # noqa: PLW0108
        counting_outcomes(around.observer.metrics, cluster.buckets),
    )
    mirror = Mirror(
        store,
        repositories,
        on_fold=_telling(listener, lambda fold: topics.folded(fold)),  # noqa: PLW0108
        containment=around.containment,
    )
    histories = Histories(HistoryChunks(store, around.ids))
    context = _context(around, store, repositories, mirror, histories)
    topics = build_topics(around, cluster, mirror, context.commands)
    runners = build_runners(
        context, around.observer, rng=around.rng,
        owns=cluster.buckets.owns_aggregate, containment=around.containment,
    )  # fmt: skip
    parked = JetStreamParkedCommands(client)
    reports = LoadReports(clock)
    rates = Rates(cluster.placements, reports, around.settings.container_count)
    command_desk = _command_desk(around, repositories, histories, cluster.members.store_clock)
    jobs = build_jobs(
        around, context, mirror, buckets=cluster.buckets,
        store_clock=cluster.members.store_clock, purge=store.purge,
        scaling=_scaling(around, rates, command_desk),
        retained=RetainedTopics(topics.dispatchers.topics.store, topics.live),
    )  # fmt: skip
    query_desk = _query_desk(
        around, cluster, context, mirror, rates=rates, jobs=jobs, runners=runners,
        parked=parked, transactions=_transaction_desk(around, store, context), topics=topics,
    )  # fmt: skip
    return Controller(
        around=around,
        mirror=mirror,
        listener=listener,
        runners=runners,
        cluster=cluster,
        topics=topics,
        heads=HeadWatch(
            around.objects(subjects.CLUSTER_BUCKET), store.last_sequence, mirror.reached, clock
        ),
        load=LoadReportListener(client, partial(_learn, reports, jobs), around.observer.metrics),
        queries=_query_server(client, query_desk),
        commands=_commands(around, command_desk, parked),
        writer_times=context.writer_times,
        jobs=jobs,
    )


def _scaling(around: Surroundings, rates: Rates, desk: CommandDesk) -> Scaling:
    states = ScalingStates(around.settings.scaling_profile, around.clock)
    return Scaling(rates.heard, partial(decide_stream, desk), states)


def _telling(*listeners: Callable[[Fold], None]) -> Callable[[Fold], None]:
    def tell(fold: Fold) -> None:
        for listener in listeners:
            listener(fold)

    return tell


def _query_server(client: Client, desk: QueryDesk) -> QueryServer:
    answer = partial(answer_query, desk)
    return QueryServer(client, ANSWERED_BY, answer, desk.controller_id, SLOW)


def _learn(reports: LoadReports, jobs: Jobs, report: LoadReport) -> None:
    reports.learn(report)
    jobs.learn(report)


def _context(
    around: Surroundings,
    store: JetStreamEventStore,
    repositories: Repositories,
    mirror: Mirror,
    histories: Histories,
) -> WorkContext:
    return WorkContext(
        stores=NatsSegmentStores(around.client, around.settings.container_count),
        repositories=repositories,
        streams=mirror,
        groups=mirror,
        listing=mirror,
        histories=histories,
        outcomes=OutcomeHistory(HistoryChunks(store, around.ids)),
        gates=Gates(store, around.ids),
        commands=NatsCommandSender(around.client),
        clock=around.clock,
        writer_times=_writer_times(around),
        outcomes_kept_ms=int(around.settings.outcomes_kept_s * 1000),
    )


def _commands(
    around: Surroundings, desk: CommandDesk, parked: JetStreamParkedCommands
) -> CommandQueue:
    return CommandQueue(
        around.settings.nats,
        partial(handle_command, desk),
        parked.park,
        around.clock,
        rng=around.rng,
        containment=around.containment,
    )


def _command_desk(
    around: Surroundings, repositories: Repositories, histories: Histories, store_clock: StoreClock
) -> CommandDesk:
    return CommandDesk(
        repositories=repositories,
        histories=histories,
        require_not_parked=around.containment.require_not_parked,
        clock=around.clock,
        store_clock=store_clock,
        reply=partial(_reply, around.client),
        observer=around.observer,
    )


def _query_desk(
    around: Surroundings,
    cluster: Cluster,
    context: WorkContext,
    mirror: Mirror,
    *,
    rates: Rates,
    jobs: Jobs,
    runners: Runners,
    parked: JetStreamParkedCommands,
    transactions: TransactionDesk,
    topics: Topics,
) -> QueryDesk:
    controller_id, ask_peers = cluster.members.me.controller_id, cluster.peers.ask_peers
    parked_desk = ParkedDesk(
        commands=parked,
        containment=around.containment,
        resume=partial(resume, around.containment, mirror, runners.wake),
        ask_peers=ask_peers,
        controller_id=controller_id,
    )
    cluster_desk = cluster.desk()
    return QueryDesk(
        mirror=mirror,
        history=context.histories.of,
        kept=KeptAnswers(),
        locate=cluster.placements.locate,
        list_containers=cluster.placements.list_containers,
        list_nodes=cluster_desk.list_nodes,
        rate=rates.rate,
        scaling=jobs.scaling,
        segment_lengths=context.stores.segment_lengths,
        change_placement=cluster.changes.perform,
        transactions=transactions,
        writer_times=context.writer_times,
        watermark_log=WatermarkLog(context.stores, around.ids),
        last_look=jobs.last_look,
        progress=runners.progress,
        controller_id=controller_id,
        ask_peers=ask_peers,
        parked=parked_desk,
        cluster=cluster_desk,
        topics=topics.desk,
        now_ms=partial(_store_ms, cluster.members.store_clock, around.clock),
        observer=around.observer,
    )


def _store_ms(store_clock: StoreClock, clock: Clock) -> int:
    here_ms = clock.now_ms()
    there_ms = store_clock.store_ms(here_ms)
    return here_ms if there_ms is None else there_ms


def _transaction_desk(
    around: Surroundings, store: JetStreamEventStore, context: WorkContext
) -> TransactionDesk:
    return TransactionDesk(
        transactions=context.repositories[TRANSACTIONS],
        applications=context.repositories[APPLICATIONS],
        store=store,
        gates=context.gates,
        stores=context.stores,
        outcomes=context.outcomes,
        clock=around.clock,
        ids=around.ids,
    )


def _writer_times(around: Surroundings) -> WriterTimes | None:
    url = around.settings.redis_url
    return RedisWriterTimes(url, LEASE_PREFIX) if url else None


async def _reply(client: Client, inbox: str, answer: bytes) -> None:
    try:
        await client.publish(inbox, answer)
    except nats.errors.Error as error:
        # The decision is durable; the caller retries with the same command id.
        _log.warning("cannot send an answer", error=repr(error))
