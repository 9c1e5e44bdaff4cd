"""Table blocks and columns: what goes in comes out, and damage raises named errors alone."""

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import (
    BadPacket,
    CorruptBlock,
    FormatTooNew,
    InvalidRequest,
    MalformedBlock,
)
from anabranch.common.model.table import (
    KEY_SIZE_BYTES_MAX,
    RESERVED_KEYS,
    TTL_MS_MAX,
    VALUE_SIZE_BYTES_MAX,
)
from anabranch.common.wire import table
from anabranch.common.wire.block import CRC_AT, HEADER_SIZE_BYTES
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.table import (
    Copied,
    TableBlock,
    check_sizes,
    encode_copies,
    encode_update,
    kept_entries,
    parse_table_block,
    placed,
    stamped,
)
from anabranch.common.wire.table_columns import (
    ABSENT,
    NO_ROW,
    EntryColumns,
    Refusal,
    Row,
    decode_keys,
    decode_numbers,
    decode_refusals,
    decode_rows,
    encode_keys,
    encode_numbers,
    encode_refusals,
    encode_rows,
    in_columns,
    parse_rows,
)
from kit.golden import assert_golden

CLIENT = bytes(range(16))
NAMED = (CorruptBlock, MalformedBlock, FormatTooNew)

int63 = st.integers(0, 2**63 - 1)
entries = st.lists(
    st.tuples(st.binary(max_size=12), st.none() | st.binary(max_size=30)), min_size=1, max_size=12
)
refusals = st.lists(
    st.builds(Refusal, st.integers(0, 65535), st.integers(0, 65535), st.integers(-1, 2**62)),
    max_size=4,
)
rows = st.lists(
    st.builds(Row, st.binary(max_size=12), st.integers(-1, 2**63 - 1), int63, st.binary()),
    max_size=12,
)


def update(
    keys: list[bytes], values: list[bytes | None], *, ttl_ms: int = 0, time_ms: int = 0
) -> bytes:
    return encode_update(
        keys, values, client_id=CLIENT, request_number=7, ttl_ms=ttl_ms, time_ms=time_ms
    )


def resealed(block: bytes) -> bytes:
    """The block with a checksum that fits."""
    head, body = block[:CRC_AT], block[HEADER_SIZE_BYTES:]
    return head + struct.pack("<I", crc32c(body, crc32c(head))) + body


# --- blocks -------------------------------------------------------------------------------


def test_the_formats_are_frozen() -> None:
    copies = [Copied(b"a", 5, 9, b"x"), Copied(b"b", 7, 0, b"")]
    assert_golden("table_update", update([b"a", b"bc"], [b"5", None]))
    assert_golden("table_update_ttl", update([b"a", b"b"], [b"5", None], ttl_ms=1000, time_ms=3))
    assert_golden("table_copies", encode_copies(copies, client_id=CLIENT, request_number=1,
                                                time_ms=2))  # fmt: skip
    refused = encode_update(
        [b"a"], [b"5"], client_id=CLIENT, request_number=2, refusals=[Refusal(1, 2, -1)]
    )
    assert_golden("table_refusals", refused)
    columns = encode_rows(in_columns([Row(b"a", 5, 0, b"x"), NO_ROW])) + encode_keys([b"a", b"bc"])
    assert_golden("table_columns", columns + encode_numbers([-2, -1, 5], "q"))


@given(entries, st.integers(0, TTL_MS_MAX), st.integers(0, 2**40), refusals, st.integers(0, 2**50))
def test_an_update_is_parsed_to_what_was_put_in(
    pairs: list[tuple[bytes, bytes | None]],
    ttl_ms: int,
    time_ms: int,
    refused: list[Refusal],
    offset: int,
) -> None:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    block = encode_update(
        keys, values, client_id=CLIENT, request_number=7, ttl_ms=ttl_ms, refusals=refused,
        time_ms=time_ms,
    )  # fmt: skip
    found = parse_table_block(b"before" + block + b"after", offset, 6)
    assert (found.client_id, found.request_number, found.time_ms) == (CLIENT, 7, time_ms)
    assert (list(found.keys), list(found.values)) == (keys, values)
    assert list(found.versions) == [offset + entry for entry in range(len(keys))]
    until = time_ms + ttl_ms if ttl_ms else 0
    assert list(found.expires_ms) == [0 if value is None else until for value in values]
    assert (found.copies, list(found.refusals)) == (False, refused)


@given(st.lists(st.builds(Copied, st.binary(max_size=9), int63, int63, st.binary()), min_size=1))
def test_copies_keep_their_versions(copies: list[Copied]) -> None:
    block = encode_copies(copies, client_id=CLIENT, request_number=1, time_ms=5)
    found = parse_table_block(block, 1000)
    assert found.copies
    columns = zip(found.keys, found.versions, found.expires_ms, found.values, strict=True)
    assert [Copied(*each) for each in columns] == copies  # type: ignore[arg-type]


@given(entries, st.integers(0, 1000), st.integers(0, 2**40))
def test_a_stamped_block_has_another_time_and_nothing_else(
    pairs: list[tuple[bytes, bytes | None]], ttl_ms: int, time_ms: int
) -> None:
    block = update([key for key, _ in pairs], [value for _, value in pairs], ttl_ms=ttl_ms)
    before, found = parse_table_block(block, 5), parse_table_block(stamped(block, time_ms), 5)
    assert found == placed(before, 5, time_ms)
    assert (found.time_ms, found.keys, found.values) == (time_ms, before.keys, before.values)


@given(entries, st.data(), refusals, st.integers(0, 1000))
def test_the_kept_entries_of_a_block_are_those_that_were_chosen(
    pairs: list[tuple[bytes, bytes | None]],
    data: st.DataObject,
    refused: list[Refusal],
    ttl_ms: int,
) -> None:
    block = update([key for key, _ in pairs], [value for _, value in pairs], ttl_ms=ttl_ms)
    kept = [at for at in range(len(pairs)) if data.draw(st.booleans())]
    if not kept and not refused:
        return
    found = parse_table_block(kept_entries(block, kept, refused), 0)
    assert list(zip(found.keys, found.values, strict=True)) == [pairs[at] for at in kept]
    assert list(found.refusals) == refused
    assert (found.client_id, found.request_number) == (CLIENT, 7)


@given(entries, st.data())
def test_a_truncated_or_changed_block_is_refused(
    pairs: list[tuple[bytes, bytes | None]], data: st.DataObject
) -> None:
    block = update([key for key, _ in pairs], [value for _, value in pairs])
    cut = data.draw(st.integers(0, len(block) - 1))
    with pytest.raises(CorruptBlock):
        parse_table_block(block[:cut], 0)
    damaged = bytearray(block)
    damaged[cut] ^= data.draw(st.integers(1, 255))
    with pytest.raises(NAMED):
        parse_table_block(bytes(damaged), 0)


@given(st.sampled_from(["update", "ttl", "copies", "refusals"]), st.data())
def test_a_block_that_was_encoded_wrong_raises_a_named_error_or_means_something(
    kind: str, data: st.DataObject
) -> None:
    """The checksum fits, so only the content can be wrong."""
    block = {
        "update": update([b"a", b"bc"], [b"5", None]),
        "ttl": update([b"a", b"bc"], [b"5", b""], ttl_ms=1000),
        "copies": encode_copies(
            [Copied(b"a", 5, 9, b"x")], client_id=CLIENT, request_number=1, time_ms=2
        ),
        "refusals": encode_update(
            [b"a"], [b"5"], client_id=CLIENT, request_number=2, refusals=[Refusal(1, 2, 3)]
        ),
    }[kind]
    damaged = bytearray(block)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(block) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    try:
        found = parse_table_block(resealed(bytes(damaged)), 0)
    except NAMED:
        return
    columns = (found.keys, found.values, found.versions, found.expires_ms)
    assert {len(column) for column in columns} == {len(found.keys)}
    values = [value or b"" for value in found.values]
    encode_rows(EntryColumns(found.keys, found.versions, found.expires_ms, values))


@pytest.mark.parametrize("payload", [b"", b"\x02123", b"\x03" + bytes(15), b"\x05", b"\xff"])
def test_an_entry_of_no_known_form_is_refused(payload: bytes) -> None:
    block = table._encode([b"a"], [payload], CLIENT, 1, 0)
    with pytest.raises(MalformedBlock):
        parse_table_block(block, 0)


@pytest.mark.parametrize("payloads", [[b"\x00x", b"\x03" + bytes(16)], [b"\x04", b"\x00x"]])
def test_copies_and_refusals_do_not_mix_with_updates(payloads: list[bytes]) -> None:
    block = table._encode([b"a", b"b"], payloads, CLIENT, 1, 0)
    with pytest.raises(MalformedBlock):
        parse_table_block(block, 0)


def test_a_time_to_live_beyond_its_limit_is_refused() -> None:
    with pytest.raises(MalformedBlock):
        parse_table_block(update([b"a"], [b"x"], ttl_ms=TTL_MS_MAX + 1), 0)


def test_refusals_that_are_cut_off_are_refused() -> None:
    block = table._encode([b"a", b""], [b"\x00x", b"\x04" + bytes(11)], CLIENT, 1, 0)
    with pytest.raises(MalformedBlock):
        parse_table_block(block, 0)


def test_a_block_of_events_is_no_table_block() -> None:
    events = encode_block([b"x"], writer_id=CLIENT, first_event_number=1, base_timestamp_ms=0)
    with pytest.raises(CorruptBlock):
        parse_table_block(events, 0)


def block_of(keys: list[bytes], values: list[bytes | None]) -> TableBlock:
    return parse_table_block(update(keys, values), 0)


def test_keys_and_values_of_the_largest_sizes_are_permitted() -> None:
    check_sizes(block_of([bytes(KEY_SIZE_BYTES_MAX)], [bytes(VALUE_SIZE_BYTES_MAX)]))
    check_sizes(block_of([b"a"], [None]))


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"", b""), (bytes(KEY_SIZE_BYTES_MAX + 1), b""), (b"a", bytes(VALUE_SIZE_BYTES_MAX + 1))],
)
def test_keys_and_values_over_their_limits_are_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(InvalidRequest):
        check_sizes(block_of([b"a", key], [b"", value]))


# --- columns ------------------------------------------------------------------------------


@given(rows)
def test_rows_survive_a_round_trip(given_rows: list[Row]) -> None:
    columns = encode_rows(in_columns(given_rows))
    assert decode_rows(columns) == given_rows
    found = parse_rows(columns)
    assert (found.keys(), found.values()) == (
        [row.key for row in given_rows],
        [row.value for row in given_rows],
    )
    assert list(found.versions) == [row.version for row in given_rows]
    if given_rows:
        assert found.last_key == given_rows[-1].key


@given(st.lists(st.binary(max_size=12), max_size=12))
def test_keys_survive_a_round_trip(keys: list[bytes]) -> None:
    assert decode_keys(encode_keys(keys)) == keys


@given(refusals)
def test_refusals_survive_a_round_trip(refused: list[Refusal]) -> None:
    assert list(decode_refusals(encode_refusals(refused))) == refused


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.integers(0, 2**32 - 1)))
def test_numbers_survive_a_round_trip(conditions: list[int], units: list[int]) -> None:
    assert list(decode_numbers(encode_numbers(conditions, "q"), "q")) == conditions
    assert list(decode_numbers(encode_numbers(units, "I"), "I")) == units


DECODERS: list[Callable[[bytes], object]] = [decode_rows, decode_keys, decode_refusals]


@given(st.sampled_from(DECODERS), st.binary(max_size=120))
def test_garbage_raises_a_bad_packet_or_means_something(
    decode: Callable[[bytes], object], garbage: bytes
) -> None:
    try:
        decode(garbage)
    except BadPacket:
        return


@given(rows, st.data())
def test_columns_that_are_cut_off_or_too_long_are_refused(
    given_rows: list[Row], data: st.DataObject
) -> None:
    columns = encode_rows(in_columns(given_rows))
    cut = data.draw(st.integers(0, len(columns) - 1))
    for wrong in (columns[:cut], columns + b"\0"):
        with pytest.raises(BadPacket):
            decode_rows(wrong)
    keys = encode_keys([row.key for row in given_rows])
    for wrong in (keys[: min(cut, len(keys) - 1)], keys + b"\0"):
        with pytest.raises(BadPacket):
            decode_keys(wrong)


def test_a_column_that_claims_more_rows_than_it_has_is_refused_without_much_memory() -> None:
    for decode in (decode_rows, decode_keys):
        with pytest.raises(BadPacket):
            decode(struct.pack("<I", 2**32 - 1))


def test_a_row_of_a_key_without_an_entry_is_absent() -> None:
    assert decode_rows(encode_rows(in_columns([NO_ROW])))[0].version == ABSENT


def test_entries_with_reserved_keys_do_not_expire() -> None:
    own = RESERVED_KEYS + b"position"
    data = encode_update(
        [b"key", own, own + b"2"], [b"value", b"place", None],
        client_id=bytes(16), request_number=1, ttl_ms=5_000, time_ms=1_000,
    )  # fmt: skip
    parsed = parse_table_block(data, 0)
    assert list(parsed.expires_ms) == [6_000, 0, 0]
    assert list(parsed.values) == [b"value", b"place", None]
    assert list(placed(parsed, 0, 2_000).expires_ms) == [7_000, 0, 0]
