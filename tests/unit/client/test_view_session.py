"""A process that runs a view: its rounds, and what is left of them when it is killed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import pytest

from anabranch.client.backoff import Backoff
from anabranch.client.reading.events import Event, EventBatch
from anabranch.client.reading.segment_blocks import FetchedBlock
from anabranch.client.serializers import JsonSerializer, Serializer
from anabranch.client.settings import BackoffSettings
from anabranch.client.tables.stored import StoredUpdate
from anabranch.client.views import partition, session
from anabranch.client.views.counts import ViewCounts
from anabranch.client.views.partition import PartitionView
from anabranch.client.views.rounds import Recipe
from anabranch.client.views.rows import Rows
from anabranch.client.views.session import ViewSession
from anabranch.common.errors import (
    AnabranchError,
    EventsTruncated,
    OutcomeUnknown,
    SerializationFailed,
    Unavailable,
)
from anabranch.common.model.reader_group import group_ref
from anabranch.common.wire.block import Block
from anabranch.common.wire.block_encoding import encode_block
from kit.cancel_everywhere import Cancelling, everywhere
from kit.rng import seeded
from kit.view_table import MemoryTable
from kit.virtual_time import VirtualClock, run_virtual

GROUP = group_ref("s/g")
A, B = "s/x/0.#epoch.0", "s/x/1.#epoch.0"


def blocks(*rows: str) -> list[EventBatch]:
    """One block for each text, ``segment: row row=payload …``, each behind the earlier ones.

    The payload is the number of the event unless it is given.
    """
    found: list[EventBatch] = []
    offsets = {A: 0, B: 0}
    number = 0
    for text in rows:
        name, _, events = text.partition(": ")
        segment = {"A": A, "B": B}[name]
        keys, payloads = [], []
        for event in events.split():
            key, _, payload = event.partition("=")
            keys.append(key.encode())
            payloads.append((payload or str(number)).encode())
            number += 1
        data = encode_block(
            payloads, keys=keys, writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0
        )
        block = FetchedBlock(segment, offsets[segment], Block(data))
        offsets[segment] = block.next_offset
        found.append(EventBatch(block))
    return found


def plain(batches: list[EventBatch]) -> dict[bytes, list[str]]:
    """The plain fold of all events."""
    rows: dict[bytes, list[str] | None] = {}
    for batch in batches:
        for event in batch.events():
            if (key := row_of(event)) is not None:
                rows[key.encode()] = append(rows.get(key.encode()), event)
    return {key: row for key, row in rows.items() if row is not None}


def row_of(event: Event) -> str | None:
    return None if event.key == "none" else event.key


def append(row: list[str] | None, event: Event) -> list[str] | None:
    return None if event.payload == b"drop" else [*(row or []), event.payload.decode()]


class Digits:
    """A serializer that takes nothing but digits."""

    def serialize(self, value: bytes) -> bytes:
        return value

    def deserialize(self, data: bytes) -> bytes:
        return b"%d" % int(data)


@dataclass
class Group:
    """Blocks in the order in which any reader gets them. `acked`: how many are processed.

    An error stands for itself: it is raised once. `is_ahead`: all blocks are there at once.
    """

    items: list[EventBatch | AnabranchError]
    acked: int = 0
    is_ahead: bool = True
    is_open: bool = False
    acks: list[int] = field(default_factory=list)

    def reader(self) -> "Reader":
        return Reader(self)


class Reader:
    """A `ViewReader` that begins behind the last acknowledged block."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._at = group.acked

    async def next_batch(self) -> EventBatch | None:
        await asyncio.sleep(0)
        if self._at == len(self._group.items):
            if self._group.is_open:
                await asyncio.Event().wait()
            return None
        return self._next()

    def next_batch_nowait(self) -> EventBatch | None:
        if not self._group.is_ahead or self._at == len(self._group.items):
            return None
        return self._next()

    def _next(self) -> EventBatch:
        item = self._group.items[self._at]
        self._at += 1
        if isinstance(item, AnabranchError):
            raise item
        return item

    def ack(self) -> None:
        self._group.acked = self._at
        self._group.acks.append(self._at)


@dataclass
class Work:
    """A view on `table`; each `session` is a new process."""

    group: Group
    table: MemoryTable
    counts: ViewCounts = field(default_factory=ViewCounts)
    events: Serializer[bytes] | None = None
    round_events: int = 1000
    key: Callable[[Event], str | None] = row_of
    retry_timeout_s: float = inf

    def session(self) -> ViewSession[bytes, str, list[str]]:
        def new_partition(index: int) -> PartitionView[bytes, list[str]]:
            return PartitionView(
                index,
                GROUP,
                fold=append,
                values=JsonSerializer(),
                rows=Rows(10_000),
                counts=self.counts,
            )

        return ViewSession(
            self.group.reader(),
            self.table,
            Recipe(self.key, append, self.events, JsonSerializer()),
            new_partition=new_partition,
            new_backoff=lambda: Backoff(BackoffSettings(), seeded(1), self.retry_timeout_s),
            clock=VirtualClock(asyncio.get_running_loop()),
            round_events=self.round_events,
        )

    def rows(self) -> dict[bytes, list[str]]:
        json = JsonSerializer()
        return {key: json.deserialize(value) for key, value in self.table.values().items()}


def work(*rows: str, partitions: int = 2) -> Work:
    return Work(Group(list(blocks(*rows))), MemoryTable(partitions))


STORY = ("A: x y x", "B: z z=drop none", "A: y=drop u", "B: z w z", "A: x y none", "B: none")


def expected(*rows: str) -> dict[bytes, list[str]]:
    return plain(blocks(*rows))


# --- rounds --------------------------------------------------------------------------------------


def test_all_blocks_that_were_read_ahead_are_saved_by_one_update_per_partition() -> None:
    async def story() -> None:
        job = work(*STORY)
        await job.session().run()
        assert job.rows() == expected(*STORY)
        assert job.table.updates == 2
        assert job.group.acks == [6]
        assert job.counts.folded == 12

    run_virtual(story())


def test_a_round_has_about_as_many_events_as_the_settings_say() -> None:
    async def story() -> None:
        job = work(*STORY)
        job.round_events = 5
        await job.session().run()
        assert job.group.acks == [2, 4, 6]
        assert job.rows() == expected(*STORY)

    run_virtual(story())


def test_a_round_has_about_as_many_bytes_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        job = work(*STORY)
        monkeypatch.setattr(session, "ROUND_SIZE_BYTES", 1)
        await job.session().run()
        assert job.group.acks == [1, 2, 3, 4, 5, 6]

    run_virtual(story())


def test_events_without_a_key_are_acknowledged_and_nothing_is_saved() -> None:
    async def story() -> None:
        job = work("A: none none")
        await job.session().run()
        assert (job.table.updates, job.group.acks) == (0, [1])

    run_virtual(story())


def test_a_session_ends_when_its_goal_is_reached_and_the_group_has_nothing_at_the_moment() -> None:
    async def story() -> None:
        job = work(*STORY)
        job.group.is_open = True

        async def reached() -> bool:
            return job.group.acked == len(STORY)

        await job.session().run(reached)
        assert job.rows() == expected(*STORY)

    run_virtual(story())


def test_a_goal_is_looked_at_while_blocks_keep_coming() -> None:
    async def story() -> None:
        job = work(*["A: x"] * 1000)
        job.round_events = 1
        asked = 0

        async def reached() -> bool:
            nonlocal asked
            asked += 1
            return asked == 3

        def take_time(_: StoredUpdate) -> None:
            asyncio.get_running_loop()._selector._loop.advance(0.03)  # type: ignore[attr-defined]

        job.table.on_update = take_time
        await job.session().run(reached)
        assert 0 < job.group.acked < 1000

    run_virtual(story())


# --- failures ------------------------------------------------------------------------------------


def test_blocks_before_truncated_events_are_saved_and_then_the_error_is_raised() -> None:
    async def story() -> None:
        one, two = blocks("A: x", "A: y")
        job = Work(Group([one, EventsTruncated("gone"), two]), MemoryTable())
        with pytest.raises(EventsTruncated):
            await job.session().run()
        assert set(job.rows()) == {b"x"}
        await job.session().run()
        assert set(job.rows()) == {b"x", b"y"}

    run_virtual(story())


def test_a_payload_that_cannot_be_deserialized_is_raised_every_time() -> None:
    async def story() -> None:
        job = work("A: x=1", "A: x=what")
        job.events = Digits()
        job.round_events = 1
        for _ in range(2):
            with pytest.raises(SerializationFailed):
                await job.session().run()
        assert job.group.acked == 1

    run_virtual(story())


def test_an_error_of_the_key_is_raised_and_nothing_is_acknowledged() -> None:
    async def story() -> None:
        job = work("A: x")
        job.key = lambda event: str(1 // (event.timestamp_ms * 0))
        with pytest.raises(ZeroDivisionError):
            await job.session().run()
        assert job.group.acks == []

    run_virtual(story())


@pytest.mark.parametrize("is_performed", [True, False])
def test_an_update_of_unknown_outcome_is_settled_by_the_position_row(is_performed: bool) -> None:
    async def story() -> None:
        job = work(*STORY)
        job.round_events = 1
        job.group.is_ahead = False
        if is_performed:
            job.table.lost = range(1, 100, 2)
        else:

            def lose(_: StoredUpdate) -> None:
                if job.table.updates % 2:
                    raise OutcomeUnknown("lost on the way")

            job.table.on_update = lose
        await job.session().run()
        assert job.rows() == expected(*STORY)

    run_virtual(story())


def test_a_view_that_never_gets_its_turn_gives_up() -> None:
    async def story() -> None:
        job = work("A: x", partitions=1)
        job.retry_timeout_s = 3.0

        def be_faster(update: StoredUpdate) -> None:
            (partition_,) = job.table.partitions
            partition_.rows[b"x"] = (partition_.length, b"[]")
            partition_.length += 1

        job.table.on_update = be_faster
        with pytest.raises(Unavailable, match="other processes"):
            await job.session().run()
        assert job.counts.conflicts > 5

    run_virtual(story())


def test_a_view_that_gets_its_turn_now_and_then_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        rows = [f"A: row{number}" for number in range(40)]
        job = work(*rows, partitions=1)
        job.retry_timeout_s = 0.005
        monkeypatch.setattr(partition, "STEP_ROWS_MAX", 2)

        def be_faster_at_first(update: StoredUpdate) -> None:
            (only,) = job.table.partitions
            if job.table.updates % 2:
                only.rows[update.keys[-1]] = (only.length, b"[]")
                only.length += 1

        job.table.on_update = be_faster_at_first
        await job.session().run()
        assert job.counts.conflicts == 40

    run_virtual(story())


# --- kills ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_ahead", [True, False])
@pytest.mark.parametrize("lost", [(), (1, 3), range(2, 1000, 2)])
def test_every_event_is_folded_once_wherever_processes_are_killed(
    lost: range | tuple[int, ...], is_ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "STEP_ROWS_MAX", 3)
    suspensions = 0

    async def scenario(kill: Cancelling) -> None:
        job = work(*STORY)
        job.group.is_ahead = is_ahead
        job.table.lost = lost
        while job.group.acked < len(STORY):
            await kill.run(job.session().run())
        assert job.rows() == expected(*STORY)

    async def story() -> None:
        nonlocal suspensions
        suspensions = await everywhere(scenario)

    run_virtual(story())
    assert suspensions > 15


def test_a_process_that_is_killed_before_it_acknowledges_is_followed_by_one_that_skips() -> None:
    async def story() -> None:
        job = work(*STORY)
        await job.session().run()
        job.group.acked = 0
        await job.session().run()
        assert job.rows() == expected(*STORY)
        assert (job.counts.folded, job.counts.skipped) == (12, 12)

    run_virtual(story())
