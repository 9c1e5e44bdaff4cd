"""A controller starts only on a NATS server that syncs every write, unless it is told to."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from anabranch.common.errors import AnabranchError, MetadataNotSynced
from anabranch.controller.settings import Settings
from anabranch.controller.wiring import run_controller
from kit import controller_caller
from kit.infra import LOOPBACK
from kit.infra.embedded import EmbeddedServer, find_program
from kit.infra.settings import free_port, nats_config, nats_serves


@contextmanager
def server(directory: Path, sync_interval: str) -> Iterator[EmbeddedServer]:
    port, monitor_port = free_port(), free_port()
    config = nats_config(
        listen=f"{LOOPBACK}:{port}",
        http=f"{LOOPBACK}:{monitor_port}",
        store_dir=str(directory / "jetstream"),
    )
    assert config.count("sync_interval: always") == 1
    written = directory / "nats.conf"
    written.write_text(config.replace("sync_interval: always", sync_interval))
    started = EmbeddedServer(
        f"nats://{LOOPBACK}:{port}",
        (str(find_program("nats-server")), "--config", str(written)),
        directory / "log",
        lambda: nats_serves(monitor_port),
        f"http://{LOOPBACK}:{monitor_port}",
    )
    started.start()
    try:
        yield started
    finally:
        started.kill()


async def refusal_of(settings: Settings) -> AnabranchError | None:
    return await controller_caller.refusal_of(partial(run_controller, settings))


def settings_for(
    nats: EmbeddedServer, sync: Literal["checked", "unchecked"] = "checked", monitor_url: str = ""
) -> Settings:
    return Settings(
        nats_url=nats.url, nats_monitor_url=monitor_url or nats.monitor_url, nats_sync=sync
    )


async def test_a_server_that_syncs_every_write_is_started_on(tmp_path: Path) -> None:
    with server(tmp_path, "sync_interval: always") as nats:
        assert await refusal_of(settings_for(nats)) is None


@pytest.mark.parametrize("sync_interval", ["", "sync_interval: 10s"])
async def test_a_server_that_syncs_later_is_refused_unless_that_is_wanted(
    tmp_path: Path, sync_interval: str
) -> None:
    with server(tmp_path, sync_interval) as nats:
        refusal = await refusal_of(settings_for(nats))

        assert isinstance(refusal, MetadataNotSynced)
        assert "before it is on the disk" in refusal.message
        assert await refusal_of(settings_for(nats, "unchecked")) is None


async def test_the_state_of_another_server_does_not_count(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with server(tmp_path / "a", "") as unsafe, server(tmp_path / "b", "") as other:
        settings = settings_for(unsafe, monitor_url=other.monitor_url)
        refusal = await refusal_of(settings)

    assert isinstance(refusal, MetadataNotSynced)
    assert "another server" in refusal.message
