"""What a segment store tells the cluster of itself."""

import asyncio
from dataclasses import replace

from anabranch.common.contracts.cluster import node_from_bytes, node_to_bytes
from anabranch.common.errors import AnabranchError, ProcessReplaced, SessionOver
from anabranch.common.eventsourcing.beats import BEAT_S, RETRY_S
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import Endpoint, NodeRecord
from anabranch.common.model.joining import may_join
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.shell.node.registration import Announcement
from anabranch.segstore.shell.node.session import CLOCK_SPREAD, StoreSession
from kit.virtual_time import VirtualClock, run_virtual

TOKEN = "a secret of the cluster"
NODE = NodeRecord("node", Endpoint("127.0.0.1", 4000), "journal", "session-1", rack="left")


class Announced:
    """A store that announces itself, and what its containers and its process were told."""

    def __init__(
        self, nodes: InMemoryObjectStore, lease_s: float = 0.0, join_token: str = ""
    ) -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        self.failures: list[AnabranchError] = []
        self.over: list[SessionOver] = []
        self.reasons: list[str] = []
        self.registered = True
        self.session = StoreSession("session-1", lease_s, clock, self.over.append)
        self.announcement = Announcement(
            nodes, NODE, self.session,
            join_token=join_token, ids=SeededIds(1), clock=clock, failed=self.failures.append,
            is_registered=self.is_registered, reported=self.reasons.append,
        )  # fmt: skip

    async def is_registered(self) -> bool:
        return self.registered


async def record(nodes: InMemoryObjectStore) -> NodeRecord:
    found = await nodes.get("node")
    assert found is not None
    return node_from_bytes(found.value)


async def change(nodes: InMemoryObjectStore, node: NodeRecord) -> None:
    found = await nodes.get("node")
    assert found is not None
    await nodes.update("node", node_to_bytes(node), found.revision)


def test_a_store_replaces_its_older_record_beats_and_says_that_it_stopped() -> None:
    async def main() -> None:
        nodes = InMemoryObjectStore()
        await nodes.create("node", node_to_bytes(replace(NODE, session="older", stopped=True)))
        announcement = Announced(nodes).announcement
        async with asyncio.TaskGroup() as group:
            running = group.create_task(announcement.run())
            await asyncio.sleep(0.01)
            assert await record(nodes) == replace(NODE, beat=1)
            await asyncio.sleep(2 * BEAT_S)
            assert await record(nodes) == replace(NODE, beat=3)
            running.cancel()
        await announcement.end()
        assert await record(nodes) == replace(NODE, stopped=True)

    run_virtual(main())


def test_a_store_whose_id_another_one_has_taken_fails() -> None:
    async def main() -> None:
        nodes = InMemoryObjectStore()
        store = Announced(nodes)
        async with asyncio.TaskGroup() as group:
            group.create_task(store.announcement.run())
            await asyncio.sleep(0.01)
            await change(nodes, replace(NODE, session="another"))
        (failure,) = store.failures
        assert isinstance(failure, ProcessReplaced)
        await store.announcement.end()
        assert (await record(nodes)).session == "another", "it is not this one's to end"

    run_virtual(main())


def test_a_store_that_was_declared_dead_ends_its_containers_and_begins_another_session() -> None:
    async def main() -> None:
        nodes = InMemoryObjectStore()
        store = Announced(nodes, lease_s=2.25, join_token=TOKEN)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(store.announcement.run())
            await asyncio.sleep(0.01)
            before = await record(nodes)
            assert before.lease_s == 2.25
            assert may_join(TOKEN, "node", before.session, before.proof)
            assert store.session.held
            await change(nodes, replace(before, over=True))
            await asyncio.sleep(BEAT_S + 2 * RETRY_S)
            after = await record(nodes)
            assert [error.code for error in store.over] == ["session-over"]
            assert not after.over
            assert after.session == store.session.id != before.session
            assert may_join(TOKEN, "node", after.session, after.proof)
            assert store.session.held, "the first beat of the new session has renewed the lease"
            running.cancel()
        assert not store.failures

    run_virtual(main())


def test_a_store_that_takes_over_reads_how_long_its_predecessor_may_serve() -> None:
    async def main() -> None:
        nodes = InMemoryObjectStore()
        await nodes.create("node", node_to_bytes(replace(NODE, session="older", lease_s=4.0)))
        store = Announced(nodes, lease_s=2.25)
        async with asyncio.TaskGroup() as group:
            await store.announcement.wait_for_former()
            running = group.create_task(store.announcement.run())
            joining = group.create_task(store.session.joined())
            await asyncio.sleep(4.0 * CLOCK_SPREAD - 0.01)
            assert not joining.done()
            await asyncio.sleep(0.02)
            assert joining.done()
            running.cancel()

    run_virtual(main())


def test_an_unregistered_store_ends_its_session_and_waits_for_its_registration() -> None:
    async def main() -> None:
        nodes = InMemoryObjectStore()
        store = Announced(nodes, lease_s=2.25)
        store.registered = False
        async with asyncio.TaskGroup() as group:
            running = group.create_task(store.announcement.run())
            await asyncio.sleep(0.01)
            await change(nodes, replace(await record(nodes), over=True, unregistered=True))
            await asyncio.sleep(2 * BEAT_S)
            assert len(store.over) == 1, "its containers with shared logs end"
            refused = await record(nodes)
            await asyncio.sleep(10)
            assert await record(nodes) == refused, "it does not beat while it waits"
            assert store.reasons == ["no SPU with this store's node id is registered"]

            store.registered = True
            await asyncio.sleep(1)
            found = await record(nodes)
            assert (found.over, found.unregistered) == (False, False)
            assert found.session not in ("session-1", "")
            assert store.reasons[-1] == ""
            running.cancel()

    run_virtual(main())


def test_an_unregistered_store_whose_record_was_deleted_announces_that_it_waits() -> None:
    async def main() -> None:
        nodes = InMemoryObjectStore()
        store = Announced(nodes)
        store.registered = False
        async with asyncio.TaskGroup() as group:
            running = group.create_task(store.announcement.run())
            await asyncio.sleep(0.01)
            await change(nodes, replace(await record(nodes), over=True, unregistered=True))
            await asyncio.sleep(2 * BEAT_S)
            found = await nodes.get("node")
            assert found is not None
            await nodes.delete("node", found.revision)
            await asyncio.sleep(1)
            assert (await record(nodes)).unregistered
            running.cancel()

    run_virtual(main())


def test_an_unregistered_store_says_that_it_stopped() -> None:
    async def main() -> None:
        nodes = InMemoryObjectStore()
        store = Announced(nodes)
        store.registered = False
        async with asyncio.TaskGroup() as group:
            running = group.create_task(store.announcement.run())
            await asyncio.sleep(0.01)
            await change(nodes, replace(await record(nodes), over=True, unregistered=True))
            await asyncio.sleep(2 * BEAT_S)
            running.cancel()
        await store.announcement.end()
        found = await record(nodes)
        assert (found.unregistered, found.stopped) == (True, True)

    run_virtual(main())
