"""What a segment store tells the cluster of itself."""

import asyncio
from dataclasses import replace

from anabranch.common.contracts.cluster import node_from_bytes, node_to_bytes
from anabranch.common.errors import AnabranchError, ProcessReplaced
from anabranch.common.eventsourcing.beats import BEAT_S
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import Endpoint, NodeRecord
from anabranch.segstore.shell.node.registration import Announcement
from kit.virtual_time import VirtualClock, run_virtual

NODE = NodeRecord("node", Endpoint("127.0.0.1", 4000), "journal", "session-1")


async def record(nodes: InMemoryObjectStore) -> NodeRecord:
    found = await nodes.get("node")
    assert found is not None
    return node_from_bytes(found.value)


def test_a_store_replaces_its_older_record_beats_and_says_that_it_stopped() -> None:
    async def main() -> None:
        nodes = InMemoryObjectStore()
        await nodes.create("node", node_to_bytes(replace(NODE, session="older", stopped=True)))
        clock = VirtualClock(asyncio.get_running_loop())
        announcement = Announcement(nodes, NODE, clock, lambda _error: None)
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
        clock = VirtualClock(asyncio.get_running_loop())
        failures: list[AnabranchError] = []
        announcement = Announcement(nodes, NODE, clock, failures.append)
        async with asyncio.TaskGroup() as group:
            group.create_task(announcement.run())
            await asyncio.sleep(0.01)
            found = await nodes.get("node")
            assert found is not None
            other = node_to_bytes(replace(NODE, session="another"))
            await nodes.update("node", other, found.revision)
        (failure,) = failures
        assert isinstance(failure, ProcessReplaced)
        await announcement.end()
        assert (await record(nodes)).session == "another", "it is not this one's to end"

    run_virtual(main())
