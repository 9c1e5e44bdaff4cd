"""What every `EventStore` does, on the in-memory one, and through the JetStream adapter on a
simulated NATS server and on a real one."""

import asyncio

import pytest

from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import CorruptEvent, WrongExpectedSequence
from anabranch.common.eventsourcing.ports import Append, EventStore, Gate, NewMessage

DEADLINE_S = 10


def message(
    revision: int,
    append_id: str = "a",
    body: bytes = b"[]",
    kind: str = "events",
    snapshot: int = 0,
) -> NewMessage:
    return NewMessage(revision, append_id, kind, 1, snapshot, body)


async def test_an_unknown_subject_has_no_messages(store: EventStore, subject: str) -> None:
    assert await store.load(subject) == []


async def test_what_was_appended_is_loaded_in_order(store: EventStore, subject: str) -> None:
    first = await store.append(subject, 0, message(1, "a", b"one"))
    second = await store.append(subject, first, message(2, "b", b"two"))

    loaded = await store.load(subject)

    assert [(m.sequence, m.revision, m.append_id, m.body) for m in loaded] == [
        (first, 1, "a", b"one"),
        (second, 2, "b", b"two"),
    ]
    assert {m.subject for m in loaded} == {subject}


async def test_loading_after_a_sequence_leaves_out_what_is_known(
    store: EventStore, subject: str
) -> None:
    first = await store.append(subject, 0, message(1))
    second = await store.append(subject, first, message(2))

    assert [m.sequence for m in await store.load(subject, first)] == [second]
    assert await store.load(subject, second) == []


async def test_an_append_with_a_stale_expectation_is_refused_and_stores_nothing(
    store: EventStore, subject: str
) -> None:
    await store.append(subject, 0, message(1, "a"))

    with pytest.raises(WrongExpectedSequence):
        await store.append(subject, 0, message(1, "b"))

    assert [m.append_id for m in await store.load(subject)] == ["a"]


async def test_an_append_that_expects_more_than_there_is_is_refused(
    store: EventStore, subject: str
) -> None:
    with pytest.raises(WrongExpectedSequence):
        await store.append(subject, 4711, message(1))


async def test_of_racing_appends_exactly_one_wins(store: EventStore, subject: str) -> None:
    results: list[str] = []

    async def attempt(name: str) -> None:
        try:
            await store.append(subject, 0, message(1, name))
            results.append(name)
        except WrongExpectedSequence:
            results.append("refused")

    async with asyncio.TaskGroup() as group:
        for index in range(8):
            group.create_task(attempt(f"try-{index}"))

    winners = [r for r in results if r != "refused"]
    assert len(winners) == 1
    assert [m.append_id for m in await store.load(subject)] == winners


async def test_subjects_of_one_shard_do_not_mix(store: EventStore, subject: str) -> None:
    other = subject + "x"
    await store.append(subject, 0, message(1, "mine"))
    await store.append(other, 0, message(1, "theirs"))

    assert [m.append_id for m in await store.load(subject)] == ["mine"]
    assert [m.append_id for m in await store.load(other)] == ["theirs"]


async def test_loading_starts_at_the_snapshot_that_the_last_message_names(
    store: EventStore, subject: str
) -> None:
    first = await store.append(subject, 0, message(1, body=b"old"))
    snapshot = await store.append(subject, first, message(2, body=b"all", kind="snapshot"))
    await store.append(subject, snapshot, message(3, body=b"new", snapshot=snapshot))

    assert [m.body for m in await store.load(subject)] == [b"all", b"new"]


async def test_a_last_message_that_is_a_snapshot_is_enough(store: EventStore, subject: str) -> None:
    first = await store.append(subject, 0, message(1))
    await store.append(subject, first, message(2, body=b"all", kind="snapshot"))

    assert [m.body for m in await store.load(subject)] == [b"all"]


async def test_a_named_snapshot_that_is_not_there_stops_the_aggregate(
    store: EventStore, subject: str
) -> None:
    first = await store.append(subject, 0, message(1))
    await store.append(subject, first, message(2, snapshot=first))

    with pytest.raises(CorruptEvent):
        await store.load(subject)


async def test_a_second_message_of_a_revision_stops_no_aggregate(
    store: EventStore, subject: str
) -> None:
    at = 0
    for revision in (1, 1, 2):
        at = await store.append(subject, at, message(revision))

    assert [m.revision for m in await store.load(subject)] == [1, 1, 2]


@pytest.mark.parametrize("revisions", [(2,), (1, 3), (1, 1, 3)])
async def test_a_break_in_the_revisions_stops_the_aggregate(
    store: EventStore, subject: str, revisions: tuple[int, ...]
) -> None:
    at = 0
    for revision in revisions:
        at = await store.append(subject, at, message(revision))

    with pytest.raises(CorruptEvent):
        await store.load(subject)


async def test_the_last_sequence_of_a_shard_is_that_of_its_newest_message(
    store: EventStore, subject: str
) -> None:
    shard = shard_of_subject(subject)
    before = await store.last_sequence(shard)
    sequence = await store.append(subject, 0, message(1))

    assert sequence > before
    assert await store.last_sequence(shard) == sequence


async def test_a_follower_sees_what_was_there_and_what_comes(
    store: EventStore, subject: str
) -> None:
    shard = shard_of_subject(subject)
    start = await store.last_sequence(shard)
    first = await store.append(subject, 0, message(1, "old"))
    seen: list[str] = []

    async with asyncio.timeout(DEADLINE_S):
        async for followed in store.follow(shard, start):
            seen.append(followed.append_id)
            if len(seen) == 1:
                await store.append(subject, first, message(2, "new"))
            else:
                break

    assert seen == ["old", "new"]


async def test_a_follower_reads_more_than_one_batch(store: EventStore, subject: str) -> None:
    shard = shard_of_subject(subject)
    start = at = await store.last_sequence(shard)
    at = 0
    for revision in range(1, 301):
        at = await store.append(subject, at, message(revision))
    revisions = []

    async with asyncio.timeout(DEADLINE_S):
        async for followed in store.follow(shard, start):
            revisions.append(followed.revision)
            if followed.sequence == at:
                break

    assert revisions == list(range(1, 301))


@pytest.mark.parametrize("count", [8, 9, 10, 11, 300])
async def test_long_and_short_subjects_are_loaded_alike(
    store: EventStore, subject: str, count: int
) -> None:
    at = 0
    for revision in range(1, count + 1):
        at = await store.append(subject, at, message(revision))
        await store.append(f"{subject}x{revision}", 0, message(1))

    loaded = await store.load(subject)

    assert [m.revision for m in loaded] == list(range(1, count + 1))
    later = await store.load(subject, loaded[2].sequence)
    assert [m.revision for m in later] == list(range(4, count + 1))


async def test_a_scan_gives_what_is_there_of_all_subjects_that_begin_alike(
    store: EventStore, subject: str
) -> None:
    inside, outside = f"{subject}.1.a", f"{subject}2.1.a"
    first = await store.append(inside, 0, message(1, "one"))
    await store.append(outside, 0, message(1, "other"))
    await store.append(f"{subject}.1.b", 0, message(1, "two"))
    last = await store.append(inside, first, message(2, "three"))
    shard = shard_of_subject(subject)

    async def scanned(pattern: str, after: int = 0) -> list[str]:
        return [m.append_id async for m in store.scan(shard, pattern, after)]

    assert await scanned(f"{subject}.1.>") == ["one", "two", "three"]
    assert await scanned(f"{subject}.1.>", first) == ["two", "three"]
    assert await scanned(f"{subject}.1.>", last) == []
    assert await scanned(inside) == ["one", "three"]
    assert await scanned(f"{subject}.2.>") == []


async def test_a_scan_does_not_ask_for_complete_subjects(store: EventStore, subject: str) -> None:
    at = await store.append(subject, 0, message(1))
    await store.append(subject, at, message(1))

    found = [m.revision async for m in store.scan(shard_of_subject(subject), subject)]

    assert found == [1, 1]


async def test_purging_deletes_below_a_sequence_and_on_one_subject_only(
    store: EventStore, subject: str
) -> None:
    other = subject + "x"
    first = await store.append(subject, 0, message(1))
    await store.append(other, 0, message(1, "theirs"))
    snapshot = await store.append(subject, first, message(2, kind="snapshot"))
    last = await store.append(subject, snapshot, message(3, snapshot=snapshot))

    await store.purge(subject, snapshot)
    await store.purge(subject, snapshot)

    found = [m.sequence async for m in store.scan(shard_of_subject(subject), subject)]
    assert found == [snapshot, last]
    assert [m.sequence for m in await store.load(subject)] == [snapshot, last]
    assert [m.append_id for m in await store.load(other)] == ["theirs"]


async def test_a_purge_of_a_pattern_deletes_what_begins_alike_below_a_sequence(
    store: EventStore, subject: str
) -> None:
    shard = shard_of_subject(subject)
    inside, other = [f"{subject}.a.{name}" for name in ("x", "y", "z")], f"{subject}.ab.x"
    sequences = [await store.append(one, 0, message(1)) for one in (*inside, other)]

    await store.purge(f"{subject}.a.>", sequences[2])

    found = [m.subject async for m in store.scan(shard, f"{subject}.>")]
    assert found == [inside[2], other]
    with pytest.raises(WrongExpectedSequence):
        await store.append(inside[0], sequences[0], message(2))
    assert await store.load(inside[1]) == []


async def test_a_subject_that_was_purged_goes_on_where_it_was(
    store: EventStore, subject: str
) -> None:
    first = await store.append(subject, 0, message(1))
    snapshot = await store.append(subject, first, message(2, kind="snapshot"))
    await store.purge(subject, snapshot)

    with pytest.raises(WrongExpectedSequence):
        await store.append(subject, 0, message(1, "b"))
    await store.append(subject, snapshot, message(3, snapshot=snapshot))


async def test_a_follower_that_lags_behind_a_purge_sees_the_snapshot_next(
    store: EventStore, subject: str
) -> None:
    shard = shard_of_subject(subject)
    at = first = await store.append(subject, 0, message(1))
    for revision in (2, 3):
        at = await store.append(subject, at, message(revision))
    snapshot = await store.append(subject, at, message(4, kind="snapshot"))
    await store.append(subject, snapshot, message(5, snapshot=snapshot))
    await store.purge(subject, snapshot)
    seen = []

    async with asyncio.timeout(DEADLINE_S):
        async for followed in store.follow(shard, first):
            seen.append((followed.revision, followed.kind))
            if followed.revision == 5:
                break

    assert seen == [(4, "snapshot"), (5, "events")]


async def test_a_snapshot_may_follow_a_gap(store: EventStore, subject: str) -> None:
    first = await store.append(subject, 0, message(1))
    second = await store.append(subject, first, message(2))
    snapshot = await store.append(subject, second, message(7, kind="snapshot"))

    assert [m.revision for m in await store.load(subject, first)] == [2, 7]
    assert [m.sequence for m in await store.load(subject)] == [snapshot]


async def test_a_child_is_stored_while_its_gate_is_where_it_was_read(
    store: EventStore, subject: str
) -> None:
    gate, child = subject + "gate", subject + "child"
    sequence = await store.append(child + "1", 0, message(1), gate=Gate(gate, 0))
    at = await store.append(gate, 0, message(1))
    again = await store.append(child + "2", 0, message(1), gate=Gate(gate, at))

    assert [m.sequence for m in await store.load(child + "1")] == [sequence]
    assert [m.sequence for m in await store.load(child + "2")] == [again]


@pytest.mark.parametrize("known", [0, 4711])
async def test_a_child_whose_gate_has_moved_is_refused_and_not_stored(
    store: EventStore, subject: str, known: int
) -> None:
    gate, child = subject + "gate", subject + "child"
    await store.append(gate, 0, message(1))

    with pytest.raises(WrongExpectedSequence) as refusal:
        await store.append(child, 0, message(1), gate=Gate(gate, known))

    assert refusal.value.fields["subject"] == gate
    assert await store.load(child) == []


async def test_of_a_child_and_a_closing_at_once_one_knows_of_the_other(
    store: EventStore, subject: str
) -> None:
    for attempt in range(20):
        gate, child = f"{subject}gate{attempt}", f"{subject}child{attempt}"
        refused: list[str] = []

        async def join(child: str, gate: str, refused: list[str]) -> None:
            try:
                await store.append(child, 0, message(1), gate=Gate(gate, 0))
            except WrongExpectedSequence:
                refused.append(child)

        async def close(child: str, gate: str, seen: list[bool]) -> None:
            await store.append(gate, 0, message(1))
            seen.append(bool(await store.load(child)))

        seen: list[bool] = []
        async with asyncio.TaskGroup() as group:
            group.create_task(join(child, gate, refused))
            group.create_task(close(child, gate, seen))

        assert seen == [not refused]


async def test_messages_that_are_appended_together_follow_one_another(
    store: EventStore, subject: str
) -> None:
    other, last = subject + "x", subject + "y"
    first = await store.append(subject, 0, message(1, "before"))

    sequences = await store.append_all(
        [
            Append(subject, first, message(2, "a", b"one")),
            Append(other, 0, message(1, "b", b"two")),
            Append(last, 0, message(1, "c", b"three")),
        ]
    )

    assert list(sequences) == [first + 1, first + 2, first + 3]
    for at, where, body in zip(
        sequences, (subject, other, last), (b"one", b"two", b"three"), strict=True
    ):
        newest = (await store.load(where))[-1]
        assert (newest.sequence, newest.body) == (at, body)


@pytest.mark.parametrize("moved", [0, 1])
async def test_one_subject_that_has_moved_on_refuses_all_that_is_appended_together(
    store: EventStore, subject: str, moved: int
) -> None:
    both = (subject, subject + "x")
    await store.append(both[moved], 0, message(1, "theirs"))

    with pytest.raises(WrongExpectedSequence) as refusal:
        await store.append_all([Append(where, 0, message(1, f"mine-{where}")) for where in both])

    assert refusal.value.fields["subject"] == both[moved]
    assert [m.append_id for m in await store.load(both[moved])] == ["theirs"]
    assert await store.load(both[1 - moved]) == []


async def test_what_expects_more_than_there_is_refuses_all_that_is_appended_together(
    store: EventStore, subject: str
) -> None:
    with pytest.raises(WrongExpectedSequence):
        await store.append_all(
            [
                Append(subject, 0, message(1, f"a-{subject}")),
                Append(subject + "x", 4711, message(1, "b")),
            ]
        )

    assert await store.load(subject) == []


async def test_one_message_alone_may_be_appended_like_several(
    store: EventStore, subject: str
) -> None:
    (sequence,) = await store.append_all([Append(subject, 0, message(1, "a"))])

    assert [m.sequence for m in await store.load(subject)] == [sequence]
    with pytest.raises(WrongExpectedSequence):
        await store.append_all([Append(subject, 0, message(1, "b"))])


async def test_of_racing_batches_with_a_subject_in_common_exactly_one_is_stored(
    store: EventStore, subject: str
) -> None:
    stored: list[str] = []

    async def attempt(name: str) -> None:
        own = f"{subject}{name}"
        try:
            await store.append_all(
                [Append(own, 0, message(1, f"o{own}")), Append(subject, 0, message(1, own))]
            )
            stored.append(own)
        except WrongExpectedSequence:
            assert await store.load(own) == []

    async with asyncio.TaskGroup() as group:
        for index in range(8):
            group.create_task(attempt(f"try{index}"))

    assert len(stored) == 1
    assert [m.append_id for m in await store.load(subject)] == stored
    assert len(await store.load(stored[0])) == 1


async def test_many_batches_at_once_are_all_stored(store: EventStore, subject: str) -> None:
    async def attempt(number: int) -> None:
        await store.append_all(
            [
                Append(f"{subject}a{number}", 0, message(1, f"{subject}-{number}")),
                Append(f"{subject}b{number}", 0, message(1)),
            ]
        )

    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(attempt(number))

    for number in range(100):
        first = (await store.load(f"{subject}a{number}"))[0].sequence
        assert (await store.load(f"{subject}b{number}"))[0].sequence == first + 1


async def test_a_follower_sees_what_was_appended_together_in_order(
    store: EventStore, subject: str
) -> None:
    shard = shard_of_subject(subject)
    start = await store.last_sequence(shard)
    names = ["x", "y", "z"]
    await store.append_all(
        [Append(f"{subject}{name}", 0, message(1, f"{subject}{name}")) for name in names]
    )
    seen: list[str] = []

    async with asyncio.timeout(DEADLINE_S):
        async for followed in store.follow(shard, start):
            seen.append(followed.subject)
            if len(seen) == len(names):
                break

    assert seen == [f"{subject}{name}" for name in names]
