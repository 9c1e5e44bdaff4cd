"""Watermarks are made of writers' marks round by round, whatever fails in between."""

from dataclasses import replace

import pytest

from anabranch.common.errors import AnabranchError, OffsetMismatch, Unavailable
from anabranch.common.model.hashing import SHARD_COUNT, bucket_of
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import StreamName, StreamRef, segment_id
from anabranch.common.model.watermark import MarkedSegment, watermark_segment
from anabranch.common.wire.messages import Stamp
from anabranch.controller.domain.policies.watermark import Held
from anabranch.controller.projections.watermark_log import WatermarkLog
from kit.marked_world import MARKS, SHARD, TIMEOUT_MS, Marked, at
from kit.workflow_world import DELETE, REF, SCALE, SEAL, SUBJECT

ALL = KeyRange(0.0, 1.0)


@pytest.fixture
async def world() -> Marked:
    made = Marked()
    await made.found()
    return made


async def test_a_watermark_says_what_all_writers_agree_on(world: Marked) -> None:
    await world.note("a", 1000, at(10, 0, 5))
    await world.note("b", 1200, at(4, 7))

    await world.later()

    (found,) = world.watermarks()
    assert (found.incarnation, found.lower_ms, found.upper_ms) == (1, 1000, 1200)
    assert world.cut() == {segment_id(0, 0): 10, segment_id(0, 1): 7, segment_id(0, 2): 5}


async def test_a_stream_without_news_costs_nothing(world: Marked) -> None:
    await world.note("a", 1000)
    await world.later()
    looks, calls = world.advancer.counts.looks, world.writer_times.calls

    await world.later()

    assert world.advancer.counts.looks == looks
    assert world.writer_times.calls == calls + 1


async def test_an_idle_writer_holds_the_watermark_until_the_time_out_drops_it(
    world: Marked,
) -> None:
    await world.note("a", 1000)
    await world.note("b", 1000)
    await world.later()
    await world.note("a", 2000)
    await world.later()
    assert world.bounds() == [(1000, 1000)]
    assert world.advancer.counts.held[Held.IDLE_WRITER.value,] == 1

    await world.later(TIMEOUT_MS)

    assert world.bounds() == [(1000, 1000), (2000, 2000)]
    marks = await world.writer_times.marks(REF, 1)
    assert [mark.writer_id[0] for mark in marks.marks] == ["a"]


async def test_the_last_time_of_a_writer_that_is_gone_counts(world: Marked) -> None:
    await world.note("a", 1000, at(9))
    await world.writer_times.remove(REF, 1, "a" * 32)

    await world.later()
    await world.later()

    assert world.bounds() == [(1000, 1000)]
    assert (await world.writer_times.marks(REF, 1)).marks == ()
    assert (await world.writer_times.noted(SHARD, 0, 0, 9)).streams == ()


async def test_the_cut_follows_writers_into_the_segments_of_a_scale(world: Marked) -> None:
    await world.note("a", 1000, at(10, 20, 30))
    await world.later()
    await world.command(SCALE)
    await world.rest()
    await world.note("a", 2000, at(3, 4, epoch=1, first=3))

    await world.later()

    assert world.cut() == {segment_id(1, 3): 3, segment_id(1, 4): 4, segment_id(1, 5): 0}


async def test_a_position_in_a_segment_that_never_was_means_nothing(world: Marked) -> None:
    await world.note("a", 1000, at(10, 20, 30, 40))

    await world.later()

    assert world.cut() == {segment_id(0, 0): 10, segment_id(0, 1): 20, segment_id(0, 2): 30}


async def test_after_a_restore_the_cut_begins_at_the_head_again(world: Marked) -> None:
    """The metadata of a backup know of no later segments."""
    await world.note("a", 1000, at(10, 20, 30))
    await world.later()
    last = replace(world.watermarks()[-1], cut=(MarkedSegment(segment_id(7, 70), ALL, 5),))
    log = WatermarkLog(world.segments, world.ids)
    await log.append(REF, await log.tail(REF, 1), replace(last, lower_ms=1500), 0)
    await world.note("a", 2000, at(11))

    for _ in range(2):
        await world.later()

    assert world.watermarks()[-1].lower_ms == 2000
    assert world.cut() == {segment_id(0, 0): 11, segment_id(0, 1): 0, segment_id(0, 2): 0}


async def test_a_position_in_a_segment_that_is_not_known_yet_counts(world: Marked) -> None:
    await world.mirror.reach_head(SHARD)
    stale = [world.mirror.stream(REF)]
    real = world.mirror.stream
    await world.command(SCALE)
    await world.rest()
    await world.note("a", 1000, at(3, 4, epoch=1, first=3))

    def stream(ref: StreamRef) -> object:
        return stale.pop() if stale else real(ref)

    world.mirror.stream = stream  # type: ignore[assignment,method-assign]
    await world.later()

    assert stale == []
    assert world.cut() == {segment_id(1, 3): 3, segment_id(1, 4): 4, segment_id(1, 5): 0}


async def test_a_new_owner_goes_on_after_a_time_out(world: Marked) -> None:
    await world.note("a", 1000, at(10))
    await world.later()
    await world.note("a", 2000, at(12))
    other = world.new_advancer()
    await world.later(advancer=other)
    assert world.bounds() == [(1000, 1000)]
    assert other.counts.held[Held.SETTLING.value,] == 1

    await world.later(TIMEOUT_MS, other)

    assert world.bounds() == [(1000, 1000), (2000, 2000)]
    assert world.cut()[segment_id(0, 0)] == 12


async def test_without_a_time_out_a_new_owner_goes_on_at_once() -> None:
    world = Marked()
    await world.found(timeout_ms=0)
    await world.note("a", 1000)

    await world.later(advancer=world.new_advancer())

    assert world.bounds() == [(1000, 1000)]


async def test_after_a_loss_of_all_marks_it_waits_for_a_time_out(world: Marked) -> None:
    await world.note("a", 1000)
    await world.note("b", 1000)
    await world.later()
    world.writer_times.empty()
    await world.note("a", 2000)
    await world.later()
    assert world.bounds() == [(1000, 1000)]
    await world.note("b", 1500)
    await world.later()
    assert world.bounds() == [(1000, 1000)]

    await world.later(TIMEOUT_MS)

    assert world.bounds() == [(1000, 1000), (1500, 2000)]


async def test_a_loss_in_the_middle_of_a_round_is_seen(world: Marked) -> None:
    await world.note("a", 1000)
    await world.note("b", 1000)
    real = world.writer_times.marks

    async def marks(stream: StreamRef, incarnation: int) -> object:
        world.writer_times.empty()
        await world.note("a", 2000)
        return await real(stream, incarnation)

    world.writer_times.marks = marks  # type: ignore[assignment,method-assign]
    await world.later()
    world.writer_times.marks = real  # type: ignore[method-assign]
    await world.later()

    assert world.bounds() == []


async def test_of_two_owners_one_appends_and_the_other_reads(world: Marked) -> None:
    other = world.new_advancer()
    await world.later(0, other)
    world.clock.ms += TIMEOUT_MS
    await world.note("a", 1000)
    await world.later(0)
    await world.later(0, other)
    await world.note("a", 2000)
    await world.later(0)
    assert world.bounds() == [(1000, 1000), (2000, 2000)]

    await world.note("a", 3000)
    await world.later(0, other)
    assert other.counts.overtaken == 1
    await world.later(0, other)

    assert world.bounds() == [(1000, 1000), (2000, 2000), (3000, 3000)]
    assert other.counts.failures == world.advancer.counts.failures == 0


async def test_two_owners_that_begin_at_once_append_one_first_watermark(world: Marked) -> None:
    other = world.new_advancer()
    await world.later(0, other)
    world.clock.ms += TIMEOUT_MS
    await world.note("a", 1000)
    real = world.segments.append_if

    async def append_if(segment: str, block: bytes, expected_length: int) -> None:
        world.segments.append_if = real  # type: ignore[method-assign]
        await world.later(0, other)
        await real(segment, block, expected_length)

    world.segments.append_if = append_if  # type: ignore[method-assign]
    await world.later(0)

    assert world.bounds() == [(1000, 1000)]
    assert world.advancer.counts.overtaken == 1


@pytest.mark.parametrize("is_stored", [True, False])
async def test_after_a_lost_answer_the_segment_tells_what_is_stored(
    world: Marked, *, is_stored: bool
) -> None:
    await world.note("a", 1000)
    await world.later()
    await world.note("a", 2000)
    real = world.segments.append_if

    async def append_if(segment: str, block: bytes, expected_length: int) -> None:
        if is_stored:
            await real(segment, block, expected_length)
        raise Unavailable("no answer")

    world.segments.append_if = append_if  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        await world.later()
    world.segments.append_if = real  # type: ignore[method-assign]
    await world.note("a", 3000)
    await world.later()
    await world.note("a", 4000)
    await world.later()

    times = [1000, 2000, 3000, 4000] if is_stored else [1000, 3000, 4000]
    assert world.bounds() == [(each, each) for each in times]
    assert world.advancer.counts.failures == 1


async def test_a_stream_that_fails_keeps_no_other_one(world: Marked) -> None:
    wrong = StreamRef(REF.scope, StreamName("unreadable"))
    real = world.mirror.stream

    def stream(ref: StreamRef) -> object:
        if ref == wrong:
            raise Unavailable("this one cannot be read")
        return real(ref)

    world.mirror.stream = stream  # type: ignore[assignment,method-assign]
    world.owned = frozenset(range(16))
    await world.later(0)
    world.clock.ms += TIMEOUT_MS
    await world.writer_times.note(wrong, 1, "a" * 32, 1000, ())
    await world.note("a", 1000)

    for _ in range(2):
        with pytest.raises(Unavailable):
            await world.later()

    assert world.bounds() == [(1000, 1000)]
    assert world.advancer.counts.failures == 2


async def test_while_redis_is_away_the_round_fails_and_then_goes_on(world: Marked) -> None:
    await world.note("a", 1000)
    world.writer_times.away = True
    with pytest.raises(Unavailable):
        await world.later()
    world.writer_times.away = False

    await world.later()

    assert world.bounds() == [(1000, 1000)]


async def test_marks_of_internal_and_unowned_streams_are_left_alone(world: Marked) -> None:
    internal = StreamRef(REF.scope, StreamName("_RGg"))
    world.owned = frozenset(range(16))
    await world.later(0)
    world.clock.ms += TIMEOUT_MS
    await world.writer_times.note(internal, 1, "a" * 32, 1000, ())
    await world.later()
    world.owned = frozenset()
    await world.note("a", 1000)

    await world.later()

    assert world.segments.segments.keys() == {f"s/x/{n}.#epoch.0" for n in range(3)}


async def test_a_shard_of_two_buckets_is_read_again_when_the_second_one_is_taken(
    world: Marked,
) -> None:
    mine = bucket_of(SUBJECT, SHARD, 2 * SHARD_COUNT)
    neighbour = (mine + SHARD_COUNT) % (2 * SHARD_COUNT)
    advancer = world.new_advancer(2 * SHARD_COUNT)
    world.owned = frozenset({neighbour})
    await world.note("a", 1000)
    await world.later(TIMEOUT_MS, advancer)
    await world.later(TIMEOUT_MS, advancer)
    assert (world.bounds(), advancer.counts.looks) == ([], 0)

    world.owned = frozenset({mine, neighbour})
    await world.later(0, advancer)
    await world.later(TIMEOUT_MS, advancer)

    assert world.bounds() == [(1000, 1000)]


# --- the life of the segment --------------------------------------------------------------------


async def test_a_deleted_stream_takes_its_watermarks_with_it(world: Marked) -> None:
    await world.note("a", 1000)
    await world.later()
    await world.command(SEAL)
    await world.rest()
    await world.note("a", 2000)
    await world.later()
    assert world.bounds() == [(1000, 1000), (2000, 2000)]

    await world.command(DELETE)
    await world.rest()

    assert world.segments.live() == []
    await world.note("a", 3000)
    await world.later()
    assert world.segments.live() == []
    assert (await world.writer_times.noted(SHARD, 0, 0, 9)).streams == ()


async def test_a_late_watermark_of_a_deleted_stream_does_not_meet_its_next_life(
    world: Marked,
) -> None:
    await world.note("a", 1000)
    real = world.segments.append_if

    async def append_if(segment: str, block: bytes, expected_length: int) -> None:
        world.segments.append_if = real  # type: ignore[method-assign]
        for command in (SEAL, DELETE):
            await world.command(command)
            await world.rest()
        await real(segment, block, expected_length)

    world.segments.append_if = append_if  # type: ignore[method-assign]
    with pytest.raises(AnabranchError):
        await world.later()
    with pytest.raises(AnabranchError):
        await world.segments.create_segment(MARKS, Stamp(1, 1))
    await world.create(command_id="again")
    await world.note("b", 500, incarnation=2)
    await world.later()

    (found,) = world.watermarks()
    assert (found.incarnation, found.lower_ms) == (2, 500)


async def test_a_watermark_of_an_earlier_life_is_not_the_last_one(world: Marked) -> None:
    await world.note("a", 1000)
    await world.later()
    (first,) = world.segments.segments[MARKS].blocks.values()
    for command in (SEAL, DELETE):
        await world.command(command)
        await world.rest()
    await world.create(command_id="again")
    await world.segments.create_segment(MARKS, Stamp(2, 1))
    world.segments.append_now(MARKS, first)

    await world.note("b", 500, incarnation=2)
    await world.later()

    assert [one.incarnation for one in world.watermarks()] == [1, 2]


async def test_a_name_of_full_length_has_watermarks_too() -> None:
    ref = StreamRef(REF.scope, StreamName("n" * 250))

    assert len(watermark_segment(ref).split("/")[1]) == 255


async def test_an_append_behind_another_watermark_is_refused(world: Marked) -> None:
    await world.note("a", 1000)
    await world.later()
    (block,) = world.segments.segments[MARKS].blocks.values()

    with pytest.raises(OffsetMismatch):
        await world.segments.append_if(MARKS, block + b"x", 0)
