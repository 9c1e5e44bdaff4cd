"""From a tier-2 URL to a storage that is ready, or to an error that says what to do."""

from pathlib import Path

import pytest

from anabranch.common.adapters.chunk_url import directory_of, open_chunk_storage
from anabranch.common.adapters.local_disk import LocalDisk
from anabranch.common.errors import DirectoryUnusable, FormatTooNew, InvalidSetting
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.ports import ChunkStorage


async def _open(url: str) -> ChunkStorage:
    return await open_chunk_storage(url, SeededIds(1), "node-1", limit_s=60.0)


async def test_a_file_url_makes_its_directory_and_keeps_objects_there(tmp_path: Path) -> None:
    url = (tmp_path / "a b" / "tier2").as_uri()
    await (await _open(url)).put_new("c1/m/0000000001", [b"kept"])
    assert await (await _open(url)).get("c1/m/0000000001") == b"kept"
    assert await (await _open(url)).list("") == ["c1/m/0000000001"]


async def test_memory_needs_no_directory() -> None:
    storage = await _open("memory:")
    assert await storage.list("") == []


@pytest.mark.parametrize(
    "url", ["s3://b/p", "file:relative", "file://host/x", "/plain/path", "", "memory:x"]
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
