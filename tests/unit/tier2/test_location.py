"""What a tier-2 URL says, and that no error repeats a secret."""

from pathlib import Path

import pytest

from anabranch.common.adapters.chunk_bucket import bucket_storage
from anabranch.common.errors import InvalidSetting
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.storage.location import (
    BucketLocation,
    DirectoryLocation,
    Location,
    MemoryLocation,
    ObjectOptions,
    Provider,
    parse_location,
)

SECRET = "hush-hush"


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("file:///a%20b/c", DirectoryLocation(Path("/a b/c"))),
        ("memory:", MemoryLocation()),
        ("memory://", MemoryLocation()),
        ("s3://my.bucket-1/a/b=c", BucketLocation("s3", "my.bucket-1", "a/b=c")),
        ("s3://bucket/", BucketLocation("s3", "bucket", "")),
        ("gs://bucket/a/", BucketLocation("gs", "bucket", "a")),
        ("az://container", BucketLocation("az", "container", "")),
    ],
)
def test_a_url_names_one_place(url: str, location: Location) -> None:
    assert parse_location(url) == location


@pytest.mark.parametrize(
    "url",
    [
        f"s3://someone:{SECRET}@bucket/prefix",
        f"s3://{SECRET}@bucket",
        f"s3://bucket/prefix?secret_access_key={SECRET}",
        f"az://container/prefix?sig={SECRET}",
        f"s3://bucket#{SECRET}",
        f"ftp://someone:{SECRET}@host/",
        f"s3://someone:{SECRET}@[bucket",
    ],
)
def test_a_url_with_a_secret_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        parse_location(url)
    assert SECRET not in str(refused.value.to_body())


@pytest.mark.parametrize("url", ["s3:", "s3:///prefix", "s3://b", "gs://B", "az://a b/c", "s3:b/p"])
def test_a_url_without_a_bucket_is_refused_with_the_form_to_use(url: str) -> None:
    with pytest.raises(InvalidSetting, match="names no bucket") as refused:
        parse_location(url)
    assert "://bucket/prefix" in refused.value.remedy


@pytest.mark.parametrize("prefix", ["a//b", "a/../b", "a b", "a%20b", "."])
def test_a_prefix_that_stores_would_write_differently_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidSetting, match="prefix"):
        parse_location(f"s3://bucket/{prefix}")


def test_an_endpoint_with_a_secret_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidSetting) as refused:
        _set_up("s3", ObjectOptions(endpoint=f"http://someone:{SECRET}@host"))
    assert SECRET not in str(refused.value.to_body())


def _set_up(provider: Provider, options: ObjectOptions) -> None:
    bucket_storage(BucketLocation(provider, "bucket", "p"), options, SystemClock(), limit_s=1.0)


def test_an_endpoint_without_tls_must_be_allowed() -> None:
    options = ObjectOptions(endpoint="http://127.0.0.1:9")
    with pytest.raises(InvalidSetting, match="TLS"):
        _set_up("s3", options)
    _set_up("s3", options.model_copy(update={"allow_http": True}))


@pytest.mark.parametrize("provider", ["s3", "gs", "az"])
@pytest.mark.parametrize("content", [f'{{"key": "{SECRET}"}}', SECRET, f'"{SECRET}"', "[]", ""])
def test_a_file_with_other_credentials_is_refused_and_not_repeated(
    tmp_path: Path, provider: Provider, content: str
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(content)
    with pytest.raises(InvalidSetting) as refused:
        _set_up(provider, ObjectOptions(credentials_file=keys))
    assert SECRET not in str(refused.value.to_body())
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("provider", ["s3", "gs", "az"])
def test_a_file_with_credentials_that_is_missing_is_refused(
    tmp_path: Path, provider: Provider
) -> None:
    with pytest.raises(InvalidSetting):
        _set_up(provider, ObjectOptions(credentials_file=tmp_path / "missing"))


def test_an_account_and_its_key_come_from_a_file(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text('{"account_name": "someone", "account_key": "aHVzaA=="}')
    _set_up("az", ObjectOptions(credentials_file=keys))
