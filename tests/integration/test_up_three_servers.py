"""`anabranch up --nats 3`: three real NATS servers beside stand-ins for the services.

It starts the embedded cluster that users have, whichever provider `kit.infra` is.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError
from nats.js.api import StreamConfig, StreamInfo

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.cli.up.cluster import EmbeddedCluster
from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.runtime.nats_target import nats_target
from kit.stand_ins import Watch, stand_ins

NAMES = ("nats", "nats-2", "nats-3")
SERVICES = ("controller", "segstore", "gateway")
ANSWER_S_MAX = 20.0
"""Longer than the election of a stream's new leader takes."""
T = TypeVar("T")


async def test_three_nats_servers_survive_the_death_of_one_and_keep_what_they_confirmed(
    tmp_path: Path,
) -> None:
    """The second start has no options: the directory knows its servers."""
    for wished in (3, None):
        watch, settings = Watch(), UpSettings(tmp_path, nats_count=wished, redis=False)
        async with embedded_cluster(settings, watch=watch, parts=stand_ins) as cluster:
            await cluster.wait_ready()
            target = nats_target(tmp_path)
            assert len(target.addresses) == 3
            client = await connect_nats(target, "test")
            try:
                if wished:
                    await add_stream(client)
                    await survive_the_death_of(await leader(client), cluster, watch, client)
                assert (await stream_of(client)).state.messages == 1
            finally:
                await close_nats(client)
        assert not [row for row in watch.seen[:-1] if stopped_early(row)]


async def survive_the_death_of(
    name: str, cluster: EmbeddedCluster, watch: Watch, client: NatsClient
) -> None:
    others = {part: cluster.pids(part) for part in (*NAMES, *SERVICES) if part != name}
    (pid,) = cluster.pids(name)
    os.kill(pid, signal.SIGKILL)
    await publish(client, f"{name} {pid}")
    await watch.wait_for_restart(name)
    assert {part: cluster.pids(part) for part in others} == others
    assert cluster.pids(name) not in ([], [pid])


async def leader(client: NatsClient) -> str:
    """The server that leads the stream: its death is the worst."""
    found = (await stream_of(client)).cluster
    assert found is not None
    assert found.leader is not None
    return found.leader


async def stream_of(client: NatsClient) -> StreamInfo:
    return await until_answered(lambda: client.jetstream(timeout=1.0).stream_info("KEPT"))


async def publish(client: NatsClient, text: str) -> None:
    """Publish a message once, although it is sent again."""
    streams, headers = client.jetstream(timeout=1.0), {"Nats-Msg-Id": text}
    await until_answered(lambda: streams.publish("kept", text.encode(), headers=headers))


async def until_answered(request: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The answer, although the connection breaks, or the stream has no leader for a while."""
    async with asyncio.timeout(ANSWER_S_MAX):
        while True:
            with contextlib.suppress(NatsError):
                return await request()
            await asyncio.sleep(0.05)


async def add_stream(client: NatsClient) -> None:
    streams = client.jetstream(timeout=ANSWER_S_MAX)
    await streams.add_stream(StreamConfig(name="KEPT", subjects=["kept"], num_replicas=3))


def stopped_early(row: dict[str, str]) -> bool:
    """Whether a service ended, and not because the cluster stopped."""
    return "backing-off" in {row[part] for part in SERVICES}
