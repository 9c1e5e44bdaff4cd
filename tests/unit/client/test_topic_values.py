"""Sizes, durations, keys and offsets as users write them."""

from datetime import UTC, datetime, timedelta

import pytest

from anabranch.client import (
    Assigned,
    AssignedPartition,
    Compression,
    Computed,
    InvalidRequest,
    Offset,
    WriterSettings,
)
from anabranch.client.topics.codecs import agreed_settings
from anabranch.client.topics.offsets import Bounds, first_number, offset_of, resumed_number
from anabranch.client.topics.partitioner import hash_of, key_bytes, partition_of
from anabranch.client.topics.values import Duration, Size, duration_s, replicas_of, size_bytes


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (90, 90),
        ("90", 90),
        ("7d", 604_800),
        ("1d 12h", 129_600),
        ("1h30m", 5400),
        ("2000ms", 2),
        ("3 weeks", 1_814_400),
        (timedelta(minutes=2), 120),
    ],
)
def test_durations_are_seconds_timedeltas_or_text(given: Duration, seconds: int) -> None:
    assert duration_s(given) == seconds


@pytest.mark.parametrize("given", ["", "d", "7x", "7d!", "-1", -1, 1.5, timedelta(milliseconds=5)])
def test_what_is_no_whole_number_of_seconds_is_refused(given: Duration) -> None:
    with pytest.raises(InvalidRequest):
        duration_s(given)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (5, 5),
        ("5", 5),
        ("5B", 5),
        ("10MB", 10_000_000),
        ("10MiB", 10 * 1024**2),
        ("100Gi", 100 * 1024**3),
        ("1 k", 1000),
    ],
)
def test_sizes_are_bytes_or_text_with_a_unit(given: Size, size: int) -> None:
    assert size_bytes(given) == size


@pytest.mark.parametrize("given", ["", "Gi", "1.5Gi", "5X", -1])
def test_what_is_no_size_is_refused(given: Size) -> None:
    with pytest.raises(InvalidRequest):
        size_bytes(given)


def test_an_assignment_decides_alone_and_comes_in_either_form() -> None:
    assert replicas_of(3, 2, ignore_racks=True, assignment=None) == Computed(3, 2, True)
    rows = (AssignedPartition(0, (1, 2)), AssignedPartition(1, (2, 1)))
    for given in ([[1, 2], [2, 1]], {1: [2, 1], 0: [1, 2]}, Assigned(rows)):
        assert replicas_of(9, 9, ignore_racks=False, assignment=given) == Assigned(rows)
    with pytest.raises(InvalidRequest):
        replicas_of(1, 1, ignore_racks=False, assignment=[])


def test_keys_go_where_fluvio_sends_them() -> None:
    """Its command's tests of consumer offsets produce these keys to a topic of two partitions, and
    find the last two in partition 1."""
    assert [partition_of(key_bytes(key), 2) for key in ("1", "2", "4", "8")] == [0, 0, 1, 1]


def test_the_hash_covers_the_length_of_the_key() -> None:
    assert hash_of(b"") != hash_of(b"\0")
    assert 0 <= hash_of(b"x") < 1 << 64


def test_a_key_is_text_or_its_bytes() -> None:
    assert key_bytes("größe") == key_bytes("größe".encode()) == "größe".encode()
    for wrong in (b"\xff", "\ud800", 5, "k" * 8193):
        with pytest.raises(InvalidRequest):
            key_bytes(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offset", "number"),
    [
        (Offset.from_beginning(), 5),
        (Offset.from_beginning(2), 7),
        (Offset.from_beginning(100), 9),
        (Offset.from_end(), 9),
        (Offset.from_end(2), 7),
        (Offset.from_end(100), 5),
        (Offset.absolute(7), 7),
        (Offset.absolute(9), 9),
        (Offset.absolute(2), 2),
    ],
)
def test_offsets_resolve_as_fluvios_do(offset: Offset, number: int) -> None:
    assert first_number(offset, Bounds(5, 9), topic="t", partition=0) == number


def test_a_number_beyond_the_end_is_refused_in_fluvios_words() -> None:
    with pytest.raises(InvalidRequest, match="start offset: 10 is greater than leo: 9"):
        first_number(Offset.absolute(10), Bounds(5, 9), topic="t", partition=0)


def test_a_committed_offset_resumes_with_the_next_record() -> None:
    assert resumed_number(6, Bounds(5, 9)) == 7
    assert resumed_number(100, Bounds(5, 9)) == 9


def test_starts_are_words_numbers_or_offsets() -> None:
    assert offset_of("beginning") == Offset.from_beginning(0)
    assert offset_of("end") == Offset.from_end(0)
    assert offset_of(7) == Offset.absolute(7)
    assert offset_of(Offset.at(datetime(2026, 1, 1, tzinfo=UTC))).is_time
    for wrong in ("tail", True, None, -1):
        with pytest.raises(InvalidRequest):
            offset_of(wrong)  # type: ignore[arg-type]


def codec(asked: str | None, allowed: str, given: WriterSettings | None = None) -> str | None:
    """The codec that a producer uses."""
    settings = given or WriterSettings()
    return agreed_settings(settings, asked, Compression(allowed), "orders").compression


def test_the_codec_is_the_producers_as_far_as_the_topic_allows_it() -> None:
    zstd = WriterSettings(compression="zstd")
    assert codec(None, "any") is None
    assert codec(None, "zstd") == "zstd"
    assert codec("zstd", "any") == "zstd"
    assert codec(None, "any", zstd) == "zstd"
    assert codec("none", "any", zstd) is None
    for asked, allowed, given in (
        ("zstd", "none", None),
        ("none", "zstd", None),
        (None, "none", zstd),
    ):
        with pytest.raises(InvalidRequest, match="does not match with topic level compression"):
            codec(asked, allowed, given)


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4"])
def test_other_codecs_are_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        codec(name, "any")
