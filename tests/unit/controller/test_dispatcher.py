"""The dispatcher of one kind of object, on buckets that conflict, fall silent, and lose watches."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import structlog
from structlog.testing import capture_logs

from anabranch.common.contracts.objects import SPU
from anabranch.common.errors import OutcomeUnknown, Overloaded, Unavailable
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.eventsourcing.ports import ObjectWrite, StoredObject
from anabranch.common.model.objects import Spu, SpuResolution, SpuSpec, SpuStatus
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import system_rng
from anabranch.common.workflow.containment import Containment
from anabranch.controller.cluster.objects import dispatcher as tested
from anabranch.controller.cluster.objects.dispatcher import Dispatcher, Outcome, Result, judged
from anabranch.controller.domain.cluster.objects.actions import (
    Apply,
    DeleteFinal,
    MarkDeleting,
    UpdateSpec,
    UpdateStatus,
)

DEADLINE_S = 5.0
ONLINE = SpuStatus(SpuResolution.ONLINE)
SpuDispatcher = Dispatcher[SpuSpec, SpuStatus]


def spu(number: int) -> Spu:
    return Spu(f"spu-{number}", SpuSpec(number), SpuStatus())


class Bucket(InMemoryObjectStore):
    """A bucket that can go wrong: `after_write` and `before_write` run around `write_all`."""

    def __init__(self) -> None:
        super().__init__()
        self.before_write: Callable[[], None] = lambda: None
        self.after_write: Callable[[], None] = lambda: None
        self.listing_fails = False
        self.watch_count = 0
        self.is_deaf = False
        """Whether watches bring no changes, until they end."""
        self.ends = asyncio.Event()
        self.breaks = False
        """Whether watches end with an error, instead of another list."""

    async def list(self) -> Sequence[StoredObject]:
        if self.listing_fails:
            raise Unavailable("the bucket does not answer")
        return await super().list()

    async def write_all(self, writes: Sequence[ObjectWrite]) -> Sequence[int | None]:
        self.before_write()
        revisions = await super().write_all(writes)
        self.after_write()
        return revisions

    async def watch(self) -> AsyncIterator[StoredObject | None]:
        self.watch_count += 1
        for present in await self.list():
            yield present
        yield None
        if self.is_deaf:
            await self.ends.wait()
            self.ends.clear()
        else:
            changes = super().watch()
            async for found in changes:
                if found is not None:
                    yield found
        if self.breaks:
            raise Unavailable("the watch was interrupted")
        for present in await self.list():
            yield present
        yield None
        raise AssertionError("a watch that has lost its place is not followed any further")


def unknown() -> None:
    raise OutcomeUnknown("no reply to the write in time")


def made(bucket: Bucket, reconcile_s: float = 60.0) -> SpuDispatcher:
    clock = SystemClock()
    return Dispatcher(
        SPU, bucket, clock, containment=Containment(clock, system_rng()), reconcile_s=reconcile_s
    )


@asynccontextmanager
async def serving(dispatcher: SpuDispatcher) -> AsyncIterator[None]:
    """The dispatcher mirrors its bucket within the block."""
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
        task = group.create_task(dispatcher.serve())
        yield
        task.cancel()


async def until(dispatcher: SpuDispatcher, condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, which a change of the mirror may make true."""
    changed = asyncio.Event()
    dispatcher.store.on_change(changed.set)
    while not condition():
        await changed.wait()
        changed.clear()


async def test_objects_that_are_applied_come_back_through_the_watch() -> None:
    dispatcher = made(Bucket())
    async with serving(dispatcher):
        [done] = await dispatcher.perform([Apply(SPU, spu(1))])
        await dispatcher.settled("spu-1", done.revision)

        assert done.result is Result.DONE
        assert dispatcher.store.objects == {"spu-1": replace(spu(1), revision=done.revision)}


async def test_every_action_changes_its_object_and_fails_alone() -> None:
    bucket = Bucket()
    dispatcher = made(bucket)
    created = await dispatcher.perform([Apply(SPU, spu(number)) for number in range(5)])
    at = [replace(spu(n), revision=found.revision) for n, found in enumerate(created)]

    results = await dispatcher.perform(
        [
            UpdateSpec(SPU, at[0], SpuSpec(0, rack="a")),
            UpdateStatus(SPU, at[1], ONLINE),
            MarkDeleting(SPU, at[2]),
            DeleteFinal(SPU, at[3]),
            UpdateStatus(SPU, replace(at[4], revision=77), ONLINE),
        ]
    )

    found = {one.key: SPU.from_stored(one) for one in await bucket.list()}
    assert [one.result for one in results] == [*[Result.DONE] * 4, Result.CONFLICT]
    assert found["spu-0"].spec.rack == "a"
    assert found["spu-1"].status == ONLINE
    assert found["spu-2"].deleting
    assert "spu-3" not in found
    assert found["spu-4"] == at[4]


async def test_an_object_that_exists_is_not_applied_again() -> None:
    dispatcher = made(Bucket())
    await dispatcher.perform([Apply(SPU, spu(1))])

    assert await dispatcher.perform([Apply(SPU, spu(1))]) == [Outcome(Result.CONFLICT)]


async def test_a_write_without_an_answer_that_was_performed_is_done() -> None:
    bucket = Bucket()
    bucket.after_write = unknown
    dispatcher = made(bucket)

    [outcome] = await dispatcher.perform([Apply(SPU, spu(1))])

    [stored] = await bucket.list()
    assert outcome == Outcome(Result.DONE, stored.revision)


async def test_a_write_without_an_answer_that_is_not_there_stays_unknown() -> None:
    bucket = Bucket()
    bucket.before_write = unknown
    dispatcher = made(bucket)

    assert await dispatcher.perform([Apply(SPU, spu(1))]) == [Outcome(Result.UNKNOWN)]


async def test_after_a_bucket_that_does_not_answer_nothing_more_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tested, "CHUNK_COUNT", 2)
    bucket = Bucket()
    bucket.before_write = unknown
    bucket.listing_fails = True

    outcomes = await made(bucket).perform([Apply(SPU, spu(number)) for number in range(3)])

    assert [one.result for one in outcomes] == [
        Result.UNKNOWN,
        Result.UNKNOWN,
        Result.NOT_TRIED,
    ]


def test_a_write_without_an_answer_is_judged_by_the_stored_objects() -> None:
    def judge(value: bytes, revision: int, *present: StoredObject) -> Outcome:
        return judged(ObjectWrite("k", value, revision), {one.key: one for one in present})

    assert judge(b"a", 0, StoredObject("k", b"a", 4)) == Outcome(Result.DONE, 4)
    assert judge(b"a", 0, StoredObject("k", b"b", 4)) == Outcome(Result.CONFLICT)
    assert judge(b"a", 0) == Outcome(Result.UNKNOWN)
    assert judge(b"a", 3, StoredObject("k", b"a", 3)) == Outcome(Result.UNKNOWN)
    assert judge(b"a", 3, StoredObject("k", b"a", 4)) == Outcome(Result.DONE, 4)
    assert judge(b"a", 3, StoredObject("k", b"b", 4)) == Outcome(Result.CONFLICT)
    assert judge(b"a", 3) == Outcome(Result.CONFLICT)
    assert judge(b"", 3, StoredObject("k", b"b", 3)) == Outcome(Result.UNKNOWN)
    assert judge(b"", 3, StoredObject("k", b"b", 4)) == Outcome(Result.CONFLICT)
    assert judge(b"", 3).result is Result.DONE


async def test_a_damaged_object_is_named_and_reported_once_and_the_others_work_on() -> None:
    bucket = Bucket()
    revision = await bucket.create("spu-1", b"{")
    dispatcher = made(bucket, reconcile_s=0.01)
    structlog.reset_defaults()
    with capture_logs() as logs:
        async with serving(dispatcher):
            await dispatcher.perform([Apply(SPU, spu(2))])
            await until(dispatcher, lambda: bucket.watch_count > 3)

    assert dispatcher.store.damaged == {"spu-1": revision}
    assert set(dispatcher.store.objects) == {"spu-2"}
    assert [one["key"] for one in logs if one["log_level"] == "error"] == ["spu-1"]


async def test_an_interrupted_watch_begins_again_and_shows_what_was_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tested, "RETRY_S", 0.0)
    bucket = Bucket()
    bucket.is_deaf = True
    dispatcher = made(bucket)
    [old] = await dispatcher.perform([Apply(SPU, spu(1))])
    async with serving(dispatcher):
        await until(dispatcher, lambda: dispatcher.store.listed)
        await bucket.delete("spu-1", old.revision)
        bucket.breaks = True
        bucket.ends.set()
        await until(dispatcher, lambda: not dispatcher.store.objects)


async def test_a_watch_that_lists_again_is_replaced_and_shows_what_was_deleted() -> None:
    bucket = Bucket()
    bucket.is_deaf = True
    dispatcher = made(bucket)
    [old] = await dispatcher.perform([Apply(SPU, spu(1))])
    async with serving(dispatcher):
        await until(dispatcher, lambda: dispatcher.store.listed)
        await bucket.delete("spu-1", old.revision)
        bucket.ends.set()
        await until(dispatcher, lambda: not dispatcher.store.objects)


async def test_a_deaf_watch_is_healed_by_the_next_reconciliation() -> None:
    bucket = Bucket()
    bucket.is_deaf = True
    dispatcher = made(bucket, reconcile_s=0.02)
    async with serving(dispatcher):
        await until(dispatcher, lambda: dispatcher.store.listed)
        await bucket.create("spu-1", SPU.to_bytes(spu(1)))
        await until(dispatcher, lambda: "spu-1" in dispatcher.store.objects)


async def test_a_reconciliation_can_be_asked_for() -> None:
    bucket = Bucket()
    bucket.is_deaf = True
    dispatcher = made(bucket)
    async with serving(dispatcher):
        await until(dispatcher, lambda: dispatcher.store.listed)
        revision = await bucket.create("spu-1", SPU.to_bytes(spu(1)))
        dispatcher.reconcile()
        await dispatcher.settled("spu-1", revision)
        assert "spu-1" in dispatcher.store.objects


async def test_a_deletion_settles_by_a_list_that_is_newer() -> None:
    bucket = Bucket()
    bucket.is_deaf = True
    dispatcher = made(bucket)
    [old] = await dispatcher.perform([Apply(SPU, spu(1))])
    async with serving(dispatcher):
        await until(dispatcher, lambda: dispatcher.store.listed)
        at = replace(spu(1), revision=old.revision)
        [gone] = await dispatcher.perform([DeleteFinal(SPU, at)])
        dispatcher.reconcile()
        await dispatcher.settled("spu-1", gone.revision)
        assert not dispatcher.store.objects


async def test_a_mirror_that_lags_for_too_long_is_said_in_fluvios_words() -> None:
    with pytest.raises(OutcomeUnknown, match=r"^store timed out: SPU spu-1 timer: 0\.01 secs"):
        await made(Bucket()).settled("spu-1", 3, 0.01)


async def test_more_actions_than_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "PENDING_COUNT_MAX", 1)
    bucket = Bucket()

    with pytest.raises(Overloaded):
        await made(bucket).perform([Apply(SPU, spu(1)), Apply(SPU, spu(2))])
    assert await bucket.list() == []


async def test_a_reconciliation_decodes_only_what_has_changed() -> None:
    bucket, clock, decoded = Bucket(), SystemClock(), list[SpuSpec]()

    def noted(spec: SpuSpec) -> SpuSpec:
        decoded.append(spec)
        return spec

    kind = replace(SPU, spec_of=noted)
    dispatcher = Dispatcher(kind, bucket, clock, containment=Containment(clock, system_rng()))
    revision = await bucket.create("spu-1", SPU.to_bytes(spu(1)))
    await bucket.create("spu-2", SPU.to_bytes(spu(2)))
    bucket.is_deaf = True
    async with serving(dispatcher):
        await until(dispatcher, lambda: dispatcher.store.listed)
        decoded.clear()
        await bucket.update("spu-1", SPU.to_bytes(spu(7)), revision)

        dispatcher.reconcile()
        await until(dispatcher, lambda: dispatcher.store.objects["spu-1"].spec == SpuSpec(7))

    assert decoded == [SpuSpec(7)]
