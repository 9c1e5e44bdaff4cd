"""Settings: from the environment, strict, frozen, shown without secrets."""

import pytest
from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsConfigDict

from anabranch.common.errors import InvalidSetting
from anabranch.common.runtime.settings import ServiceSettings, parse_bind


class DemoSettings(ServiceSettings):
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
