"""What is answered about a stream, its segments and its epochs."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from anabranch.common.contracts import commands, queries
from anabranch.common.contracts import stream_queries as asked
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.model.names import stream_ref
from anabranch.common.model.stream import ScalingPolicy, StreamConfig, StreamState
from anabranch.controller.domain.stream.events import StreamHistoryArchived
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream
from kit.query_world import ALL, QueryWorld, query_world, sid

A, B, C = sid(0, 0), sid(1, 1), sid(1, 2)
"""Of a stream of one segment after a split: the first one, and its two successors."""


@pytest.fixture
async def world() -> AsyncIterator[QueryWorld]:
    async with query_world() as built:
        yield built


async def followed(world: QueryWorld, segment: int) -> tuple[str, dict[int, tuple[int, ...]]]:
    """Status and successors with their predecessors."""
    found = await world.ask("successors", asked.SuccessorsFound, segment_id=segment)
    return found.status, {s.segment_id: s.predecessors for s in found.successors}


async def test_a_segment_that_takes_appends_is_open(world: QueryWorld) -> None:
    await world.create()
    assert await followed(world, A) == ("open", {})
    assert await world.refusal("successors", segment_id=B) == "segment-not-found"
    assert await world.refusal("successors", segment_id=-1) == "segment-not-found"
    assert await world.refusal("successors", segment_id=A, stream="y") == "stream-not-found"
    assert await world.refusal("successors", segment_id=A, scope="t") == "scope-not-found"


async def test_successors_are_told_once_they_are_made_and_before_the_epoch_begins(
    world: QueryWorld,
) -> None:
    await world.create()
    loaded = await world.scale([A], 0, 0.5, 1, steps=0)
    assert await followed(world, A) == ("open", {})
    assert await world.refusal("successors", segment_id=B) == "segment-not-found"

    loaded = await world.work(loaded, 1)
    assert await followed(world, A) == ("followed", {B: (A,), C: (A,)})
    assert await followed(world, B) == ("open", {})

    await world.work(loaded)
    assert await followed(world, A) == ("followed", {B: (A,), C: (A,)})
    assert await followed(world, B) == ("open", {})


async def test_the_planned_successor_of_a_merge_names_all_its_predecessors(
    world: QueryWorld,
) -> None:
    await world.create()
    await world.scale([A], 0, 0.25, 0.5, 1)
    left, right, other, merged = sid(1, 1), sid(1, 2), sid(1, 3), sid(2, 4)
    await world.scale([left, right], 0, 0.5, steps=1)

    assert await followed(world, right) == ("followed", {merged: (left, right)})
    assert await followed(world, other) == ("open", {})


async def test_old_segments_still_answer_after_a_truncation(world: QueryWorld) -> None:
    await world.create()
    await world.scale([A], 0, 0.5, 1)
    await world.truncate((B, 5), (C, 7))

    assert await followed(world, A) == ("followed", {B: (A,), C: (A,)})
    gone = await world.ask("describe_segment", asked.SegmentDescription, segment_id=A)
    assert (gone.state, gone.size, gone.sealed_epoch) == ("deleted", 100, 1)
    kept = await world.ask("describe_segment", asked.SegmentDescription, segment_id=B)
    assert (kept.state, kept.size, kept.stream_epoch) == ("active", None, 1)


async def test_the_last_segments_of_a_sealed_stream_have_no_successors_for_ever(
    world: QueryWorld,
) -> None:
    await world.create()
    await world.scale([A], 0, 0.5, 1)
    sealing = await world.seal(steps=0)
    assert await followed(world, B) == ("open", {})

    await world.work(sealing)
    assert await followed(world, B) == ("stream_sealed", {})
    assert await followed(world, A) == ("followed", {B: (A,), C: (A,)})
    current = await world.ask("current_segments", queries.SegmentList)
    assert (current.state, len(current.segments)) == (StreamState.SEALED, 2)
    last = await world.ask("describe_segment", asked.SegmentDescription, segment_id=C)
    assert (last.state, last.size, last.sealed_epoch) == ("sealed", 100, None)


async def test_open_is_only_said_after_reading_the_head(world: QueryWorld) -> None:
    await world.create()
    await world.folded()
    world.is_behind = True
    await world.scale([A], 0, 0.5, 1)

    # Nothing of the scale was folded yet.
    assert (await followed(world, A))[0] == "followed"
    read = world.store.heads_read
    assert (await followed(world, A))[0] == "followed"
    assert world.store.heads_read == read, "a positive answer needs no head"
    assert (await followed(world, B))[0] == "open"
    assert world.store.heads_read == read + 1


async def test_a_segment_is_described_with_its_place(world: QueryWorld) -> None:
    await world.create()
    await world.scale([A], 0, 0.5, 1, steps=1)

    new = await world.ask("describe_segment", asked.SegmentDescription, segment_id=C)
    assert (new.name, new.key_start, new.key_end) == ("s/x/2.#epoch.1", 0.5, 1.0)
    assert (new.state, new.stream_epoch, new.container, new.node_id) == ("active", 1, 3, "node-1")
    assert await world.refusal("describe_segment", segment_id=sid(9, 9)) == "segment-not-found"


async def test_a_description_says_what_the_stream_is_doing(world: QueryWorld) -> None:
    config = StreamConfig(ScalingPolicy(min_segments=2), tags=("a", "b"))
    await world.create(config=config)
    found = await world.ask("describe_stream", queries.StreamDescription)
    assert (found.config, found.reference_epoch, found.last_scaled_ms) == (config, 0, None)
    assert (found.has_head_cut, found.intents) == (False, ())

    world.now_ms = 2000
    await world.scale([sid(0, 0)], 0, 0.25, 0.5, steps=1)
    world.now_ms = 3000
    await world.seal(steps=0)
    found = await world.ask("describe_stream", queries.StreamDescription)
    assert (found.state, found.stream_epoch) == (StreamState.SCALING, 0)
    assert found.intents == (
        queries.PendingIntent(kind="scale", since_ms=2000, step="seal_predecessors"),
        queries.PendingIntent(kind="seal", since_ms=3000),
    )


async def test_a_description_says_when_the_stream_was_scaled_and_that_it_was_truncated(
    world: QueryWorld,
) -> None:
    await world.create()
    world.now_ms = 2000
    await world.scale([A], 0, 0.5, 1)
    found = await world.ask("describe_stream", queries.StreamDescription)
    assert (found.last_scaled_ms, found.reference_epoch, found.has_head_cut) == (2000, 1, False)

    await world.truncate((A, 10))
    found = await world.ask("describe_stream", queries.StreamDescription)
    assert found.has_head_cut
    await world.truncate((B, 0), (C, 0))
    found = await world.ask("describe_stream", queries.StreamDescription)
    assert found.has_head_cut


async def test_the_configuration_is_that_of_the_last_update(world: QueryWorld) -> None:
    await world.create()
    config = StreamConfig(ScalingPolicy(min_segments=1), tags=("t",))
    await world.perform(commands.UpdateStream(command_id="u", scope="s", stream="x", config=config))
    await world.folded()
    found = await world.ask("stream_config", asked.StreamConfigFound)
    assert found.config == config


async def test_a_scale_is_in_progress_until_its_epoch_begins(world: QueryWorld) -> None:
    await world.create()
    loaded = await world.scale([A], 0, 0.5, 1, steps=1)
    found = await world.ask("check_scale", asked.ScaleChecked, stream_epoch=0)
    assert (found.status, found.state, found.stream_epoch) == ("in_progress", "scaling", 0)
    assert await world.refusal("check_scale", stream_epoch=1) == "invalid-request"

    world.is_behind = True
    await world.work(loaded)
    # The mirror has not seen it: the epoch that is asked about lies above, so the head is read.
    found = await world.ask("check_scale", asked.ScaleChecked, stream_epoch=1)
    assert (found.status, found.state, found.stream_epoch) == ("in_progress", "active", 1)
    found = await world.ask("check_scale", asked.ScaleChecked, stream_epoch=0)
    assert found.status == "done"


async def scaled_thrice(world: QueryWorld) -> None:
    """1 → 2 at 2000 → 4 at 3000 → 2 at 4000."""
    await world.create()
    world.now_ms = 2000
    await world.scale([A], 0, 0.5, 1)
    world.now_ms = 3000
    await world.scale([B, C], 0, 0.25, 0.5, 0.75, 1)
    world.now_ms = 4000
    await world.scale([sid(2, number) for number in (3, 4, 5, 6)], 0, 0.5, 1)
    await world.folded()


async def test_epochs_are_listed_newest_first_with_all_that_changed(world: QueryWorld) -> None:
    await scaled_thrice(world)

    first = await world.ask("list_epochs", asked.EpochList, page_size=3)
    second = await world.ask("list_epochs", asked.EpochList, page_token=first.next_page_token)

    described = [
        (e.stream_epoch, e.created_ms, e.segment_count, e.splits, e.merges, e.cause)
        for e in (*first.epochs, *second.epochs)
    ]
    assert described == [
        (3, 4000, 2, 0, 2, "manual"),
        (2, 3000, 4, 2, 0, "manual"),
        (1, 2000, 2, 1, 0, "manual"),
        (0, 1000, 1, 0, 0, "create"),
    ]
    assert (first.next_page_token, second.next_page_token) == ("1", "")
    assert await world.refusal("list_epochs", page_token="x") == "invalid-request"


async def test_pages_of_epochs_stay_right_while_the_stream_is_scaled(world: QueryWorld) -> None:
    await scaled_thrice(world)
    first = await world.ask("list_epochs", asked.EpochList, page_size=2)
    await world.scale([sid(3, 7), sid(3, 8)], 0, 1)
    await world.folded()

    second = await world.ask("list_epochs", asked.EpochList, page_token=first.next_page_token)
    assert [e.stream_epoch for e in (*first.epochs, *second.epochs)] == [3, 2, 1, 0]


async def test_scaling_events_begin_with_the_latest_before_the_time(world: QueryWorld) -> None:
    await scaled_thrice(world)

    found = await world.ask("scaling_events", asked.ScalingEventList, from_ms=2500, to_ms=3000)
    assert [(e.created_ms, len(e.segments), e.splits) for e in found.events] == [
        (2000, 2, 1),
        (3000, 4, 2),
    ]
    everything = await world.ask("scaling_events", asked.ScalingEventList, from_ms=0, to_ms=9999)
    assert [e.stream_epoch for e in everything.events] == [0, 1, 2, 3]
    before = await world.ask("scaling_events", asked.ScalingEventList, from_ms=0, to_ms=1)
    assert before.events == ()
    later = await world.ask("scaling_events", asked.ScalingEventList, from_ms=8000, to_ms=9000)
    assert [e.stream_epoch for e in later.events] == [3]
    assert await world.refusal("scaling_events", from_ms=2, to_ms=1) == "invalid-request"


async def test_scaling_events_come_in_pages(world: QueryWorld) -> None:
    await scaled_thrice(world)
    found: list[int] = []
    token = ""
    for _ in range(4):
        page = await world.ask(
            "scaling_events",
            asked.ScalingEventList,
            from_ms=0,
            to_ms=9999,
            page_size=1,
            page_token=token,
        )
        found += [e.stream_epoch for e in page.events]
        token = page.next_page_token
    assert (found, token) == ([0, 1, 2, 3], "")


async def test_an_answer_is_given_again_until_the_stream_changes(world: QueryWorld) -> None:
    await world.create()
    await world.folded()
    first = await world.raw("current_segments")
    kept_bytes = world.desk.kept.size_bytes
    assert await world.raw("current_segments") is first
    assert kept_bytes > 0
    assert world.desk.kept.size_bytes == kept_bytes

    await world.scale([A], 0, 0.5, 1)
    await world.folded()
    changed = await world.ask("current_segments", queries.SegmentList)
    assert [s.segment_id for s in changed.segments] == [B, C]
    assert await world.raw("current_segments") is await world.raw("current_segments")


async def test_an_answer_is_not_given_again_once_the_stream_is_gone(world: QueryWorld) -> None:
    await world.create()
    await world.folded()
    await world.raw("describe_stream")
    await world.seal()
    await world.perform(commands.DeleteStream(command_id="d", scope="s", stream="x"), ALL)
    await world.folded()
    assert await world.refusal("describe_stream") == "stream-not-found"


async def test_an_answer_about_the_head_is_given_again_only_at_the_head(
    world: QueryWorld,
) -> None:
    await world.create()
    await world.folded()
    world.is_behind = True
    opened = await world.raw("successors", segment_id=A)
    read = world.store.heads_read
    assert await world.raw("successors", segment_id=A) is opened
    assert world.store.heads_read == read + 1

    await world.scale([A], 0, 0.5, 1)
    assert await followed(world, A) == ("followed", {B: (A,), C: (A,)})


async def test_an_answer_about_the_head_is_made_anew_when_the_head_says_so(
    world: QueryWorld,
) -> None:
    await world.create()
    await world.seal()
    sealed = await world.ask("describe_stream", queries.StreamDescription)
    world.is_behind = True
    await world.perform(commands.DeleteStream(command_id="d", scope="s", stream="x"), steps=0)

    # Nothing of the deletion was folded yet.
    deleting = await world.ask("describe_stream", queries.StreamDescription)
    assert (sealed.state, deleting.state) == (StreamState.SEALED, StreamState.DELETING)


async def test_many_negative_questions_share_one_reading_of_the_head(world: QueryWorld) -> None:
    await world.folded()
    world.is_behind = True
    world.store.heads_read = 0
    world.store.gate.clear()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(world.refusal("describe_stream"))
        await asyncio.sleep(0)
        late = [group.create_task(world.refusal("describe_stream")) for _ in range(20)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert world.store.heads_read == 1
        world.store.gate.set()
    assert {first.result(), *(task.result() for task in late)} == {"stream-not-found"}
    # One for the first, one for all that came while it was read, and the scope's shard alike.
    assert world.store.heads_read <= 4


async def test_epochs_that_the_state_no_longer_holds_are_answered_from_the_history(
    world: QueryWorld,
) -> None:
    await scaled_thrice(world)
    subject = stream_events(stream_ref("s/x"))
    loaded = await world.streams.load(subject)
    whole = History(loaded.state.epochs)
    await world.streams.append(loaded, [StreamHistoryArchived(chunk=0, through_epoch=2)])

    async def of(stream: Stream) -> History:
        assert [e.stream_epoch for e in stream.epochs] == [2, 3]
        return whole

    world.replace_desk(history=of)
    assert await followed(world, A) == ("followed", {B: (A,), C: (A,)})
    epochs = await world.ask("list_epochs", asked.EpochList)
    assert [e.stream_epoch for e in epochs.epochs] == [3, 2, 1, 0]
    first = await world.ask("describe_segment", asked.SegmentDescription, segment_id=A)
    assert (first.state, first.size) == ("sealed", 100)
    head = await world.ask("head_cut", asked.CutFound)
    assert [s.segment_id for s in head.segments] == [A]
    described = await world.ask("describe_stream", queries.StreamDescription)
    assert (described.stream_epoch, described.last_scaled_ms) == (3, 4000)
