"""The command beside the composed cluster, and from this machine once its ports are published."""

import json
import os
from pathlib import Path
from typing import Any

from kit.compose import IMAGES, PROJECT, Compose

STREAM = "tools/lines"
LINES = "one\ntwo\nthree\n"
NATS_VOLUME = f"{PROJECT}_nats-data"


def records(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines()]


async def test_the_command_does_beside_the_cluster_what_the_gateway_does_not_serve(
    compose: Compose,
) -> None:
    await compose.healthy()
    compose.anabranch("scope", "create", "tools")
    compose.anabranch("stream", "create", STREAM)
    compose.anabranch("write", STREAM, stdin=LINES)
    assert sorted(compose.anabranch("read", STREAM).splitlines()) == sorted(LINES.splitlines())

    containers = records(compose.anabranch("container", "list", "--json"))
    assert {one["state"] for one in containers} == {"open"}
    assert {one["host"] for one in containers} == {"segstore"}
    assert len(records(compose.anabranch("segstore", "list", "--json"))) == 1
    flushed = records(compose.anabranch("segstore", "flush", "--json"))
    assert len(flushed[0]["flushed"]) == len(containers)
    compose.anabranch("tier2", "verify")
    compose.anabranch("segstore", "journal")


async def test_metadata_that_was_lost_is_restored_from_a_backup_on_this_machine(
    compose: Compose, tmp_path: Path
) -> None:
    await compose.healthy()
    compose.anabranch("scope", "create", "kept")
    compose.anabranch("stream", "create", "kept/lines")
    compose.anabranch("write", "kept/lines", stdin=LINES)
    mine = ["--user", f"{os.getuid()}:{os.getgid()}", "--volume", f"{tmp_path}:/backups"]
    compose.anabranch("controller", "backup", "file:///backups", options=mine)

    compose.run("rm", "--stop", "--force", "nats", "controller", "segstore", "gateway")
    compose.docker("volume", "rm", NATS_VOLUME)
    compose.run("up", "--detach", "--no-build", "nats")
    await compose.healthy(["nats"])
    compose.anabranch("controller", "restore", "file:///backups", options=mine)
    compose.run("up", "--detach", "--no-build")
    await compose.healthy()

    told = compose.anabranch("read", "kept/lines")
    assert sorted(told.splitlines()) == sorted(LINES.splitlines())
    compose.anabranch("controller", "verify")


async def test_a_client_on_this_machine_reaches_what_the_override_file_publishes(
    compose: Compose,
) -> None:
    await compose.healthy()
    compose.publish()
    await compose.healthy()
    for service in ("nats", "segstore", "gateway"):
        ports = compose.inspect(service)["HostConfig"]["PortBindings"].values()
        assert {one["HostIp"] for published in ports for one in published} == {"127.0.0.1"}
    outside = [
        "run", "--rm", "--interactive", "--network=host", "--add-host=segstore:127.0.0.1",
        f"--env=ANABRANCH_NATS_URL=nats://127.0.0.1:{compose.nats_port}", IMAGES[-1],
    ]  # fmt: skip

    compose.docker(*outside, "scope", "create", "outside")
    compose.docker(*outside, "stream", "create", "outside/lines")
    compose.docker(*outside, "write", "outside/lines", stdin=LINES)

    within = compose.anabranch("read", "outside/lines")
    assert sorted(within.splitlines()) == sorted(LINES.splitlines())
    assert sorted(compose.docker(*outside, "read", "outside/lines")) == sorted(within.splitlines())
    compose.run("up", "--detach", "--no-build")
    await compose.healthy()
