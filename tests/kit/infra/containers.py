"""Servers as containers, of the images in docker-compose.yml unless the environment names others.

``ANABRANCH_TEST_NATS_IMAGE`` and ``ANABRANCH_TEST_REDIS_IMAGE`` name an image whose PATH holds
`nats-server` or `redis-server`. A port is published on the loopback address and chosen here, so
that it stays the same when the container is started again. A container and its volume go when its
context is left; no second container watches over them unless TESTCONTAINERS_RYUK_DISABLED=false.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from docker.errors import (  # type: ignore[import-untyped]
    APIError,
    DockerException,
    NotFound,
)
from docker.models.containers import Container  # type: ignore[import-untyped]
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient

from anabranch.common.runtime.ids import SystemIds
from kit.infra import LOOPBACK, STOP_SECONDS_MAX
from kit.infra.settings import (
    REDIS_OPTIONS,
    free_port,
    nats_config,
    nats_serves,
    redis_serves,
    wait_until,
)

NATS_IMAGE = os.environ.get("ANABRANCH_TEST_NATS_IMAGE", "nats:2.15-alpine")
REDIS_IMAGE = os.environ.get("ANABRANCH_TEST_REDIS_IMAGE", "redis:8-alpine")
LABEL = "anabranch-test"
ENGINE_SECONDS_MAX = 20
_NATS_PORT, _MONITOR_PORT, _REDIS_PORT = 4222, 8222, 6379


def why_no_engine() -> str | None:
    """What is missing to run containers, or None."""
    try:
        client = DockerClient(timeout=ENGINE_SECONDS_MAX)
    except DockerException as error:
        return _no_engine(error)
    try:
        client.client.ping()
    except (DockerException, OSError) as error:
        return _no_engine(error)
    finally:
        client.client.close()
    return None


def _no_engine(error: Exception) -> str:
    where = os.environ.get("DOCKER_HOST", "the default address")
    return (
        f"no Docker engine answers at {where}: start one, or name another by DOCKER_HOST, or run "
        f"`make test`, which needs none ({error})"
    )


@dataclass(frozen=True)
class _Plan:
    """`ports`: the container's → this machine's; `files`: of this machine → in the container."""

    image: str
    command: Sequence[str]
    ports: Mapping[int, int]
    files: Mapping[Path, str] = field(default_factory=dict)


@dataclass
class ContainerServer:
    """One container; `serves` is its readiness probe."""

    url: str
    container: Container
    serves: Callable[[], bool]
    monitor_url: str = ""

    def start(self) -> None:
        self.container.start()
        if not wait_until(self.serves, self._is_alive):
            raise RuntimeError(f"the container is not serving:\n{self.container.logs().decode()}")

    def stop(self) -> None:
        self._resume_if_paused()
        self.container.stop(timeout=int(STOP_SECONDS_MAX))

    def kill(self) -> None:
        with suppress(APIError):  # it does not run
            self.container.kill()
        self.container.wait(timeout=STOP_SECONDS_MAX)

    def pause(self) -> None:
        # On a busy machine the engine gives up freezing before every thread has stopped.
        if not wait_until(self._froze, self._is_alive):
            raise RuntimeError(f"container {self.container.name} cannot be paused")

    def resume(self) -> None:
        self.container.unpause()

    def _froze(self) -> bool:
        try:
            self.container.pause()
        except APIError:
            return False
        return True

    def _is_alive(self) -> bool:
        self.container.reload()
        return bool(self.container.status == "running")

    def _resume_if_paused(self) -> None:
        self.container.reload()
        if self.container.status == "paused":
            self.container.unpause()


class ContainerInfra:
    """See the module. The caller has made sure that an engine answers."""

    def __init__(self) -> None:
        if "TESTCONTAINERS_RYUK_DISABLED" not in os.environ:
            testcontainers_config.ryuk_disabled = True
        self._ids = SystemIds()

    @contextmanager
    def nats(self) -> Iterator[ContainerServer]:
        port, monitor_port = free_port(), free_port()
        with tempfile.TemporaryDirectory(prefix="anabranch-nats-") as directory:
            config = Path(directory) / "nats.conf"
            config.write_text(
                nats_config(
                    listen=f"0.0.0.0:{_NATS_PORT}",
                    http=f"0.0.0.0:{_MONITOR_PORT}",
                    store_dir="/data",
                )
            )
            plan = _Plan(
                NATS_IMAGE,
                ("nats-server", "--config", "/etc/nats/anabranch.conf"),
                {_NATS_PORT: port, _MONITOR_PORT: monitor_port},
                {config: "/etc/nats/anabranch.conf"},
            )
            with self._created(plan) as container:
                server = ContainerServer(
                    f"nats://{LOOPBACK}:{port}",
                    container,
                    lambda: nats_serves(monitor_port),
                    f"http://{LOOPBACK}:{monitor_port}",
                )
                server.start()
                yield server

    @contextmanager
    def redis(self) -> Iterator[ContainerServer]:
        port = free_port()
        command = ("redis-server", "--dir", "/data", "--protected-mode", "no", *REDIS_OPTIONS)
        with self._created(_Plan(REDIS_IMAGE, command, {_REDIS_PORT: port})) as container:
            server = ContainerServer(
                f"redis://{LOOPBACK}:{port}", container, lambda: redis_serves(port)
            )
            server.start()
            yield server

    @contextmanager
    def _created(self, plan: _Plan) -> Iterator[Container]:
        """A container with a volume of its own on /data; neither outlives the context."""
        name = f"{LABEL}-{self._ids.new_id()}"
        container = DockerContainer(plan.image, name=name).with_command(list(plan.command))
        container.with_kwargs(labels={LABEL: "true"})
        container.with_volume_mapping(name, "/data", "rw")
        for here, there in plan.files.items():
            container.with_volume_mapping(here, there, "ro")
        # The engine takes (address, port) too; without an address it would publish to everybody.
        published = cast(dict[str, Any], container.ports)
        published |= {f"{inside}/tcp": (LOOPBACK, here) for inside, here in plan.ports.items()}
        try:
            container.start()
            yield container.get_wrapped_container()
        finally:
            _remove(container, name)


def _remove(container: DockerContainer, volume: str) -> None:
    container.stop(force=True, delete_volume=True)
    engine = DockerClient(timeout=ENGINE_SECONDS_MAX).client
    try:
        engine.volumes.get(volume).remove(force=True)
    except NotFound:  # the container was never created
        pass
    finally:
        engine.close()
