"""Sessions at tier 2 of processes that come and go leave nothing behind for ever."""

from pathlib import Path

import pytest

from anabranch.common.adapters.chunk_transient import (
    LEFT_OVER_AGE_MS,
    shared_location,
    transient_chunk_storage,
)
from anabranch.common.adapters.chunk_url import open_chunk_storage
from anabranch.common.errors import DirectoryUnusable, InvalidSetting
from anabranch.common.runtime.ids import SeededIds
from kit.scripted_s3 import scripted_s3

NOW_MS = 1_700_000_000_000
IDS = SeededIds(1)


class FixedClock:
    """Stands still."""

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        return None


def owners(root: Path) -> list[str]:
    return sorted(folder.name for folder in (root / "tmp").iterdir())


async def test_a_session_keeps_its_objects_and_removes_its_folder(tmp_path: Path) -> None:
    session = transient_chunk_storage(tmp_path.as_uri(), FixedClock(), IDS, limit_s=60)
    async with session as storage:
        await storage.put_new("s/1", [b"told"])
        (owner,) = owners(tmp_path)
        assert owner.startswith(f"transient-{NOW_MS}-")
    assert owners(tmp_path) == []
    async with transient_chunk_storage(tmp_path.as_uri(), FixedClock(), IDS, limit_s=60) as again:
        assert await again.get("s/1") == b"told"


async def test_what_a_killed_session_left_is_removed_a_day_later_and_nothing_else(
    tmp_path: Path,
) -> None:
    old, young = NOW_MS - LEFT_OVER_AGE_MS - 1, NOW_MS - LEFT_OVER_AGE_MS + 1
    for name in (f"transient-{old}-a", f"transient-{young}-b", "transient-x", "node-1"):
        (tmp_path / "tmp" / name).mkdir(parents=True)
        (tmp_path / "tmp" / name / "object").write_text("half")
    async with transient_chunk_storage(tmp_path.as_uri(), FixedClock(), IDS, limit_s=60):
        assert len(owners(tmp_path)) == 4
    assert owners(tmp_path) == ["node-1", f"transient-{young}-b", "transient-x"]


async def test_a_segment_store_opens_and_probes_the_directory_beside_a_session(
    tmp_path: Path,
) -> None:
    url = tmp_path.as_uri()
    async with transient_chunk_storage(url, FixedClock(), IDS, limit_s=60) as told:
        store = await open_chunk_storage(url, IDS, "node-1", limit_s=60)
        await told.put_new("s/1", [b"told"])
        await store.put_new("c0/m/1", [b"stored"])
        assert await store.list("") == ["c0/m/1", "s/1"]


async def test_a_directory_that_cannot_be_made_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DirectoryUnusable):
        async with transient_chunk_storage(
            (tmp_path / "file").as_uri(), FixedClock(), IDS, limit_s=60
        ):
            raise AssertionError("must not open")


def test_memory_is_refused_because_nobody_else_sees_it() -> None:
    with pytest.raises(InvalidSetting, match="in memory") as refused:
        shared_location("memory:")
    assert "file:///" in refused.value.remedy
    assert "memory:" not in refused.value.remedy


async def test_a_session_in_a_bucket_writes_its_objects_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a key")
    async with (
        scripted_s3() as server,
        transient_chunk_storage(
            "s3://bucket/prefix", FixedClock(), IDS, limit_s=60, options=server.options
        ) as storage,
    ):
        await storage.put_new("s/1", [b"told"])
    assert server.objects == {"prefix/s/1": b"told"}
