"""Groups of appends that a store process was killed under: each is there as a whole or not at all.

The groups are sent without waiting for answers, and the process is killed after some of these. The
next process must have every acknowledged group, no part of any other, and acknowledge repeats of
all of them; then each event is there once.
"""

import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.runtime.nats_target import nats_target
from anabranch.common.wire.block import Block
from anabranch.common.wire.messages import (
    AppendedTogether,
    AppendTogether,
    Done,
    FlushContainer,
    GetLengths,
    Lengths,
)
from kit.infra import NatsServer
from kit.store_process import Cluster, ask, connect, segment_store
from kit.together import made_group
from kit.wire_client import WireClient

SEGMENTS = tuple(f"scope/stream/{number}.#epoch.0" for number in range(3))
GROUPS_PER_ROUND = 60
EVENT_SIZE_BYTES = 2000
ROUNDS = 4

Sent = tuple[AppendTogether, bytes]


@pytest.fixture
async def cluster(nats_server: NatsServer) -> AsyncIterator[Cluster]:
    client = await connect_nats(nats_target(nats_server.url), "test")
    cluster = Cluster(client)
    await cluster.prepare()
    yield cluster
    await client.close()


class Groups:
    """The groups of one writer, in order; each leaves out one segment or none."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self._last: Counter[str] = Counter()

    def next(self) -> Sent:
        """A new group."""
        left_out = len(self.sent) % 4
        blocks = {}
        for number, segment in enumerate(SEGMENTS):
            if number != left_out:
                self._last[segment] += 1
                event = b"%d" % len(self.sent) + b"." * EVENT_SIZE_BYTES
                blocks[segment] = (self._last[segment], [event])
        self.sent.append(made_group(blocks))
        return self.sent[-1]

    async def stored(self, client: WireClient) -> int:
        """The number of groups that are stored, which are the first ones. Fails on a part of a
        group."""
        found = Counter[int]()
        for segment in SEGMENTS:
            data = await client.read_all(segment)
            at = 0
            while at < len(data):
                block = Block(data, at)
                (event,) = block.events()
                found[int(event.partition(b".")[0])] += 1
                at += block.header.size
        whole = {number: len(request.places) for number, (request, _) in enumerate(self.sent)}
        assert found == {number: whole[number] for number in range(len(found))}
        return len(found)


@pytest.mark.parametrize("writer", ["inline", "process"])
async def test_a_group_is_stored_whole_or_not_at_all_when_the_store_is_killed(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster, writer: str
) -> None:
    directory, groups, acknowledged = tmp_path / "data", Groups(), 0
    for round_number in range(1, ROUNDS + 1):
        store = segment_store(directory, nats_server.url, JOURNAL_WRITER=writer)
        async with store as process:
            if round_number == 1:
                await cluster.assign()
            await cluster.opened(round_number)
            client = await connect(cluster)
            if round_number == 1:
                for segment in SEGMENTS:
                    assert await client.create(segment) == Done()
            assert await groups.stored(client) >= acknowledged
            for request, payload in groups.sent:
                assert await client.call(request, payload) == AppendedTogether()
            assert await groups.stored(client) == len(groups.sent)
            if round_number == 2:
                assert await client.call(FlushContainer(container=0)) == Done()
            for _ in range(GROUPS_PER_ROUND):
                client.send(*groups.next())
            for _ in range(7 * round_number):
                assert (await client.receive())[0] == AppendedTogether()
            process.send_signal(signal.SIGKILL)
            acknowledged = len(groups.sent) - GROUPS_PER_ROUND + 7 * round_number
            await client.close()
            await process.communicate()


async def test_groups_and_lengths_are_served_over_nats(
    tmp_path: Path, nats_server: NatsServer, cluster: Cluster
) -> None:
    async with segment_store(tmp_path / "data", nats_server.url):
        await cluster.assign()
        await cluster.opened(1)
        client = await connect(cluster)
        for segment in SEGMENTS:
            assert await client.create(segment) == Done()
        request, payload = Groups().next()
        for _ in range(2):
            assert await ask(cluster, "append_together", request, payload) == (
                AppendedTogether(),
                b"",
            )
        lengths = GetLengths(segment=SEGMENTS[0], segments=SEGMENTS)
        sizes = tuple(place.size for place in request.places)
        assert await ask(cluster, "lengths", lengths) == (Lengths(lengths=(0, *sizes)), b"")
        await client.close()
