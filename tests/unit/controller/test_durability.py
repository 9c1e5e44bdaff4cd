"""Whether the server's own words say that it keeps what it acknowledges."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import pytest

from anabranch.common.errors import MetadataNotSynced
from anabranch.common.runtime.clock import SystemClock
from anabranch.controller.adapters.nats_monitor import jetstream_status
from anabranch.controller.domain.durability import check_synced

STATUS = {"server_id": "N1", "streams": 3, "config": {"sync_always": True, "sync_interval": 1}}
GOOD = b'HTTP/1.0 200 OK\r\n\r\n{"server_id": "N1"}'


def test_a_server_that_syncs_every_write_is_accepted() -> None:
    check_synced(STATUS, "N1")


@pytest.mark.parametrize(
    ("change", "connected_to", "remedy"),
    [
        ({"config": {"sync_interval": 120_000_000_000}}, "N1", "sync_interval: always"),
        ({"config": {"sync_always": False}}, "N1", "sync_interval: always"),
        ({"disabled": True}, "N1", "sync_interval: always"),
        ({}, "N2", "NATS_MONITOR_URL"),
        ({"config": None}, "N1", "NATS_MONITOR_URL"),
        ({"server_id": 7}, "N1", "NATS_MONITOR_URL"),
    ],
)
def test_any_other_server_is_refused_with_a_remedy(
    change: Mapping[str, object], connected_to: str, remedy: str
) -> None:
    with pytest.raises(MetadataNotSynced) as refusal:
        check_synced({**STATUS, **change}, connected_to)

    assert remedy in refusal.value.remedy
    assert "ANABRANCH_CONTROLLER_NATS_SYNC=unchecked" in refusal.value.remedy


@asynccontextmanager
async def answering(next_answer: Callable[[], bytes]) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /jsz?config=1 HTTP/1.0\r\n")
        writer.write(next_answer())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class HurriedClock(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await super().sleep(0)


async def test_a_server_that_only_starts_is_asked_again() -> None:
    answers = iter([b"", b"HTTP/1.0 503 Not yet\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n{", GOOD])

    async with answering(lambda: next(answers)) as url:
        assert await jetstream_status(url, HurriedClock()) == {"server_id": "N1"}


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 404 No\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n[]"])
async def test_a_port_that_tells_nothing_is_refused_by_name(answer: bytes) -> None:
    async with answering(lambda: answer) as url:
        with pytest.raises(MetadataNotSynced, match="does not answer"):
            await jetstream_status(url, HurriedClock(), budget_s=0.0)


async def test_a_port_where_nobody_listens_is_refused_by_name() -> None:
    with pytest.raises(MetadataNotSynced, match="does not answer"):
        await jetstream_status("http://127.0.0.1:1", HurriedClock(), budget_s=0.0)
