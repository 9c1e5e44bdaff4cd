"""The driver of the composed cluster, without an engine."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kit.compose import HEALTHY_SECONDS_MAX, IMAGES, Compose, copy_strictly


class FakeEngine:
    """Answers what `Compose` asks: every container has the same health."""

    def __init__(self, health: str = "healthy", images: Sequence[str] = ()) -> None:
        self.health = health
        self.images = images
        self.asked: list[Sequence[str]] = []

    def execute(self, command: Sequence[str], where: Path, stdin: str | None) -> str:
        self.asked.append(command)
        match command[1:3]:
            case ["ps", _]:
                return "container\n"
            case ["inspect", _]:
                return json.dumps([{"State": {"Health": {"Status": self.health}}}])
            case ["image", "ls"]:
                return "\n".join(self.images)
        return "the log of a service"


class CountingClock:
    """Sleeps take no time but their own."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.passed_s

    async def sleep(self, seconds: float) -> None:
        self.passed_s += seconds


async def test_a_cluster_that_is_ill_is_waited_for_once() -> None:
    engine, clock = FakeEngine("starting"), CountingClock()
    cluster = Compose(["docker", "compose"], Path(), execute=engine.execute, clock=clock)
    with pytest.raises(AssertionError, match="nats is ill:\nthe log of a service"):
        await cluster.healthy()
    assert clock.passed_s == HEALTHY_SECONDS_MAX
    asked = len(engine.asked)

    with pytest.raises(AssertionError, match="nats is ill:\nthe log of a service"):
        await cluster.healthy()

    assert clock.passed_s == HEALTHY_SECONDS_MAX
    assert len(engine.asked) == asked


async def test_a_healthy_cluster_is_not_waited_for() -> None:
    clock = CountingClock()
    engine = FakeEngine()

    await Compose(["docker-compose"], Path(), execute=engine.execute, clock=clock).healthy()

    assert clock.passed_s == 0


def test_only_the_images_that_were_built_for_the_test_are_deleted() -> None:
    engine = FakeEngine(images=["redis:8-alpine", IMAGES[0], "anabranch-controller:0.1.0"])
    cluster = Compose(["docker-compose"], Path(), execute=engine.execute)

    cluster.remove()

    deleted = [command for command in engine.asked if command[1:3] == ["image", "rm"]]
    assert deleted == [["docker", "image", "rm", IMAGES[0]]]


def test_the_copy_has_the_modes_of_a_strict_umask_but_for_mounted_configurations(
    tmp_path: Path,
) -> None:
    root, copy = tmp_path / "root", tmp_path / "copy"
    copy.mkdir()
    for name in ("deploy/nats.conf", "deploy/redis.conf", "deploy/probe.py", "libs/x/a.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "services").mkdir()
    for name in ("docker-compose.yml", "requirements.lock", ".dockerignore"):
        (root / name).write_text(name)

    copy_strictly(root, copy)

    modes = {
        path.relative_to(copy).as_posix(): path.stat().st_mode & 0o777
        for path in copy.rglob("*")
        if path.is_file()
    }
    assert modes == {
        "deploy/nats.conf": 0o644,
        "deploy/redis.conf": 0o644,
        "deploy/probe.py": 0o640,
        "libs/x/a.py": 0o640,
        "docker-compose.yml": 0o640,
        "requirements.lock": 0o640,
        ".dockerignore": 0o640,
    }
