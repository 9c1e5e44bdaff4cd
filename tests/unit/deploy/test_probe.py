"""The probe of a container says what the service says."""

import asyncio
from pathlib import Path

from anabranch.common.runtime.health import HealthServer, PartHealth
from anabranch.common.runtime.port_file import write_port_file
from kit.scripts import deploy_script

probe = deploy_script("probe")


async def asked(parts: dict[str, PartHealth], port_file: Path) -> str | None:
    async with HealthServer("127.0.0.1:0", lambda: parts, lambda: b"") as server:
        write_port_file(port_file, server.port)
        answer: str | None = await asyncio.to_thread(probe.why_not_ready, port_file)
        return answer


async def test_a_ready_service_passes(tmp_path: Path) -> None:
    assert await asked({"log": PartHealth(True)}, tmp_path / "port") is None


async def test_a_service_that_is_not_ready_fails_with_its_reason(tmp_path: Path) -> None:
    answer = await asked({"log": PartHealth(False, "disk is full")}, tmp_path / "port")

    assert answer is not None
    assert answer.startswith("status 503")
    assert "disk is full" in answer


async def test_a_service_that_is_gone_or_has_not_started_fails(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    assert "no answer" in str(probe.why_not_ready(port_file))

    await asked({}, port_file)

    assert "no answer" in str(probe.why_not_ready(port_file))
