"""`anabranch doctor` and `anabranch support-bundle` against real servers of NATS and Redis.

The controller is a fake behind the subjects of the NATS server; `docs/doctor.md` runs both commands
against a whole cluster.
"""

import json
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.operation_queries import OperationList, WorkList
from anabranch.common.contracts.parked import ParkedDescription, ParkedList
from anabranch.common.runtime.nats_target import nats_target
from kit.command_line import CommandLine
from kit.fake_controller import FakeController
from kit.fake_segstore import FakeSegmentStore
from kit.infra import Infra, NatsServer
from kit.nats_controller import nats_controller

SECRETS = {
    "environment": "Secret-of-the-environment-1",
    "variable": "Secret-in-a-variables-url-2",
    "url": "Secret/of the endpoints: 3",
    "credentials": 'Secret-of-"credentials"-4',
    "conf": "Secret-of-nats-conf-5",
    "log": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "error": "Secret-in-an-error-6",
}
PAYLOAD = "the payload of an event"


class Controller(FakeController):
    """Also answers the commands' questions beside streams; a parked error tells a secret."""

    def answer(self, name: str, data: bytes) -> Contract:
        match name:
            case "list_parked":
                parked = ParkedDescription(
                    command_id="4f2c", bucket=0, subject="ana.cmd.0.x", attempts=10, first_ms=0,
                    last_ms=1, error=f"no login at redis://u:{SECRETS['error']}@host", body="",
                )  # fmt: skip
                return ParkedList(commands=(parked,))
            case "list_work":
                return WorkList(work=())
            case "list_operations":
                return OperationList(operations=())
        return super().answer(name, data)


@pytest.fixture(scope="module")
def nats(infra: Infra) -> Iterator[NatsServer]:
    with infra.nats() as server:
        yield server


@pytest.fixture(scope="module")
def redis_url(infra: Infra) -> Iterator[str]:
    with infra.redis() as server:
        yield server.url


@asynccontextmanager
async def cluster(nats: NatsServer, directory: Path) -> AsyncIterator[None]:
    """A controller on the NATS server, with a login in the endpoints file."""
    login = f"u:{quote(SECRETS['url'], safe='')}@"
    endpoints = {"nats": nats.url.replace("://", f"://{login}")}
    (directory / "endpoints.json").write_text(json.dumps(endpoints))
    async with FakeSegmentStore() as store:
        connection = await connect_nats(nats_target(nats.url), "fake controller")
        try:
            controller = Controller(store, scopes={"demo": {}})
            async with nats_controller(controller, connection):
                yield
        finally:
            await connection.jetstream().delete_stream("ANA_COMMANDS")
            await connection.close()


async def test_the_doctor_judges_real_servers(
    nats: NatsServer, redis_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = (
        "nats-version", "nats-jetstream", "nats-sync", "nats-payload", "nats-store", "nats-account",
        "clock-nats", "redis-version", "redis-eviction", "redis-memory", "cluster-answers", "work",
        "disk-writable",
    )  # fmt: skip
    there = ("--data-dir", str(tmp_path), "--nats-monitor", nats.monitor_url, "--redis", redis_url)
    async with cluster(nats, tmp_path):
        ended = await CommandLine(capsys).run("doctor", *names, *there, "--json")
        parked = await CommandLine(capsys).run("doctor", "nats-streams", "parked-commands", *there)

    found = {one["check"]: one for one in map(json.loads, ended.out.splitlines())}
    assert {name: one["verdict"] for name, one in found.items()} == dict.fromkeys(found, "ok")
    assert set(found) == set(names)
    assert ended.code == 0
    assert parked.code == 1
    assert "missing: ANA_EVENTS_00" in parked.out
    assert "1 command parked: 4f2c" in parked.out


async def test_without_a_cluster_the_checks_of_this_machine_still_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = await CommandLine(capsys).run("doctor", "--data-dir", str(tmp_path), "--json")
    found = {one["check"]: one["verdict"] for one in map(json.loads, ended.out.splitlines())}
    assert ended.code == 1
    assert [name for name, verdict in found.items() if verdict == "failure"] == ["cluster-answers"]
    assert found["python"] == found["disk-writable"] == "ok"
    assert found["nats-version"] == found["containers"] == "skipped"

    there = ("--directory", str(tmp_path / "more"), "--data-dir", str(tmp_path))
    named = await CommandLine(capsys).run("doctor", "network-directories", "--local", *there)
    assert (named.code, f"{tmp_path}/more (" in named.out.replace("\n", "")) == (0, True)

    local = await CommandLine(capsys).run("doctor", "--local", "--data-dir", str(tmp_path))
    assert (local.code, "cluster-answers" in local.out) == (0, False)


def plant(directory: Path) -> None:
    """Secrets and payloads in every file of a data directory that the bundle could read."""
    for name in ("run", "logs", "segstore/journal"):
        (directory / name).mkdir(parents=True)
    login = json.dumps({"user": "anabranch", "password": SECRETS["credentials"]})
    (directory / "nats-credentials.json").write_text(login)
    (directory / "run" / "nats.conf").write_text(f'password: "{SECRETS["conf"]}"\n')
    (directory / "segstore" / "journal" / "journal-1").write_text(PAYLOAD)
    (directory / "logs" / "link.log").symlink_to(directory / "nats-credentials.json")
    known = [secret for name, secret in SECRETS.items() if name != "error"]
    lines = [{"event": f"it failed: {secret}", "error": secret} for secret in known]
    at = "2100-01-01T00:00:00.000000Z"
    with (directory / "logs" / "controller.log").open("w") as log:
        for line in lines:
            log.write(json.dumps({**line, "at": at, "nested": json.dumps(line)}) + "\n")
            log.write(f"  Traceback: connect('nats://u:{quote(line['error'], safe='')}@h')\n")
            log.write(f"  {line['error']!r} {line['error']}\n")


async def test_no_secret_of_any_source_and_no_payload_is_in_the_bundle(
    nats: NatsServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANABRANCH_TEST_PASSWORD", SECRETS["environment"])
    monkeypatch.setenv("ANABRANCH_TEST_URL", f"redis://:{SECRETS['variable']}@host")
    directory, file = tmp_path / "data", tmp_path / "bundle.tar.gz"
    plant(directory)
    there = ("--data-dir", str(directory), "--nats-monitor", nats.monitor_url)
    async with cluster(nats, directory):
        ended = await CommandLine(capsys).run(
            "support-bundle", *there, "--out", str(file), "--json"
        )

    assert ended.code == 0, ended.err
    missing = {one["part"] for one in json.loads(ended.out)["missing"]}
    assert missing == {"redis", "services", "log link.log"}
    with tarfile.open(file) as found:
        texts = {one.name: found.extractfile(one) for one in found}
        whole = "".join(one.read().decode() + name for name, one in texts.items() if one)
    assert "it failed: ***" in whole
    assert "no login at redis://***@host" in whole
    for secret in (*SECRETS.values(), PAYLOAD):
        forms = {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
        assert [form for form in forms if form in whole] == []
    assert "segstore/journal/journal-1" in whole  # its name and size, not its content
    assert file.stat().st_mode & 0o777 == 0o600
