"""Retention policies are applied to streams round by round, on what controllers have in memory."""

from contextlib import suppress
from functools import partial
from itertools import pairwise
from unittest.mock import patch

import pytest

from anabranch.common.contracts.commands import TruncateStream
from anabranch.common.contracts.reader_groups import AddSubscriber
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.errors import Busy, InvalidRequest, Unavailable
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import StreamName, StreamRef
from anabranch.common.model.stream import (
    RetentionPolicy,
    StreamConfig,
    StreamState,
)
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.intents import IntentKind
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.periodic.retain_streams import StreamRetainer
from anabranch.controller.projections.tail_cut import Tail
from kit.loud import loud
from kit.retained_world import AN_HOUR, BY_SIZE, BY_TIME, HOUR_MS, NAMES, Retained, cut
from kit.workflow_world import DELETE, REF, SCALE, SEAL, World


@pytest.fixture
def world() -> Retained:
    return Retained()


async def test_what_is_older_than_the_minimum_goes_and_what_went_is_remembered(
    world: Retained,
) -> None:
    await world.create(AN_HOUR)
    world.write(10, 20, 30)
    early = await world.later(0)
    assert [one.cut for one in early.retention.cuts] == [cut(10, 20, 30)]
    world.write(1, 1, 1)
    await world.later(HOUR_MS // 2)

    late = await world.later(HOUR_MS // 2)

    assert late.head == cut(10, 20, 30)
    assert [world.segments.segments[name].start for name in NAMES] == [10, 20, 30]
    (release,) = late.retention.releases
    assert (release.bytes, release.rule, release.at_ms) == (60, "minimum", world.clock.ms)
    assert late.retention.released_bytes == 60
    assert [one.cut for one in late.retention.cuts] == [cut(11, 21, 31)]
    assert world.retainer.counts.released_bytes == {("minimum",): 60}


async def test_beyond_the_size_the_oldest_goes(world: Retained) -> None:
    await world.create(RetentionPolicy(BY_SIZE, 100))
    for _ in range(5):
        world.write(20, 20, 20)
        stream = await world.later(60_000)

    assert stream.head == cut(60, 60, 60)
    assert [one.cut for one in stream.retention.cuts] == [cut(80, 80, 80), cut(100, 100, 100)]


async def test_a_stream_that_does_not_move_stores_nothing_and_is_asked_less_often(
    world: Retained,
) -> None:
    await world.create(AN_HOUR)
    world.write(1, 1, 1)
    await world.later(0)
    stored = await world.events()
    world.asked = 0

    for _ in range(55):
        await world.later(60_000)
    assert world.asked <= 6
    for _ in range(100):
        await world.later(600_000)

    assert world.asked < 20
    news = (await world.events())[len(stored) :]
    assert news == ["stream_releasing", "stream_cut_checked", "stream_truncated"]
    assert (await world.stream()).head == cut(1, 1, 1)


async def test_a_stream_that_never_rests_records_a_cut_for_a_32nd_of_its_minimum(
    world: Retained,
) -> None:
    await world.create(AN_HOUR)
    for _ in range(180):
        world.write(1, 1, 1)
        await world.later(60_000)

    cuts = (await world.stream()).retention.cuts
    assert 28 <= len(cuts) <= 33
    assert min(b.at_ms - a.at_ms for a, b in pairwise(cuts)) >= HOUR_MS // 32


async def test_a_subscriber_holds_what_it_has_not_released(world: Retained) -> None:
    await world.create(AN_HOUR)
    await world.subscribe(0, 0, 0)
    world.write(10, 10, 10)
    await world.later(0)
    held = await world.later(2 * HOUR_MS)
    assert held.head == cut(0, 0, 0)

    await world.release(10, 4, 10)
    released = await world.later(60_000)

    assert released.head == cut(10, 4, 10)
    assert [one.rule for one in released.retention.releases] == ["consumption"]


async def test_a_subscriber_holds_nothing_before_its_start(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    await world.subscribe(5, 5, 5)
    await world.later(0)

    assert (await world.later(HOUR_MS)).head == cut(5, 5, 5)


async def test_a_subscriber_of_an_earlier_release_that_told_no_start_holds_everything(
    world: Retained,
) -> None:
    await world.create(AN_HOUR)
    await world.command(
        AddSubscriber(
            command_id="old",
            scope=REF.scope,
            stream=REF.stream,
            subscriber="s/g",
            group_incarnation=1,
            generation=0,
        )
    )
    world.write(10, 10, 10)
    await world.later(0)

    assert (await world.later(5 * HOUR_MS)).head == cut(0, 0, 0)


async def test_beyond_the_maximum_no_subscriber_holds_anything(world: Retained) -> None:
    await world.create(RetentionPolicy(BY_TIME, HOUR_MS, 3 * HOUR_MS))
    await world.subscribe(0, 0, 0)
    world.write(10, 10, 10)
    await world.later(0)
    assert (await world.later(2 * HOUR_MS)).head == cut(0, 0, 0)

    stream = await world.later(HOUR_MS)

    assert stream.head == cut(10, 10, 10)
    assert [one.rule for one in stream.retention.releases] == ["maximum"]


async def test_a_sealed_stream_ages_too_and_keeps_its_end(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    await world.command(SEAL)
    await world.rest()
    await world.later(0)

    stream = await world.later(HOUR_MS)

    assert stream.head == cut(10, 10, 10)
    assert stream.state == "sealed"
    await world.command(DELETE)
    assert not (await world.rest()).state.retention.cuts


async def test_a_stream_that_scales_loses_its_old_segments(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    await world.later(0)
    await world.command(SCALE)
    await world.rest()
    stream = await world.later(HOUR_MS // 2)
    assert len(stream.retention.cuts) == 2

    old = await world.later(HOUR_MS // 2)
    assert old.head == cut(10, 10, 10)
    gone = await world.later(HOUR_MS // 2)

    assert {place.segment_id >> 32 for place in gone.head} == {1}
    assert all(world.segments.segments[name].deleted for name in NAMES)


async def test_what_a_caller_truncated_counts_as_gone(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    await world.later(0)
    command = TruncateStream(
        command_id="mine", scope=REF.scope, stream=REF.stream, cut=cut(10, 5, 10)
    )
    await world.command(command)
    await world.rest()

    stream = await world.later(HOUR_MS)

    assert stream.head == cut(10, 10, 10)
    assert stream.retention.released_bytes == 5


async def test_a_cut_whose_boundary_a_store_has_forgotten_moves_back(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 12)
    await world.later(0)
    world.segments.append_size = 4
    world.write(2, 2, 2)

    stream = await world.later(HOUR_MS)

    assert stream.head == cut(8, 8, 12)
    assert [world.segments.segments[name].start for name in NAMES] == [8, 8, 12]
    assert [one.bytes for one in stream.retention.releases] == [28]
    assert stream.retention.refusal is None


async def test_a_refused_truncation_deletes_nothing_and_is_not_tried_again_as_it_is(
    world: Retained,
) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    await world.later(0)
    world.segments.append_size = 100
    world.write(2, 2, 2)
    refused = await world.later(HOUR_MS)
    assert refused.head == cut(0, 0, 0)
    assert [world.segments.segments[name].start for name in NAMES] == [0, 0, 0]
    assert refused.retention.refusal is not None
    assert refused.retention.refusal.error.code == "not-at-boundary"
    stored = await world.events()

    await world.later(60_000)
    assert await world.events() == stored
    assert world.retainer.counts.refused == 1
    world.segments.append_size = 1
    stream = await world.later(HOUR_MS)  # the cut that was recorded meanwhile is another one

    assert stream.head == cut(12, 12, 12)
    assert stream.retention.refusal is None


async def test_the_cut_of_a_caller_does_not_move(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    world.segments.append_size = 4
    command = TruncateStream(
        command_id="mine", scope=REF.scope, stream=REF.stream, cut=cut(9, 8, 8)
    )
    await world.command(command)

    assert (await world.rest()).state.head == cut(0, 0, 0)


async def test_two_owners_of_a_bucket_give_up_once(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    await world.later(0)
    world.clock.ms += HOUR_MS
    other = world.new_retainer()
    await world.look()
    await other.round()  # by what it knew before
    await other.round()

    stream = (await world.rest()).state
    assert stream.retention.release_count == 1
    assert (await world.events()).count("stream_releasing") == 1


async def test_a_plan_is_dropped_when_the_stream_has_changed_since(world: Retained) -> None:
    """A subscriber comes after the look and before the decision is stored."""
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    await world.later(0)
    find, late = world.histories.of, [partial(world.subscribe, 3, 3, 3)]

    async def histories_of(stream: Stream) -> History:
        while late:
            await late.pop()()
        return await find(stream)

    with patch.object(world.histories, "of", histories_of):
        assert (await world.later(HOUR_MS)).head == cut(0, 0, 0)
        assert (await world.later(60_000)).head == cut(3, 3, 3)


async def test_nothing_is_begun_while_the_stream_is_truncated_or_about_to_be_sealed(
    world: Retained,
) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    await world.later(0)
    await world.command(SEAL)
    world.clock.ms += HOUR_MS

    await world.look()

    assert [intent.kind for intent in (await world.stream()).intents] == [IntentKind.SEAL]


async def test_a_command_that_wants_the_same_cut_joins_and_another_one_waits(
    world: Retained,
) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    await world.later(0)
    world.clock.ms += HOUR_MS
    await world.look()
    command = TruncateStream(
        command_id="same", scope=REF.scope, stream=REF.stream, cut=cut(10, 10, 10)
    )
    await world.command(command)
    with pytest.raises(Busy):
        await world.command(command.model_copy(update={"command_id": "b", "cut": cut(1, 1, 1)}))

    stream = (await world.rest()).state

    assert [o.state.value for o in stream.operations if o.operation == "same"] == ["succeeded"]
    assert stream.retention.release_count == 1


async def test_without_a_policy_nothing_is_looked_at_and_no_cuts_are_kept(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    await world.later(0)
    await world.configure(None)
    assert not (await world.stream()).retention.cuts

    assert (await world.later(5 * HOUR_MS)).head == cut(0, 0, 0)
    assert world.retainer.counts.looks == 1


async def test_nothing_is_done_until_it_is_known_what_time_the_store_has(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    world.knows_time = False
    await world.later(0)
    assert world.asked == 0

    world.knows_time = True
    assert (await world.later(0)).retention.cuts


async def test_a_clock_that_is_set_ahead_makes_nothing_old(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    await world.later(0)

    world.set_by_ms = 10 * HOUR_MS  # until the next beat tells how the clocks differ now
    assert (await world.later(60_000)).head == cut(0, 0, 0)
    world.set_by_ms = 0
    assert (await world.later(60_000)).head == cut(0, 0, 0)

    assert (await world.later(HOUR_MS)).head == cut(10, 10, 10)


async def test_a_store_that_does_not_answer_is_asked_less_often(world: Retained) -> None:
    await world.create(AN_HOUR)

    async def tail_of(_ref: StreamRef) -> Tail:
        world.asked += 1
        raise Unavailable("the store is away")

    with patch.object(world, "tail_of", tail_of):
        world.retainer = world.new_retainer()
        for _ in range(40):
            with suppress(Unavailable):
                await world.later(60_000)
    assert world.asked <= 6


async def test_streams_of_other_owners_are_left_alone(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.owned = False
    world.write(10, 10, 10)
    await world.later(0)
    assert world.asked == 0


async def test_a_store_that_is_away_fails_the_round_and_changes_nothing(world: Retained) -> None:
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    away = Unavailable("the store is away")

    async def tail_of(_ref: StreamRef) -> Tail:
        raise away

    with patch.object(world, "tail_of", tail_of):
        world.retainer = world.new_retainer()
        with pytest.raises(Unavailable):
            await world.look()
    assert world.retainer.counts.failures == 1

    world.retainer = world.new_retainer()
    assert (await world.later(0)).retention.cuts


async def test_a_stream_that_fails_keeps_no_other_one() -> None:
    broken, tried = StreamRef(REF.scope, StreamName("a")), []
    policy = StreamConfig(retention=AN_HOUR)
    streams = [
        Loaded(stream_events(ref), Stream(ref=ref, status=StreamState.ACTIVE, config=policy))
        for ref in (broken, *(StreamRef(REF.scope, StreamName(f"b{n}")) for n in range(40)))
    ]

    async def tail_of(ref: StreamRef) -> Tail:
        tried.append(ref)
        raise InvalidRequest("broken", stream=str(ref))

    world = World()
    retainer = StreamRetainer(
        lambda: streams, tail_of, world.histories, world.streams, lambda _subject: True,
        now_ms=world.clock.now_ms, clock=world.clock, period_s=60.0, containment=loud(world.clock),
    )  # fmt: skip

    with pytest.raises(InvalidRequest):
        await retainer.round()

    assert len(tried) == len(streams) == retainer.counts.failures


async def test_a_stream_that_lost_data_forgets_the_cuts_behind_its_end(world: Retained) -> None:
    """Somebody gave up the tail of a container that no store could open any more."""
    await world.create(AN_HOUR)
    world.write(10, 10, 10)
    await world.later(0)
    world.write(10, 10, 10)
    await world.later(HOUR_MS // 2)
    world.write(-7, 0, 0)
    await world.later(HOUR_MS // 4)

    cuts = (await world.stream()).retention.cuts

    assert [one.cut for one in cuts] == [cut(10, 10, 10), cut(13, 20, 20)]
    assert (await world.later(HOUR_MS)).head == cut(13, 20, 20)
