"""The cluster of docker-compose.yml as a project of its own, driven through the compose program.

Its name keeps it apart from a cluster that somebody runs from the same file; the gateway gets any
free port. The caller has made sure that an engine answers.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.common.runtime.clock import SystemClock

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "anabranch-e2e"
SERVICES = ("nats", "redis", "controller", "segstore", "gateway")
COMMAND_SECONDS_MAX = 900
"""Building three images for the first time fetches their packages."""
HEALTHY_SECONDS_MAX = 120


class Compose:
    """`command` is the compose program: ``docker compose`` or ``docker-compose``."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = [*command, "--project-name", PROJECT]
        self._clock = SystemClock()

    def start(self) -> None:
        """Build what has changed and start every service. Leftovers of an earlier run go first."""
        self.remove()
        self.run("build")
        self.run("up", "--detach", "--no-build")

    def remove(self) -> None:
        """End the containers and delete their volumes. Idempotent."""
        self.run("down", "--volumes", "--remove-orphans")

    def run(self, *arguments: str) -> str:
        """What the compose program printed. Raises AssertionError with what it complained of."""
        return _output([*self._command, *arguments])

    @property
    def gateway_url(self) -> str:
        """Where HTTP is served on this machine; another port after the gateway's restart."""
        return "http://" + self.run("port", "gateway", "8080").strip()

    def inspect(self, service: str) -> dict[str, Any]:
        """What the engine knows of the service's container, stopped ones included."""
        labels = {"project": PROJECT, "service": service}
        filters = [f"--filter=label=com.docker.compose.{key}={labels[key]}" for key in labels]
        container = _output(["docker", "ps", "--all", "--quiet", *filters]).split()
        assert len(container) == 1, f"{service} has {len(container)} containers"
        found: dict[str, Any] = json.loads(_output(["docker", "inspect", container[0]]))[0]
        return found

    async def healthy(self, services: Sequence[str] = SERVICES) -> None:
        """Return once all are healthy. Raises AssertionError with the logs of what is not."""
        for service in services:
            try:
                async with asyncio.timeout(HEALTHY_SECONDS_MAX):
                    while self.inspect(service)["State"]["Health"]["Status"] != "healthy":
                        await self._clock.sleep(0.5)
            except TimeoutError:
                raise AssertionError(f"{service} is ill:\n{self.run('logs', service)}") from None


def _output(command: Sequence[str]) -> str:
    environment = {**os.environ, "ANABRANCH_HTTP_PORT": "0"}
    done = subprocess.run(
        command,
        check=False,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout
