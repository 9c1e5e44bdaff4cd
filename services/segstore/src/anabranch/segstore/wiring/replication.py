"""Builds what a store needs to replicate logs: its copies, the door to them, the ways to others.

    journal ──► Copies ◄── PeerDoor ◄── leaders of other stores
                   ▲   ◄── the controllers' promises, over NATS
                   └── ReplicatedLog ──► PeerLinks ──► copies of other stores
                            └──► Placements, the register of the ISRs

All of it ends before the journal is closed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from anabranch.common.contracts import subjects
from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.model.cluster import Endpoint
from anabranch.common.runtime.addresses import parse_bind
from anabranch.common.runtime.backoff import Backoff
from anabranch.common.runtime.ids import system_rng
from anabranch.common.runtime.logger import get_logger
from anabranch.common.workflow.containment import Containment
from anabranch.segstore.adapters.journal.journal import Journal
from anabranch.segstore.adapters.peer_connection import LinkContext, LinkLimits
from anabranch.segstore.adapters.peer_links import PeerLinks
from anabranch.segstore.adapters.replicated_log.copies import Copies
from anabranch.segstore.adapters.replicated_log.led import Around
from anabranch.segstore.adapters.replicated_log.log import ReplicatedLog
from anabranch.segstore.domain.log.replica.names import parse_copy_name
from anabranch.segstore.server.peer_door import PeerDoor, PeerLimits, PeerServed
from anabranch.segstore.server.promise_door import PromiseDoor
from anabranch.segstore.shell.node.copy_keeping import CopyKeeping
from anabranch.segstore.shell.node.placements import Placements
from anabranch.segstore.shell.node.session import StoreSession
from anabranch.segstore.shell.node.store import Store
from anabranch.segstore.wiring.ending import end_tasks
from anabranch.segstore.wiring.parts import Parts, call_later
from anabranch.segstore.wiring.settings_check import peer_advertised, throttle_limits

_DOOR_RETRY_S = 1.0
FEED_AGAIN = Backoff(first_s=0.1, longest_s=2.0)
"""Pauses of a leader before it turns to a follower again."""


_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Replication:
    """The parts of a store that replicates logs. `endpoint`: where other stores reach it."""

    log: ReplicatedLog
    copies: Copies
    keeping: CopyKeeping
    endpoint: Endpoint


@asynccontextmanager
async def opened_replication(
    parts: Parts,
    session: StoreSession,
    store: Store,
    failed: Callable[[AnabranchError], None],
    containment: Containment,
) -> AsyncIterator[Replication | None]:
    """Replication on the store's journal for as long as the block lasts; None if the store does not
    replicate. `failed` ends the store. Raises PortInUse, InvalidSetting.

    A defect in the logs that the store leads ends the store, so that another one leads them.
    """
    if parts.settings.journal != "replicated":
        yield None
        return
    journal = parts.log
    assert isinstance(journal, Journal), "copies are in the store's journal"
    tasks: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as group:

        def spawn(work: Coroutine[None, None, None]) -> asyncio.Task[None]:
            task = group.create_task(work)
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            return task

        schedule = asyncio.get_running_loop().call_soon
        copies = Copies(
            journal, parts.node_id, parts.ids, parts.clock,
            schedule=schedule, spawn=spawn, on_failure=failed,
        )  # fmt: skip
        links = _links(parts, spawn)
        log = ReplicatedLog(journal, copies, _around(parts, links, session, store, spawn))
        keeping = _keeping(parts, journal, copies, log)
        door = PeerDoor(_served(parts, copies, partial(_contained, containment, spawn)))
        try:
            bound = await door.start(*parse_bind(parts.settings.peer_bind))
            keep = containment.keep
            spawn(keep("the records of other stores", links.run))
            spawn(keep("the copies of other stores' logs", keeping.run))
            spawn(keep("promises", partial(_answer_controllers, parts, copies)))
            yield Replication(log, copies, keeping, peer_advertised(parts.settings, bound))
        finally:
            door.close()
            links.close()
            log.close()
            copies.close()
            while tasks:
                await end_tasks(set(tasks))


Spawn = Callable[[Coroutine[None, None, None]], "asyncio.Task[None]"]


def _contained(containment: Containment, spawn: Spawn, work: Coroutine[None, None, None]) -> object:
    return spawn(containment.alone("a request of another store", work))


async def _answer_controllers(parts: Parts, copies: Copies) -> None:
    """Serve the door for promises until cancelled, also after a failure of NATS."""
    while True:
        try:
            await PromiseDoor(parts.client, parts.node_id, copies).serve()
        except Unavailable as error:
            _log.warning("cannot follow the questions for promises", error=str(error))
        await parts.clock.sleep(_DOOR_RETRY_S)


def _links(parts: Parts, spawn: Spawn) -> PeerLinks:
    context = LinkContext(
        node_id=parts.node_id,
        join_token=parts.join_token,
        ids=parts.ids,
        clock=parts.clock,
        call_later=call_later,
        limits=LinkLimits(),
    )
    return PeerLinks(parts.objects(subjects.NODES_BUCKET), context, spawn, system_rng())


def _around(
    parts: Parts, links: PeerLinks, session: StoreSession, store: Store, spawn: Spawn
) -> Around:
    rng = system_rng()

    def hurry(container: int) -> None:
        for opened in store.open_containers():
            if opened.container.container == container:
                opened.flusher.hurry()

    return Around(
        node_id=parts.node_id,
        peers=links,
        register=Placements(parts.objects(subjects.PLACEMENTS_BUCKET), parts.node_id),
        clock=parts.clock,
        schedule=asyncio.get_running_loop().call_soon,
        call_later=call_later,
        spawn=spawn,
        back_off_s=lambda failures: FEED_AGAIN.delay_s(failures, rng.random()),
        may_acknowledge_alone=lambda: session.held,
        flush_wanted=hurry,
    )


def _keeping(parts: Parts, journal: Journal, copies: Copies, log: ReplicatedLog) -> CopyKeeping:
    def logs() -> Mapping[int, str]:
        names = {found: parse_copy_name(name) for found, name in journal.logs().items()}
        return {found: name[0] for found, name in names.items() if name is not None}

    return CopyKeeping(
        copies,
        log,
        parts.objects(subjects.PLACEMENTS_BUCKET),
        node_id=parts.node_id,
        logs=logs,
        bytes_max=throttle_limits(parts.settings).journal,
        journal_size=lambda: journal.live_size,
        clock=parts.clock,
        back_off_s=parts.back_off_s,
    )


def _served(
    parts: Parts, copies: Copies, spawn: Callable[[Coroutine[None, None, None]], object]
) -> PeerServed:
    return PeerServed(
        host=copies,
        node_id=parts.node_id,
        join_token=parts.join_token,
        ids=parts.ids,
        clock=parts.clock,
        call_later=call_later,
        spawn=spawn,
        limits=PeerLimits(),
    )
