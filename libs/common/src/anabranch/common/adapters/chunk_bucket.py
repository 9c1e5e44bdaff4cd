"""Builds a bucket's storage from its location and options, as settings of obstore.

Options that are not set come from the provider's own environment variables (``AWS_…``,
``GOOGLE_…``, ``AZURE_…``) or, on the provider's machines, from the machine. This module neither
keeps nor logs secrets, and its errors contain none. State owned: none.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from anabranch.common.adapters.chunk_objects import ObjectChunkStorage
from anabranch.common.errors import InvalidSetting
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import system_rng
from anabranch.common.storage.location import BucketLocation, ObjectOptions, Provider

if TYPE_CHECKING:  # These types exist for type checkers only.
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, RetryConfig, S3Config

CONNECT_S_MAX = 5.0
READ_RETRIES_MAX = 4
_VARIABLES: Mapping[Provider, str] = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}

T = TypeVar("T", bound=BaseModel)


class _Keys(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _S3Keys(_Keys):
    access_key_id: SecretStr
    secret_access_key: SecretStr
    session_token: SecretStr = SecretStr("")


class _AzureKeys(_Keys):
    account_name: str
    account_key: SecretStr


def bucket_storage(
    location: BucketLocation, options: ObjectOptions, clock: Clock, *, limit_s: float
) -> ObjectChunkStorage:
    """The storage of a bucket. It sends no request yet.

    No request takes longer than `limit_s` seconds, with its retries. Raises InvalidSetting.
    """
    _check_endpoint(options)
    limit = timedelta(seconds=limit_s)
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=min(limit_s, CONNECT_S_MAX)),
        "timeout": limit,
    }
    if options.allow_http or _environment_allows_http(location.provider):
        client["allow_http"] = True
    try:
        writes, reads = (
            _store(location, options, client, {"max_retries": retries, "retry_timeout": limit})
            for retries in (0, READ_RETRIES_MAX)
        )
    except (BaseError, ValueError) as error:
        # The error may quote unreadable content of a file with credentials.
        cause = type(error).__name__ if options.credentials_file else str(error).partition("\n")[0]
        raise InvalidSetting(
            "cannot set up the object store of tier 2",
            remedy="correct the URL of tier 2, its options, their file or the provider's variables",
            cause=cause,
        ) from None
    return ObjectChunkStorage(writes, reads, clock, system_rng())


def _check_endpoint(options: ObjectOptions) -> None:
    if "@" in options.endpoint:
        raise InvalidSetting(
            "the endpoint of tier 2 holds credentials",
            remedy="write it as https://host:port and name a credentials_file in tier2_options",
        )
    if options.endpoint.startswith("http://") and not options.allow_http:
        raise InvalidSetting(
            "the endpoint of tier 2 has no TLS",
            remedy="use https, or allow it with allow_http in tier2_options",
            endpoint=options.endpoint,
        )


def _environment_allows_http(provider: Provider) -> bool:
    """Read the one variable of the provider that obstore ignores if time limits are set."""
    value = os.environ.get(f"{_VARIABLES[provider]}_ALLOW_HTTP", "")
    return value.lower() in ("true", "1")


def _store(
    location: BucketLocation, options: ObjectOptions, client: "ClientConfig", retry: "RetryConfig"
) -> ObjectStore:
    bucket, prefix = location.bucket, location.prefix or None
    match location.provider:
        case "s3":
            return S3Store(
                bucket, prefix=prefix, config=_s3(options),
                client_options=client, retry_config=retry,
            )  # fmt: skip
        case "gs":
            return GCSStore(
                bucket, prefix=prefix, config=_gs(options),
                client_options=client, retry_config=retry,
            )  # fmt: skip
        case "az":
            return AzureStore(
                bucket, prefix=prefix, config=_az(options),
                client_options=client, retry_config=retry,
            )  # fmt: skip


def _s3(options: ObjectOptions) -> "S3Config":
    # One object per request: many servers that speak S3 lack bulk deletion.
    config: S3Config = {"conditional_put": "etag", "disable_bulk_delete": True}
    if options.endpoint:
        config["endpoint"] = options.endpoint
    if options.region:
        config["region"] = options.region
    if options.credentials_file is not None:
        keys = _read_keys(options.credentials_file, _S3Keys)
        config["access_key_id"] = keys.access_key_id.get_secret_value()
        config["secret_access_key"] = keys.secret_access_key.get_secret_value()
        if token := keys.session_token.get_secret_value():
            config["session_token"] = token
    return config


def _gs(options: ObjectOptions) -> "GCSConfig":
    config: GCSConfig = {}
    if options.endpoint:
        config["base_url"] = options.endpoint
    if options.credentials_file is not None:
        config["service_account"] = str(options.credentials_file)
    return config


def _az(options: ObjectOptions) -> "AzureConfig":
    config: AzureConfig = {}
    if options.endpoint:
        config["endpoint"] = options.endpoint
    if options.credentials_file is not None:
        keys = _read_keys(options.credentials_file, _AzureKeys)
        config["account_name"] = keys.account_name
        config["account_key"] = keys.account_key.get_secret_value()
    return config


def _read_keys(path: Path, kind: type[T]) -> T:
    """Read a credentials file. Raises InvalidSetting, which names fields but no values."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidSetting(
            "the credentials file of tier 2 cannot be read",
            path=str(path),
            cause=error.strerror or str(error),
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        wanted = ", ".join(name for name, field in kind.model_fields.items() if field.is_required())
        raise InvalidSetting(
            "the credentials file of tier 2 is malformed",
            remedy=f"write it as JSON with {wanted}",
            path=str(path),
            field=".".join(str(part) for part in first["loc"]) or None,
        ) from None
