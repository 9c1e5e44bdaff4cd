"""What the NATS library is told of a target, and files that it cannot use."""

import asyncio
import importlib.util
import json
import ssl
from pathlib import Path
from traceback import format_exception

import pytest

from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.adapters.nats_options import NatsOptions, connect_options
from anabranch.common.errors import CodecMissing, InvalidSetting, Unavailable
from anabranch.common.runtime.nats_target import NatsTarget, TlsFiles
from kit.served_streams import served_streams

PEM = Path(__file__).parents[2] / "kit" / "tls"
CA = TlsFiles(ca=PEM / "ca.pem")
SECRET = "s3cret"
SEED = "SUAMK2FG4MI6UE3ACF3FK3OIQBCEIEZV7NSWFFEW63UXMRLFM2XLAXK4GY"
CREDS = f"-----BEGIN NATS USER JWT-----\n{SECRET}\n------END NATS USER JWT------\n"


def options_of(url: str, text: str, directory: Path) -> NatsOptions:
    file = directory / "credentials"
    file.write_text(text)
    return connect_options(NatsTarget.at(url, credentials_file=file))


def test_options_of_a_bare_address_are_its_servers() -> None:
    assert connect_options(NatsTarget.at("nats://a:1,nats://b:1")) == {
        "servers": ["nats://a:1", "nats://b:1"]
    }


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (f"nats://u:{SECRET}@a", {"user": "u", "password": SECRET}),
        (f"nats://{SECRET}@a", {"token": SECRET}),
    ],
)
def test_credentials_of_a_url_are_told_apart_from_its_address(
    url: str, told: dict[str, str]
) -> None:
    assert connect_options(NatsTarget.at(url)) == {"servers": ["nats://a"], **told}


@pytest.mark.parametrize("told", [{"user": "u", "password": SECRET}, {"token": SECRET}])
def test_a_credentials_file_may_be_json(told: dict[str, str], tmp_path: Path) -> None:
    assert options_of("nats://a", json.dumps(told), tmp_path) == {"servers": ["nats://a"], **told}


@pytest.mark.parametrize(("text", "option"), [(CREDS, "user_credentials"), (SEED, "nkeys_seed")])
def test_a_credentials_file_may_be_of_nats_itself(
    text: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: "found")
    told = {"servers": ["nats://a"], option: str(tmp_path / "credentials")}
    assert options_of("nats://a", f"{text}\n", tmp_path) == told

    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(CodecMissing, match="nkeys"):
        options_of("nats://a", text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        SECRET,
        f'{{"password": "{SECRET}"}}',
        f'{{"user": "u", "password": "{SECRET}", "servers": "nats://other"}}',
        f'{{"user": "u", "password": ["{SECRET}"]}}',
        f'["{SECRET}"]',
        f'{{"token": "{SECRET}"',
    ],
)
def test_a_credentials_file_that_is_not_understood_is_refused_without_showing_it(
    text: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSetting, match="cannot be understood") as refused:
        options_of("nats://a", text, tmp_path)
    assert refused.value.fields == {"path": str(tmp_path / "credentials")}
    assert SECRET not in "".join(format_exception(refused.value))


def test_a_credentials_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    target = NatsTarget.at("nats://a", credentials_file=tmp_path / "none")
    with pytest.raises(InvalidSetting, match="cannot be read") as refused:
        connect_options(target)
    assert refused.value.fields["path"] == str(tmp_path / "none")


def test_tls_checks_the_server_against_the_authority_that_is_named() -> None:
    files = TlsFiles(PEM / "ca.pem", PEM / "cert.pem", PEM / "key.pem")
    context = connect_options(NatsTarget.at("nats://a", tls=files))["tls"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    (authority,) = context.get_ca_certs()
    assert authority["subject"] == ((("commonName", "tests of anabranch"),),)


def test_an_address_of_tls_alone_trusts_the_authorities_of_the_system() -> None:
    context = connect_options(NatsTarget.at("tls://a"))["tls"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize(
    "files", [TlsFiles(ca=PEM / "none.pem"), TlsFiles(ca=PEM / "key.pem"),
              TlsFiles(cert=PEM / "ca.pem", key=PEM / "key.pem")]
)  # fmt: skip
def test_tls_files_that_cannot_be_used_are_named(files: TlsFiles) -> None:
    with pytest.raises(InvalidSetting, match="TLS files") as refused:
        connect_options(NatsTarget.at("nats://a", tls=files))
    assert str(PEM) in str(refused.value)


async def test_credentials_that_are_meant_for_tls_are_never_sent_without_it() -> None:
    received = bytearray()

    async def without_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"max_payload": 1048576, "auth_required": true}\r\n')
        while data := await reader.read(4096):
            received.extend(data)
        writer.close()

    async with served_streams(without_tls) as port:
        target = NatsTarget.at(f"nats://u:{SECRET}@127.0.0.1:{port}", tls=CA)
        with pytest.raises(Unavailable) as refused:
            await connect_nats(target, "test", deadline_s=0.1)

    assert refused.value.fields["cause"] == "the server does not offer TLS"
    assert received == b""
