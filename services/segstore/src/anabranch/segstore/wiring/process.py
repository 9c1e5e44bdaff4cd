"""The store while it serves: its tasks and how they end."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial

import structlog

from anabranch.common.contracts import subjects
from anabranch.common.contracts.objects import SPUS_BUCKET
from anabranch.common.errors import AnabranchError
from anabranch.common.model.cluster import Endpoint, NodeRecord
from anabranch.common.runtime.addresses import parse_bind
from anabranch.common.runtime.ids import system_rng
from anabranch.common.workflow.containment import Contained, Containment
from anabranch.segstore.domain.storage.space import RewriteLimits
from anabranch.segstore.handlers.control import ControlDesk
from anabranch.segstore.server.nats_door import NatsDoor
from anabranch.segstore.server.tcp import Served, TcpServer
from anabranch.segstore.shell.container.lease import NoSession
from anabranch.segstore.shell.container.surroundings import Surroundings
from anabranch.segstore.shell.container.throttle import Throttle
from anabranch.segstore.shell.container.topic_storage import TopicStorage
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.catch_up import new_catch_up
from anabranch.segstore.shell.memory.residency import ResidencyLimits
from anabranch.segstore.shell.node.assignments import Assignments
from anabranch.segstore.shell.node.lifecycle import ContainerKeeper
from anabranch.segstore.shell.node.opening import Tiers
from anabranch.segstore.shell.node.placements import Placements
from anabranch.segstore.shell.node.registration import Announcement
from anabranch.segstore.shell.node.session import LEASE_S, StoreSession
from anabranch.segstore.shell.node.store import Store
from anabranch.segstore.shell.tiering.flusher import FlushLimits
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import TierTwoLimits
from anabranch.segstore.wiring.buckets import learn_count
from anabranch.segstore.wiring.ending import close_door, drain, end_tasks
from anabranch.segstore.wiring.parts import Parts, call_later
from anabranch.segstore.wiring.replication import opened_replication
from anabranch.segstore.wiring.settings_check import advertised, tcp_limits, throttle_limits
from anabranch.segstore.wiring.tables import table_parts
from anabranch.segstore.wiring.watching import (
    journal_watch,
    live_reporter,
    load_reporter,
    watch_metrics,
)

_DOOR_RETRY_S = 1.0

_log = structlog.get_logger(__name__)


class Process:
    """The store while it serves: its tasks and how they end."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._end = asyncio.Event()
        self._failure: AnabranchError | None = None
        self._changed = asyncio.Event()
        self._topic_storage = TopicStorage(parts.settings.topic_storage_size_bytes)
        self._containment = Containment(parts.clock, system_rng(), self._on_defect)

    def _on_defect(self, _found: Contained, _error: BaseException) -> None:
        self._parts.lifetime.set_ready("defects", True, self._containment.summary())

    async def run(self) -> None:
        """Serve until a stop is requested or the journal ends. Raises the error that ended the
        journal."""
        parts = self._parts
        parts.lifetime.set_ready("containers", False, "waiting for the controller")
        async with asyncio.TaskGroup() as group:
            stopper = group.create_task(self._wait_for_stop())
            count = await self._container_count(group)
            if count is not None:
                cache = Cache(parts.settings.cache_bytes)
                catch_up = new_catch_up(cache, parts.clock, call_later)
                store = Store(
                    count, on_changed=self._changed.set, metrics=parts.metrics, catch_up=catch_up
                )
                await self._open_and_serve(store, cache, group)
            stopper.cancel()
        if self._failure is not None:
            raise self._failure

    async def _wait_for_stop(self) -> None:
        await self._parts.lifetime.wait_for_stop()
        self._end.set()

    async def _container_count(self, group: asyncio.TaskGroup) -> int | None:
        """The number of containers; None if a stop is requested first."""
        parts = self._parts
        asking = group.create_task(learn_count(parts))
        ending = group.create_task(self._end.wait())
        await asyncio.wait((asking, ending), return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not asking.done():
            asking.cancel()
            return None
        return asking.result()

    async def _open_and_serve(self, store: Store, cache: Cache, group: asyncio.TaskGroup) -> None:
        """Serve with the log that other stores can open, if the store replicates logs."""
        session = self._session(store)
        replicating = opened_replication(self._parts, session, store, self._fail, self._containment)
        async with replicating as replication:
            if replication is not None:
                self._parts = replace(self._parts, log=replication.log, replication=replication)
            await self._serve(store, cache, session, group)

    async def _serve(
        self, store: Store, cache: Cache, session: StoreSession, group: asyncio.TaskGroup
    ) -> None:
        parts, settings = self._parts, self._parts.settings
        log = parts.log
        throttle = Throttle(
            throttle_limits(settings),
            journal_size=lambda: log.live_size,
            no_room=lambda: log.no_room is not None,
        )
        spawned: set[asyncio.Task[None]] = set()

        def spawn(work: Coroutine[None, None, None]) -> None:
            task = group.create_task(self._containment.alone("a request", work))
            spawned.add(task)
            task.add_done_callback(spawned.discard)

        served = Served(
            store=store,
            throttle=throttle,
            clock=parts.clock,
            call_later=call_later,
            spawn=spawn,
            node_id=parts.node_id,
            ids=parts.ids,
            limits=tcp_limits(settings),
        )
        server = TcpServer(served)
        endpoint = advertised(settings, await server.start(*parse_bind(settings.bind)))
        announcement = self._announcement(endpoint, session)
        watch_metrics(parts, throttle, cache, store, server)
        door = NatsDoor(parts.client, ControlDesk(store=store, spawn=spawn), throttle)
        keep = self._containment.keep
        tasks = [
            group.create_task(self._announce(announcement)),
            group.create_task(self._assignments(store, throttle, cache, session).run()),
            group.create_task(keep("the session's lease", session.run)),
            group.create_task(keep("readiness", partial(self._follow, store, door))),
            group.create_task(keep("load reports", load_reporter(parts, store).run)),
            group.create_task(
                keep(
                    "live reports",
                    live_reporter(parts, store, self._topic_storage, lambda: session.id).run,
                )
            ),
            group.create_task(
                keep("watch of the journal", journal_watch(parts, throttle, store).run)
            ),
        ]
        _log.info("the store is listening", node=parts.node_id, endpoint=str(endpoint))
        await self._end.wait()
        await drain(store, server, parts.clock)
        await close_door(door, parts.clock)
        await end_tasks({*tasks, *spawned})
        if self._failure is None:
            await announcement.end()

    def _session(self, store: Store) -> StoreSession:
        """The session; it has a lease if other stores can open the containers."""
        parts = self._parts
        replicates = parts.settings.journal == "replicated"
        lease_s = LEASE_S if replicates or not parts.log.bound_to_store else 0.0
        session = StoreSession(parts.session, lease_s, parts.clock, store.end_all)
        if lease_s:
            parts.metrics.watch_lease(lambda: session.held)
        return session

    def _announcement(self, endpoint: Endpoint, session: StoreSession) -> Announcement:
        parts = self._parts
        node = NodeRecord(
            parts.node_id,
            endpoint,
            parts.log.journal_id,
            rack=parts.settings.rack,
            spu_group=parts.settings.spu_group,
            peer=parts.replication.endpoint if parts.replication else None,
        )
        return Announcement(
            parts.objects(subjects.NODES_BUCKET),
            node,
            session,
            join_token=parts.join_token,
            ids=parts.ids,
            clock=parts.clock,
            failed=self._fail,
            is_registered=self._is_registered,
            reported=lambda reason: parts.lifetime.set_ready("registration", not reason, reason),
        )

    async def _is_registered(self) -> bool:
        return await self._parts.objects(SPUS_BUCKET).get(self._parts.node_id) is not None

    async def _announce(self, announcement: Announcement) -> None:
        if self._parts.former_may_run:
            await announcement.wait_for_former()
        await announcement.run()

    def _assignments(
        self, store: Store, throttle: Throttle, cache: Cache, session: StoreSession
    ) -> Assignments:
        parts, settings = self._parts, self._parts.settings
        objects = parts.objects(subjects.PLACEMENTS_BUCKET)
        placements = Placements(objects, parts.node_id)
        around = Surroundings(
            topic_storage=self._topic_storage,
            clock=parts.clock,
            cache=cache,
            throttle=throttle,
            call_later=call_later,
            back_off_s=parts.back_off_s,
            metrics=parts.metrics,
            tracing=parts.tracing,
            residency=ResidencyLimits(
                settings.segments_in_memory, settings.writer_expiry_s, settings.tombstone_s
            ),
            session=session if session.lease_s else NoSession(),
        )
        tier_two_limits = TierTwoLimits(
            gc_grace_s=settings.gc_grace_s,
            tombstone_s=settings.tombstone_s,
            rewrite=RewriteLimits(
                live_share=settings.rewrite_live_share, rest_s=settings.rewrite_rest_s
            ),
        )
        open_tier_two = OpenContainerTierTwo(parts.storage, parts.ids, parts.clock, tier_two_limits)
        replicated = parts.replication.log if parts.replication else None
        tiers = Tiers(parts.log, open_tier_two, placements, parts.ids, replicated)
        limits = FlushLimits(bytes_max=settings.flush_bytes, age_s_max=settings.flush_age_s)

        tables = table_parts(parts, store.catch_up)

        def new_keeper(container: int) -> ContainerKeeper:
            return ContainerKeeper(
                container,
                store=store,
                tiers=tiers,
                around=around,
                limits=limits,
                tables=tables,
                store_failed=self._fail,
            )

        return Assignments(
            objects=objects,
            placements=placements,
            store=store,
            clock=parts.clock,
            back_off_s=parts.back_off_s,
            new_keeper=new_keeper,
        )

    def _fail(self, error: AnabranchError) -> None:
        """End the store: the journal ended or another process replaced it, so it can acknowledge
        nothing more."""
        if self._failure is None and not self._end.is_set():
            self._failure = error
        self._end.set()

    async def _follow(self, store: Store, door: NatsDoor) -> None:
        """Keep readiness and the NATS door in line with the containers."""
        lifetime = self._parts.lifetime
        while not store.stopping:
            reason = store.missing
            lifetime.set_ready("containers", not reason, reason)
            if not await door.serve(store.assigned):
                await self._parts.clock.sleep(_DOOR_RETRY_S)
                continue
            await self._changed.wait()
            self._changed.clear()
