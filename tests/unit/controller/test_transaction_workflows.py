"""Batches of transactions: what is merged where and in which order; what becomes of the rest."""

import pytest

from anabranch.common.errors import Unavailable
from anabranch.common.model.names import number_of, segment_id, segment_name, transaction_segment
from anabranch.common.model.stream import SegmentOffset, StreamState
from anabranch.common.model.transaction import TransactionState
from anabranch.common.wire.messages import Stamp
from anabranch.common.workflow.runner import StepFailed, run_to_rest
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.stream.commits import BATCH_MAX, Committing, next_batch
from anabranch.controller.domain.stream.events import StreamCommitStarted
from anabranch.controller.domain.stream.state import StreamStep, TransactionsSeen, next_step
from anabranch.controller.workflows import commit_transactions
from kit.fake_stores import FakeSegmentStores
from kit.workflow_world import CREATE, REF, SCALE, SEAL, STEPS, SUBJECT, World


@pytest.fixture
async def world() -> World:
    """With a stream of three segments."""
    world = World()
    await world.open_scope()
    await world.command(CREATE)
    await world.rest()
    return world


def merged_into(world: World, epoch: int, number: int) -> str:
    """The transactions, or the parts of one, whose bytes the segment has, in that order."""
    target = world.segments.segments[segment_name(REF, segment_id(epoch, number))]
    found = [transaction_segment(name) for name, _ in target.merged]
    return "".join((one.part or one.transaction)[0] for one in found if one is not None)


async def outcomes(world: World) -> dict[str, bool]:
    return {o.transaction_id[0]: o.is_committed for o in (await world.stream()).outcomes}


# --- the batch ----------------------------------------------------------------------------------


async def test_a_batch_is_merged_in_the_order_in_which_its_outcomes_were_decided(
    world: World,
) -> None:
    for name in "1234":
        await world.begin(name)
    for name in "3142":
        await world.commit(name)

    stream = (await world.rest()).state

    assert [merged_into(world, 0, number) for number in range(3)] == ["3142"] * 3
    assert [o.transaction_id[0] for o in stream.outcomes] == list("3142")
    assert stream.commits.ends == (500, 500, 500)
    for name in "1234":
        assert (await world.transaction(name)).status is TransactionState.COMMITTED


async def test_only_the_parts_that_were_named_are_merged_and_the_others_are_deleted(
    world: World,
) -> None:
    await world.begin("1", parts="abcd")
    await world.commit("1", "ca")

    await world.rest()

    assert [merged_into(world, 0, number) for number in range(3)] == ["ca"] * 3
    assert len(world.segments.live()) == 3
    deleted = {segment for verb, segment, _ in world.segments.requests if verb == "delete"}
    parts = {found.part[0] for found in map(transaction_segment, deleted) if found is not None}
    assert parts == {"b", "d"}
    assert len(deleted) == 6


async def test_a_transaction_of_which_no_part_counts_is_committed_without_a_byte(
    world: World,
) -> None:
    await world.begin("1", parts="ab")
    await world.commit("1")

    stream = (await world.rest()).state

    assert merged_into(world, 0, 0) == ""
    assert len(world.segments.live()) == 3
    assert await outcomes(world) == {"1": True}
    assert stream.commits.ends == (0, 0, 0)


async def test_a_mark_is_noted_at_the_end_of_the_batch_when_it_is_committed(world: World) -> None:
    writer = "f" * 32
    for name, timestamp_ms in (("1", 70), ("2", 80)):
        await world.begin(name)
        await world.commit(name, writer_id=writer, timestamp_ms=timestamp_ms)

    await world.rest()

    (mark,) = (await world.writer_times.page(REF, 1, "", 10)).marks
    assert (mark.writer_id, mark.timestamp_ms) == (writer, 80)
    assert mark.positions == tuple(SegmentOffset(segment_id(0, n), 300) for n in range(3))


async def test_a_batch_ends_though_nobody_takes_its_marks(world: World) -> None:
    world.writer_times.away = True
    await world.begin("1")
    await world.commit("1", writer_id="f" * 32, timestamp_ms=70)

    await world.rest()

    assert await outcomes(world) == {"1": True}


async def test_a_transaction_says_that_it_is_committed_before_the_batch_ends(world: World) -> None:
    await world.begin("1")
    await world.commit("1")
    loaded = await world.streams.load(SUBJECT)
    await world.mirror.reach_heads()
    started = await world.streams.append(
        loaded, [await STEPS[StreamStep.START_COMMIT](world.context, loaded)]
    )

    await STEPS[StreamStep.COMMIT_TRANSACTIONS](world.context, started)

    assert (await world.transaction("1")).status is TransactionState.COMMITTED
    assert (await world.stream()).intents


async def test_requests_of_a_batch_carry_its_own_stamp(world: World) -> None:
    await world.begin("1")
    await world.commit("1")
    revision = (await world.streams.load(SUBJECT)).revision + 1

    await world.rest()

    stamps = {stamp for verb, _, stamp in world.segments.requests if verb == "merge"}
    assert stamps == {Stamp(1, revision)}
    assert revision >= 4


async def test_many_sources_are_merged_by_several_requests_in_order(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_transactions, "MERGE_SOURCES_MAX", 2)
    for name in "12345":
        await world.begin(name)
    for name in "54321":
        await world.commit(name)

    await world.rest()

    assert merged_into(world, 0, 0) == "54321"
    assert sum(verb == "merge" for verb, _, _ in world.segments.requests) == 9


def test_a_batch_is_the_longest_run_of_one_logical_epoch_and_bounded() -> None:
    reference = {0: 0, 1: 1, 2: 0, 3: 1}

    def batch(*epochs: int, sources: int = 1) -> list[int]:
        found = [Committing(str(n), epoch, sources) for n, epoch in enumerate(epochs)]
        return [one.stream_epoch for one in next_batch(found, reference.__getitem__)]

    assert batch(1, 3, 1, 0, 1) == [1, 3, 1]
    assert batch(0, 2, 3) == [0, 2]
    assert len(batch(*[0] * (BATCH_MAX + 5))) == BATCH_MAX
    assert batch(0, 0, 0, sources=400) == [0, 0]
    assert batch(0, 0, sources=5000) == [0]
    assert batch() == []


# --- rolling ------------------------------------------------------------------------------------


async def test_what_was_opened_before_a_scale_is_merged_into_an_epoch_of_its_own(
    world: World,
) -> None:
    for name in "123":
        await world.begin(name)
    await world.command(SCALE)
    await world.rest()
    await world.begin("4")
    for name in "2143":
        await world.commit(name)

    stream = (await world.rest()).state

    assert [merged_into(world, 2, number) for number in range(3)] == ["21"] * 3
    assert [merged_into(world, 3, number) for number in range(3, 6)] == ["4"] * 3
    assert [merged_into(world, 4, number) for number in range(3)] == ["3"] * 3
    assert stream.stream_epoch == 5
    assert [number_of(s.segment_id) for s in stream.segments] == [3, 4, 5]
    open_names = [n for n in world.segments.live() if not world.segments.segments[n].sealed]
    assert open_names == sorted(stream.segment_names())


async def test_nothing_current_is_sealed_before_the_roll_is_told() -> None:
    world = World()
    loaded = await world.reach(StreamStep.MAKE_ROLLED_SEGMENTS)
    begun = len(world.segments.requests)

    await STEPS[StreamStep.MAKE_ROLLED_SEGMENTS](world.context, loaded)

    asked = world.segments.requests[begun:]
    verbs = [verb for verb, _, _ in asked]
    assert verbs == ["create"] * 6 + ["merge"] * 3 + ["seal"] * 3
    sealed = {segment for verb, segment, _ in asked if verb == "seal"}
    assert not sealed & set(loaded.state.segment_names())


# --- aborting and sealing -----------------------------------------------------------------------


async def test_an_abort_deletes_every_segment_of_every_part_and_the_stream_remembers(
    world: World,
) -> None:
    await world.begin("1", parts="ab")
    await world.begin("2")
    for name in "12":
        await world.abort(name)

    await world.rest()

    assert len(world.segments.live()) == 3
    assert await outcomes(world) == {"1": False, "2": False}
    assert (await world.transaction("1")).status is TransactionState.ABORTED
    asked = [(s, stamp) for verb, s, stamp in world.segments.requests if verb == "delete"]
    assert len(asked) == 9
    assert {stamp for _, stamp in asked} == {Stamp(1, 2)}


async def test_an_abort_that_a_store_holds_up_goes_on_where_it_was(world: World) -> None:
    await world.begin("1")
    await world.abort("1")
    world.segments.fail_after = len(world.segments.requests) + 1
    with pytest.raises(StepFailed) as failure:
        await world.rest()
    assert isinstance(failure.value.error, Unavailable)
    assert (await world.transaction("1")).status is TransactionState.ABORTING
    world.segments.fail_after, world.segments.down = None, False

    await world.rest()

    assert len(world.segments.live()) == 3


async def test_an_abort_waits_for_the_epoch_in_which_the_transaction_was_begun(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_the_scale = world.context.streams.stream(REF)
    await world.command(SCALE)
    await world.rest()
    await world.begin("1")
    await world.abort("1")

    with monkeypatch.context() as behind:
        behind.setattr(world.context.streams, "stream", lambda _ref: before_the_scale)
        with pytest.raises(StillWaiting, match="begun"):
            await run_to_rest(world.transaction_workflow(), world.subject_of("1"))
    await world.rest()

    assert (await outcomes(world)) == {"1": False}


async def test_a_seal_aborts_what_is_open_and_commits_what_was_decided(world: World) -> None:
    for name in "123":
        await world.begin(name)
    await world.commit("2")
    await world.command(SEAL)

    stream = (await world.rest()).state

    assert stream.status is StreamState.SEALED
    assert await outcomes(world) == {"1": False, "2": True, "3": False}
    assert merged_into(world, 0, 0) == "2"
    assert {each.size for each in stream.sealed} == {200}
    merged = [stamp for verb, _, stamp in world.segments.requests if verb == "merge"]
    sealed = [stamp for verb, _, stamp in world.segments.requests if verb == "seal"]
    assert max(merged) < min(sealed)


async def test_nothing_begins_once_the_stream_is_about_to_be_sealed(world: World) -> None:
    await world.begin("1")
    await world.command(SEAL)
    with pytest.raises(StillWaiting):
        await run_to_rest(world.workflow(), SUBJECT)

    with pytest.raises(Exception, match="the parent is closing"):
        await world.begin("2")


# --- turns --------------------------------------------------------------------------------------


async def test_scales_and_batches_take_turns_however_much_there_is_to_commit(world: World) -> None:
    """In front of every decision somebody wants another commit."""
    endless = TransactionsSeen(to_commit=True)
    await world.begin("1")
    await world.commit("1")
    await world.command(SCALE)
    steps: list[StreamStep] = []
    loaded = await world.streams.load(SUBJECT)
    await world.mirror.reach_heads()

    while (step := next_step(loaded.state, endless)) is not StreamStep.START_COMMIT or not steps:
        assert step is not None
        steps.append(step)
        event = await STEPS[step](world.context, loaded)
        loaded = await world.streams.append(loaded, [event])
        await world.mirror.reach_heads()

    assert [s.value for s in steps] == [
        "start_commit",
        "make_successors",
        "seal_predecessors",
        "make_rolled_segments",
        "seal_before_roll",
        "finish_rolled",
    ]


async def test_a_batch_comes_before_the_scale_that_was_asked_for_after_it(world: World) -> None:
    await world.begin("1")
    await world.commit("1")
    loaded = await world.streams.load(SUBJECT)
    await world.mirror.reach_heads()
    event = await STEPS[StreamStep.START_COMMIT](world.context, loaded)
    assert isinstance(event, StreamCommitStarted)
    await world.streams.append(loaded, [event])
    await world.command(SCALE)

    stream = (await world.rest()).state

    assert merged_into(world, 0, 0) == "1"
    assert stream.stream_epoch == 1


async def test_a_fake_store_refuses_to_merge_what_it_never_had() -> None:
    stores = FakeSegmentStores()
    await stores.create_segment("s/x/0.#epoch.0", Stamp(1, 1))

    with pytest.raises(Exception, match="no such segment"):
        await stores.merge_segments("s/x/0.#epoch.0", ["s/x/1.#epoch.0"], Stamp(1, 4))
