"""The health responder: what it answers, and that it cannot be hung or flooded."""

import asyncio
import errno
import json
from pathlib import Path

import pytest

from anabranch.common.errors import InvalidSetting, NoRoom, PortInUse
from anabranch.common.runtime.health import (
    REQUEST_SIZE_MAX,
    HealthServer,
    PartHealth,
    answer,
    is_ready,
)

READY = {"journal": PartHealth(True), "nats": PartHealth(True)}
HALF_READY = {"journal": PartHealth(True), "nats": PartHealth(False, "no answer")}


def no_metrics() -> bytes:
    return b""


async def ask(port: int, request: bytes) -> bytes:
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        reply = await reader.read()
        writer.close()
        return reply


def test_a_service_without_parts_is_not_ready() -> None:
    assert not is_ready({})


def test_a_service_is_ready_when_every_part_is() -> None:
    assert is_ready(READY)
    assert not is_ready(HALF_READY)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", 200),
        (b"GET /readyz?verbose HTTP/1.0\r\n\r\n", 503),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"POST /readyz HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /readyz HTTP/2\r\n\r\n", 400),
    ],
)
def test_each_request_gets_its_status(head: bytes, status: int) -> None:
    assert answer(head, HALF_READY, no_metrics).status == status


def test_readiness_names_the_part_that_is_not_ready_and_why() -> None:
    body = answer(b"GET /readyz HTTP/1.1\r\n\r\n", HALF_READY, no_metrics).body

    assert body == {
        "ready": False,
        "parts": {
            "journal": {"ready": True, "reason": ""},
            "nats": {"ready": False, "reason": "no answer"},
        },
    }


async def test_a_request_over_tcp_gets_a_complete_http_reply() -> None:
    async with HealthServer("127.0.0.1:0", lambda: READY, no_metrics) as server:
        reply = await ask(server.port, b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n")

    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert f"content-length: {len(body)}".encode() in head
    assert json.loads(body)["ready"] is True


async def test_metrics_are_served_as_prometheus_reads_them() -> None:
    async with HealthServer("127.0.0.1:0", lambda: READY, lambda: b"up 1\n") as server:
        reply = await ask(server.port, b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")

    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"content-type: text/plain; version=0.0.4" in head
    assert body == b"up 1\n"


async def test_a_request_larger_than_the_limit_is_refused() -> None:
    async with HealthServer("127.0.0.1:0", lambda: READY, no_metrics) as server:
        reply = await ask(server.port, b"GET /" + b"x" * (2 * REQUEST_SIZE_MAX))

    assert reply.startswith(b"HTTP/1.1 400") or reply == b""


async def test_the_port_really_bound_is_written_to_the_port_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_PORT_FILE", str(tmp_path / "port"))

    async with HealthServer("127.0.0.1:0", lambda: READY, no_metrics) as server:
        assert (tmp_path / "port").read_text() == f"{server.port}\n"


async def test_a_port_file_that_cannot_be_written_is_a_named_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_PORT_FILE", str(tmp_path / "absent" / "port"))

    with pytest.raises(InvalidSetting, match="port file"):
        async with HealthServer("127.0.0.1:0", lambda: READY, no_metrics):
            raise AssertionError("must not start")


async def test_a_port_file_without_room_on_the_disk_is_no_wrong_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path, _text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("ANABRANCH_PORT_FILE", str(tmp_path / "port"))
    monkeypatch.setattr(Path, "write_text", refuse)

    with pytest.raises(NoRoom):
        async with HealthServer("127.0.0.1:0", lambda: READY, no_metrics):
            raise AssertionError("must not start")


async def test_a_taken_port_is_a_named_error() -> None:
    async with HealthServer("127.0.0.1:0", lambda: READY, no_metrics) as server:
        with pytest.raises(PortInUse):
            async with HealthServer(f"127.0.0.1:{server.port}", lambda: READY, no_metrics):
                raise AssertionError("must not start")
