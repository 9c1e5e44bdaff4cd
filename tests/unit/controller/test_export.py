"""What tier 2 is told of streams: what, when, and by many controllers that may die at any step."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import CorruptEvent, DiskFailed, OutcomeUnknown, TierTwoRewound
from anabranch.common.model.key_range import KeyRange, even_ranges
from anabranch.common.model.names import StreamName, StreamRef, segment_id, stream_ref
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.common.model.topics import TopicName, backing_stream
from anabranch.common.storage.ports import Buffer, ChunkStorage
from anabranch.common.storage.streams import list_streams, read_stream
from anabranch.common.tier2.streams import (
    EarlierSegment,
    ExportedEpoch,
    ExportedStream,
    decode_stream,
    encode_stream,
    receipted_revision,
    revision_in,
    stream_object_name,
    stream_receipt_name,
)
from anabranch.common.workflow.containment import Containment
from anabranch.controller.domain.stream.export import (
    ShapedStream,
    decide_exports,
    exported_stream,
    is_exported,
    superseded,
)
from anabranch.controller.domain.stream.history import EpochRecord, History, SealedSegment
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.periodic.export_streams import SWEEP_S, StreamExporter, tell
from anabranch.controller.periodic.job import repeat
from kit.chunk_faults import PausingStorage, all_schedules, run_schedule
from kit.loud import loud
from kit.rng import seeded
from kit.shaped import ShapedStreams, shaped
from kit.thorough import one_in
from kit.virtual_time import VirtualClock, run_virtual

REF = stream_ref("s/x")
OTHER = stream_ref("s/y")


class FaultyStorage(MemoryChunkStorage):
    """Tier 2 that a process which dies at its `left`-th call has used; or that is broken."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1
        self.broken = False
        self.puts: list[str] = []

    def _call(self) -> None:
        if self.broken or self.left == 0:
            raise DiskFailed("the disk is gone")
        self.left -= 1

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        self._call()
        self.puts.append(name)
        await super().put_new(name, parts)

    async def list(self, prefix: str) -> Sequence[str]:
        self._call()
        return await super().list(prefix)

    async def delete(self, name: str) -> None:
        self._call()
        await super().delete(name)


async def _history(stream: Stream) -> History:
    return History(stream.epochs)


class World:
    """An exporter over streams that are known as the test says."""

    def __init__(self, storage: FaultyStorage, streams: ShapedStreams | None = None) -> None:
        self.storage = storage
        self.streams = streams or ShapedStreams()
        self.session_count = 0
        self.reports: list[str] = []
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.exporter = StreamExporter(
            self.streams,
            _history,
            self._open,
            4,
            clock=self.clock,
            containment=loud(self.clock),
        )

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[ChunkStorage]:
        self.session_count += 1
        yield self.storage

    async def told(self, ref: StreamRef = REF) -> ExportedStream:
        return await read_stream(self.storage, ref)

    async def serve(self) -> None:
        """Until cancelled."""
        await repeat(
            self.exporter.job(), self.clock, seeded(1),
            measure=lambda _job, _late_s, _took_s: None, report=self.reports.append,
        )  # fmt: skip

    async def serve_for(self, seconds: float) -> None:
        """Let the exporter work, then end it as a kill does."""
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(self.serve())
            await self.clock.sleep(seconds)
            serving.cancel()


def on_virtual_time(
    test: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[[], None]:
    """Run an asynchronous test on virtual time."""

    def run() -> None:
        run_virtual(test())

    run.__name__ = test.__name__
    return run


def export(known: ShapedStream) -> ExportedStream:
    """What is told of the stream in a cluster of four containers."""
    epochs = known.stream.epochs
    return exported_stream(known, History(epochs) if epochs else None, 4)


# --- deciding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "is_told"),
    [
        (StreamState.CREATING, False),
        (StreamState.ACTIVE, True),
        (StreamState.SEALED, True),
        (StreamState.DELETING, False),
        (StreamState.DELETED, True),
    ],
)
def test_only_states_that_a_reader_can_use_are_told(state: StreamState, is_told: bool) -> None:
    known = shaped(REF, 3, state)
    assert decide_exports({}, [known]) == ([known] if is_told else [])


def test_only_what_is_newer_than_what_is_told_is_told() -> None:
    behind, level, ahead = (shaped(stream_ref(f"s/{name}"), 5) for name in ("a", "b", "c"))
    told = {stream_ref("s/a"): 4, stream_ref("s/b"): 5, stream_ref("s/c"): 6}
    assert decide_exports(told, [behind, level, ahead]) == [behind]


def test_a_stream_is_told_with_its_ranges_and_a_deleted_one_without() -> None:
    known = shaped(REF, 3)
    told = export(known)
    assert told == ExportedStream(
        ref=REF,
        incarnation=1,
        revision=3,
        state=StreamState.ACTIVE,
        created_ms=7,
        container_count=4,
        epochs=(
            ExportedEpoch(
                0,
                (
                    SegmentRange(segment_id(0, 0), KeyRange(0.0, 0.5)),
                    SegmentRange(segment_id(0, 1), KeyRange(0.5, 1.0)),
                ),
            ),
        ),
    )
    assert export(shaped(REF, 9, StreamState.DELETED)).epochs == ()


def test_a_scaled_stream_is_told_with_the_segments_that_were_replaced() -> None:
    first = shaped(REF, 3, segments=1).stream
    halves = tuple(
        SegmentRange(segment_id(1, number), keys) for number, keys in enumerate(even_ranges(2), 1)
    )
    epoch = EpochRecord(1, 1, 9, halves, (SealedSegment(segment_id(0, 0), 70),))
    scaled = replace(first, segments=halves, epochs=(*first.epochs, epoch))
    told = export(ShapedStream(scaled, 7))
    assert told.epochs == (ExportedEpoch(1, halves),)
    assert told.earlier == (EarlierSegment(segment_id(0, 0), KeyRange(0.0, 1.0), 1, 70),)
    assert told.segment_ids() == [segment_id(0, 0), segment_id(1, 1), segment_id(1, 2)]


def test_the_last_two_objects_stay() -> None:
    assert superseded(["1", "2", "3", "4"]) == ["1", "2"]
    assert superseded(["1", "2"]) == superseded([]) == []


# --- many controllers, dying at any step ----------------------------------------------------------


def revisions(storage: MemoryChunkStorage) -> list[int]:
    told = [name for name in sorted(storage.objects) if revision_in(name) is not None]
    return [decode_stream(storage.objects[name], name).revision for name in told]


def receipts(storage: MemoryChunkStorage) -> list[int]:
    found = [receipted_revision(name) for name in sorted(storage.objects)]
    return [revision for revision in found if revision is not None]


def objects_of(revision: int) -> dict[str, bytes]:
    """What is told of the stream at that revision, by name."""
    exported = export(shaped(REF, revision))
    return {
        stream_object_name(REF, revision): encode_stream(exported),
        stream_receipt_name(REF, revision): b"created",
    }


async def test_telling_the_same_twice_changes_nothing() -> None:
    storage = MemoryChunkStorage()
    for revision in (3, 5, 7, 7):
        await tell(storage, export(shaped(REF, revision)))
    assert (revisions(storage), receipts(storage)) == ([5, 7], [7])
    assert (await read_stream(storage, REF)).revision == 7


async def test_what_comes_late_changes_nothing() -> None:
    storage = MemoryChunkStorage()
    for revision in (5, 7, 3):
        await tell(storage, export(shaped(REF, revision)))
    assert (revisions(storage), receipts(storage)) == ([5, 7], [7])


@pytest.mark.parametrize("calls", range(1, 13))
def test_a_controller_that_dies_at_any_step_is_made_good_by_the_next(calls: int) -> None:
    async def scenario() -> None:
        storage = FaultyStorage()
        for revision in (1, 2, 3):
            await tell(storage, export(shaped(REF, revision)))
        first = World(storage)
        first.streams.put(shaped(REF, 4))
        first.streams.put(shaped(OTHER, 4))
        storage.left = calls
        await first.serve_for(0.01)
        assert revisions(storage), "what was told stays"

        storage.left = -1
        assert (await first.told(REF)).revision >= 3, "and is never taken for deleted"
        second = World(storage, first.streams)
        await second.serve_for(0.01)

        assert (await second.told(REF)).revision == (await second.told(OTHER)).revision == 4
        assert sorted(revisions(storage)) == [3, 4, 4]
        assert receipts(storage) == [4, 4]

    run_virtual(scenario())


@on_virtual_time
async def test_left_over_objects_are_deleted_though_nothing_is_to_be_told() -> None:
    storage = FaultyStorage()
    for revision in (1, 2, 3):
        storage.objects |= objects_of(revision)
    world = World(storage)
    world.streams.put(shaped(REF, 3))
    await world.serve_for(0.01)
    assert (revisions(storage), receipts(storage)) == ([2, 3], [3])
    assert storage.puts == []


@on_virtual_time
async def test_what_lacks_its_object_or_its_receipt_is_told_again() -> None:
    storage = FaultyStorage()
    for revision in (2, 3):
        storage.objects |= objects_of(revision)
    for lost in (stream_object_name(REF, 3), stream_receipt_name(REF, 3)):
        kept = dict(storage.objects)
        del storage.objects[lost]
        world = World(storage)
        world.streams.put(shaped(REF, 3))
        await world.serve_for(0.01)
        assert storage.objects.keys() == kept.keys() - {stream_receipt_name(REF, 2)}
        assert (await world.told()).revision == 3


@pytest.mark.parametrize("left", [(), (1,), (1, 2)])
async def test_a_stream_whose_newest_object_was_deleted_is_refused_by_name(
    left: Sequence[int],
) -> None:
    storage = MemoryChunkStorage()
    for revision in (1, 2, 3):
        storage.objects |= objects_of(revision)
    for revision in {1, 2, 3} - set(left):
        del storage.objects[stream_object_name(REF, revision)]
    with pytest.raises(TierTwoRewound) as caught:
        await read_stream(storage, REF)
    assert caught.value.fields["receipt"] == 3
    assert caught.value.fields["newest"] == max(left, default=0)
    with pytest.raises(TierTwoRewound):
        _ = [stream async for stream in list_streams(storage)]


async def test_a_list_that_passes_an_object_before_it_is_created_refuses_nothing() -> None:
    class RacingStorage(MemoryChunkStorage):
        """Its first list misses an object whose receipt it finds."""

        async def list(self, prefix: str) -> Sequence[str]:
            first = stream_object_name(REF, 3) not in self.objects
            names = await super().list(prefix)
            self.objects |= objects_of(3)
            return [*names, stream_receipt_name(REF, 3)] if first else await super().list(prefix)

    storage = RacingStorage()
    storage.objects |= objects_of(2)
    assert (await read_stream(storage, REF)).revision == 3


def test_controllers_that_tell_at_once_never_lose_what_is_newest() -> None:
    def run(schedule: Sequence[int]) -> list[int]:
        storage = MemoryChunkStorage()
        for revision in (1, 2):
            storage.objects |= objects_of(revision)

        async def controller(told: Sequence[int]) -> None:
            for revision in told:
                await tell(PausingStorage(storage), export(shaped(REF, revision)))
                assert max(revisions(storage)) >= revision

        choices = run_schedule([controller((3, 4)), controller((3,))], schedule)
        assert max(revisions(storage)) == 4
        return choices

    assert all_schedules(run, stride=one_in(2)) > 100


# --- when -----------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_change_is_told_at_once_and_the_sweep_finds_what_nobody_told() -> None:
    world = World(FaultyStorage())
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(world.serve())
        await world.clock.sleep(0.1)
        world.exporter.wake(world.streams.put(shaped(REF, 3)))
        await world.clock.sleep(0.1)
        assert (await world.told()).state is StreamState.ACTIVE
        world.streams.put(shaped(REF, 5, StreamState.SEALED))
        await world.clock.sleep(SWEEP_S)
        assert (await world.told()).state is StreamState.SEALED
        serving.cancel()
    assert world.session_count == 1


@on_virtual_time
async def test_constant_changes_do_not_keep_the_sweep_away() -> None:
    world = World(FaultyStorage())
    world.streams.put(shaped(REF, 3))
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(world.serve())
        await world.clock.sleep(0.1)
        world.streams.put(shaped(REF, 5))
        for revision in range(1, 70):
            world.exporter.wake(world.streams.put(shaped(OTHER, revision)))
            await world.clock.sleep(0.1)
        assert (await world.told()).revision == 5
        serving.cancel()


@on_virtual_time
async def test_what_is_told_is_not_told_again_in_later_sweeps_or_after_a_restart() -> None:
    storage = FaultyStorage()
    storage.objects |= objects_of(3)
    world = World(storage)
    world.streams.put(shaped(REF, 3))
    world.streams.put(shaped(OTHER, 3))
    await world.serve_for(3 * SWEEP_S)
    assert storage.puts == [stream_object_name(OTHER, 3), stream_receipt_name(OTHER, 3)]


@on_virtual_time
async def test_a_failing_tier_two_is_reported_once_and_everything_told_when_it_is_back() -> None:
    world = World(FaultyStorage())
    names = [stream_ref(f"s/{number}") for number in range(20)]
    subjects = [world.streams.put(shaped(ref, 3)) for ref in names]
    world.storage.broken = True
    structlog.reset_defaults()
    with capture_logs() as logs:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(world.serve())
            await world.clock.sleep(60)
            for subject in subjects:
                world.exporter.wake(subject)
            await world.clock.sleep(60)
            (trouble,) = world.reports
            assert "the disk is gone" in trouble
            assert 5 < world.session_count < 20, "tries again, ever more seldom"
            world.storage.broken = False
            await world.clock.sleep(60)
            serving.cancel()
    assert world.reports[-1] == ""
    assert [log["log_level"] for log in logs] == ["warning", "info"]
    assert {(await world.told(ref)).revision for ref in names} == {3}


@on_virtual_time
async def test_a_put_of_unknown_outcome_is_made_good_by_a_new_session() -> None:
    class Silent(FaultyStorage):
        async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
            await super().put_new(name, parts)
            if len(self.puts) == 1:
                raise OutcomeUnknown("no answer in time")

    world = World(Silent())
    world.streams.put(shaped(REF, 3))
    await world.serve_for(1)
    assert (await world.told()).revision == 3
    assert world.session_count == 2


@on_virtual_time
async def test_a_session_ends_after_some_hours_so_that_its_files_never_look_left_over() -> None:
    world = World(FaultyStorage())
    await world.serve_for(7 * 3600)
    assert world.session_count == 2


# --- one bad among good -------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyError("a defect"), CorruptEvent("its history is damaged")])
def test_one_stream_that_cannot_be_told_keeps_no_other_one(error: Exception) -> None:
    async def history(stream: Stream) -> History:
        if stream.ref == REF:
            raise error
        return await _history(stream)

    async def live() -> None:
        world = World(FaultyStorage())
        world.exporter._histories = history
        world.exporter._containment = Containment(world.clock, seeded(0))
        for number in range(9):
            world.streams.put(shaped(stream_ref(f"s/y{number}"), 3))
        world.streams.put(shaped(REF, 3))
        await world.serve_for(SWEEP_S)
        for number in range(9):
            assert await world.told(stream_ref(f"s/y{number}"))
        assert world.session_count == 1

    run_virtual(live())


def test_internal_streams_are_not_exported_except_those_of_topics() -> None:
    topic = backing_stream(TopicName("orders"), "0123456789ab")
    state = StreamRef(REF.scope, StreamName("_RGreaders"))
    assert [is_exported(stream) for stream in (REF, topic, state)] == [True, True, False]
