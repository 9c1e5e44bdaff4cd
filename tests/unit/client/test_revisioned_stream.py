"""The revisioned stream against a store that loses replies, restarts and answers late."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from anabranch.client import RevisionedStream
from anabranch.client.one_segment import segment as one_segment
from anabranch.client.one_segment.revisioned_stream import MARK
from anabranch.client.settings import OneSegmentSettings
from anabranch.common.contracts.commands import Accepted, Command, Rejected, TruncateStream
from anabranch.common.errors import (
    AnabranchError,
    Closed,
    CorruptBlock,
    EventTooLarge,
    InvalidRequest,
    OutcomeUnknown,
    Overloaded,
    SegmentTruncated,
    StreamNotFound,
    StreamSealed,
    Unavailable,
    WriterExpired,
    WrongHost,
)
from anabranch.common.wire.block import EVENT_SIZE_BYTES_MAX
from anabranch.common.wire.messages import Appended, ConditionalAppend, Message, ReadSegment
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import STREAM, Bench, bench, until
from kit.fake_controller import FakeController
from kit.fake_segstore import Direction, Fault, no_faults
from kit.rng import seeded
from kit.shared_state import SHARED, append_as_other, stored_entries

ROOT = Path(__file__).parents[3]


def opened(b: Bench, settings: OneSegmentSettings = SHARED) -> RevisionedStream:
    return b.client.revisioned_stream(STREAM, settings)


def stored(b: Bench) -> list[bytes]:
    return [entry for entry, _ in stored_entries(b.segments[0])]


def sent(b: Bench) -> list[ConditionalAppend]:
    return [request for request in b.store.requests if isinstance(request, ConditionalAppend)]


def drop_replies(b: Bench, count: int) -> None:
    """The next so many acknowledgements get lost with their connection."""
    left = count

    def fault(at: Direction, message: Message) -> Fault | None:
        nonlocal left
        if at == "out" and isinstance(message, Appended) and left:
            left -= 1
            return Fault.DROP
        return None

    b.store.fault = fault


async def test_what_is_appended_is_read_from_the_revision_before_it() -> None:
    async with bench() as b, opened(b) as log:
        assert (await log.head(), await log.tail()) == (0, 0)
        first = await log.append([b"a", b"b"])
        second = await log.append([b"c"])
        assert await log.tail() == second == b.segments[0].boundaries[-1]
        everything = await log.read(0)
        assert everything.entries == (b"a", b"b", b"c")
        assert everything.revisions == (first, first, second)
        assert (everything.next, everything.at_tail, everything.sealed) == (second, True, False)
        assert (await log.read(first)).entries == (b"c",)
        nothing = await log.read(second)
        assert (nothing.entries, nothing.next, nothing.at_tail) == ((), second, True)


async def test_a_long_log_is_read_in_pages() -> None:
    async with bench() as b, opened(b, OneSegmentSettings(read_size_bytes=300)) as log:
        for number in range(20):
            await log.append([b"entry %d" % number])
        found: list[bytes] = []
        after, pages, at_tail = 0, 0, False
        while not at_tail:
            page = await log.read(after)
            found += page.entries
            after, at_tail, pages = page.next, page.at_tail, pages + 1
    assert found == [b"entry %d" % number for number in range(20)]
    assert pages > 3


async def test_a_read_at_the_tail_waits_for_the_next_append() -> None:
    async with bench() as b, opened(b) as log, asyncio.TaskGroup() as group:
        reading = group.create_task(log.read(0, wait_s=30))
        await until(lambda: any(isinstance(r, ReadSegment) for r in b.store.requests))
        await log.append([b"news"])
        assert (await reading).entries == (b"news",)
        (asked,) = [r for r in b.store.requests if isinstance(r, ReadSegment)]
        assert asked.wait_ms == 10_000


async def test_a_read_at_the_tail_ends_with_nothing() -> None:
    async with bench() as b, opened(b) as log:
        page = await log.read(0, wait_s=0.02)
        assert (page.entries, page.at_tail) == ((), True)


async def test_who_waits_longer_than_one_read_may_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(one_segment, "WAIT_MS_MAX", 5)
    async with bench() as b, opened(b) as log:
        assert (await log.read(0, wait_s=0.03)).entries == ()
        waits = [r.wait_ms for r in b.store.requests if isinstance(r, ReadSegment)]
        assert len(waits) >= 2
        assert max(waits) == 5


async def test_a_conditional_append_is_refused_where_the_log_has_grown() -> None:
    async with bench() as b, opened(b) as log, opened(b) as other:
        first = await log.append_if([b"a"], 0)
        assert first == b.segments[0].boundaries[0]
        assert await other.append_if([b"x"], 0) is None
        assert await other.append_if([b"b"], first) == b.segments[0].boundaries[1]
        assert stored(b) == [b"a", b"b"]


async def test_what_is_known_to_have_grown_is_not_asked() -> None:
    async with bench() as b, opened(b) as log:
        await log.append([b"a"])
        before = len(b.store.requests)
        assert await log.append_if([b"b"], 0) is None
        assert len(b.store.requests) == before


async def test_a_refused_number_is_used_for_the_next_append() -> None:
    async with bench() as b, opened(b) as log:
        append_as_other(b.segments[0], b"other")
        assert await log.append_if([b"x"], 0) is None
        await log.append([b"y"])
        assert [request.first_event_number for request in sent(b)] == [1, 1]
        assert stored(b) == [b"other", b"y"]


async def test_the_mark_moves_with_its_append_or_not_at_all() -> None:
    async with bench() as b, opened(b) as log:
        assert await log.mark() is None
        first = await log.append([b"a"])
        drop_replies(b, 1)
        assert await log.append_if([b"b"], first, mark=first) is not None
        assert await log.mark() == first
        b.segments[0].attributes.clear()
        assert await log.append_if([b"c"], first, mark=77) is None
        assert await log.mark() is None


def test_the_mark_is_the_attribute_that_the_wires_page_names() -> None:
    assert len(MARK) == 16
    assert f"`{MARK.hex()}`" in (ROOT / "docs/wire.md").read_text()


async def test_truncated_revisions_are_told_with_where_the_log_starts() -> None:
    async with bench() as b, opened(b) as log:
        first = await log.append([b"a"])
        await log.append([b"b"])
        await log.truncate(first)
        await log.truncate(0)
        assert await log.head() == first
        with pytest.raises(SegmentTruncated) as raised:
            await log.read(0)
        assert raised.value.fields["start"] == first
        assert (await log.read(first)).entries == (b"b",)


async def test_only_the_life_of_the_stream_that_was_opened_is_truncated() -> None:
    commands: list[Command] = []

    class Watched(FakeController):
        def decide(self, command: Command) -> Accepted | Rejected:
            commands.append(command)
            return super().decide(command)

    async with bench(kind=Watched) as b, opened(b) as log:
        await log.truncate(await log.append([b"a"]))
        (command,) = commands
        assert isinstance(command, TruncateStream)
        assert command.incarnation == 1


# --- exactly once -----------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [1, 3])
async def test_a_lost_acknowledgement_neither_repeats_an_append_nor_moves_its_revision(
    lost: int,
) -> None:
    async with bench() as b, opened(b) as log:
        await log.append([b"before"])
        left = lost

        def others_come_between(at: Direction, message: Message) -> Fault | None:
            nonlocal left
            if at == "in" or not isinstance(message, Appended) or not left:
                return None
            left -= 1
            append_as_other(b.segments[0], b"other")
            return Fault.DROP

        b.store.fault = others_come_between
        behind = await log.append([b"mine"])
        assert stored(b) == [b"before", b"mine", *[b"other"] * lost]
        assert dict(stored_entries(b.segments[0]))[b"mine"] == behind


@pytest.mark.parametrize("step", range(8))
@pytest.mark.parametrize("direction", ["in", "out"])
async def test_a_connection_lost_at_any_step_costs_and_repeats_nothing(
    direction: Direction, step: int
) -> None:
    async with bench() as b, opened(b) as log:
        seen = 0

        def drop_once(at: Direction, message: Message) -> Fault | None:
            nonlocal seen
            seen += at == direction
            return Fault.DROP if at == direction and seen == step + 1 else None

        b.store.fault = drop_once
        tail = 0
        for number in range(8):
            behind = await log.append_if([b"%d" % number], tail, mark=tail)
            assert behind is not None
            tail = behind
        assert seen > step
        assert stored(b) == [b"%d" % number for number in range(8)]


async def test_concurrent_appends_keep_the_order_of_their_calls_through_restarts() -> None:
    async with bench() as b, opened(b) as log:
        rng = seeded(3)
        b.store.fault = lambda at, _: Fault.DROP if at == "out" and rng.random() < 0.2 else None
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(log.append([b"%d" % number])) for number in range(40)]
            for _ in range(3):
                await asyncio.sleep(0.002)
                await b.store.restart()
        b.store.fault = no_faults
        assert stored(b) == [b"%d" % number for number in range(40)]
        assert [task.result() for task in tasks] == b.segments[0].boundaries


async def test_of_racing_conditional_appends_exactly_one_lands_each_round() -> None:
    async with bench() as b, opened(b) as one, opened(b) as two:
        tail = 0
        for _ in range(20):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(log.append_if([b"x"], tail)) for log in (one, two, one)]
            landed = [task.result() for task in tasks if task.result() is not None]
            assert len(landed) == 1
            assert landed[0] is not None
            tail = landed[0]
        assert len(stored(b)) == 20


async def test_cancelling_an_append_anywhere_never_breaks_or_repeats_later_ones() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with bench() as b, opened(b) as log:
            drop_replies(b, 1)
            calls = [[b"a"], [b"b", b"c"], [b"d"]]
            for entries in calls:
                await cancelling.run(log.append(entries))
            last = await log.append([b"last"])
            found = stored(b)
            assert found.count(b"last") == 1
            assert found[-1] == b"last"
            assert last == len(b.segments[0].data)
            whole = [b"a", b"b", b"c", b"d", b"last"]
            assert len(set(found)) == len(found)
            assert [entry for entry in whole if entry in found] == found

    assert await everywhere(scenario) >= 3


async def test_an_append_under_way_goes_on_when_its_caller_is_cancelled() -> None:
    async with bench() as b, opened(b) as log, asyncio.TaskGroup() as group:
        b.store.fault = lambda at, m: (
            Fault.HOLD if at == "out" and isinstance(m, Appended) else None
        )
        first = group.create_task(log.append([b"first"]))
        waiting = group.create_task(log.append([b"taken back"]))
        await until(lambda: stored(b) == [b"first"])
        first.cancel()
        waiting.cancel()
        b.store.fault = no_faults
        b.store.release()
        await log.append([b"third"])
        assert stored(b) == [b"first", b"third"]


async def test_after_an_unknown_outcome_a_late_request_can_do_no_harm() -> None:
    """Given an append that was lost on its way and given up, when others are appended and the lost
    one arrives after all, then it does not stand in for them."""
    impatient = OneSegmentSettings(retry_timeout_s=0.02, ack_timeout_s=0.01)
    async with bench() as b, opened(b, impatient) as log:
        b.store.fault = lambda at, m: (
            Fault.DROP if at == "in" and isinstance(m, ConditionalAppend) else None
        )
        with pytest.raises(OutcomeUnknown) as raised:
            await log.append([b"lost"])
        assert raised.value.remedy
        late = sent(b)[-1]
        b.store.fault = no_faults
        await log.append([b"next"])
        after = sent(b)[-1]
        assert (after.writer_id != late.writer_id, after.first_event_number) == (True, 1)
        assert stored(b) == [b"next"]


async def test_a_refusal_after_a_lost_request_is_followed_by_another_writer_id() -> None:
    async with bench() as b, opened(b) as log:
        dropped = False

        def drop_the_first(at: Direction, message: Message) -> Fault | None:
            nonlocal dropped
            if at == "out" or not isinstance(message, ConditionalAppend) or dropped:
                return None
            dropped = True
            append_as_other(b.segments[0], b"other")
            return Fault.DROP

        b.store.fault = drop_the_first
        assert await log.append_if([b"x"], 0) is None
        await log.append([b"y"])
        first, repeat, last = sent(b)
        assert first == repeat
        assert (last.writer_id != first.writer_id, last.first_event_number) == (True, 1)
        assert stored(b) == [b"other", b"y"]


async def test_a_forgotten_writer_id_is_replaced() -> None:
    async with bench() as b, opened(b) as log:
        await log.append([b"a"])
        b.segments[0].last_numbers.clear()
        await log.append([b"b"])
        assert stored(b) == [b"a", b"b"]


async def test_a_store_that_forgets_every_writer_id_does_not_hold_an_append_for_ever() -> None:
    async with bench() as b, opened(b) as log:
        b.store.fault = lambda at, m: (
            WriterExpired("unknown") if at == "in" and isinstance(m, ConditionalAppend) else None
        )
        with pytest.raises(OutcomeUnknown):
            await log.append([b"a"])


# --- errors -----------------------------------------------------------------------------------


async def test_a_stream_of_several_segments_is_refused() -> None:
    async with bench(segment_count=2) as b:
        with pytest.raises(InvalidRequest, match="more than one segment"):
            await opened(b).open()


async def test_a_stream_that_is_not_there_is_named() -> None:
    async with bench() as b:
        log = b.client.revisioned_stream("plant/nothing")
        with pytest.raises(StreamNotFound):
            await log.open()
        with pytest.raises(Closed, match="not open"):
            await log.append([b"a"])


async def test_a_sealed_stream_is_read_to_its_end_and_not_appended_to() -> None:
    async with bench() as b, opened(b) as log:
        await log.append([b"a"])
        b.seal()
        page = await log.read(0, wait_s=30)
        assert (page.entries, page.at_tail, page.sealed) == ((b"a",), True, True)
        for appending in (log.append([b"b"]), log.append_if([b"b"], page.next)):
            with pytest.raises(StreamSealed):
                await appending
        async with opened(b) as again:
            assert (await again.read(0)).entries == (b"a",)


async def test_a_scaled_stream_is_refused_by_name() -> None:
    async with bench() as b, opened(b) as log:
        for _ in b.scale_to(2):
            pass
        with pytest.raises(InvalidRequest, match="scaled"):
            await log.append([b"a"])


async def test_a_deleted_stream_is_named_at_once() -> None:
    async with bench() as b, opened(b) as log:
        b.store.delete(next(iter(b.store.segments)))
        del b.controller.scopes["plant"]["sensors"]
        with pytest.raises(StreamNotFound):
            await log.append([b"a"])
        with pytest.raises(StreamNotFound):
            await log.read(0)


@pytest.mark.parametrize("refusal", [WrongHost("not mine"), Unavailable("starting")])
async def test_a_refusal_that_passes_is_overcome(refusal: AnabranchError) -> None:
    async with bench() as b, opened(b) as log:
        left = 3

        def refuse(at: Direction, message: Message) -> AnabranchError | None:
            nonlocal left
            if at == "in" and isinstance(message, ConditionalAppend) and left:
                left -= 1
                return refusal
            return None

        b.store.fault = refuse
        await log.append([b"a"])
        assert left == 0


async def test_an_append_that_no_store_takes_is_given_up_by_name() -> None:
    async with bench() as b, opened(b, OneSegmentSettings(retry_timeout_s=0.02)) as log:
        b.controller.away = True
        await b.store.restart()
        with pytest.raises(Unavailable):
            await log.append([b"a"])
        b.controller.away = False
        await log.append([b"b"])
        assert stored(b) == [b"b"]


async def test_an_entry_over_the_limit_is_refused_and_nothing_else() -> None:
    async with bench() as b, opened(b) as log:
        with pytest.raises(EventTooLarge):
            await log.append([bytes(EVENT_SIZE_BYTES_MAX + 1)])
        with pytest.raises(InvalidRequest, match="at least one"):
            await log.append([])
        await log.append([b"a"])
        assert stored(b) == [b"a"]


async def test_only_so_many_appends_wait_for_their_turn() -> None:
    async with bench() as b, opened(b, OneSegmentSettings(appends_waiting_max=2)) as log:
        b.store.fault = lambda at, m: (
            Fault.HOLD if at == "out" and isinstance(m, Appended) else None
        )

        async def append(name: bytes) -> int | AnabranchError:
            try:
                return await log.append([name])
            except AnabranchError as error:
                return error

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(append(b"%d" % n)) for n in range(3)]
            await until(lambda: stored(b) == [b"0"])
            b.store.fault = no_faults
            b.store.release()
        assert _kinds([task.result() for task in tasks]) == [int, int, Overloaded]


async def test_closing_tells_who_waits_what_became_of_his_append() -> None:
    async with bench() as b, opened(b) as log:
        b.store.fault = lambda at, m: (
            Fault.HOLD if at == "out" and isinstance(m, Appended) else None
        )
        told: list[AnabranchError] = []

        async def append(name: bytes) -> None:
            try:
                await log.append([name])
            except AnabranchError as error:
                told.append(error)

        async with asyncio.TaskGroup() as group:
            group.create_task(append(b"under way"))
            group.create_task(append(b"waiting"))
            await until(lambda: stored(b) == [b"under way"])
            await log.close()
        assert _kinds(told) == [OutcomeUnknown, Closed]


async def test_what_is_no_log_is_refused_by_name() -> None:
    async with bench() as b, opened(b) as log:
        segment = b.segments[0]
        segment.data += b"raw bytes of somebody else" * 10
        segment.boundaries.append(len(segment.data))
        with pytest.raises(CorruptBlock) as raised:
            await log.read(0)
        assert "byte stream" in raised.value.remedy


def _kinds(values: Sequence[object]) -> list[type]:
    return [type(value) for value in values]
