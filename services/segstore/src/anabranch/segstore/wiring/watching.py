"""Reporting: the store's metrics, its loads, its partitions and the state of its journal."""

from collections.abc import Callable

from anabranch.common.contracts import subjects
from anabranch.segstore.adapters.report_publisher import ReportPublisher
from anabranch.segstore.server.tcp import TcpServer
from anabranch.segstore.shell.container.throttle import Throttle
from anabranch.segstore.shell.container.topic_storage import TopicStorage
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.node.journal_watch import JournalWatch
from anabranch.segstore.shell.node.live import LiveReporter
from anabranch.segstore.shell.node.load import LoadReporter
from anabranch.segstore.shell.node.store import Store
from anabranch.segstore.wiring.parts import Parts
from anabranch.segstore.wiring.settings_check import throttle_limits


def load_reporter(parts: Parts, store: Store) -> LoadReporter:
    return LoadReporter(
        store,
        ReportPublisher(parts.client, subjects.load_report(parts.node_id)),
        node_id=parts.node_id,
        session=parts.session,
        period_s=parts.settings.load_period_s,
        busy_s=parts.settings.load_busy_s,
        clock=parts.clock,
        metrics=parts.metrics,
    )


def live_reporter(
    parts: Parts, store: Store, storage: TopicStorage, session: Callable[[], str]
) -> LiveReporter:
    return LiveReporter(
        store,
        ReportPublisher(parts.client, subjects.live_report(parts.node_id)),
        storage,
        node_id=parts.node_id,
        session=session,
        clock=parts.clock,
    )


def watch_metrics(
    parts: Parts, throttle: Throttle, cache: Cache, store: Store, server: TcpServer
) -> None:
    parts.metrics.watch(
        pending=lambda: throttle.pending,
        untiered=lambda: throttle.untiered,
        cached=lambda: {("tail",): cache.used, ("read-ahead",): cache.lent},
        unsent=lambda: store.catch_up.outgoing.used,
        containers=lambda: len(store.open_numbers),
        states=store.count_states,
        resident=lambda: sum(
            opened.container.residency.count for opened in store.open_containers()
        ),
        connections=lambda: server.connection_count,
        unfinished=lambda: server.unfinished_size,
        granules=lambda: store.catch_up.ahead.outcomes,
        dead=lambda: sum(opened.tier_two.dead_bytes for opened in store.open_containers()),
    )
    replication = parts.replication
    if replication is not None:
        parts.metrics.watch_replication(lambda: replication.keeping.facts)
    parts.metrics.watch_journal(
        live_size=lambda: parts.log.live_size,
        outstanding_s=parts.commits.outstanding_s,
        ratios=throttle.ratios,
        refused=throttle.refused,
    )


def journal_watch(parts: Parts, throttle: Throttle, store: Store) -> JournalWatch:
    return JournalWatch(
        parts.log,
        store,
        throttle,
        clock=parts.clock,
        bytes_max=throttle_limits(parts.settings).journal,
        outstanding_s=parts.commits.outstanding_s,
        set_ready=parts.lifetime.set_ready,
        hurry_copies=parts.replication.keeping.hurry if parts.replication else None,
    )
