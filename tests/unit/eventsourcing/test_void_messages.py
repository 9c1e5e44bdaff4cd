"""A cluster that stores a message although its subject has moved on does no harm.

The simulated server stores and acknowledges each message whose condition held before the last
message of its subject, as servers that check conditions only when they propose a message might.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from anabranch.common.adapters.jetstream_events import JetStreamEventStore
from anabranch.common.contracts import subjects
from anabranch.common.errors import CorruptEvent, MembershipEnded, WrongExpectedSequence
from anabranch.common.eventsourcing.backup import readable_part
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.ports import Append, NewMessage
from anabranch.common.model.names import ScopeName
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from kit.rng import seeded
from kit.simbus import SimClient, SimServer, sim_event_store, simulated_readers
from kit.simlink import Link

SUBJECT = "ana.evt.1.scope.a"
OTHER = "ana.evt.1.scope.b"
SCOPE = ScopeName("a.b")
GATE = subjects.scope_gate(SCOPE, 2)
MEMBER = subjects.scope_member(SCOPE, 2, "x", 1)


@pytest.fixture
def server() -> SimServer:
    server = SimServer(seeded(1), Counter())
    server.is_clustered, server.careless = True, 1.0
    return server


@pytest.fixture
def store(server: SimServer) -> Iterator[JetStreamEventStore]:
    with simulated_readers():
        client = SimClient(server, Link(seeded(2), Counter()), seeded(3))
        yield sim_event_store(client, SystemClock())


def message(revision: int, append_id: str, kind: str = "events", snapshot: int = 0) -> NewMessage:
    return NewMessage(revision, append_id, kind, 1, snapshot, b"[]")


async def test_of_two_appends_at_one_place_the_first_one_counts(
    store: JetStreamEventStore, server: SimServer
) -> None:
    first = await store.append(SUBJECT, 0, message(1, "a"))
    with pytest.raises(WrongExpectedSequence) as refused:
        await store.append(SUBJECT, 0, message(1, "b"))

    assert len(server.logs[1]) == 2, "the server has stored both"
    assert refused.value.fields["actual"] == first


async def test_an_append_behind_a_void_message_counts(store: JetStreamEventStore) -> None:
    first = await store.append(SUBJECT, 0, message(1, "a"))
    with pytest.raises(WrongExpectedSequence):
        await store.append(SUBJECT, 0, message(1, "b"))

    assert await store.append(SUBJECT, first, message(2, "late")) == 3  # it overlooks the void one
    assert await store.append(SUBJECT, 3, message(3, "next")) == 4
    loaded = await store.load(SUBJECT)
    assert [(one.revision, one.append_id) for one in loaded] == [
        (1, "a"), (1, "b"), (2, "late"), (3, "next"),
    ]  # fmt: skip


async def test_a_load_does_not_begin_at_a_void_snapshot(store: JetStreamEventStore) -> None:
    first = await store.append(SUBJECT, 0, message(1, "a"))
    await store.append(SUBJECT, first, message(2, "b"))
    with pytest.raises(WrongExpectedSequence):
        await store.append(SUBJECT, first, message(2, "s", kind="snapshot"))

    assert [one.append_id for one in await store.load(SUBJECT)] == ["a", "b", "s"]


async def test_a_load_begins_at_a_snapshot_that_counts(store: JetStreamEventStore) -> None:
    first = await store.append(SUBJECT, 0, message(1, "a"))
    await store.append(SUBJECT, first, message(2, "s", kind="snapshot"))

    assert [one.append_id for one in await store.load(SUBJECT)] == ["s"]


async def test_a_history_chunk_is_the_first_one(store: JetStreamEventStore) -> None:
    chunks = HistoryChunks(store, SeededIds(1))
    await chunks.put("ana.evt.1.history.a", b"one")
    with pytest.raises(CorruptEvent, match="holds different bytes"):
        await chunks.put("ana.evt.1.history.a", b"two")

    assert await chunks.read("ana.evt.1.history.a") == b"one"


async def test_a_gate_that_closes_twice_at_one_place_is_closed_once(
    store: JetStreamEventStore,
) -> None:
    gates = Gates(store, SeededIds(1))
    await gates.close(GATE, 5)
    closing = await store.load(GATE)
    late = message(1, "late")
    with pytest.raises(WrongExpectedSequence):
        await store.append(
            GATE, 0, NewMessage(1, "late", late.kind, 1, 0, closing[0].body.replace(b"5", b"9"))
        )

    state = await gates.read(GATE)
    assert (state.sequence, state.revision, state.parent_revision) == (2, 1, 5)


async def test_a_join_that_is_stored_behind_the_closing_of_its_gate_is_ended(
    store: JetStreamEventStore, server: SimServer
) -> None:
    gates = Gates(store, SeededIds(1))
    real = store.append

    async def closing_first(subject: str, *given: object, **named: object) -> int:
        if subject == MEMBER and named.get("gate") is not None:
            store.append = real  # type: ignore[method-assign]
            await gates.close(GATE, 5)
        return await real(subject, *given, **named)  # type: ignore[arg-type]

    store.append = closing_first  # type: ignore[method-assign]
    with pytest.raises(MembershipEnded):
        await gates.join(GATE, MEMBER)

    places = [one.subject for one in server.logs[subjects.shard_of_subject(MEMBER)] if one]
    assert places == [GATE, MEMBER, MEMBER], "the join is behind the closing, and ended"
    assert await gates.members(subjects.scope_members(SCOPE, 2)) == []


async def test_giving_up_ends_a_join_that_was_stored_behind_the_closing(
    store: JetStreamEventStore,
) -> None:
    gates = Gates(store, SeededIds(1))
    await gates.join(GATE, MEMBER)  # counts: the gate is open
    assert (await gates.forgo(GATE, MEMBER)).is_member
    await gates.close(GATE, 5)
    other = subjects.scope_member(SCOPE, 2, "y", 1)
    [joined] = [one async for one in store.scan(subjects.shard_of_subject(MEMBER), MEMBER)]
    await store.append(other, 0, NewMessage(1, "late", "events", 1, 0, joined.body))

    assert (await gates.forgo(GATE, MEMBER)).is_member
    assert not (await gates.forgo(GATE, other)).is_member


async def test_a_batch_of_which_one_message_is_void_is_reported(
    store: JetStreamEventStore, server: SimServer
) -> None:
    await store.append(SUBJECT, 0, message(1, "a"))
    both = [Append(SUBJECT, 0, message(1, "batch")), Append(OTHER, 0, message(1, "batch"))]
    with pytest.raises(WrongExpectedSequence):
        await store.append_all(both)

    server.careless_batches = True
    with pytest.raises(CorruptEvent, match="a batch although"):
        await store.append_all(both)


async def test_a_batch_that_counts_is_stored(store: JetStreamEventStore) -> None:
    both = [Append(SUBJECT, 0, message(1, "batch")), Append(OTHER, 0, message(1, "batch"))]

    assert list(await store.append_all(both)) == [1, 2]


async def test_a_backup_leaves_void_messages_out(store: JetStreamEventStore) -> None:
    await store.append(SUBJECT, 0, message(1, "a"))
    with pytest.raises(WrongExpectedSequence):
        await store.append(SUBJECT, 0, message(1, "b"))

    assert [one.append_id for one in readable_part(await store.load(SUBJECT))] == ["a"]
