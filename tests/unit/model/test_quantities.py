"""Sizes and durations as people write them."""

import pytest

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.quantities import duration_s, size_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10Gi", 10 << 30),
        ("20GiB", 20 << 30),
        ("2.0 KB", 2000),
        ("1.5KiB", 1536),
        ("1 MB", 1_000_000),
        ("512Ki", 512 << 10),
        ("3g", 3_000_000_000),
        ("1TiB", 1 << 40),
        ("1024", 1024),
        ("1024 B", 1024),
        ("7 bytes", 7),
        (1024, 1024),
        (" 1 Gi ", 1 << 30),
    ],
)
def test_a_size_is_read(text: str | int, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "Gi", "-1", "1.5", "0.3 KB2", "1 XB", "1e3", "½ GB", "1,5 GB"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a"):
        size_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7d", 604_800),
        ("2m", 120),
        ("1h 30m", 5400),
        ("1h30m", 5400),
        ("90", 90),
        (90, 90),
        ("5 s", 5),
        ("1500ms 500 ms", 2),
        ("2 weeks", 1_209_600),
        ("1day 2hours 3min 4sec", 93_784),
    ],
)
def test_a_duration_is_read(text: str | int, seconds: int) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "-7d", "1.5h", "7 fortnights", "500ms", "1h x", "7d,"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a"):
        duration_s(text)


@pytest.mark.parametrize("read", [size_bytes, duration_s])
def test_a_long_text_is_refused_at_once(read: object) -> None:
    assert callable(read)
    with pytest.raises(InvalidRequest) as refused:
        read("9" * 100_000)
    assert len(refused.value.message) < 200
