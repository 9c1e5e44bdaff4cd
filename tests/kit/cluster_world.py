"""Controllers and stores of one cluster on virtual time: they beat, watch, lead and balance.

What a store does with a container is not simulated: whatever is placed on a live store is open
there a moment later, under the next container epoch. A store with a shared log notices the end of
its session by its next beat: it closes its containers and begins another session.

Stores with replicated logs keep copies (`kit.replicated_stores`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial

from anabranch.common.contracts.cluster import (
    node_from_bytes,
    node_to_bytes,
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.contracts.membership import ConfirmLosses
from anabranch.common.errors import ProcessReplaced, RevisionConflict, Unavailable
from anabranch.common.eventsourcing.beats import BEAT_S, Beats
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import (
    JETSTREAM,
    REPLICATED,
    WAITING_FOR_OPERATOR,
    ControllerRecord,
    Endpoint,
    NodeRecord,
    Placement,
    PlacementState,
)
from anabranch.common.model.joining import join_proof
from anabranch.controller.cluster.admission import Admission
from anabranch.controller.cluster.balancer import Balancer
from anabranch.controller.cluster.drains import Drains
from anabranch.controller.cluster.elections import Elections
from anabranch.controller.cluster.leadership import Leadership
from anabranch.controller.cluster.membership import MemberRecords, Membership
from anabranch.controller.cluster.placement_changes import PlacementChanges
from anabranch.controller.cluster.placements import Placements
from anabranch.controller.cluster.registrar import Inputs, Registrar
from anabranch.controller.cluster.topic_containers import TopicContainerTable
from anabranch.controller.domain.cluster.joining import SpuRegistration
from anabranch.controller.domain.cluster.placement_actions import Replication
from anabranch.controller.handlers.desk.cluster import ClusterDesk
from kit.candidates import KnownCopies
from kit.cut_off import Line, ThroughLine
from kit.loud import loud
from kit.registered_spus import RegisteredSpus
from kit.replicated_stores import open_replicated, synced
from kit.virtual_time import VirtualClock, run_virtual

SETTLE_S = 3.0
LEASE_S = 2.25
OPEN_S = 0.2
SHARED = (JETSTREAM, REPLICATED)


class _Leads:
    """The leadership of a controller that does not notice that another one leads."""

    leading = True

    def on_change(self, listener: Callable[[], None]) -> None:
        return


@dataclass
class RunningController:
    """One controller's cluster parts and the task that runs them."""

    members: Membership
    leadership: Leadership
    placements: Placements
    balancer: Balancer
    drains: Drains
    topics: TopicContainerTable
    changes: PlacementChanges
    line: Line
    placed_line: Line
    """The way to the placements alone."""
    task: "asyncio.Task[None]"

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    async def stop(self) -> None:
        await self.kill()
        await self.members.leave()


@dataclass
class RunningStore:
    node: NodeRecord
    """The record that it announces; with a shared log its session changes."""
    beats: Beats
    line: Line
    task: "asyncio.Task[None]"
    rewrite: Callable[[NodeRecord], Awaitable[None]]
    """Writes its record from outside."""
    opened: dict[int, int] = field(default_factory=dict)
    """Containers that it serves from a shared log → container epoch."""

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    async def stop(self) -> None:
        await self.kill()
        last_word = replace(self.node, stopped=True)
        if self.node.journal_id in SHARED:
            await self.rewrite(last_word)
        else:
            await self.beats.end(node_to_bytes(last_word))


@dataclass
class ClusterWorld:
    """To be made inside a virtual loop, in a task group."""

    group: asyncio.TaskGroup
    container_count: int = 4
    nodes: InMemoryObjectStore = field(default_factory=InMemoryObjectStore)
    controllers: InMemoryObjectStore = field(default_factory=InMemoryObjectStore)
    cluster: InMemoryObjectStore = field(default_factory=InMemoryObjectStore)
    placed: InMemoryObjectStore = field(default_factory=InMemoryObjectStore)
    join_token: str = ""
    """The token of the controllers."""
    registration: SpuRegistration = "automatic"
    spus: RegisteredSpus = field(default_factory=RegisteredSpus)
    replication: Replication = field(default_factory=Replication)
    copies: KnownCopies = field(default_factory=KnownCopies)
    """The copies of stores with replicated logs."""
    stores: "dict[str, RunningStore]" = field(default_factory=dict)
    sessions: int = 0
    took_s: list[float] = field(default_factory=list)
    """From the judgement of a store to the opening of a container elsewhere, as measured."""
    replaced: list[str] = field(default_factory=list)
    """Sessions of controllers that ended because another one had taken their id."""

    def __post_init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self._tasks: list[asyncio.Task[None]] = []
        self.copies.check = self._check_runs

    def _check_runs(self, name: str) -> None:
        """Raises Unavailable if no such store answers."""
        store = self.stores.get(name)
        if store is None or store.task.done() or store.line.cut:
            raise Unavailable("the store does not answer", store=name)

    def _spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = self.group.create_task(work)
        self._tasks.append(task)
        return task

    def end(self) -> None:
        """Kill whatever still runs."""
        for task in self._tasks:
            task.cancel()

    def _session(self) -> str:
        self.sessions += 1
        return f"session-{self.sessions}"

    def start_controller(
        self, name: str, *, leads: bool = False, drains_line: Line | None = None
    ) -> RunningController:
        """`leads`: its balancer believes that it leads, whoever leads. `drains_line`: its way to
        the list of drained stores, if that is a way of its own."""
        line, clock = Line(), self.clock
        me = ControllerRecord(name, self._session(), pid=self.sessions)
        controllers = ThroughLine(self.controllers, line)
        members = self._members(me, MemberRecords(controllers, ThroughLine(self.nodes, line)))
        cluster = ThroughLine(self.cluster, line)
        leadership = Leadership(cluster, controllers, members, clock)
        drains = Drains(ThroughLine(self.cluster, drains_line or line), clock)
        placed_line = Line()
        placed = ThroughLine(self.placed, placed_line)
        topics = TopicContainerTable(ThroughLine(self.cluster, line), clock)
        placements = Placements(
            members, placed, self.container_count, clock,
            containment=loud(clock), topics=lambda: topics.wanted,
        )  # fmt: skip
        elections = Elections(placed, members, self.copies, clock)
        changes = PlacementChanges(
            placed, placements, elections, clock, replication=self.replication
        )
        balancer = Balancer(
            placed,
            placements,
            members,
            _Leads() if leads else leadership,
            drains,
            elections=elections,
            container_count=self.container_count,
            settle_s=SETTLE_S,
            replication=self.replication,
            clock=clock,
            containment=loud(clock),
            topics=topics,
            measure=self.took_s.append,
        )

        registrar = self._registrar(members, leadership, placements, line)

        parts = (members, leadership, placements, balancer, drains, topics, registrar)
        task = self._spawn(self._serve(me.session, [part.serve() for part in parts]))
        return RunningController(
            members, leadership, placements, balancer, drains, topics, changes, line, placed_line,
            task,
        )  # fmt: skip

    def _members(self, me: ControllerRecord, records: MemberRecords) -> Membership:
        admission = Admission(
            token=self.join_token, policy=self.registration, registered=self.spus.known
        )
        return Membership(
            me, records, self.clock, containment=loud(self.clock), admission=admission
        )

    def _registrar(
        self, members: Membership, leadership: Leadership, placements: Placements, line: Line
    ) -> Registrar:
        around = Inputs(
            members, leadership, self.spus, ThroughLine(self.nodes, line), self.spus.register,
            reserved=tuple, placements=lambda: placements.placements,
        )  # fmt: skip
        registrar = Registrar(around, self.clock, loud(self.clock))
        self.spus.on_change(registrar.look)
        return registrar

    async def _serve(self, session: str, parts: list[Coroutine[None, None, None]]) -> None:
        """Run the parts of a controller until another one takes its id."""
        try:
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(part)
        except* ProcessReplaced:
            self.replaced.append(session)

    def start_store(
        self, name: str, log: str = "journal", *, rack: str = "", token: str = ""
    ) -> RunningStore:
        line = Line()
        session = self._session()
        lease_s = LEASE_S if log in SHARED else 0.0
        node = NodeRecord(
            name, Endpoint("127.0.0.1", 1), log, session, lease_s=lease_s, rack=rack,
            proof=join_proof(token, name, session),
        )  # fmt: skip
        beats = Beats(
            ThroughLine(self.nodes, line),
            name,
            node.session,
            encode=lambda beat: node_to_bytes(replace(node, beat=beat)),
            session_in=lambda value: node_from_bytes(value).session,
            clock=self.clock,
        )

        async def run() -> None:
            async with asyncio.TaskGroup() as group:
                shared = node.journal_id in SHARED
                group.create_task(self._beat(store) if shared else beats.run())
                group.create_task(self._obey(store))

        task = self._spawn(run())
        store = RunningStore(node, beats, line, task, partial(self._rewrite, name))
        self.stores[name] = store
        return store

    async def _beat(self, store: RunningStore) -> None:
        """Beat by compare-and-set; a session that is over is followed by another one."""
        revision: int | None = None
        objects, name = ThroughLine(self.nodes, store.line), store.node.node_id
        while True:
            beaten = replace(store.node, beat=store.node.beat + 1)
            try:
                if revision is None:
                    stored = await objects.get(name)
                    if stored is None:
                        revision = await objects.create(name, node_to_bytes(beaten))
                        continue
                    revision, found = stored.revision, node_from_bytes(stored.value)
                    if found.over and found.session == store.node.session:
                        store.opened.clear()
                        while found.unregistered and name not in self.spus.objects:
                            await self.clock.sleep(0.25)
                        store.node = replace(store.node, session=self._session())
                    continue
                revision = await objects.update(name, node_to_bytes(beaten), revision)
                store.node = beaten
            except RevisionConflict:
                revision = None
                continue
            except Unavailable:
                pass
            await self.clock.sleep(BEAT_S)

    async def _obey(self, store: RunningStore) -> None:
        """Open what is placed on the store, and release what is to leave."""
        while True:
            for found in await self.placements():
                if found.owner != store.node.node_id or store.line.cut:
                    continue
                mine = store.opened.get(found.container) == found.container_epoch
                reopened = bool(found.log_home) and not mine
                waits = found.state in WAITING_FOR_OPERATOR or found.state in (
                    PlacementState.FAILED, PlacementState.ELECTING,
                )  # fmt: skip
                if mine and found.log_home == REPLICATED:
                    await self._sync(found)
                if (found.target or not found.log_id or reopened) and not waits:
                    await self._open_or_release(store, found)
            await self.clock.sleep(OPEN_S)

    async def _sync(self, found: Placement) -> None:
        """Have the leader's ISR be the live replicas."""
        alive = [name for name in found.replicas if self._runs(name)]
        isr = synced(self.copies, found, alive)
        if found.state is PlacementState.OPEN and isr != found.isr:
            epoch = found.container_epoch
            await self.change(
                found.container,
                lambda now: replace(now, isr=isr) if now.container_epoch == epoch else now,
            )

    def _runs(self, name: str) -> bool:
        try:
            self._check_runs(name)
        except Unavailable:
            return False
        return True

    async def _open_or_release(self, store: RunningStore, found: Placement) -> None:
        if store.node.journal_id == REPLICATED and not (found.target and not found.isr):
            if not found.target:
                store.opened[found.container] = found.container_epoch + 1
            node = store.node.node_id
            await self.change(found.container, lambda now: open_replicated(self.copies, now, node))
            return
        log_home = JETSTREAM if store.node.journal_id == JETSTREAM else ""
        if not found.target and log_home:
            store.opened[found.container] = found.container_epoch + 1
        await self.change(found.container, lambda now: obeyed(now, log_home))

    async def placements(self) -> list[Placement]:
        found = [placement_from_bytes(stored.value) for stored in await self.placed.list()]
        return sorted(found, key=lambda one: one.container)

    async def owners(self) -> dict[int, str]:
        return {found.container: found.owner for found in await self.placements()}

    async def change(self, container: int, change: Callable[[Placement], Placement]) -> None:
        stored = await self.placed.get(placement_key(container))
        assert stored is not None
        changed = placement_to_bytes(change(placement_from_bytes(stored.value)))
        try:
            await self.placed.update(placement_key(container), changed, stored.revision)
        except RevisionConflict:
            return

    async def _rewrite(self, store: str, record: NodeRecord) -> None:
        stored = await self.nodes.get(store)
        assert stored is not None
        await self.nodes.update(store, node_to_bytes(record), stored.revision)

    async def run(self, seconds: float) -> None:
        await self.clock.sleep(seconds)


def obeyed(found: Placement, log_home: str = "") -> Placement:
    """What the owner makes of a placement that it is to release or to open."""
    if found.target:
        return replace(
            found,
            replicas=(found.target,),
            target="",
            log_id="",
            log_home="",
            previous_log=found.log_id,
            state=PlacementState.ASSIGNED,
        )
    epoch = found.container_epoch + 1
    log_id = found.log_id or f"log-{found.container}-{epoch}"
    return replace(
        found, container_epoch=epoch, log_id=log_id, log_home=log_home, state=PlacementState.OPEN
    )


def in_a_world(test: Callable[[ClusterWorld], Awaitable[None]]) -> None:
    """Run the test on virtual time; everything that still runs after it is killed."""

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            world = ClusterWorld(group)
            await test(world)
            world.end()

    run_virtual(main())


def desk_of(controller: RunningController, *peers: RunningController) -> ClusterDesk:
    """The controller's desk; its peers are told by a direct call."""

    async def tell(_name: str, payload: bytes, _seconds: float) -> list[tuple[str, bytes]]:
        query = ConfirmLosses.model_validate_json(payload)
        answers = [(peer, await desk_of(peer).confirm(query)) for peer in peers]
        return [(p.members.me.controller_id, a.model_dump_json().encode()) for p, a in answers]

    return ClusterDesk(
        controller.members,
        controller.placements,
        lambda: controller.leadership.leader,
        tell,
        controller.balancer,
        controller.drains,
    )
