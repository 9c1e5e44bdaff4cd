"""A cluster that runs in a thread of its own, for tests whose own thread blocks: Spark's do."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.client import Client, connect

DEADLINE_S = 60.0
T = TypeVar("T")


@dataclass(frozen=True)
class ClusterThread:
    """A running cluster: its endpoints file and tier 2, as options of the data source want them."""

    nats_url: str
    tier2: str
    _loop: asyncio.AbstractEventLoop
    _client: Client

    def run(
        self, work: Callable[[Client], Coroutine[Any, Any, T]], timeout_s: float = DEADLINE_S
    ) -> T:
        """The result of work with a client of the cluster, awaited in the cluster's thread."""
        return asyncio.run_coroutine_threadsafe(work(self._client), self._loop).result(timeout_s)


@contextmanager
def cluster_thread(data_dir: Path, settings: UpSettings | None = None) -> Iterator[ClusterThread]:
    """Run the embedded cluster in a thread during the block."""
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    stop, made = asyncio.Event(), threading.Event()
    found: list[ClusterThread] = []

    async def serve() -> None:
        chosen = settings or UpSettings(data_dir=data_dir)
        async with embedded_cluster(chosen) as running:
            await running.wait_ready()
            url = str(running.endpoints_file)
            async with connect(url) as client:
                tier2 = (data_dir / "segstore/tier2").as_uri()
                found.append(ClusterThread(url, tier2, loop, client))
                made.set()
                await stop.wait()

    with runner:  # its end leaves no task and no socket open
        loop = runner.get_loop()
        thread = threading.Thread(target=runner.run, args=(serve(),))
        thread.start()
        try:
            assert made.wait(DEADLINE_S)
            yield found[0]
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(DEADLINE_S)
