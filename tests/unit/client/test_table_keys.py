"""Keys of an open table: partitions, ranges and prefixes, with and without serializers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client import (
    InvalidKey,
    JsonSerializer,
    Partition,
    SerializationFailed,
    TableConfig,
    TableDescription,
    TableKey,
    TableState,
    TextSerializer,
)
from anabranch.client.tables.keys import KeySerializers, TableKeys
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.table import KEY_SIZE_BYTES_MAX, encode_key, key_position

PAIRS = TableConfig(secondary_key_size=None)
FIXED = TableConfig(primary_key_size=2, secondary_key_size=None)
tricky = st.lists(st.sampled_from([0, 1, 0x61, 0xFF]), max_size=4).map(bytes)
primaries = tricky.filter(bool)
bounds = st.none() | tricky


def keys_of(
    config: TableConfig | None = None, serializers: KeySerializers = None
) -> TableKeys[Any]:
    """The keys of a table with such a configuration."""
    config = config or TableConfig()
    ranges = even_ranges(config.partition_count)
    partitions = tuple(
        Partition(segment_id=number, segment=f"s/{number}", key_start=each.start,
                  key_end=each.end)
        for number, each in enumerate(ranges)
    )  # fmt: skip
    described = TableDescription(
        scope="shop", table="stock", incarnation=1, state=TableState.ACTIVE, created_ms=0,
        config=config, epoch=0, epoch_ms=0, partitions=partitions,
    )  # fmt: skip
    return TableKeys(described, serializers)


@given(st.lists(st.tuples(primaries, tricky), max_size=8))
def test_keys_are_placed_alike_one_by_one_and_together(pairs: list[tuple[bytes, bytes]]) -> None:
    keys = keys_of(PAIRS)
    indexes, stored = keys.places(pairs)
    assert list(zip(indexes, stored, strict=True)) == [keys.place(pair) for pair in pairs]
    for pair, index, each in zip(pairs, indexes, stored, strict=True):
        assert index == int(key_position(pair[0]) * 4)
        assert keys.decode(each) == TableKey(*pair)


def test_keys_of_a_family_lie_in_one_partition() -> None:
    keys = keys_of(PAIRS)
    indexes, _ = keys.places([("shop", f"{n}") for n in range(50)])
    assert len(set(indexes)) == 1
    assert len(set(keys.places([(f"{n}", "") for n in range(50)])[0])) == 4


def test_keys_come_back_as_their_serializers_make_them() -> None:
    for serializers, key in (
        (None, (b"a", b"b")),
        (TextSerializer(), ("a", "b")),
        ((TextSerializer(), JsonSerializer()), ("a", {"b": 1})),
    ):
        keys = keys_of(PAIRS, serializers)
        assert keys.decode(keys.place(key)[1]) == key
    keys = keys_of(serializers=JsonSerializer())
    assert keys.decode(keys.place([1, 2])[1]) == [1, 2]
    assert not keys.are_stored_unchanged
    assert keys_of().are_stored_unchanged
    with pytest.raises(SerializationFailed):
        keys_of(serializers=TextSerializer()).place(5)


def test_an_error_shows_the_key_as_text_and_not_all_of_it() -> None:
    assert keys_of().text(b"apple\xff") == r"apple\xff"
    keys = keys_of(PAIRS)
    assert keys.text(keys.place(("shop", "apple"))[1]) == "shop, apple"
    assert len(keys_of().text(b"x" * 1000)) == 200


# --- ranges -------------------------------------------------------------------------------


def matching(keys: TableKeys[Any], stored: list[bytes], **limits: Any) -> list[bytes]:
    """The table keys in the range."""
    found = keys.range(**limits)
    if found.is_empty:
        return []
    return [
        each for each in stored
        if found.start <= each and (found.end is None or each < found.end)
    ]  # fmt: skip


@given(st.lists(primaries, max_size=6), bounds, bounds, bounds)
def test_a_range_of_plain_keys_is_what_its_bounds_say(
    plain: list[bytes], start: bytes | None, end: bytes | None, prefix: bytes | None
) -> None:
    found = matching(keys_of(), plain, start=start, end=end, prefix=prefix)
    assert found == [key for key in plain if holds(key, start, end, prefix)]


def holds(key: Any, start: Any, end: Any, prefix: bytes | None) -> bool:
    return (
        (start is None or key >= start)
        and (end is None or key < end)
        and (prefix is None or key.startswith(prefix))
    )


@given(st.lists(st.tuples(primaries, tricky), max_size=6), st.data())
def test_a_range_of_pairs_is_what_its_bounds_say(
    pairs: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    keys = keys_of(PAIRS)
    bound = st.none() | primaries | st.tuples(primaries, tricky)
    start, end, prefix = data.draw(bound), data.draw(bound), data.draw(bounds)
    stored = [encode_key(PAIRS, TableKey(*pair)) for pair in pairs]
    found = matching(keys, stored, start=start, end=end, prefix=prefix)

    def as_pair(one: Any) -> Any:
        return (one, b"") if isinstance(one, bytes) else one

    expected = [
        each for each, pair in zip(stored, pairs, strict=True)
        if holds(pair, as_pair(start), as_pair(end), None)
        and (prefix is None or pair[0].startswith(prefix))
    ]  # fmt: skip
    assert found == expected


@pytest.mark.parametrize("config", [PAIRS, FIXED])
@given(data=st.data())
def test_a_range_of_a_family_bounds_its_secondary_keys(
    config: TableConfig, data: st.DataObject
) -> None:
    keys = keys_of(config)
    primary = st.binary(min_size=2, max_size=2) if config is FIXED else primaries
    pairs = data.draw(st.lists(st.tuples(primary, tricky), max_size=6))
    family = data.draw(st.sampled_from([pair[0] for pair in pairs]) if pairs else primary)
    start, end, prefix = data.draw(bounds), data.draw(bounds), data.draw(bounds)
    stored = [encode_key(config, TableKey(*pair)) for pair in pairs]
    limits = {"start": start, "end": end, "prefix": prefix}
    expected = [
        each for each, pair in zip(stored, pairs, strict=True)
        if pair[0] == family and holds(pair[1], start, end, prefix)
    ]  # fmt: skip
    assert matching(keys, stored, primary=family, **limits) == expected
    assert keys.range(primary=family, **limits).partition == int(key_position(family) * 4)


def test_the_family_of_a_plain_key_is_its_only_entry() -> None:
    keys = keys_of()
    assert matching(keys, [b"a", b"a\0", b"b"], primary=b"a") == [b"a"]
    with pytest.raises(InvalidRequest):
        keys.range(primary=b"a", prefix=b"b")


def test_bounds_use_the_serializers_of_their_parts() -> None:
    keys = keys_of(PAIRS, (TextSerializer(), JsonSerializer()))
    _, stored = keys.places([("a", 1), ("a", 2), ("b", 1)])
    assert matching(keys, list(stored), primary="a", start=2) == [stored[1]]
    assert matching(keys, list(stored), start=("a", 2)) == list(stored[1:])
    assert matching(keys, list(stored), end="b") == list(stored[:2])
    assert matching(keys, list(stored), prefix="b") == [stored[2]]


def test_bounds_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidKey):
        keys_of(FIXED).range(prefix=b"abc")
    with pytest.raises(InvalidKey):
        keys_of(FIXED).range(start=(b"abc", b""))
    with pytest.raises(InvalidKey):
        keys_of(FIXED).range(primary=b"abc")
    with pytest.raises(InvalidKey):
        keys_of().range(start=5)
    with pytest.raises(InvalidKey):
        keys_of().range(end=b"x" * (2 * KEY_SIZE_BYTES_MAX + 1))


def test_a_range_without_keys_is_empty() -> None:
    keys = keys_of()
    for limits in (
        {"start": b"b", "end": b"a"}, {"start": b"a", "end": b"a"}, {"end": b""},
        {"prefix": b"a", "start": b"b"}, {"prefix": b"b", "end": b"a"},
    ):  # fmt: skip
        assert keys.range(**limits).is_empty
    for limits in ({}, {"prefix": b"\xff"}, {"start": b""}, {"prefix": b""}):
        assert not keys.range(**limits).is_empty
