"""Settings of a service: frozen, from the environment, printable without secrets.

Defaults live only in the services' own `Settings` classes. A variable with the service's prefix
that names no setting is an error, because a misspelt setting that is silently ignored is worse than
a service that does not start.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from anabranch.common.errors import InvalidSetting
from anabranch.common.runtime.addresses import is_base_url
from anabranch.common.runtime.nats_target import NatsTarget, TlsFiles

MASK = "**********"


@dataclass(frozen=True, slots=True)
class TelemetryTarget:
    """The collector of telemetry (see `ServiceSettings`); an empty endpoint: none.

    `trace_ratio`: the recorded share of the traces that begin in this process.
    """

    otlp_endpoint: str
    trace_ratio: float = 1.0


NO_TARGET = TelemetryTarget("")


class ServiceSettings(BaseSettings):
    """The base of all services' settings. A subclass sets `env_prefix` and adds its fields."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_nested_delimiter="__", hide_input_in_errors=True
    )

    otlp_endpoint: str = ""
    """The base URL of a collector of traces and metrics (OTLP over HTTP); empty: no traces."""

    @field_validator("otlp_endpoint")
    @classmethod
    def _check_endpoint(cls, endpoint: str) -> str:
        if endpoint and not is_base_url(endpoint):
            raise ValueError("not a URL such as http://127.0.0.1:4318")
        return endpoint

    @property
    def telemetry(self) -> TelemetryTarget:
        """The collector of this service's telemetry."""
        return TelemetryTarget(self.otlp_endpoint)

    @classmethod
    def from_environment(cls) -> Self:
        """Load the settings from the process's environment.

        Raises InvalidSetting, which names the first wrong, missing or unknown variable.
        """
        unknown = unknown_variables(cls, os.environ)
        if unknown:
            raise InvalidSetting(
                "the environment variable names no setting",
                remedy="correct its name or unset it",
                variable=unknown[0],
            )
        try:
            return cls()
        except ValidationError as error:
            raise _first_mistake(cls, error) from error

    def describe(self) -> dict[str, object]:
        """The settings as plain data for the log; secrets and passwords in URLs are masked."""
        plain: dict[str, object] = self.model_dump(mode="json")
        return {name: _without_secrets(value) for name, value in plain.items()}

    def __repr_args__(self) -> Iterable[tuple[str | None, object]]:
        """Make `repr` and `str` show the same as `describe`."""
        return self.describe().items()


class NatsSettings(ServiceSettings):
    """Settings of a service that uses NATS; `nats` is the target that they describe."""

    nats_url: str
    """One address or several, separated by commas: nats://host:4222, tls://host:4222 or
    nats://user:password@host:4222."""
    nats_credentials_file: Path | None = None
    """A .creds file, an nkey seed, or JSON: {"user": …, "password": …} or {"token": …}."""
    nats_tls_ca_file: Path | None = None
    """PEM; empty: the authorities that the system trusts. Any TLS file demands TLS."""
    nats_tls_cert_file: Path | None = None
    """PEM: the certificate that, with its key, identifies this service to the server."""
    nats_tls_key_file: Path | None = None

    @property
    def nats(self) -> NatsTarget:
        """The NATS servers of the service, with credentials and TLS."""
        ca, cert, key = self.nats_tls_ca_file, self.nats_tls_cert_file, self.nats_tls_key_file
        tls = TlsFiles(ca, cert, key) if ca or cert or key else None
        return NatsTarget.at(self.nats_url, credentials_file=self.nats_credentials_file, tls=tls)

    @field_validator(
        "nats_credentials_file", "nats_tls_ca_file", "nats_tls_cert_file", "nats_tls_key_file",
        mode="before",
    )  # fmt: skip
    @classmethod
    def _none_if_empty(cls, path: object) -> object:
        return path or None

    @field_validator("nats_url")
    @classmethod
    def _check_nats_url(cls, url: str) -> str:
        try:
            NatsTarget.at(url)
        except InvalidSetting as error:
            raise ValueError(str(error)) from None
        return url

    @model_validator(mode="after")
    def _check_nats(self) -> Self:
        assert self.nats
        return self


def unknown_variables(settings: type[ServiceSettings], environment: Mapping[str, str]) -> list[str]:
    """Names with the prefix of `settings` that match none of its fields, sorted."""
    prefix = str(settings.model_config.get("env_prefix") or "").upper()
    if not prefix:
        return []
    known = {name.upper() for name in settings.model_fields}
    return sorted(
        name
        for name in environment
        if name.upper().startswith(prefix)
        and name.upper().removeprefix(prefix).split("__", 1)[0] not in known
    )


def _first_mistake(settings: type[ServiceSettings], error: ValidationError) -> InvalidSetting:
    first = error.errors(include_url=False, include_input=False)[0]
    prefix = str(settings.model_config.get("env_prefix") or "")
    variable = (prefix + "__".join(str(part) for part in first["loc"])).upper()
    return InvalidSetting(f"setting is wrong: {first['msg'].lower()}", variable=variable)


def _without_secrets(value: object) -> object:
    match value:
        case str():
            return _without_password(value)
        case list():
            return [_without_secrets(item) for item in value]
        case dict():
            return {name: _without_secrets(item) for name, item in value.items()}
        case _:
            return value


def _without_password(text: str) -> str:
    """Mask the user and password in one URL or several; return other text unchanged.

    A password may contain a comma, so with several URLs everything between the first `://` and the
    last `@` is masked.
    """
    head, scheme_ends, rest = text.partition("://")
    if not scheme_ends or "@" not in rest:
        return text
    place = rest.rpartition("@")[2] if "," in rest else _host_and_path(text)
    return text if place is None else f"{head}://{MASK}@{place}"


def _host_and_path(url: str) -> str | None:
    """The URL from its host on; None if it has neither user nor password."""
    netloc = urlsplit(url).netloc
    credentials, at, _ = netloc.rpartition("@")
    return url.partition("://")[2].removeprefix(f"{credentials}@") if at else None
