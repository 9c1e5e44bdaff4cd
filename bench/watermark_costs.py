"""The cost of watermarks: rounds over 10,000 streams of which 500 have changed.

    .venv/bin/python -m bench.watermark_costs redis://127.0.0.1:6379/15

A controller's job runs on a real Redis server, whose database it fills with marks that expire, and
on segment stores that answer in this process, so the processor time includes both sides of a
request to a store. Every stream has four segments and two writers. A round is due every ten
seconds.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

from nats.aio.client import Client

from anabranch.common.contracts.subjects import stream_events
from anabranch.common.errors import AnabranchError, SegmentNotFound
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import StreamRef, segment_id, stream_ref
from anabranch.common.model.stream import SegmentOffset, SegmentRange, StreamConfig, StreamState
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds, system_rng
from anabranch.common.wire.messages import (
    Appended,
    ConditionalAppend,
    CreateSegment,
    Done,
    GetSegmentInfo,
    Message,
    decode_message,
    encode_message,
    failed,
)
from anabranch.common.wire.packet import PacketParser
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.containment import Containment
from anabranch.controller.adapters.redis_writer_times import RedisWriterTimes
from anabranch.controller.adapters.segment_requests import NatsSegmentStores
from anabranch.controller.domain.stream.history import EpochRecord
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.periodic.advance_watermarks import Sources, WatermarkAdvancer
from anabranch.controller.ports import StreamListing
from anabranch.controller.projections.histories import Histories
from anabranch.controller.projections.watermark_log import WatermarkLog

STREAMS = 10_000
CHANGED = 500
ROUNDS = 5
PERIOD_S = 10.0
TIMEOUT_S = 120.0
WRITERS = tuple(f"{number:032x}" for number in (1, 2))
NOTES_AT_ONCE_MAX = 16
REFS = [stream_ref(f"bench/stream-{number}") for number in range(STREAMS)]
SEGMENTS = tuple(
    SegmentRange(segment_id(0, number), keys) for number, keys in enumerate(even_ranges(4))
)

WALL = SystemClock()


class SetClock(SystemClock):
    """Its monotonic time is as late as the benchmark says."""

    at_s = 0.0

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self.at_s


class Stores:
    """Segments of watermarks, behind what a connection to NATS does: their lengths alone."""

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}

    async def request(self, _subject: str, data: bytes, timeout: float) -> object:  # noqa: ASYNC109
        """The answer to one packet."""
        assert timeout > 0
        (packet,) = PacketParser().feed(data)
        try:
            reply = self._answer(decode_message(packet), len(packet.payload))
        except AnabranchError as error:
            reply = failed(error)
        return SimpleNamespace(data=b"".join(encode_message(reply, packet.request_id)))

    def _answer(self, request: Message, size: int) -> Message:
        match request:
            case GetSegmentInfo():
                raise SegmentNotFound("no watermark yet", segment=request.segment)
            case CreateSegment():
                self._lengths[request.segment] = 0
                return Done()
            case ConditionalAppend():
                assert self._lengths[request.segment] == request.expected_length
                self._lengths[request.segment] += size
                length = self._lengths[request.segment]
                return Appended(
                    session=0, last_event_number=request.first_event_number, length=length
                )
            case _:
                raise AssertionError(request)


class Streams:
    """All streams as a mirror has them."""

    def __init__(self) -> None:
        self._all = {ref: Loaded(stream_events(ref), _stream(ref)) for ref in REFS}

    def stream(self, ref: StreamRef) -> Loaded[Stream] | None:
        """See `StreamListing.stream`."""
        return self._all.get(ref)


def _stream(ref: StreamRef) -> Stream:
    return Stream(
        ref=ref,
        incarnation=1,
        status=StreamState.ACTIVE,
        config=StreamConfig(timestamp_aggregation_timeout_ms=int(TIMEOUT_S * 1000)),
        segments=SEGMENTS,
        head=tuple(SegmentOffset(segment.segment_id, 0) for segment in SEGMENTS),
        epochs=(EpochRecord(0, 0, 0, SEGMENTS),),
    )


async def measure(url: str) -> None:
    """Print the figures."""
    clock = SetClock()
    times = RedisWriterTimes(url, f"bench-{SystemIds().new_id()}", mark_ms=600_000)
    stores = NatsSegmentStores(cast(Client, Stores()), 4)
    advancer = WatermarkAdvancer(
        Sources(
            times,
            cast(StreamListing, Streams()),
            Histories(cast(HistoryChunks, None)),
            lambda: frozenset(range(SHARD_COUNT)),
            SHARD_COUNT,
        ),
        WatermarkLog(stores, SystemIds()),
        clock=clock,
        period_s=PERIOD_S,
        containment=Containment(clock, system_rng()),
    )
    await _timed("an empty round", advancer.round)
    clock.at_s += TIMEOUT_S
    noting_s = await _cpu_s(lambda: _note(times, REFS, 1))
    _say(f"{2 * STREAMS} notes: {noting_s / STREAMS / 2 * 1e6:.0f} µs of processor time each")
    await _timed(f"all {STREAMS} streams have their first watermark", advancer.round)
    walls, cpus = [], []
    for number in range(ROUNDS):
        await _note(times, REFS[number * CHANGED : (number + 1) * CHANGED], 2)
        clock.at_s += PERIOD_S
        began_s = WALL.monotonic()
        cpus.append(await _cpu_s(advancer.round))
        walls.append(WALL.monotonic() - began_s)
    assert advancer.counts.advanced == STREAMS + ROUNDS * CHANGED
    wall_s, cpu_s = sorted(walls)[ROUNDS // 2], sorted(cpus)[ROUNDS // 2]
    _say(
        f"{CHANGED} of {STREAMS} streams changed: {wall_s:.2f} s, processor {cpu_s:.2f} s, "
        f"{cpu_s / PERIOD_S:.1%} of a core"
    )
    clock.at_s += PERIOD_S
    await _timed("no stream changed", advancer.round)
    clock.at_s += TIMEOUT_S
    await _timed("the time-outs of all writers are over", advancer.round)
    await times.close()


async def _note(times: RedisWriterTimes, refs: list[StreamRef], turn: int) -> None:
    async def note(ref: StreamRef) -> None:
        places = tuple(SegmentOffset(s.segment_id, turn * 1000) for s in SEGMENTS)
        for index, writer in enumerate(WRITERS):
            await times.note(ref, 1, writer, turn * 10_000 + index, places)

    await for_each(refs, NOTES_AT_ONCE_MAX, note)


async def _timed(what: str, call: Callable[[], Awaitable[Any]]) -> None:
    began_s = WALL.monotonic()
    cpu_s = await _cpu_s(call)
    _say(f"{what}: {WALL.monotonic() - began_s:.2f} s, processor {cpu_s:.2f} s")


async def _cpu_s(call: Callable[[], Awaitable[Any]]) -> float:
    began_s = time.process_time()
    await call()
    return time.process_time() - began_s


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m bench.watermark_costs redis://HOST:PORT/DATABASE")
    asyncio.run(measure(sys.argv[1]))
