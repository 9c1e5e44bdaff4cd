"""A client over a fake store and a fake controller, ready to write and read one stream."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from opentelemetry.trace import Tracer

from anabranch.client import Client, EventBatch, ReaderSettings, WriterSettings
from anabranch.client.settings import ConnectionSettings
from anabranch.common.model.stream import StreamState
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds, system_rng
from kit.fake_controller import FakeController, FakeControlPlane, FakeStream
from kit.fake_segstore import FakeSegment, FakeSegmentStore

STREAM = "plant/sensors"
CONNECTION = ConnectionSettings(connect_timeout_s=1.0, request_timeout_s=2.0)
WRITER = WriterSettings(retry_timeout_s=5.0, ack_timeout_s=2.0)
READER = ReaderSettings(wait_ms=50, retry_timeout_s=5.0)


@dataclass
class Bench:
    """Everything of one test; `stream` lies on `store`, known to `controller`."""

    store: FakeSegmentStore
    controller: FakeController
    control: FakeControlPlane
    client: Client

    @property
    def segments(self) -> list[FakeSegment]:
        return list(self.store.segments.values())

    def seal(self) -> None:
        """Seal the stream and all its segments."""
        self.store.seal()
        self.controller.scopes["plant"]["sensors"].state = StreamState.SEALED

    async def stored(self) -> list[EventBatch]:
        """All batches up to the tail, read by the client itself."""
        async with self.client.reader(STREAM, until_tail=True, settings=READER) as reader:
            return [batch async for batch in reader.batches()]

    async def payloads(self) -> list[bytes]:
        return [payload for batch in await self.stored() for payload in batch.payloads]

    async def by_key(self) -> dict[str | None, list[bytes]]:
        """Key → its payloads in the order of reading."""
        found: dict[str | None, list[bytes]] = {}
        for batch in await self.stored():
            for key, payload in zip(batch.keys, batch.payloads, strict=True):
                found.setdefault(key, []).append(payload)
        return found


@asynccontextmanager
async def bench(
    segment_count: int = 1,
    tracer: Tracer | None = None,
    kind: type[FakeController] = FakeController,
) -> AsyncIterator[Bench]:
    """An open client on a stream of `segment_count` segments."""
    async with FakeSegmentStore() as store:
        controller = kind(store)
        controller.scopes["plant"] = {"sensors": FakeStream(segment_count)}
        for name in controller.segment_names("plant", "sensors"):
            store.segments[name] = FakeSegment()
        control = FakeControlPlane(controller)
        client = Client(
            control,
            clock=SystemClock(),
            ids=SeededIds(1),
            rng=system_rng(),
            connections=CONNECTION,
            tracer=tracer,
        )
        async with client:
            yield Bench(store, controller, control, client)


def writer_settings(**changes: float | str) -> WriterSettings:
    """The tests' writer settings with some changed."""
    return replace(WRITER, **changes)  # type: ignore[arg-type]


def reader_settings(**changes: float) -> ReaderSettings:
    """The tests' reader settings with some changed."""
    return replace(READER, **changes)  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop turn until `condition` holds; fails after two seconds."""
    async with asyncio.timeout(2):
        while True:
            if condition():
                return
            await asyncio.sleep(0)
