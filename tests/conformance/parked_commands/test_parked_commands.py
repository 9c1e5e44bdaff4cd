"""What every `ParkedCommands` does, in memory and on a real NATS server."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from nats.aio.client import Client

from anabranch.common.adapters.jetstream_events import create_streams
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts import subjects
from anabranch.common.runtime.nats_target import nats_target
from anabranch.controller.adapters.parked_commands import (
    JetStreamParkedCommands,
    create_parked_stream,
)
from anabranch.controller.domain.parking import ParkedCommand
from anabranch.controller.ports import ParkedCommands
from kit.fake_parked import FakeParkedCommands

COMMAND = ParkedCommand(
    command_id="c-1",
    bucket=3,
    subject="ana.cmd.3.create_scope.s",
    body=b'{"kind": "create_scope"}\xff\x00',
    headers={"traceparent": "00-ab-cd-01", "Other": "two words"},
    error="ZeroDivisionError('division by zero')\nand more: é",
    attempts=10,
    first_ms=1_700_000_000_000,
    last_ms=1_700_000_020_000,
)


@dataclass
class Subject:
    parked: ParkedCommands
    client: Client | None

    async def published(self) -> list[tuple[str, bytes, str]]:
        """What was published again: subject, body, trace parent."""
        if isinstance(self.parked, FakeParkedCommands):
            found = self.parked.published
            return [(one.subject, one.body, one.headers["traceparent"]) for one in found]
        assert self.client is not None
        js = self.client.jetstream()
        info = await js.stream_info(subjects.COMMAND_STREAM)
        raw = [
            await js.get_msg(subjects.COMMAND_STREAM, sequence)
            for sequence in range(info.state.first_seq, info.state.last_seq + 1)
        ]
        return [
            (one.subject or "", one.data or b"", (one.headers or {})["traceparent"]) for one in raw
        ]


@pytest.fixture(params=["memory", "jetstream"])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    if request.param == "memory":
        yield Subject(FakeParkedCommands(), None)
        return
    server = request.getfixturevalue("nats_server")
    client = await connect_nats(nats_target(server.url), "conformance")
    await create_streams(client)
    await create_parked_stream(client)
    await create_parked_stream(client)
    for stream in (subjects.COMMAND_STREAM, subjects.PARKED_STREAM):
        await client.jetstream().purge_stream(stream)
    yield Subject(JetStreamParkedCommands(client), client)
    await client.close()


async def test_nothing_is_parked_at_first(subject: Subject) -> None:
    assert await subject.parked.page(0, 10) == []


async def test_what_is_parked_is_listed_as_it_was(subject: Subject) -> None:
    await subject.parked.park(COMMAND)

    ((_, found),) = await subject.parked.page(0, 10)

    assert found == COMMAND


async def test_pages_go_on_after_the_last_number(subject: Subject) -> None:
    ids = [f"c-{index}" for index in range(5)]
    for bucket, command_id in enumerate(ids):
        await subject.parked.park(replace(COMMAND, bucket=bucket, command_id=command_id))

    first = await subject.parked.page(0, 2)
    second = await subject.parked.page(first[-1][0], 2)
    third = await subject.parked.page(second[-1][0], 2)

    assert [one.command_id for _, one in (*first, *second, *third)] == ids
    assert len(third) == 1


async def test_a_command_that_is_parked_again_is_there_once(subject: Subject) -> None:
    await subject.parked.park(COMMAND)
    await subject.parked.park(replace(COMMAND, attempts=20))

    assert [one.attempts for _, one in await subject.parked.page(0, 10)] == [20]


async def test_a_redriven_command_is_published_as_it_came_and_gone(subject: Subject) -> None:
    await subject.parked.park(COMMAND)
    await subject.parked.park(replace(COMMAND, command_id="c-2"))

    assert await subject.parked.redrive("c-1")

    expected = (COMMAND.subject, COMMAND.body, COMMAND.headers["traceparent"])
    assert await subject.published() == [expected]
    assert [one.command_id for _, one in await subject.parked.page(0, 10)] == ["c-2"]


async def test_redriving_twice_publishes_once(subject: Subject) -> None:
    await subject.parked.park(COMMAND)

    assert await subject.parked.redrive("c-1")
    assert not await subject.parked.redrive("c-1")

    assert len(await subject.published()) == 1


async def test_two_who_redrive_it_at_once_publish_it_once(subject: Subject) -> None:
    await subject.parked.park(COMMAND)

    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(subject.parked.redrive("c-1"))

    assert len(await subject.published()) == 1
    assert await subject.parked.page(0, 10) == []


async def test_a_command_that_was_parked_again_can_be_redriven_again(subject: Subject) -> None:
    for _ in range(2):
        await subject.parked.park(COMMAND)
        assert await subject.parked.redrive("c-1")

    assert len(await subject.published()) == 2


async def test_a_dropped_command_is_gone_and_never_published(subject: Subject) -> None:
    await subject.parked.park(COMMAND)

    assert await subject.parked.drop("c-1")
    assert not await subject.parked.drop("c-1")

    assert await subject.parked.page(0, 10) == []
    assert await subject.published() == []


async def test_of_an_unknown_id_nothing_is_parked(subject: Subject) -> None:
    await subject.parked.park(COMMAND)

    assert not await subject.parked.redrive("other")
    assert not await subject.parked.drop("other")
    assert len(await subject.parked.page(0, 10)) == 1
