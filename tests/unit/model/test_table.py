"""Keys of key-value tables: what sorts how, what comes back, which partition has it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import InvalidKey, InvalidName, InvalidRequest
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import TABLE_NAME_LENGTH_MAX, SegmentKind, segment_kind
from anabranch.common.model.table import (
    KEY_SIZE_BYTES_MAX,
    PARTITION_COUNT_MAX,
    RESERVED_KEYS,
    TTL_MS_MAX,
    PartitionMap,
    TableConfig,
    TableKey,
    after_prefix,
    decode_key,
    encode_key,
    escape,
    key_position,
    primary_prefix,
    table_ref,
)

ANY_SIZES = TableConfig(secondary_key_size=None)
FIXED_PRIMARY = TableConfig(primary_key_size=3, secondary_key_size=None)
PLAIN = TableConfig()
CONFIGS = [ANY_SIZES, FIXED_PRIMARY, PLAIN, TableConfig(primary_key_size=3, secondary_key_size=2)]

tricky = st.lists(st.sampled_from([0, 1, 2, 0x61, 0xFE, 0xFF]), max_size=6).map(bytes)
"""Bytes around those that the encoding treats in a special way."""
primaries = tricky.filter(bool)
keys = st.builds(TableKey, primaries, tricky)


def fitting(config: TableConfig) -> st.SearchStrategy[TableKey]:
    """Keys that the configuration permits."""
    sizes = {None: tricky, 0: st.just(b""), 2: st.binary(min_size=2, max_size=2)}
    primary = primaries
    if config.primary_key_size is not None:
        primary = st.binary(min_size=config.primary_key_size, max_size=config.primary_key_size)
    return st.builds(TableKey, primary, sizes[config.secondary_key_size])


with_keys = st.sampled_from(CONFIGS).flatmap(
    lambda config: st.tuples(st.just(config), fitting(config), fitting(config))
)


@given(with_keys)
def test_a_table_key_gives_back_both_parts(
    case: tuple[TableConfig, TableKey, TableKey],
) -> None:
    config, key, _ = case
    assert decode_key(config, encode_key(config, key)) == key


@given(with_keys)
def test_table_keys_sort_by_primary_then_by_secondary_key(
    case: tuple[TableConfig, TableKey, TableKey],
) -> None:
    config, one, other = case
    stored = encode_key(config, one), encode_key(config, other)
    assert (stored[0] < stored[1]) == (one < other)
    assert (stored[0] == stored[1]) == (one == other)


@given(with_keys)
def test_the_table_keys_of_a_primary_key_are_those_that_begin_with_its_prefix(
    case: tuple[TableConfig, TableKey, TableKey],
) -> None:
    config, one, other = case
    if config.secondary_key_size != 0:
        begins = encode_key(config, other).startswith(primary_prefix(config, one.primary))
        assert begins == (one.primary == other.primary)


@given(keys, tricky)
def test_an_escaped_prefix_begins_the_table_keys_of_the_primary_keys_that_it_begins(
    key: TableKey, prefix: bytes
) -> None:
    begins = encode_key(ANY_SIZES, key).startswith(escape(prefix))
    assert begins == key.primary.startswith(prefix)


@given(keys, primaries)
def test_the_prefix_of_a_primary_key_bounds_a_range_of_primary_keys(
    key: TableKey, bound: bytes
) -> None:
    is_above = encode_key(ANY_SIZES, key) >= primary_prefix(ANY_SIZES, bound)
    assert is_above == (key.primary >= bound)


@given(tricky, tricky)
def test_the_keys_below_the_end_of_a_prefix_are_those_that_begin_with_it(
    prefix: bytes, key: bytes
) -> None:
    end = after_prefix(prefix)
    in_range = prefix <= key and (not end or key < end)
    assert in_range == key.startswith(prefix)


@given(tricky)
def test_bytes_that_no_key_encodes_to_are_refused_or_decode_to_a_key(stored: bytes) -> None:
    try:
        key = decode_key(ANY_SIZES, stored)
    except InvalidKey:
        return
    assert isinstance(key, TableKey)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (PLAIN, TableKey(b"")),
        (PLAIN, TableKey(b"a", b"b")),
        (FIXED_PRIMARY, TableKey(b"ab")),
        (FIXED_PRIMARY, TableKey(b"abcd")),
        (TableConfig(secondary_key_size=2), TableKey(b"a", b"b")),
        (PLAIN, TableKey(bytes(KEY_SIZE_BYTES_MAX + 1))),
        (ANY_SIZES, TableKey(bytes(KEY_SIZE_BYTES_MAX // 2))),
    ],
)
def test_a_key_that_does_not_fit_is_refused(config: TableConfig, key: TableKey) -> None:
    with pytest.raises(InvalidKey):
        encode_key(config, key)


def test_the_longest_keys_are_permitted() -> None:
    longest = bytes([1]) * KEY_SIZE_BYTES_MAX
    assert len(encode_key(PLAIN, TableKey(longest))) == KEY_SIZE_BYTES_MAX
    both = TableKey(longest[:4096], longest[: 4096 - 2])
    assert len(encode_key(ANY_SIZES, both)) == KEY_SIZE_BYTES_MAX


# --- partitions ---------------------------------------------------------------------------


@given(st.lists(st.binary(min_size=1, max_size=12), max_size=20), st.integers(1, 40))
def test_the_partition_of_a_key_is_the_one_whose_range_has_its_position(
    primaries: list[bytes], count: int
) -> None:
    ranges = even_ranges(count)
    found = PartitionMap([each.start for each in ranges]).indexes(primaries)
    for primary, index in zip(primaries, found, strict=True):
        assert ranges[index].start <= key_position(primary) < ranges[index].end


@given(st.lists(st.floats(0, 1, exclude_max=True), max_size=8), st.binary(min_size=1, max_size=8))
def test_the_partitions_need_not_be_even(bounds: list[float], primary: bytes) -> None:
    starts = sorted({0.0, *bounds})
    (index,) = PartitionMap(starts).indexes([primary])
    position = key_position(primary)
    assert starts[index] <= position
    assert all(position < start for start in starts[index + 1 :])


def test_the_position_of_a_key_is_frozen() -> None:
    found = [key_position(key) for key in (b"apple", b"\x00", b"\xff" * 100)]
    assert found == [0.5684400539787582, 0.9561444252288547, 0.9070903583992025]


# --- names and configurations -------------------------------------------------------------


def test_a_table_has_a_name_in_a_scope_and_segments_of_an_internal_stream() -> None:
    ref = table_ref("shop/stock")
    assert str(ref) == "shop/stock"
    assert str(ref.segments) == "shop/_TABLEstock"
    assert segment_kind(f"{ref.segments}/0.#epoch.0") is SegmentKind.TABLE


@pytest.mark.parametrize("name", ["stock", "shop/", "shop/a_b", "a/b/c"])
def test_a_name_that_no_stream_may_have_is_no_name_of_a_table(name: str) -> None:
    with pytest.raises(InvalidName):
        table_ref(name)


def test_a_name_leaves_room_for_the_prefix_of_the_internal_stream() -> None:
    table_ref("s/" + "a" * TABLE_NAME_LENGTH_MAX)
    with pytest.raises(InvalidRequest):
        table_ref("s/" + "a" * (TABLE_NAME_LENGTH_MAX + 1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"partition_count": 0},
        {"partition_count": PARTITION_COUNT_MAX + 1},
        {"primary_key_size": 0},
        {"primary_key_size": -1},
        {"secondary_key_size": -1},
        {"primary_key_size": 8000, "secondary_key_size": 193},
        {"secondary_key_size": KEY_SIZE_BYTES_MAX},
        {"ttl_ms": -1},
        {"ttl_ms": TTL_MS_MAX + 1},
    ],
)
def test_a_configuration_out_of_range_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest):
        TableConfig(**wrong)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (PLAIN, TableKey(RESERVED_KEYS)),
        (PLAIN, TableKey(RESERVED_KEYS + b"view")),
        (ANY_SIZES, TableKey(RESERVED_KEYS)),
        (FIXED_PRIMARY, TableKey(b"\xff" * 3, b"\xff" * 29)),
    ],
)
def test_a_reserved_key_is_refused(config: TableConfig, key: TableKey) -> None:
    with pytest.raises(InvalidKey, match="reserved"):
        encode_key(config, key)


def test_reserved_keys_lie_behind_all_others() -> None:
    key = TableKey(RESERVED_KEYS[1:])
    assert encode_key(PLAIN, key) < RESERVED_KEYS
    assert encode_key(FIXED_PRIMARY, TableKey(b"\xff" * 3, RESERVED_KEYS[4:])) < RESERVED_KEYS
