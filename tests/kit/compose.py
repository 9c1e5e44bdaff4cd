"""The cluster of docker-compose.yml as a project of its own, driven through the compose program.

Its name and the tag of its images keep it apart from a cluster that somebody runs from the same
file, and what it publishes has free ports. It is built and run from a copy of the checkout with
the modes of a clone under umask 027: an image must not depend on the umask of whoever builds it.
The caller has made sure that an engine answers.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from anabranch.common.runtime.clock import Clock, SystemClock
from kit.infra.settings import free_port

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "anabranch-e2e"
TAG = "e2e"
SERVICES = ("nats", "redis", "controller", "segstore", "gateway")
IMAGES = tuple(f"anabranch-{part}:{TAG}" for part in ("controller", "segstore", "gateway", "cli"))
BASE, LOOPBACK = "docker-compose.yml", "deploy/loopback.yml"
MOUNTED = ("deploy/nats.conf", "deploy/redis.conf")
COMMAND_SECONDS_MAX = 900
"""Building four images for the first time fetches their packages."""
HEALTHY_SECONDS_MAX = 120
POLL_S = 0.5
Execute = Callable[[Sequence[str], Path, str | None], str]
"""Runs a command in a directory, with a text on its standard input → what it printed."""


class Compose:
    """`command` is the compose program: ``docker compose`` or ``docker-compose``. `checkout` is an
    empty directory for the copy."""

    def __init__(
        self,
        command: Sequence[str],
        checkout: Path,
        *,
        execute: Execute | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._command = [*command, "--project-name", PROJECT]
        self._checkout = checkout
        self.nats_port = self.store_port = 0
        self._execute = execute or self._run_program
        self._clock = clock or SystemClock()
        self._ill = ""

    def start(self) -> None:
        """Build all images and start every service. Leftovers of an earlier run go first."""
        copy_strictly(ROOT, self._checkout)
        self.remove()
        self.run("build")
        self.run("build", "anabranch")
        self.run("up", "--detach", "--no-build")

    def publish(self) -> None:
        """Publish NATS and the store to this machine: at `nats_port` and `store_port` then."""
        self.nats_port, self.store_port = free_port(), free_port()
        self.run("up", "--detach", "--no-build", overrides=[LOOPBACK])

    def remove(self) -> None:
        """End the containers; delete volumes, networks and the images built here. Idempotent."""
        self.run("down", "--volumes", "--remove-orphans")
        present = [one for one in self.docker("image", "ls", _NAMES) if one in IMAGES]
        if present:
            self.docker("image", "rm", *present)
        self.docker("image", "prune", "--force", f"--filter=label=anabranch.builder={TAG}")

    def leftovers(self) -> list[str]:
        """What the engine still has of this project."""
        mine = f"--filter=label=com.docker.compose.project={PROJECT}"
        return [
            *self.docker("ps", "--all", mine, "--format={{.Names}}"),
            *self.docker("volume", "ls", mine, "--format={{.Name}}"),
            *self.docker("network", "ls", mine, "--format={{.Name}}"),
            *(one for one in self.docker("image", "ls", _NAMES) if one in IMAGES),
            *self.docker("image", "ls", "--quiet", f"--filter=label=anabranch.builder={TAG}"),
        ]

    def run(self, *arguments: str, overrides: Sequence[str] = (), stdin: str | None = None) -> str:
        """What the compose program printed. Raises AssertionError with what it complained of."""
        files = [f"--file={one}" for one in (BASE, *overrides)]
        return self._execute([*self._command, *files, *arguments], self._checkout, stdin)

    def anabranch(
        self, *arguments: str, options: Sequence[str] = (), stdin: str | None = None
    ) -> str:
        """What the command printed, run beside the cluster with these options of ``run``."""
        return self.run("run", "--rm", "-T", *options, "anabranch", *arguments, stdin=stdin)

    def docker(self, *arguments: str, stdin: str | None = None) -> list[str]:
        """The lines that the docker program printed. Raises AssertionError."""
        return self._execute(["docker", *arguments], self._checkout, stdin).splitlines()

    @property
    def gateway_url(self) -> str:
        """Where HTTP is served on this machine; another port after the gateway's restart."""
        return "http://" + self.run("port", "gateway", "8080").strip()

    def inspect(self, service: str) -> dict[str, Any]:
        """What the engine knows of the service's container, stopped ones included."""
        labels = {"project": PROJECT, "service": service, "oneoff": "False"}
        filters = [f"--filter=label=com.docker.compose.{key}={labels[key]}" for key in labels]
        container = self.docker("ps", "--all", "--quiet", *filters)
        assert len(container) == 1, f"{service} has {len(container)} containers"
        found: dict[str, Any] = json.loads("".join(self.docker("inspect", container[0])))[0]
        return found

    async def healthy(self, services: Sequence[str] = SERVICES) -> None:
        """Return once all are healthy. Raises AssertionError with the logs of one that is not.

        A cluster that did not become healthy in time is not waited for again.
        """
        assert not self._ill, self._ill
        deadline_s = self._clock.monotonic() + HEALTHY_SECONDS_MAX
        for service in services:
            while self.inspect(service)["State"]["Health"]["Status"] != "healthy":
                if self._clock.monotonic() >= deadline_s:
                    self._ill = f"{service} is ill:\n{self.run('logs', service)}"
                    raise AssertionError(self._ill)
                await self._clock.sleep(POLL_S)

    def _run_program(self, command: Sequence[str], where: Path, stdin: str | None) -> str:
        done = subprocess.run(
            command,
            check=False,
            cwd=where,
            env={
                **os.environ,
                "ANABRANCH_TAG": TAG,
                "ANABRANCH_HTTP_PORT": "0",
                "ANABRANCH_NATS_PORT": str(self.nats_port),
                "ANABRANCH_STORE_PORT": str(self.store_port),
            },
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
        )
        said = f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
        assert done.returncode == 0, f"{' '.join(command)}\n{said}"
        return done.stdout


_NAMES = "--format={{.Repository}}:{{.Tag}}"


def copy_strictly(root: Path, to: Path) -> None:
    """Copy what a deployment needs, with modes that leave out everybody but owner and group.

    Only the configurations that containers mount are readable for all, as docs/containers.md asks.
    """
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache")
    for name in ("deploy", "libs", "services"):
        shutil.copytree(root / name, to / name, ignore=leave)
    for name in (BASE, "requirements.lock", ".dockerignore"):
        shutil.copy(root / name, to / name)
    for path in (to, *to.rglob("*")):
        path.chmod(0o750 if path.is_dir() else 0o640)
    for name in MOUNTED:
        (to / name).chmod(0o644)
