"""Of two writes at one revision of an object one succeeds, although a cluster stores both."""

import pytest

from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore
from anabranch.common.errors import ObjectExists, RevisionConflict
from anabranch.common.eventsourcing.ports import ObjectWrite, StoredObject
from anabranch.common.runtime.clock import SystemClock
from kit.careless_bucket import CarelessBucket

KEY = "store-1"


@pytest.fixture
def bucket() -> CarelessBucket:
    return CarelessBucket()


@pytest.fixture
def objects(bucket: CarelessBucket) -> JetStreamObjectStore:
    return JetStreamObjectStore(bucket.client, SystemClock(), "nodes")


async def test_a_session_that_was_ended_is_not_renewed_at_the_same_revision(
    objects: JetStreamObjectStore, bucket: CarelessBucket
) -> None:
    beat = await objects.create(KEY, b"beat 1")
    over = await objects.update(KEY, b"over", beat)
    with pytest.raises(RevisionConflict):
        await objects.update(KEY, b"beat 2", beat)

    assert len(bucket.messages) == 3, "the cluster has stored both"
    found = await objects.get(KEY)
    assert found == StoredObject(KEY, b"over", over + 1)
    assert await objects.update(KEY, b"beat 3", found.revision) == over + 2


async def test_a_session_that_was_renewed_is_not_ended_at_the_same_revision(
    objects: JetStreamObjectStore,
) -> None:
    judged = await objects.create(KEY, b"beat 1")
    await objects.update(KEY, b"beat 2", judged)
    with pytest.raises(RevisionConflict):
        await objects.update(KEY, b"over", judged)

    found = await objects.get(KEY)
    assert found is not None
    assert found.value == b"beat 2"


async def test_of_two_creations_one_succeeds(objects: JetStreamObjectStore) -> None:
    await objects.create(KEY, b"one")
    with pytest.raises(ObjectExists):
        await objects.create(KEY, b"two")
    with pytest.raises(RevisionConflict):
        await objects.update(KEY, b"two", 0)

    found = await objects.get(KEY)
    assert found is not None
    assert found.value == b"one"


async def test_a_deletion_that_came_too_late_deletes_nothing(objects: JetStreamObjectStore) -> None:
    first = await objects.create(KEY, b"one")
    await objects.update(KEY, b"two", first)
    with pytest.raises(RevisionConflict):
        await objects.delete(KEY, first)

    found = await objects.get(KEY)
    assert found is not None
    assert found.value == b"two"


async def test_a_store_on_one_server_reads_nothing_back(bucket: CarelessBucket) -> None:
    bucket._server_info = {}
    objects = JetStreamObjectStore(bucket.client, SystemClock(), "nodes")
    first = await objects.create(KEY, b"one")

    assert await objects.update(KEY, b"two", first) == 2
    assert await objects.update(KEY, b"three", first) == 3


async def test_of_several_writes_those_that_came_too_late_fail_alone(
    objects: JetStreamObjectStore, bucket: CarelessBucket
) -> None:
    first = {key: await objects.create(key, b"1") for key in "abcd"}
    await objects.update("b", b"2", first["b"])
    before = len(bucket.messages)

    revisions = await objects.write_all(
        [ObjectWrite(key, b"late", at) for key, at in first.items()]
    )

    assert len(bucket.messages) == before + 4, "the cluster has stored all of them"
    assert revisions == [before + 1, None, before + 3, before + 4]
    found = await objects.get("b")
    assert found is not None
    assert found.value == b"2"
