"""Real NATS servers that ask for credentials, and one that speaks TLS alone."""

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.cli.up import nats_config as up_nats
from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.errors import Unauthorized, Unavailable
from anabranch.common.runtime.nats_target import Login, NatsTarget, TlsFiles, nats_target
from kit.infra import LOOPBACK
from kit.infra.embedded import EmbeddedServer, find_program
from kit.infra.settings import free_port, nats_config, nats_serves

PEM = Path(__file__).parents[2] / "kit" / "tls"
CA, CERT, KEY = PEM / "ca.pem", PEM / "cert.pem", PEM / "key.pem"
LOGIN = Login.of("someone", "s3cret")
SHORT_S = 1.0


def nats_alone(plan: ClusterPlan) -> list[PartSpec]:
    return [part for part in cluster_parts(plan) if part.name == "nats"]


@contextmanager
def running(directory: Path, port: int, monitor_port: int, config: str) -> Iterator[str]:
    """A server with this configuration; its URL."""
    (directory / "server.conf").write_text(config)
    server = EmbeddedServer(
        f"nats://{LOOPBACK}:{port}",
        (str(find_program("nats-server")), "--config", str(directory / "server.conf")),
        directory / "server.log",
        lambda: nats_serves(monitor_port),
    )
    try:
        server.start()
        yield server.url
    finally:
        server.stop()


@pytest.fixture(scope="module")
def strict_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for clients with the certificate and the credentials."""
    directory = tmp_path_factory.mktemp("strict")
    port, monitor_port = free_port(), free_port()
    tls = {"cert_file": str(CERT), "key_file": str(KEY), "ca_file": str(CA), "verify": True}
    config = up_nats.nats_config(port, monitor_port, directory / "store", LOGIN)
    with running(directory, port, monitor_port, f"{config}tls {json.dumps(tls)}\n") as url:
        yield url


@contextmanager
def of_an_older_release(directory: Path) -> Iterator[NatsTarget]:
    """A server as older releases started it on the directory: it asks for no credentials."""
    directory.mkdir()
    port, monitor_port = free_port(), free_port()
    config = nats_config(
        listen=f"{LOOPBACK}:{port}",
        http=f"{LOOPBACK}:{monitor_port}",
        store_dir=str(directory / "nats"),
    )
    with running(directory.parent, port, monitor_port, config) as url:
        yield NatsTarget.at(url)


async def test_an_old_directory_gets_credentials_that_every_client_needs_and_keeps_its_data(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    with of_an_older_release(data_dir) as target:
        client = await connect_nats(target, "old")
        await client.jetstream().add_stream(name="kept", subjects=["kept.>"])
        await client.jetstream().publish("kept.a", b"of old")
        await close_nats(client)
    assert not (data_dir / "nats-credentials.json").exists()

    drawn = []
    for _ in range(2):
        async with embedded_cluster(UpSettings(data_dir), parts=nats_alone) as cluster:
            await cluster.wait_ready()
            url = str(cluster.endpoints["nats"])
            for target, text in (
                (NatsTarget.at(url), "requires credentials, and none were given"),
                (NatsTarget((url,), LOGIN), "refuses the credentials"),
            ):
                with pytest.raises(Unauthorized, match=text) as refused:
                    await connect_nats(target, "stranger")
                assert "data directory" in refused.value.remedy
                assert "s3cret" not in str(refused.value)

            client = await connect_nats(nats_target(cluster.endpoints_file), "friend")
            assert (await client.jetstream().get_msg("kept", 1)).data == b"of old"
            await close_nats(client)
            drawn.append((data_dir / "nats-credentials.json").read_text())
            for name in ("nats-credentials.json", "endpoints.json", "run/nats.conf"):
                assert stat.S_IMODE((data_dir / name).stat().st_mode) == 0o600
    assert drawn[0] == drawn[1], "kept afterwards"


async def test_a_server_that_speaks_tls_serves_who_trusts_it_and_is_trusted(
    strict_url: str, tmp_path: Path
) -> None:
    (tmp_path / "login.json").write_text('{"user": "someone", "password": "s3cret"}')
    (tmp_path / "endpoints.json").write_text(
        json.dumps(
            {
                "nats": strict_url,
                "nats_credentials": "login.json",
                "nats_tls": {"ca": str(CA), "cert": str(CERT), "key": str(KEY)},
            }
        )
    )
    client = await connect_nats(nats_target(tmp_path), "trusted")
    try:
        assert client.is_connected
        assert (await client.jetstream().account_info()).streams == 0
    finally:
        await close_nats(client)


@pytest.mark.parametrize(
    ("tls", "cause"),
    [
        (None, "certificate verify failed"),
        (TlsFiles(cert=CERT, key=KEY), "certificate verify failed"),
        (TlsFiles(ca=CA), ""),
    ],
)
async def test_a_server_that_is_not_trusted_or_does_not_trust_says_so(
    strict_url: str, tls: TlsFiles | None, cause: str
) -> None:
    target = NatsTarget((strict_url,), LOGIN, tls)
    with pytest.raises(Unavailable) as refused:
        await connect_nats(target, "stranger", deadline_s=SHORT_S)
    assert cause in str(refused.value.fields["cause"])
    assert "s3cret" not in str(refused.value)


async def test_trust_in_the_server_is_not_enough_without_credentials(strict_url: str) -> None:
    with pytest.raises(Unauthorized, match="requires credentials"):
        await connect_nats(NatsTarget.at(strict_url, tls=TlsFiles(CA, CERT, KEY)), "stranger")
