"""A segment store as a process, without a controller: the test places its container."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore, create_bucket
from anabranch.common.contracts import subjects
from anabranch.common.contracts.cluster import (
    CONSTANTS_KEY,
    ClusterConstants,
    node_from_bytes,
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import (
    ConnectionLost,
    Unavailable,
)
from anabranch.common.model.cluster import NodeRecord, Placement, PlacementState
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.wire.messages import (
    Failed,
    GetSegmentInfo,
    Message,
    decode_message,
    encode_message,
    failed,
)
from anabranch.common.wire.packet import PacketParser
from kit.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"
START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 20.0


class Cluster:
    """What the controller would do: constants, and one container on whoever registers."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def objects(self, bucket: str) -> JetStreamObjectStore:
        return JetStreamObjectStore(self.client, SystemClock(), bucket)

    async def prepare(self) -> None:
        for bucket in (
            subjects.NODES_BUCKET,
            subjects.PLACEMENTS_BUCKET,
            subjects.CLUSTER_BUCKET,
        ):
            await create_bucket(self.client, bucket)
        constants = ClusterConstants(shards=16, buckets=16, containers=1)
        await self.objects(subjects.CLUSTER_BUCKET).create(CONSTANTS_KEY, constants.to_bytes())

    async def node(self) -> NodeRecord:
        """The node that registers first."""
        async with asyncio.timeout(START_DEADLINE_S):
            async for stored in self.objects(subjects.NODES_BUCKET).watch():
                if stored is not None:
                    return node_from_bytes(stored.value)
        raise AssertionError

    async def assign(self) -> None:
        node = await self.node()
        value = placement_to_bytes(Placement(0, (node.node_id,)))
        await self.objects(subjects.PLACEMENTS_BUCKET).create(placement_key(0), value)

    async def opened(self, container_epoch: int) -> Placement:
        """The placement, once it is open under at least this epoch and its owner serves it."""
        async with asyncio.timeout(START_DEADLINE_S):
            while True:
                try:
                    found = await self._open_under(container_epoch)
                except Unavailable:
                    continue  # NATS was away; the watch begins anew
                await self._served()
                return found

    async def _open_under(self, container_epoch: int) -> Placement:
        async for stored in self.objects(subjects.PLACEMENTS_BUCKET).watch():
            if stored is not None:
                found = placement_from_bytes(stored.value)
                is_open = found.state is PlacementState.OPEN
                if is_open and found.container_epoch >= container_epoch:
                    return found
        raise AssertionError

    async def _served(self) -> None:
        """Return when requests are answered, which is soon after the placement says so."""
        while True:
            reply = await self._info()
            if not isinstance(reply, Failed) or reply.code != Unavailable.code:
                return
            await asyncio.sleep(0.01)

    async def _info(self) -> Message:
        try:
            return (await ask(self, "info", GetSegmentInfo(segment=SEGMENT)))[0]
        except NoRespondersError:
            return failed(Unavailable("nobody listens yet"))


async def ask(
    cluster: Cluster, verb: str, message: Message, payload: bytes = b""
) -> tuple[Message, bytes]:
    """One request over NATS → the reply's message and payload; a lost reply is asked for again."""
    data = b"".join(encode_message(message, 5, payload))
    subject = subjects.segment_request(0, verb)
    try:
        reply = await cluster.client.request(subject, data, timeout=5)
    except NatsTimeoutError:
        reply = await cluster.client.request(subject, data, timeout=5)
    (packet,) = PacketParser().feed(reply.data)
    assert packet.request_id == 5
    return decode_message(packet), packet.payload


@asynccontextmanager
async def segment_store(
    directory: Path, nats_url: str, **settings: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running process; ended by the block's end if it still runs."""
    environment = {
        **os.environ,
        "ANABRANCH_SEGSTORE_DATA_DIR": str(directory),
        "ANABRANCH_SEGSTORE_NATS_URL": nats_url,
        **{f"ANABRANCH_SEGSTORE_{name}": value for name, value in settings.items()},
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "anabranch.segstore",
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def connect(cluster: Cluster) -> WireClient:
    """Connect to where the node says it listens now."""
    async with asyncio.timeout(START_DEADLINE_S):
        while True:
            node = await cluster.node()
            try:
                return await WireClient.connect(node.endpoint.host, node.endpoint.port)
            except (OSError, ConnectionLost):
                await asyncio.sleep(0.05)
