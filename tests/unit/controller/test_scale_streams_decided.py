"""The loop of auto-scaling over an event store: decisions are stored once, and void when late."""

from collections.abc import AsyncIterator
from functools import partial

import pytest

from anabranch.common.contracts.load import ContainerLoad, LoadReport, SegmentLoad
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import segment_name, stream_ref
from anabranch.common.model.stream import StreamConfig
from anabranch.common.runtime.metrics import silent_metrics
from anabranch.controller.domain.load import ServedSegment
from anabranch.controller.domain.policies.gauge import Heard
from anabranch.controller.domain.policies.profile import FAST
from anabranch.controller.domain.stream.export import ShapedStream
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.handlers.deciding.streams import decide_stream
from anabranch.controller.metrics import ControllerMetrics
from anabranch.controller.periodic.scale_streams import Seen, StreamScaler
from anabranch.controller.projections.load_reports import LoadReports
from anabranch.controller.projections.scaling import ScalingStates
from kit.container_driver import ManualTime
from kit.desks import command_desk
from kit.loaded_stream import by_events
from kit.loud import loud
from kit.query_world import QueryWorld, query_world

REF = stream_ref("s/x")
SUBJECT = stream_events(REF)


@pytest.fixture
async def world() -> AsyncIterator[QueryWorld]:
    async with query_world() as built:
        yield built


class Lagging:
    """A mirror that sees nothing new any more."""

    def __init__(self, loaded: Loaded[Stream] | None) -> None:
        assert loaded is not None
        self._loaded = loaded

    def known(self, subject: str) -> Loaded[Stream]:
        assert subject == SUBJECT
        return self._loaded

    def shaped_streams(self) -> list[ShapedStream]:
        return [ShapedStream(self._loaded.state, 1)]


class Owner:
    """A controller that believes that it owns the bucket, and whose mirror lags from now on."""

    def __init__(self, world: QueryWorld, time: ManualTime) -> None:
        mirror = Lagging(world.mirror.known(SUBJECT))
        self.reports = LoadReports(time)
        self.metrics = ControllerMetrics(silent_metrics(), time)
        self.scaler = StreamScaler(
            Seen(mirror, lambda _subject: True, self.heard, lambda _stream: 0),
            partial(decide_stream, command_desk(world.store)),
            ScalingStates(FAST, time),
            FAST,
            clock=time,
            metrics=self.metrics,
            containment=loud(time),
        )

    def heard(self, segment: str) -> Heard:
        return Heard("n", self.reports.periods("n"), ServedSegment(segment, 0, 1))

    def learn(self, report: LoadReport) -> None:
        self.reports.learn(report)
        self.scaler.learn(report)


def report(sequence: int, stream: Stream, rate: float, only: int | None) -> LoadReport:
    """Two seconds of so many events per second in each segment, or in `only` one of them."""
    count = round(rate * 2)
    segments = tuple(
        SegmentLoad(segment=segment_name(REF, one.segment_id), events=count, size=count)
        for one in stream.segments
        if only in (None, one.segment_id)
    )
    container = ContainerLoad(container=0, container_epoch=1, segments=segments)
    return LoadReport(
        node_id="n", session="s", sequence=sequence, start_ms=0, length_ms=2000, due_ms=10_000,
        containers=(container,), others_idle=True,
    )  # fmt: skip


async def stored(world: QueryWorld) -> Stream:
    return (await world.streams.load(SUBJECT)).state


async def written_too_fast(
    world: QueryWorld, owners: list[Owner], time: ManualTime, only: int | None = None
) -> None:
    """Reports until the segments are old enough to split."""
    stream = await stored(world)
    for owner in owners:
        await owner.scaler.round()
    for number in range(1, 3):
        time.advance(2.0)
        for owner in owners:
            owner.learn(report(number, stream, 3000.0, only))
            await owner.scaler.round()
    time.advance(2.0)
    for owner in owners:
        owner.learn(report(3, stream, 3000.0, only))


async def test_two_owners_store_one_scale_and_its_workflow_carries_it_out(
    world: QueryWorld,
) -> None:
    await world.create(config=StreamConfig(by_events(1000)))
    await world.folded()
    time = ManualTime()
    owners = [Owner(world, time) for _ in range(2)]
    await written_too_fast(world, owners, time)
    for owner in owners:
        await owner.scaler.round()

    stream = await stored(world)
    (intent,) = stream.intents
    assert intent.scale is not None
    assert len(intent.scale.created) == 4
    assert len([one for one in stream.operations if one.operation.startswith("auto-")]) == 1
    done = await world.work(await world.streams.load(SUBJECT))
    assert len(done.state.segments) == 4
    assert done.state.epochs[-1].cause.startswith("auto-split: segment 0 with 3000 events/s")


@pytest.mark.parametrize("split", [0, 1])
async def test_a_decision_is_void_once_the_stream_has_another_epoch(
    world: QueryWorld, split: int
) -> None:
    """Whether the segment that it names is gone, or still there."""
    await world.create(config=StreamConfig(by_events(1000, min_segments=2)))
    await world.folded()
    time = ManualTime()
    owner = Owner(world, time)
    await written_too_fast(world, [owner], time, only=0)
    await world.scale([split], split / 2, split / 2 + 0.25, split / 2 + 0.5)
    await owner.scaler.round()
    assert dict(owner.metrics.scaling) == {("split", "void"): 1}
    assert len((await stored(world)).segments) == 3
