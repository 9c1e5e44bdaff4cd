"""From a tier-2 URL to a storage that is ready, or to an error that says what to do."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.common.adapters.chunk_url import (
    directory_of,
    open_chunk_storage,
    open_chunk_storage_read_only,
)
from anabranch.common.adapters.local_disk import LocalDisk
from anabranch.common.errors import (
    DirectoryUnusable,
    FormatTooNew,
    InvalidSetting,
    TierTwoNotHere,
    Unavailable,
)
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.ports import ChunkStorage
from kit.scripted_s3 import Fault, ScriptedS3, scripted_s3


async def _open(url: str) -> ChunkStorage:
    return await open_chunk_storage(url, SeededIds(1), "node-1", limit_s=60.0)


async def test_a_file_url_makes_its_directory_and_keeps_objects_there(tmp_path: Path) -> None:
    url = (tmp_path / "a b" / "tier2").as_uri()
    await (await _open(url)).put_new("c1/m/0000000001", [b"kept"])
    assert await (await _open(url)).get("c1/m/0000000001") == b"kept"
    assert await (await _open(url)).list("") == ["c1/m/0000000001"]


@pytest.mark.parametrize("url", ["memory:", "memory://"])
async def test_memory_needs_no_directory_and_is_nobody_elses(url: str) -> None:
    storage = await _open(url)
    assert await storage.list("") == []
    with pytest.raises(InvalidSetting):
        await open_chunk_storage_read_only(url, limit_s=60.0)


@pytest.mark.parametrize(
    "url", ["ftp://b/p", "file:relative", "file://host/x", "/plain/path", "", "memory:x"]
)
async def test_what_is_not_supported_is_refused_with_what_is(url: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        await _open(url)
    assert "file:///" in refused.value.remedy


async def test_a_path_through_a_file_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DirectoryUnusable):
            await _open(path.as_uri())


async def test_a_directory_of_a_newer_format_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("anabranch tier 2 format 9\n")
    with pytest.raises(FormatTooNew):
        await _open(tmp_path.as_uri())
    assert LocalDisk(tmp_path).list() == ["format"]


def test_a_path_in_a_url_is_unquoted() -> None:
    assert directory_of("file:///a%20b/c") == Path("/a b/c")
    assert directory_of("file://localhost/a") == Path("/a")


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedS3]:
    async with scripted_s3() as serving:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a key")
        monkeypatch.setenv("AWS_ENDPOINT_URL", serving.options.endpoint)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        yield serving


async def test_a_bucket_is_found_by_the_providers_variables_and_keeps_to_its_prefix(
    server: ScriptedS3,
) -> None:
    storage = await _open("s3://bucket/a/b/")
    await storage.put_new("c1/m/0000000001", [b"kept"])
    assert server.objects == {"a/b/c1/m/0000000001": b"kept"}
    assert await storage.list("c1/") == ["c1/m/0000000001"]
    reading = await open_chunk_storage_read_only("s3://bucket/a/b", limit_s=60.0)
    assert await reading.get("c1/m/0000000001") == b"kept"


async def test_a_reader_of_an_empty_prefix_is_told_that_no_tier_2_is_there(
    server: ScriptedS3,
) -> None:
    server.objects["a/c1/m/0000000001"] = b"another's"
    with pytest.raises(TierTwoNotHere):
        await open_chunk_storage_read_only("s3://bucket/b", limit_s=60.0)


async def test_a_server_that_takes_no_notice_of_create_only_is_refused(server: ScriptedS3) -> None:
    server.replaces = True
    with pytest.raises(InvalidSetting, match="several writers"):
        await _open("s3://bucket")


async def test_a_server_that_never_answers_ends_the_opening(server: ScriptedS3) -> None:
    server.faults = [Fault.PERFORMED_AND_SILENT] * 9
    with pytest.raises(Unavailable):
        await open_chunk_storage("s3://bucket", SeededIds(1), "node-1", limit_s=0.05)


async def test_without_the_library_an_object_store_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "anabranch.common.adapters.chunk_bucket", None)
    with pytest.raises(InvalidSetting) as refused:
        await _open("s3://bucket")
    assert "anabranch-common[objects]" in refused.value.remedy
