"""Old epochs leave a stream's state for history chunks, and nobody notices."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from anabranch.common.contracts.commands import (
    ANSWERS,
    Answer,
    NewRange,
    ScaleStream,
    TruncateStream,
)
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.subjects import stream_history
from anabranch.common.errors import CorruptEvent, FormatTooNew
from anabranch.common.eventsourcing.chunks import CHUNK_SIZE_BYTES_MAX, HistoryChunks
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.model.key_range import KeyRange, even_ranges
from anabranch.common.model.names import segment_id, stream_ref
from anabranch.common.model.stream import SEGMENT_COUNT_MAX, SegmentOffset, SegmentRange
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.workflow.runner import run_to_rest
from anabranch.controller.domain.stream import archive
from anabranch.controller.domain.stream.history import EpochRecord, History, SealedSegment
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import Stream, StreamStep, next_step
from anabranch.controller.handlers.commands import handle_command
from anabranch.controller.projections import histories as histories_module
from anabranch.controller.projections.histories import Histories, HistoryNotLoaded
from kit.desks import command_desk
from kit.thorough import one_in
from kit.workflow_world import CREATE, DELETE, REF, SEAL, STEPS, SUBJECT, World

SEGMENTS = 3
RANGES = tuple(NewRange(key_start=k.start, key_end=k.end) for k in even_ranges(SEGMENTS))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full after two scales of three segments."""
    monkeypatch.setattr(archive, "CHUNK_ENTRIES", 10)


class CountingStore(InMemoryEventStore):
    """Counts how often a chunk was read."""

    def __init__(self) -> None:
        super().__init__()
        self.chunk_reads = 0

    async def load(self, subject: str, after_sequence: int = 0):  # type: ignore[no-untyped-def]
        self.chunk_reads += ".history." in subject
        return await super().load(subject, after_sequence)


async def scale_all(world: World) -> Stream:
    """One more epoch, in which every segment is another one."""
    stream = await world.stream()
    await world.command(
        ScaleStream(
            command_id=f"scale-{stream.stream_epoch}",
            scope=REF.scope,
            stream=REF.stream,
            seal=tuple(segment.segment_id for segment in stream.segments),
            new_ranges=RANGES,
        )
    )
    return (await run_to_rest(world.workflow(), SUBJECT)).state


async def old_stream(epoch_count: int, store: InMemoryEventStore | None = None) -> World:
    """A stream with many segments that was scaled some times; it has archived what it may."""
    world = World(store=store or InMemoryEventStore())
    await world.open_scope()
    await world.command(CREATE.model_copy(update={"segment_count": SEGMENTS}))
    await run_to_rest(world.workflow(), SUBJECT)
    for _ in range(epoch_count - 1):
        await scale_all(world)
    return world


@pytest.mark.usefixtures("small_chunks")
async def test_a_stream_that_rests_archives_its_oldest_epochs() -> None:
    world = await old_stream(6)

    stream = await world.stream()

    assert stream.archived_chunks == 2
    assert stream.archived_epochs == 5
    assert [record.stream_epoch for record in stream.epochs] == [5]
    assert stream.stream_epoch == 5
    assert next_step(stream) is None


@pytest.mark.usefixtures("small_chunks")
async def test_a_history_is_whole_wherever_its_epochs_are() -> None:
    world = await old_stream(6)
    plain = await whole(world)

    found = await Histories(world.chunks).of(await world.stream())

    assert found.lives == plain.lives
    assert len(found.lives) == 6 * SEGMENTS
    assert [record.stream_epoch for record in found.records] == [0, 1, 2, 3, 4, 5]


async def whole(world: World) -> History:
    """Read message by message, as if nothing was ever archived."""
    records: dict[int, EpochRecord] = {}
    state = STREAM.initial
    for message in await world.store.load(SUBJECT):
        state = STREAM.fold(state, message)
        records |= {record.stream_epoch: record for record in state.epochs}
    return History([records[number] for number in sorted(records)])


@pytest.mark.usefixtures("small_chunks")
async def test_a_chunk_is_read_once_and_later_epochs_are_added() -> None:
    store = CountingStore()
    world = await old_stream(6, store)
    histories = Histories(world.chunks)
    earlier = await world.stream()
    with pytest.raises(HistoryNotLoaded):
        histories.known(earlier)

    store.chunk_reads = 0
    first = await histories.of(earlier)
    assert store.chunk_reads == 2
    later = await scale_all(world)
    second = histories.known(later)

    assert store.chunk_reads == 2
    assert second.current.stream_epoch == 6
    assert first.current.stream_epoch == 5
    assert histories.known(earlier).lives == first.lives
    assert histories.known(later) is second


@pytest.mark.usefixtures("small_chunks")
async def test_a_sealed_streams_history_knows_its_last_lengths() -> None:
    world = await old_stream(6)
    await world.command(SEAL)
    stream = (await run_to_rest(world.workflow(), SUBJECT)).state

    history = await Histories(world.chunks).of(stream)

    assert history.is_ended
    assert {history.lives[s.segment_id].size for s in stream.segments} == {100}


async def test_a_look_at_a_history_that_the_state_has_is_not_kept_and_finds_the_same() -> None:
    world = await old_stream(2)
    await world.command(SEAL)
    stream = (await run_to_rest(world.workflow(), SUBJECT)).state
    histories = Histories(world.chunks)

    found = await histories.once(stream)
    kept = await histories.of(stream)

    assert found is not kept
    assert (found.lives, found.is_ended) == (kept.lives, True)
    assert await histories.once(stream) is kept


@pytest.mark.usefixtures("small_chunks")
async def test_deleting_and_truncating_reach_back_into_the_chunks() -> None:
    world = await old_stream(4)
    assert (await world.stream()).archived_chunks == 1
    second = await Histories(world.chunks).of(await world.stream())
    cut = tuple(SegmentOffset(s.segment_id, 10) for s in second.segments_of(1))
    world.histories = Histories(world.chunks)
    await world.command(
        TruncateStream(command_id="t", scope=REF.scope, stream=REF.stream, cut=tuple(sorted(cut)))
    )
    other = world.controller(world.segments)
    await run_to_rest(world.workflow(other), SUBJECT)
    assert len(world.segments.live()) == 3 * SEGMENTS

    for command in (SEAL, DELETE):
        await world.command(command)
        await run_to_rest(world.workflow(world.controller(world.segments)), SUBJECT)
    assert world.segments.live() == []


@pytest.mark.usefixtures("small_chunks")
async def test_a_chunk_written_before_a_crash_is_the_same_however_long_it_takes() -> None:
    world = await old_stream(3)
    await world.command(
        ScaleStream(
            command_id="one-more",
            scope=REF.scope,
            stream=REF.stream,
            seal=tuple(segment.segment_id for segment in (await world.stream()).segments),
            new_ranges=RANGES,
        )
    )
    loaded = await world.streams.load(SUBJECT)
    while next_step(loaded.state) is not StreamStep.ARCHIVE_HISTORY:
        due = next_step(loaded.state)
        assert due is not None
        loaded = await world.streams.append(loaded, [await STEPS[due](world.context, loaded)])
    event = await STEPS[StreamStep.ARCHIVE_HISTORY](world.context, loaded)

    stream = await scale_all(world)

    assert await STEPS[StreamStep.ARCHIVE_HISTORY](world.context, loaded) == event
    assert stream.archived_chunks == 1
    assert (await Histories(world.chunks).of(stream)).lives == (await whole(world)).lives


async def test_histories_that_were_not_asked_for_lately_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(histories_module, "KEPT_SEGMENTS_MAX", 5)
    store = InMemoryEventStore()
    chunks = HistoryChunks(store, SeededIds(1))
    histories = Histories(chunks)
    names = ["a", "b", "c"]
    streams = {
        name: Stream(
            ref=stream_ref(f"s/{name}"),
            incarnation=1,
            archived_epochs=1,
            archived_chunks=1,
            epochs=(record(1, sealed=0),),
        )
        for name in names
    }
    for name in names:
        body = archive.encode_chunk([record(0)])
        await chunks.put(stream_history(stream_ref(f"s/{name}"), 1, 0), body)
    for name in ("a", "b", "a", "c"):
        assert len((await histories.of(streams[name])).lives) == 2

    for name in ("a", "c"):
        assert len(histories.known(streams[name]).lives) == 2
    with pytest.raises(HistoryNotLoaded):
        histories.known(streams["b"])


@pytest.mark.usefixtures("small_chunks")
async def test_a_next_life_has_a_history_of_its_own() -> None:
    world = await old_stream(6)
    histories = Histories(world.chunks)
    await histories.of(await world.stream())
    for command in (SEAL, DELETE, CREATE.model_copy(update={"command_id": "again"})):
        await world.command(command)
        stream = (await run_to_rest(world.workflow(), SUBJECT)).state

    assert set(histories.known(stream).lives) == {s.segment_id for s in stream.segments}


async def test_a_chunk_that_does_not_fit_the_state_stops_by_name() -> None:
    store = InMemoryEventStore()
    chunks = HistoryChunks(store, SeededIds(1))
    stream = Stream(
        ref=REF, incarnation=1, archived_epochs=3, archived_chunks=1, epochs=(record(3),)
    )
    await chunks.put(stream_history(REF, 1, 0), archive.encode_chunk([record(0), record(1)]))

    with pytest.raises(CorruptEvent, match="other epochs"):
        await Histories(chunks).of(stream)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{}", CorruptEvent),
        (b"[", CorruptEvent),
        (b'{"format": 1, "epochs": []}', CorruptEvent),
        (b'{"format": 3, "epochs": "elsewhere"}', FormatTooNew),
    ],
)
def test_bytes_that_are_no_chunk_are_refused_by_name(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        archive.decode_chunk(body, 0)


def test_a_chunk_of_other_epochs_is_refused() -> None:
    with pytest.raises(CorruptEvent):
        archive.decode_chunk(archive.encode_chunk([record(1)]), 0)


@pytest.mark.usefixtures("small_chunks")
async def test_a_command_about_archived_epochs_is_decided_by_a_controller_that_knows_none() -> None:
    world = await old_stream(4)
    second = (await world.histories.of(await world.stream())).segments_of(1)
    answers: list[Answer] = []

    async def reply(_inbox: str, body: bytes) -> None:
        answers.append(ANSWERS.validate_json(body))

    desk = command_desk(world.store, reply=reply)
    truncate = TruncateStream(
        command_id="t",
        scope=REF.scope,
        stream=REF.stream,
        cut=tuple(SegmentOffset(s.segment_id, 10) for s in second),
        reply_to="inbox",
    )
    await handle_command(desk, Envelope(truncate.model_dump_json().encode()))

    assert [answer.kind for answer in answers] == ["accepted"]
    assert next_step(await world.stream()) is StreamStep.CHECK_CUT


# --- what a chunk holds -------------------------------------------------------------------------


def record(epoch: int, created: int = 1, sealed: int = 1) -> EpochRecord:
    """An epoch of which only the counts matter."""
    keys = KeyRange(0.12345678901234567, 0.9876543210987654)
    return EpochRecord(
        stream_epoch=epoch,
        reference_epoch=epoch,
        created_ms=1_700_000_000_000,
        created=tuple(SegmentRange(segment_id(epoch, 10**6 + n), keys) for n in range(created)),
        sealed=tuple(SealedSegment(segment_id(epoch - 1, 10**6 + n), 10**12) for n in range(sealed))
        if epoch
        else (),
    )


def entries(epochs: Sequence[EpochRecord]) -> int:
    return sum(len(record.created) + len(record.sealed) for record in epochs)


@given(st.lists(st.integers(1, 600), min_size=1, max_size=40), st.integers(0, 20))
@settings(max_examples=100 // one_in(4))
def test_a_chunk_is_the_shortest_run_with_enough_entries_whatever_follows(
    counts: list[int], more: int
) -> None:
    epochs = [record(number, count) for number, count in enumerate(counts)]

    due = archive.due_chunk(epochs)

    if due:
        assert list(due) == epochs[: len(due)]
        assert len(due) < len(epochs)
        assert entries(due) >= archive.CHUNK_ENTRIES > entries(due[:-1])
        later = [*epochs, *(record(len(epochs) + n, 500) for n in range(more))]
        assert archive.due_chunk(later) == due
    else:
        assert entries(epochs[:-1]) < archive.CHUNK_ENTRIES


def test_the_largest_chunk_fits_a_message() -> None:
    most = SEGMENT_COUNT_MAX
    epochs = [record(0, archive.CHUNK_ENTRIES - 1), record(1, most, most), record(2)]

    due = archive.due_chunk(epochs)

    assert len(due) == 2
    assert len(archive.encode_chunk(due)) < CHUNK_SIZE_BYTES_MAX


def test_a_state_of_most_segments_makes_a_snapshot_that_may_be_stored() -> None:
    most = SEGMENT_COUNT_MAX
    stream = Stream(
        ref=REF,
        segments=record(1, most, most).created,
        head=tuple(SegmentOffset(segment_id(0, n), 10**12) for n in range(most)),
        epochs=(record(0, archive.CHUNK_ENTRIES - 1), record(1, most, most)),
    )
    assert archive.due_chunk(stream.epochs) == ()

    body = STREAM.states.dump_json(stream)

    assert len(body) < 256 * 1024
    assert STREAM.states.validate_json(body) == stream


@pytest.mark.parametrize(
    "rows", [b"[[0,0.0]]", b"[[0,0.5,0.25]]", b'[["a",0.0,1.0]]', b"[7]", b"7", b'[{"a":1}]']
)
def test_rows_that_are_no_segments_are_refused(rows: bytes) -> None:
    with pytest.raises(ValidationError):
        STREAM.states.validate_json(b'{"segments":%s}' % rows)


def test_what_is_kept_of_many_small_epochs_makes_a_small_snapshot() -> None:
    epochs = [record(number, 2) for number in range(334)]
    assert archive.due_chunk(epochs) == ()
    assert archive.due_chunk([*epochs, record(334, 2)])
    stream = Stream(ref=REF, epochs=tuple(epochs))

    assert len(STREAM.states.dump_json(stream)) < 128 * 1024
