"""Parts that are kept down for a while."""

import asyncio
import sys
from pathlib import Path

from anabranch.cli.up.held import HeldParts
from anabranch.cli.up.parts import HealthProbe, PartSpec

DEADLINE_S = 20.0


def part(tmp_path: Path, *command: str) -> PartSpec:
    probe = HealthProbe(tmp_path / "port")
    return PartSpec("store", command, {}, probe, tmp_path / "log", needs=("nats",))


async def start(spec: PartSpec) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(*spec.command, stdout=asyncio.subprocess.PIPE)


async def test_a_held_part_becomes_its_program_under_the_same_process_id_when_it_is_released(
    tmp_path: Path,
) -> None:
    held = HeldParts(tmp_path / "holds")
    tell_pid = (sys.executable, "-c", "import os; print(os.getpid(), 'a b')")
    [spec] = held.holdable([part(tmp_path, *tell_pid)])
    held.hold("store")
    assert held.is_held("store")
    process = await start(spec)
    held.release("store")
    async with asyncio.timeout(DEADLINE_S):
        told, _ = await process.communicate()
    assert told.decode() == f"{process.pid} a b\n"


async def test_a_part_that_is_not_held_starts_at_once_and_waits_for_no_other(
    tmp_path: Path,
) -> None:
    held = HeldParts(tmp_path / "holds")
    held.release("store")
    [spec] = held.holdable([part(tmp_path, "/bin/echo", "started")])
    assert spec.needs == ()
    async with asyncio.timeout(DEADLINE_S):
        told, _ = await (await start(spec)).communicate()
    assert told == b"started\n"
