"""State synchronizers that race, lose replies, fall behind and are cancelled."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from anabranch.client import RevisionedStream, StateSynchronizer
from anabranch.client.settings import OneSegmentSettings
from anabranch.common.errors import (
    FormatTooNew,
    StateNotInitialized,
    StreamSealed,
    Unavailable,
)
from anabranch.common.wire.messages import Appended, ConditionalAppend, Message, ReadSegment
from kit.cancel_everywhere import Cancelling, everywhere
from kit.client_bench import STREAM, Bench, bench, until
from kit.fake_segstore import Direction, Fault, no_faults
from kit.rng import seeded
from kit.shared_state import (
    SHARED,
    CountCodec,
    History,
    HistoryCodec,
    append_as_other,
    names,
    stored_entries,
)

Shared = StateSynchronizer[History, str]


def opened(b: Bench, settings: OneSegmentSettings = SHARED) -> Shared:
    return b.client.state_synchronizer(STREAM, HistoryCodec(), settings)


def counter(b: Bench, settings: OneSegmentSettings = SHARED) -> StateSynchronizer[int, int]:
    return b.client.state_synchronizer(STREAM, CountCodec(), settings)


def log_of(b: Bench) -> RevisionedStream:
    return b.client.revisioned_stream(STREAM, SHARED)


def once(name: str) -> Callable[[History], Sequence[str]]:
    """Adds the update unless it is there."""
    return lambda state: [] if name in names(state) else [name]


async def test_a_state_is_initialized_once_and_seen_by_all() -> None:
    async with bench() as b, opened(b) as one, opened(b) as two:
        assert (one.state, one.revision) == (None, 0)
        assert await one.initialize((("first", 0),)) is True
        assert await two.initialize((("second", 0),)) is False
        assert one.state == two.state == (("first", 0),)
        assert one.revision == two.revision == len(b.segments[0].data)


async def test_of_racing_initializations_one_wins() -> None:
    async with bench() as b:
        shared = [opened(b) for _ in range(4)]
        for each in shared:
            await each.open()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(each.initialize(((str(number), 0),)))
                for number, each in enumerate(shared)
            ]
        assert sorted(task.result() for task in tasks) == [False, False, False, True]
        assert len({each.state for each in shared}) == 1


async def test_an_update_is_folded_where_it_was_made_and_fetched_elsewhere() -> None:
    async with bench() as b, opened(b) as one, opened(b) as two:
        await one.initialize(())
        assert await two.fetch() == 1
        assert await one.update(lambda _: ["a", "b"]) == ("a", "b")
        assert names(one.state) == ["a", "b"]
        assert names(two.state) == []
        assert await two.fetch() == 2
        assert (two.state, two.revision) == (one.state, one.revision)
        assert await two.fetch() == 0
        assert {revision for _, revision in one.state or ()} == {one.revision}


async def test_deciding_for_nothing_appends_nothing() -> None:
    async with bench() as b, opened(b) as shared:
        await shared.initialize(())
        before = len(b.segments[0].data)
        assert await shared.update(lambda _: []) == ()
        assert len(b.segments[0].data) == before


async def test_an_update_is_decided_again_on_what_others_did() -> None:
    async with bench() as b, opened(b) as one, opened(b) as two:
        await one.initialize(())
        await two.fetch()
        await one.update(once("taken"))
        seen: list[list[str]] = []

        def decide(state: History) -> Sequence[str]:
            seen.append(names(state))
            return [] if "taken" in names(state) else ["taken"]

        assert await two.update(decide) == ()
        assert seen == [[], ["taken"]]
        assert names(two.state) == ["taken"]


async def test_what_deciding_raises_is_passed_on_but_never_about_an_old_state() -> None:
    async with bench() as b, opened(b) as one, opened(b) as two:
        await one.initialize(())
        await two.fetch()
        await one.update(once("door is open"))

        def pass_the_door(state: History) -> Sequence[str]:
            if "door is open" not in names(state):
                raise PermissionError("closed")
            return ["passed"]

        assert await two.update(pass_the_door) == ("passed",)
        assert names(two.state) == ["door is open", "passed"]

        def refuse(_: History) -> Sequence[str]:
            raise KeyError("never")

        with pytest.raises(KeyError):
            await two.update(refuse)


async def test_without_a_first_value_nothing_can_be_decided() -> None:
    async with bench() as b, opened(b) as shared:
        for call in (
            shared.update(once("a")),
            shared.append(["a"]),
            shared.compact(),
            shared.replace(lambda state: state),
        ):
            with pytest.raises(StateNotInitialized):
                await call
        assert len(b.segments[0].data) == 0


async def test_updates_before_the_first_init_say_nothing() -> None:
    async with bench() as b, opened(b) as one, opened(b) as two, log_of(b) as log:
        await log.append([b"\x01stray"])
        assert await one.fetch() == 1
        assert one.state is None
        assert await one.initialize(()) is True
        await two.fetch()
        assert one.state == two.state == ()


async def test_an_unconditional_append_is_seen_when_it_was_fetched() -> None:
    async with bench() as b, opened(b) as shared:
        await shared.initialize(())
        before = shared.revision
        behind = await shared.append(["a"])
        assert (shared.state, shared.revision) == ((), before)
        await shared.fetch()
        assert (names(shared.state), shared.revision) == (["a"], behind)


async def test_a_state_is_replaced_on_the_newest_state_or_not_at_all() -> None:
    async with bench() as b, opened(b) as one, opened(b) as two, opened(b) as fresh:
        await one.initialize(())
        await two.fetch()
        await one.update(once("a"))
        assert await two.replace(lambda state: (*state, ("whole", 0))) is True
        assert names(two.state) == ["a", "whole"]
        assert await two.replace(lambda _: None) is False
        assert two.entries_since_init == two.bytes_since_init == 0
        await one.fetch()
        await fresh.fetch()
        assert one.state == fresh.state == two.state


# --- races ------------------------------------------------------------------------------------


async def test_racing_updates_form_one_history_with_each_update_once() -> None:
    async with bench() as b:
        shared = [opened(b) for _ in range(6)]
        for each in shared:
            await each.open()
        await shared[0].initialize(())
        async with asyncio.TaskGroup() as group:
            for number, each in enumerate(shared):
                for step in range(8):
                    group.create_task(each.update(once(f"{number}.{step}")))
        for each in shared:
            await each.fetch()
        assert len({each.state for each in shared}) == 1
        assert sorted(names(shared[0].state)) == sorted(
            f"{number}.{step}" for number in range(6) for step in range(8)
        )


@pytest.mark.parametrize("seed", range(4))
async def test_racing_counters_lose_nothing_to_lost_replies_and_restarts(seed: int) -> None:
    async with bench() as b:
        rng = seeded(seed)
        shared = [counter(b) for _ in range(4)]
        for each in shared:
            await each.open()
        await shared[0].initialize(0)
        b.store.fault = lambda at, _: Fault.DROP if at == "out" and rng.random() < 0.1 else None

        async def count(each: StateSynchronizer[int, int]) -> None:
            while await each.update(lambda state: [1] if state < 60 else []):
                if rng.random() < 0.2:
                    await each.compact()

        async with asyncio.TaskGroup() as group:
            for each in shared:
                group.create_task(count(each))
            for _ in range(2):
                await asyncio.sleep(0.01)
                await b.store.restart()
        b.store.fault = no_faults
        assert [each.state for each in shared] == [60] * 4
        await shared[0].compact()  # the replies to all earlier ones may be lost
        assert b.segments[0].start > 0


async def test_cancelling_any_call_anywhere_breaks_nothing() -> None:
    async def scenario(cancelling: Cancelling) -> None:
        async with bench() as b, opened(b) as one, opened(b) as two:
            await cancelling.run(one.initialize(()))
            await one.initialize(())
            await cancelling.run(one.update(once("a")))
            await cancelling.run(two.update(once("b")))
            await cancelling.run(one.compact())
            await cancelling.run(two.fetch())
            await one.update(once("last"))
            await two.fetch()
            assert one.state == two.state
            found = names(one.state)
            assert [name for name in ("a", "b", "last") if name in found] == found
            async with opened(b) as fresh:
                await fresh.fetch()
                assert (fresh.state, fresh.revision) == (one.state, one.revision)

    assert await everywhere(scenario) >= 10


async def test_who_waits_for_news_does_not_hold_up_who_decides() -> None:
    async with bench() as b, opened(b) as shared, asyncio.TaskGroup() as group:
        await shared.initialize(())
        waiting = group.create_task(shared.fetch(wait_s=30))
        await until(lambda: isinstance(b.store.requests[-1], ReadSegment))
        await shared.update(once("a"))
        assert names(shared.state) == ["a"]
        assert await waiting == 1


async def test_pages_fetched_twice_at_once_are_folded_once() -> None:
    async with bench() as b, opened(b) as one, opened(b) as two:
        await one.initialize(())
        for number in range(5):
            await one.append([str(number)])
        async with asyncio.TaskGroup() as group:
            for _ in range(5):
                group.create_task(two.fetch())
        assert names(two.state) == ["0", "1", "2", "3", "4"]


async def test_an_update_that_others_always_outrun_is_given_up_by_name() -> None:
    async with bench() as b, opened(b, replace(SHARED, retry_timeout_s=0.05)) as shared:
        await shared.initialize(())

        def outrun(at: Direction, message: Message) -> None:
            if at == "in" and isinstance(message, ConditionalAppend):
                append_as_other(b.segments[0], b"\x01other")

        b.store.fault = outrun
        with pytest.raises(Unavailable, match="concurrent change"):
            await shared.update(once("a"))
        b.store.fault = no_faults
        await shared.fetch()
        assert set(names(shared.state)) == {"other"}


# --- compaction -------------------------------------------------------------------------------


async def test_compaction_truncates_to_the_last_but_one_init() -> None:
    async with bench() as b, opened(b) as shared, log_of(b) as log:
        await shared.initialize(())
        await shared.update(once("a"))
        assert (shared.entries_since_init, shared.bytes_since_init > 0) == (1, True)
        first_mark = await log.mark()
        assert first_mark == 0
        second = shared.revision
        assert await shared.compact() is True
        assert (await log.mark(), await log.head()) == (second, 0)
        assert shared.entries_since_init == shared.bytes_since_init == 0
        await shared.update(once("b"))
        third = shared.revision
        assert await shared.compact() is True
        assert (await log.mark(), await log.head()) == (third, second)
        async with opened(b) as fresh:
            assert await fresh.fetch() == 1
            assert (fresh.state, fresh.revision) == (shared.state, shared.revision)


async def test_compaction_gives_way_to_others() -> None:
    async with bench() as b, opened(b) as one, opened(b) as two, log_of(b) as log:
        await one.initialize(())
        await two.fetch()
        await one.update(once("a"))
        assert await two.compact() is False
        assert await log.mark() == 0
        await two.fetch()
        assert await two.compact() is True


async def test_a_truncation_that_fails_is_made_up_for_by_the_next_compaction() -> None:
    async with bench() as b, opened(b) as shared, log_of(b) as log:
        await shared.initialize(())
        await shared.compact()
        b.controller.scopes["plant"]["sensors"].truncate = _busy  # type: ignore[assignment]
        marks = [await log.mark()]
        assert await shared.compact() is True
        assert await log.head() == 0
        del b.controller.scopes["plant"]["sensors"].truncate
        marks.append(await log.mark())
        assert await shared.compact() is True
        assert await log.head() == marks[-1]


def _busy(*_: object) -> None:
    raise Unavailable("the controller is away")


async def test_a_replica_that_was_truncated_away_begins_again_at_the_mark() -> None:
    async with bench() as b, opened(b) as one, opened(b) as slow:
        await one.initialize(())
        await slow.fetch()
        for round_ in range(3):
            await one.update(once(f"{round_}"))
            await one.compact()
        assert b.segments[0].start > slow.revision
        assert await slow.fetch() == 1
        assert (slow.state, slow.revision) == (one.state, one.revision)
        await one.update(once("more"))
        assert await slow.update(lambda state: [f"after {len(state)}"]) == ("after 4",)


async def test_a_log_truncated_beyond_its_mark_has_no_state_until_the_next_init() -> None:
    async with bench() as b, opened(b) as one, opened(b) as slow, log_of(b) as log:
        await one.initialize(())
        await slow.fetch()
        await one.update(once("a"))
        await one.update(once("b"))
        await log.truncate(one.revision)
        await one.update(once("c"))
        assert await slow.fetch() == 1
        assert slow.state is None
        await one.compact()
        await slow.fetch()
        assert slow.state == one.state


# --- what others may have written -------------------------------------------------------------


async def test_an_entry_of_an_unknown_kind_is_named_and_nothing_of_its_page_applied() -> None:
    async with bench() as b, opened(b) as shared, log_of(b) as log:
        await shared.initialize(())
        known = (shared.state, shared.revision)
        await log.append([b"\x01good", b"\x07from a later release"])
        for _ in range(2):
            with pytest.raises(FormatTooNew) as raised:
                await shared.fetch()
        assert raised.value.fields["found"] == 7
        assert (shared.state, shared.revision) == known


async def test_a_codec_that_fails_leaves_the_state_as_it_was() -> None:
    async with bench() as b, counter(b) as shared, log_of(b) as log:
        await shared.initialize(5)
        await log.append([b"\x012", b"\x01no number"])
        with pytest.raises(ValueError, match="invalid literal"):
            await shared.fetch()
        assert shared.state == 5


async def test_a_sealed_stream_keeps_its_last_state() -> None:
    async with bench() as b, opened(b) as shared:
        await shared.initialize(())
        await shared.update(once("a"))
        b.seal()
        async with opened(b) as fresh:
            assert await fresh.fetch(wait_s=30) == 2
            assert fresh.state == shared.state
            assert await fresh.fetch() == 0
            with pytest.raises(StreamSealed):
                await fresh.fetch(wait_s=30)


async def test_an_update_whose_reply_is_lost_is_applied_once() -> None:
    async with bench() as b, counter(b) as shared:
        await shared.initialize(0)
        lost = 0

        def drop(at: Direction, message: Message) -> Fault | None:
            nonlocal lost
            if at == "out" and isinstance(message, Appended) and lost < 3:
                lost += 1
                return Fault.DROP
            return None

        b.store.fault = drop
        assert await shared.update(lambda _: [1]) == (1,)
        assert (shared.state, len(stored_entries(b.segments[0]))) == (1, 2)
