"""Settings: from the environment, strict, frozen, shown without secrets."""

from pathlib import Path
from traceback import format_exception

import pytest
from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsConfigDict

from anabranch.common.errors import InvalidSetting
from anabranch.common.runtime.addresses import parse_bind
from anabranch.common.runtime.nats_target import NatsTarget, TlsFiles
from anabranch.common.runtime.settings import NatsSettings


class DemoSettings(NatsSettings):
    model_config = SettingsConfigDict(env_prefix="ANABRANCH_DEMO_")

    nats_url: str = "nats://127.0.0.1:4222"
    container_count: int = 4
    token: SecretStr = SecretStr("hush")


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_DEMO_CONTAINER_COUNT", "8")

    assert DemoSettings.from_environment().container_count == 8


def test_a_variable_that_names_no_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_DEMO_CONTAINERS", "8")

    with pytest.raises(InvalidSetting) as refused:
        DemoSettings.from_environment()

    assert refused.value.fields["variable"] == "ANABRANCH_DEMO_CONTAINERS"


def test_a_value_of_the_wrong_kind_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_DEMO_CONTAINER_COUNT", "many")

    with pytest.raises(InvalidSetting) as refused:
        DemoSettings.from_environment()

    assert refused.value.fields["variable"] == "ANABRANCH_DEMO_CONTAINER_COUNT"


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        DemoSettings().container_count = 9


def test_settings_are_shown_without_secrets_and_passwords() -> None:
    shown = DemoSettings(
        nats_url="nats://user:word@host:4222", token=SecretStr("s3cret")
    ).describe()

    assert shown["nats_url"] == "nats://**********@host:4222"
    assert "s3cret" not in str(shown)
    assert shown["container_count"] == 4


@pytest.mark.parametrize(
    "url", ["nats://u:s3cret@a:1", "nats://u:s3cret@a:1,nats://u:s3cret@b:1", "nats://s3cret@a:1"]
)
def test_no_way_of_showing_settings_shows_a_password(url: str) -> None:
    settings = DemoSettings(nats_url=url)

    assert "s3cret" not in f"{settings} {settings!r} {settings.describe()}"
    assert ":1" in repr(settings)


def test_the_settings_of_nats_make_one_target(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DemoSettings().nats == NatsTarget.at("nats://127.0.0.1:4222")
    told = {
        "URL": "tls://a:1,tls://b:1", "CREDENTIALS_FILE": "/c", "TLS_CA_FILE": "/ca",
        "TLS_CERT_FILE": "/cert", "TLS_KEY_FILE": "/key",
    }  # fmt: skip
    for name, value in told.items():
        monkeypatch.setenv(f"ANABRANCH_DEMO_NATS_{name}", value)

    target = DemoSettings.from_environment().nats

    tls = TlsFiles(Path("/ca"), Path("/cert"), Path("/key"))
    assert target == NatsTarget(("tls://a:1", "tls://b:1"), Path("/c"), tls)


def test_an_empty_variable_names_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_DEMO_NATS_CREDENTIALS_FILE", "")
    assert DemoSettings.from_environment().nats.credentials is None


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("NATS_URL", "nats://u:s3cret@a:x", "not the address of a nats server"),
        ("NATS_TLS_CERT_FILE", "/cert", "a TLS certificate needs its key"),
    ],
)
def test_settings_of_nats_that_cannot_be_meant_are_refused_at_the_start(
    name: str, value: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"ANABRANCH_DEMO_{name}", value)
    with pytest.raises(InvalidSetting, match=text) as refused:
        DemoSettings.from_environment()
    assert "s3cret" not in "".join(format_exception(refused.value))


@pytest.mark.parametrize(
    ("bind", "expected"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:65535", ("::1", 65535)), ("db:80", ("db", 80))],
)
def test_an_address_to_listen_on_is_parsed(bind: str, expected: tuple[str, int]) -> None:
    assert parse_bind(bind) == expected


@pytest.mark.parametrize("bind", ["", "host", ":80", "host:", "host:x", "host:65536", "host:-1"])
def test_a_malformed_address_is_refused(bind: str) -> None:
    with pytest.raises(InvalidSetting):
        parse_bind(bind)


@pytest.mark.parametrize(
    "endpoint", ["collector:4318", "ftp://x", "http://", "http://x:99999", "http://x/?a=b"]
)
def test_an_endpoint_that_is_no_base_url_is_a_wrong_setting(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_DEMO_OTLP_ENDPOINT", endpoint)

    with pytest.raises(InvalidSetting, match="not a url such as") as caught:
        DemoSettings.from_environment()

    assert caught.value.fields["variable"] == "ANABRANCH_DEMO_OTLP_ENDPOINT"


def test_telemetry_goes_where_the_endpoint_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_DEMO_OTLP_ENDPOINT", "https://collector:4318/base")

    assert DemoSettings.from_environment().telemetry.otlp_endpoint == "https://collector:4318/base"
