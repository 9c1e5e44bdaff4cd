"""A record that keeps changing while its process lives, whatever is lost on the way."""

import asyncio
from collections.abc import Awaitable, Callable

from anabranch.common.errors import OutcomeUnknown, ProcessReplaced, SessionOver, Unavailable
from anabranch.common.eventsourcing.beats import BEAT_DEADLINE_S, BEAT_S, RETRY_S, Beats
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from kit.virtual_time import VirtualClock, run_virtual

KEY = "node"


class LossyStore(InMemoryObjectStore):
    """Writes may vanish on the way there, or their answers on the way back."""

    lost = 0
    unanswered = 0
    failing = 0
    slow_s = 0.0

    async def update(self, key: str, value: bytes, revision: int) -> int:
        if self.failing:
            self.failing -= 1
            raise Unavailable("no")
        if self.lost:
            self.lost -= 1
            await asyncio.sleep(3600)
        await asyncio.sleep(self.slow_s)
        written = await super().update(key, value, revision)
        if self.unanswered:
            self.unanswered -= 1
            raise OutcomeUnknown("was it written?")
        return written


def beats_of(store: InMemoryObjectStore, session: str) -> Beats:
    return Beats(
        store,
        KEY,
        session,
        encode=lambda beat: f"{session} {beat}".encode(),
        session_in=lambda value: value.decode().split()[0],
        clock=VirtualClock(asyncio.get_running_loop()),
    )


def with_beats(test: Callable[[LossyStore, Beats], Awaitable[None]]) -> None:
    """Run the test beside a process that beats in session `a`."""

    async def main() -> None:
        store = LossyStore()
        async with asyncio.TaskGroup() as group:
            beats = beats_of(store, "a")
            running = group.create_task(beats.run())
            await asyncio.sleep(0.01)
            await test(store, beats)
            running.cancel()

    run_virtual(main())


async def told(store: InMemoryObjectStore) -> str:
    found = await store.get(KEY)
    return found.value.decode() if found is not None else ""


def test_the_record_changes_with_every_beat() -> None:
    async def test(store: LossyStore, _beats: Beats) -> None:
        assert await told(store) == "a 1"
        await asyncio.sleep(3 * BEAT_S)
        assert await told(store) == "a 4"

    with_beats(test)


def test_a_lost_beat_is_repeated_long_before_it_is_missed() -> None:
    async def test(store: LossyStore, _beats: Beats) -> None:
        store.lost = 1
        await asyncio.sleep(BEAT_S + BEAT_DEADLINE_S + RETRY_S + 0.01)
        assert await told(store) == "a 2"

    with_beats(test)


def test_a_beat_whose_outcome_is_unknown_is_no_other_process() -> None:
    async def test(store: LossyStore, _beats: Beats) -> None:
        store.unanswered = 1
        store.failing = 2
        await asyncio.sleep(6 * BEAT_S)
        assert not store.failing
        assert not store.unanswered
        session, beat = (await told(store)).split()
        assert (session, int(beat) >= 4) == ("a", True), "it goes on"

    with_beats(test)


def test_a_deleted_record_is_written_again() -> None:
    async def test(store: LossyStore, _beats: Beats) -> None:
        found = await store.get(KEY)
        assert found is not None
        await store.delete(KEY, found.revision)
        await asyncio.sleep(2 * BEAT_S)
        assert (await told(store)).startswith("a ")

    with_beats(test)


def test_a_process_ends_when_another_one_has_taken_its_key() -> None:
    async def main() -> None:
        store = InMemoryObjectStore()
        errors: list[ProcessReplaced] = []

        async def live(session: str) -> None:
            try:
                await beats_of(store, session).run()
            except ProcessReplaced as error:
                errors.append(error)

        async with asyncio.TaskGroup() as group:
            older = group.create_task(live("older"))
            await asyncio.sleep(1)
            later = group.create_task(live("later"))
            await asyncio.sleep(2 * BEAT_S)
            later.cancel()
            older.cancel()
        (error,) = errors
        assert error.fields["session"] == "later"
        assert (await told(store)).startswith("later ")

    run_virtual(main())


def test_the_last_word_is_written_or_the_record_is_taken_away() -> None:
    async def test(store: LossyStore, beats: Beats) -> None:
        await beats.end(b"a stopped")
        assert await told(store) == "a stopped"
        await beats.end(None)
        assert await told(store) == ""

    with_beats(test)


def test_whoever_never_was_there_or_was_replaced_takes_nothing_away() -> None:
    async def test(store: LossyStore, beats: Beats) -> None:
        await beats_of(store, "never").end(None)
        assert await told(store) == "a 1"
        found = await store.get(KEY)
        assert found is not None
        await store.update(KEY, b"later 1", found.revision)
        await beats.end(None)
        assert await told(store) == "later 1"

    async def main() -> None:
        store = LossyStore()
        beats = beats_of(store, "a")
        async with asyncio.TaskGroup() as group:
            running = group.create_task(beats.run())
            await asyncio.sleep(0.01)
            running.cancel()
        await test(store, beats)

    run_virtual(main())


class Life:
    """A process that learns when its beats are confirmed, and continues after its session."""

    def __init__(self, store: InMemoryObjectStore) -> None:
        self.session = "a"
        self.confirmed: list[float] = []
        self.over: list[SessionOver] = []
        self.replaced: list[ProcessReplaced] = []
        self.beats = Beats(
            store,
            KEY,
            self.session,
            encode=lambda beat: f"{self.session} {beat}".encode(),
            session_in=lambda value: value.decode().split()[0],
            over_in=lambda value: value.endswith(b"over"),
            confirmed=self.confirmed.append,
            clock=VirtualClock(asyncio.get_running_loop()),
        )

    async def run(self) -> None:
        try:
            while True:
                try:
                    await self.beats.run()
                except SessionOver as error:
                    self.over.append(error)
                    self.session = f"a{len(self.over)}"
                    self.beats.begin(self.session)
        except ProcessReplaced as error:
            self.replaced.append(error)


def with_life(test: Callable[[LossyStore, Life], Awaitable[None]]) -> None:
    async def main() -> None:
        store = LossyStore()
        life = Life(store)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(life.run())
            await asyncio.sleep(0.01)
            await test(store, life)
            running.cancel()

    run_virtual(main())


async def set_to(store: InMemoryObjectStore, value: bytes) -> None:
    found = await store.get(KEY)
    assert found is not None
    await store.update(KEY, value, found.revision)


def test_each_confirmed_beat_names_the_time_at_which_it_was_sent() -> None:
    async def test(store: LossyStore, life: Life) -> None:
        assert life.confirmed == [0.0]
        store.slow_s = 0.25
        await asyncio.sleep(BEAT_S)
        assert life.confirmed == [0.0], "the answer is not there yet"
        await asyncio.sleep(0.3)
        assert life.confirmed == [0.0, BEAT_S]

    with_life(test)


def test_a_beat_without_an_answer_confirms_nothing_although_it_changed_the_record() -> None:
    async def test(store: LossyStore, life: Life) -> None:
        store.unanswered = 1
        store.failing = 0
        await asyncio.sleep(BEAT_S)
        assert (await told(store), life.confirmed) == ("a 2", [0.0])
        await asyncio.sleep(RETRY_S)
        assert life.confirmed == [0.0, BEAT_S + RETRY_S]

    with_life(test)


def test_a_process_whose_session_is_over_continues_under_another_one() -> None:
    async def test(store: LossyStore, life: Life) -> None:
        await set_to(store, b"a 1 over")
        await asyncio.sleep(BEAT_S + 2 * RETRY_S)
        (error,) = life.over
        assert error.fields["session"] == "a"
        assert await told(store) == "a1 2"
        # and once more
        await set_to(store, b"a1 2 over")
        await asyncio.sleep(BEAT_S + 2 * RETRY_S)
        assert await told(store) == "a2 3"
        assert not life.replaced

    with_life(test)


def test_a_process_that_was_replaced_after_its_session_was_over_ends() -> None:
    async def test(store: LossyStore, life: Life) -> None:
        await set_to(store, b"a 1 over")
        await asyncio.sleep(BEAT_S + 2 * RETRY_S)
        await set_to(store, b"later 1")
        await asyncio.sleep(2 * BEAT_S)
        assert len(life.replaced) == 1
        assert await told(store) == "later 1"

    with_life(test)


def test_a_process_replaced_before_it_saw_the_end_of_its_session_ends() -> None:
    async def test(store: LossyStore, life: Life) -> None:
        await set_to(store, b"a 1 over")
        life.beats.begin("b")  # it has just seen it
        life.session = "b"
        await set_to(store, b"later 1")
        await asyncio.sleep(2 * BEAT_S)
        assert len(life.replaced) == 1

    with_life(test)
