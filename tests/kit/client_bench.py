"""A client over a fake store and a fake controller, ready to write and read one stream."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from opentelemetry.trace import Tracer

from anabranch.client import Client, EventBatch, ReaderSettings, WriterSettings
from anabranch.client.settings import ConnectionSettings
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import TOGETHER_FIRST, StreamRef, stream_ref
from anabranch.common.model.stream import StreamState
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds, system_rng
from anabranch.common.wire.block import Block
from kit.fake_control_plane import FakeControlPlane
from kit.fake_controller import FakeController
from kit.fake_segment import FakeSegment
from kit.fake_segstore import FakeSegmentStore
from kit.fake_streams import FakeStream

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

    @property
    def stream(self) -> FakeStream:
        return self.controller.scopes["plant"]["sensors"]

    @property
    def ref(self) -> StreamRef:
        return stream_ref(STREAM)

    def events_in(self, data: bytes) -> list[tuple[str | None, bytes]]:
        """(key, payload) of the events in stored blocks."""
        found: list[tuple[str | None, bytes]] = []
        at = 0
        while at < len(data):
            block = Block(data, at)
            stored, payloads = block.keys(), block.events()
            keys = [None if key is None else key.decode() for key in stored]
            found += zip(keys, payloads, strict=True)
            at += block.header.size
        return found

    def every_segment(self) -> tuple[SegmentInStream, ...]:
        """All that the stream ever had."""
        return self.stream.described(self.ref, self.stream.lives.values())

    def scaling(self, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> Iterator[str]:
        """Scale the stream, a stage at each step; `seal` counts the current segments by key."""
        current = [life.segment_id for life in self.stream.current]
        old = [current[index] for index in seal]
        return self.stream.scale(self.ref, self.store, old, ranges)

    def scale_to(self, count: int) -> Iterator[str]:
        """Scale all of the stream to `count` even ranges, a stage at each step."""
        ranges = [(keys.start, keys.end) for keys in even_ranges(count)]
        return self.scaling(range(len(self.stream.current)), ranges)

    def truncate(self, cut: Mapping[int, int]) -> None:
        """Let the stream begin at the cut: segment id → offset."""
        self.stream.truncate(self.ref, self.store, cut)

    def delete(self) -> None:
        """Delete the stream with all its segments."""
        for name in self.controller.segment_names("plant", "sensors"):
            if name in self.store.segments:
                self.store.delete(name)
        del self.controller.scopes["plant"]["sensors"]

    def create_again(self) -> None:
        """Delete the stream, and create the next one of its name, whose numbers go on."""
        old = self.stream
        last = max(segment & 0xFFFFFFFF for segment in old.lives)
        self.delete()
        again = FakeStream(1, first_number=last + 1, incarnation=old.incarnation + 1)
        self.controller.scopes["plant"]["sensors"] = again
        for name in self.controller.segment_names("plant", "sensors"):
            self.store.segments[name] = FakeSegment()

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
    *,
    together: bool = False,
) -> AsyncIterator[Bench]:
    """An open client on a stream of `segment_count` segments."""
    async with FakeSegmentStore() as store:
        controller = kind(store)
        controller.scopes["plant"] = {
            "sensors": FakeStream(segment_count, first_number=TOGETHER_FIRST if together else 0)
        }
        for name in controller.segment_names("plant", "sensors"):
            store.segments[name] = FakeSegment()
        control = FakeControlPlane(controller)
        async with new_client(control, tracer) as client:
            yield Bench(store, controller, control, client)


def new_client(control: FakeControlPlane, tracer: Tracer | None = None) -> Client:
    return Client(
        control,
        clock=SystemClock(),
        ids=SeededIds(1),
        rng=system_rng(),
        connections=CONNECTION,
        tracer=tracer,
    )


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
