"""An object store that misbehaves: what is known after each answer, and what a caller is told."""

from collections.abc import AsyncIterator

import pytest

from anabranch.common.adapters.chunk_bucket import bucket_storage
from anabranch.common.adapters.chunk_objects import PUT_ATTEMPTS_MAX, ObjectChunkStorage
from anabranch.common.errors import (
    ObjectExists,
    ObjectNotFound,
    OutcomeUnknown,
    TierTwoNotHere,
    Unauthorized,
    Unavailable,
)
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.deadline import DeadlineChunkStorage
from anabranch.common.storage.probe import RACERS, probe_create_only
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from kit.scripted_s3 import Fault, ScriptedS3, scripted_s3
from kit.tier2_catalog import catalog_of
from kit.tier2_model import expected_contents, read_back, small_container

NAME = "c3/0000000007-0000000001"
KEY = "a-key-that-nobody-may-read"


class HastyClock(SystemClock):
    """Sleeps no time, and remembers for how long it should have."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedS3]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    async with scripted_s3() as serving:
        yield serving


def _storage(server: ScriptedS3, clock: HastyClock | None = None) -> ObjectChunkStorage:
    return bucket_storage(server.location, server.options, clock or HastyClock(), limit_s=10.0)


async def test_a_put_whose_answer_was_lost_is_unknown_and_never_said_to_be_anothers(
    server: ScriptedS3,
) -> None:
    server.faults = [Fault.PERFORMED_AND_LOST]
    with pytest.raises(OutcomeUnknown):
        await _storage(server).put_new(NAME, [b"mine"])
    assert server.objects == {NAME: b"mine"}
    assert server.requests == ["PUT", "PUT"]


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.BUSY, Fault.STILL_BEING_WRITTEN])
async def test_a_put_that_was_not_performed_is_sent_again_after_a_pause(
    server: ScriptedS3, fault: Fault
) -> None:
    server.faults, clock = [fault, fault], HastyClock()
    await _storage(server, clock).put_new(NAME, [b"my", b"own"])
    assert server.objects == {NAME: b"myown"}
    first_s, second_s = clock.slept
    assert 0.15 <= first_s <= 0.3 <= second_s <= 0.6


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.BUSY, Fault.STILL_BEING_WRITTEN])
async def test_a_put_ends_after_a_few_attempts_with_its_outcome_unknown(
    server: ScriptedS3, fault: Fault
) -> None:
    server.faults = [fault] * PUT_ATTEMPTS_MAX
    with pytest.raises(OutcomeUnknown):
        await _storage(server).put_new(NAME, [b"x"])
    assert server.requests == ["PUT"] * PUT_ATTEMPTS_MAX


async def test_a_name_that_another_writer_takes_meanwhile_exists(server: ScriptedS3) -> None:
    server.objects[NAME] = b"another's"
    with pytest.raises(ObjectExists):
        await _storage(server).put_new(NAME, [b"mine"])
    assert server.requests == ["PUT"]


async def test_who_is_told_to_come_again_and_comes_too_late_has_created_nothing(
    server: ScriptedS3,
) -> None:
    server.faults, server.objects = [Fault.STILL_BEING_WRITTEN], {NAME: b"another's"}
    with pytest.raises(ObjectExists):
        await _storage(server).put_new(NAME, [b"mine"])
    assert server.requests == ["PUT", "PUT"]


async def test_a_race_in_which_some_are_told_to_come_again_has_one_winner(
    server: ScriptedS3,
) -> None:
    server.faults = [Fault.STILL_BEING_WRITTEN] * 5
    await probe_create_only(_storage(server), SeededIds(1))
    assert server.requests.count("PUT") == RACERS + 5


async def test_a_put_that_is_never_answered_ends_at_the_deadline(server: ScriptedS3) -> None:
    server.faults = [Fault.PERFORMED_AND_SILENT]
    storage = DeadlineChunkStorage(_storage(server), 0.05)
    with pytest.raises(OutcomeUnknown):
        await storage.put_new(NAME, [b"mine"])
    assert await storage.get(NAME) == b"mine"


async def test_reads_are_asked_again_by_themselves(server: ScriptedS3) -> None:
    server.objects[NAME] = b"abc"
    server.faults = [Fault.BUSY]
    assert await _storage(server).get_range(NAME, 1, 2) == b"bc"
    assert server.requests == ["GET", "GET"]


async def test_a_list_holds_the_names_of_all_pages(server: ScriptedS3) -> None:
    names = [f"c3/m/{number:010}" for number in range(7)]
    server.objects = dict.fromkeys(names, b"x")
    server.page_size = 2
    assert await _storage(server).list("c3/m/") == names
    assert server.requests == ["GET"] * 4


async def test_refused_credentials_are_named_at_the_start_and_waited_for_later(
    server: ScriptedS3,
) -> None:
    storage = _storage(server)
    server.faults = [Fault.FORBIDDEN] * 4
    with pytest.raises(Unauthorized) as refused:
        await storage.check()
    for call in (storage.put_new(NAME, [b"x"]), storage.get(NAME), storage.list("c3/")):
        with pytest.raises(Unavailable, match="credentials"):
            await call
    assert KEY not in f"{refused.value.to_body()} {refused.value.__cause__}"
    assert "list-type" not in str(refused.value), "options of a URL may be a signature"
    assert server.requests == ["GET", "PUT", "GET", "GET"]


async def test_a_bucket_that_is_not_there_is_no_missing_object(server: ScriptedS3) -> None:
    storage = _storage(server)
    server.faults = [Fault.NO_BUCKET] * 5
    for call in (
        storage.check(),
        storage.put_new(NAME, [b"x"]),
        storage.get(NAME),
        storage.list("c3/"),
        storage.delete(NAME),
    ):
        with pytest.raises(TierTwoNotHere):
            await call
    with pytest.raises(ObjectNotFound):
        await storage.get(NAME)


async def test_nobody_listening_is_unavailable(server: ScriptedS3) -> None:
    options = server.options.model_copy(update={"endpoint": "http://127.0.0.1:1"})
    storage = bucket_storage(server.location, options, HastyClock(), limit_s=0.3)
    with pytest.raises(Unavailable):
        await storage.check()
    with pytest.raises(OutcomeUnknown):
        await storage.put_new(NAME, [b"x"])


@pytest.mark.parametrize("fault", [Fault.PERFORMED_AND_LOST, Fault.LOST, Fault.BUSY])
async def test_opening_and_flushing_survive_the_loss_of_each_answer_to_a_put(
    server: ScriptedS3, fault: Fault
) -> None:
    model = small_container()
    open_tier_two = OpenContainerTierTwo(_storage(server), SeededIds(1), SystemClock())
    server.faults = [None, fault]  # the list, then the fence manifest
    tier_two = await open_tier_two(3, 1, "log", new_log=True)
    server.faults = [fault, None, None, fault]  # chunk, perhaps under a second name; manifest
    await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch)
    assert not server.faults
    assert [name for name in sorted(server.objects) if "/m/" in name] == [
        "c3/m/0000000001",
        "c3/m/0000000002",
    ]
    assert await read_back(await open_tier_two(3, 2, "log")) == expected_contents(model)
