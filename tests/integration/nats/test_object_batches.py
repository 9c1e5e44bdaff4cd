"""Many writes to a key-value bucket at once, while answers get lost or other writers come first."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js.api import StorageType, StreamConfig

from anabranch.common.adapters import jetstream_object_batches
from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore, create_bucket
from anabranch.common.errors import OutcomeUnknown
from anabranch.common.eventsourcing.ports import ObjectWrite, StoredObject
from anabranch.common.runtime.clock import SystemClock
from kit.infra import Infra, NatsServer
from kit.infra.hurting import unhurt

BUCKET = "objects"
NEW = [ObjectWrite(key, key.encode(), 0) for key in "abcdef"]


@pytest.fixture
def nats_server(infra: Infra) -> Iterator[NatsServer]:
    """These tests decide themselves which messages and answers get lost."""
    with unhurt(infra).nats() as server:
        yield server


@pytest.fixture
async def store(client: Client) -> JetStreamObjectStore:
    await create_bucket(client, BUCKET)
    return JetStreamObjectStore(client, SystemClock(), BUCKET)


async def values(store: JetStreamObjectStore) -> dict[str, bytes]:
    return {one.key: one.value for one in await store.list()}


async def test_several_writes_are_one_batch(store: JetStreamObjectStore, client: Client) -> None:
    assert await store.write_all(NEW) == [1, 2, 3, 4, 5, 6]
    stored = await client.jetstream().get_last_msg(f"KV_{BUCKET}", f"$KV.{BUCKET}.f")
    assert (stored.headers or {})["Nats-Batch-Sequence"] == "6"


async def test_a_conflict_and_a_delete_marker_hinder_no_other_write(
    store: JetStreamObjectStore, client: Client
) -> None:
    deleted = await store.create("a", b"old")
    await store.delete("a", deleted)
    await store.create("b", b"kept")

    revisions = await store.write_all(NEW)

    assert [revision is None for revision in revisions] == [False, True, *[False] * 4]
    assert await values(store) == {**{one.key: one.value for one in NEW}, "b": b"kept"}
    stored = await client.jetstream().get_last_msg(f"KV_{BUCKET}", f"$KV.{BUCKET}.a")
    assert "Nats-Batch-Id" in (stored.headers or {}), "the rest is a batch again"


async def test_a_bucket_of_an_older_release_takes_single_writes_until_it_is_changed(
    client: Client,
) -> None:
    older = StreamConfig(name="KV_old", subjects=["$KV.old.>"], storage=StorageType.FILE)
    await client.jetstream().add_stream(older)
    store = JetStreamObjectStore(client, SystemClock(), "old")

    assert sorted(revision or 0 for revision in await store.write_all(NEW)) == [1, 2, 3, 4, 5, 6]
    await create_bucket(client, "old")

    info = await client.request("$JS.API.STREAM.INFO.KV_old", timeout=5)
    assert json.loads(info.data)["config"]["allow_atomic"]


async def test_a_batch_whose_answer_is_lost_is_found(
    store: JetStreamObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = store._batches._js.publish

    async def without_answer(*arguments: Any, **options: Any) -> None:
        await whole(*arguments, **options)
        raise TimeoutError

    monkeypatch.setattr(store._batches._js, "publish", without_answer)

    assert await store.write_all(NEW) == [1, 2, 3, 4, 5, 6]
    assert await store.get("c") == StoredObject("c", b"c", 3)


async def test_a_batch_that_another_writer_has_overtaken_is_not_taken_for_stored(
    store: JetStreamObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create("d", b"other")
    whole = store._batches._js.publish

    async def lost_once(*_arguments: Any, **_options: Any) -> None:
        monkeypatch.setattr(store._batches._js, "publish", whole)
        raise TimeoutError

    monkeypatch.setattr(store._batches._js, "publish", lost_once)

    revisions = await store.write_all(NEW)

    assert [revision is None for revision in revisions] == [*[False] * 3, True, False, False]
    assert await values(store) == {**{one.key: one.value for one in NEW}, "d": b"other"}


async def test_a_batch_that_may_still_arrive_leaves_its_outcome_unknown(
    store: JetStreamObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream_object_batches, "DEADLINE_S", 0.2)

    async def lost(*_arguments: Any, **_options: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(store._batches._js, "publish", lost)

    with pytest.raises(OutcomeUnknown):
        await store.write_all(NEW)


async def test_two_writers_of_the_same_objects_share_them(
    store: JetStreamObjectStore, client: Client
) -> None:
    other = JetStreamObjectStore(client, SystemClock(), BUCKET)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(one.write_all(list(writes)))
            for one, writes in ((store, NEW), (other, reversed(NEW)))
        ]
    mine, theirs = (task.result() for task in tasks)

    won = [m is not None for m in mine], [t is not None for t in reversed(theirs)]
    assert [one != other for one, other in zip(*won, strict=True)] == [True] * len(NEW)
