"""The keys and rows of a table index."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import IndexDamaged
from anabranch.common.wire.messages import REQUESTS_REMEMBERED
from anabranch.common.wire.table_columns import EntryColumns, Refusal
from anabranch.segstore.adapters.table_index.rows import (
    CLIENT,
    ENTRY,
    LAST_KEY,
    LAST_ROW,
    STATE,
    ClientRow,
    TableRow,
    decode_client,
    decode_entries,
    decode_table,
    encode_client,
    encode_entries,
    encode_table,
    end_of,
    head,
    opened,
    sealed,
)
from anabranch.segstore.domain.table.tail import Outcome
from anabranch.segstore.ports_table import IndexState
from kit.golden import assert_golden

KEY = head(7, ENTRY) + b"key"
CLIENT_KEY = head(7, CLIENT) + b"c" * 16
TABLE = TableRow(IndexState(7, 900, 100, 850, 0xFFFFFFFF, 3, 2**40), clients=2, forgotten=300)
CLIENT_ROW = ClientRow(
    100, {4: Outcome(500), 5: Outcome(-1, (Refusal(1, 2, -1), Refusal(3, 4, 2**50)))}
)
KEYS = [KEY, KEY + b"2"]
ENTRIES = EntryColumns(KEYS, [2**60, 0], [2**41, 0], [b"value", b""])


def test_rows_are_stored_in_this_form() -> None:
    entries = encode_entries(ENTRIES)
    rows = (encode_table(TABLE), encode_client(CLIENT_KEY, CLIENT_ROW), *entries, LAST_ROW)
    assert_golden("table_index_format_1", b"".join((KEY, CLIENT_KEY, LAST_KEY, *rows)))


def test_decoding_inverts_encoding() -> None:
    assert decode_table(7, encode_table(TABLE)) == TABLE
    assert decode_client(CLIENT_KEY, encode_client(CLIENT_KEY, CLIENT_ROW)) == CLIENT_ROW
    for found in (decode_entries(KEYS, encode_entries(ENTRIES)),):
        assert [list(column) for column in found] == [list(column) for column in ENTRIES]
    assert not decode_entries([], []).keys


def test_keys_sort_by_segment_then_kind_and_the_last_key_behind_all() -> None:
    keys = [
        head(0, STATE), head(7, STATE), end_of(7, STATE), CLIENT_KEY, end_of(7, CLIENT), KEY,
        head(7, ENTRY) + b"\xff" * 20, end_of(7, ENTRY), head(8, STATE), head(2**63 - 1, ENTRY),
        LAST_KEY,
    ]  # fmt: skip
    assert sorted(keys) == keys
    assert end_of(7, STATE) == head(7, CLIENT)


@given(st.binary(min_size=9, max_size=40), st.binary(max_size=40), st.integers(0, 10**4))
def test_a_flipped_bit_of_key_or_row_is_found(key: bytes, value: bytes, at: int) -> None:
    row = encode_entries(EntryColumns([key], [1], [2], [value]))[0]
    both = bytearray(key + row)
    bit = at % (len(both) * 8)
    both[bit // 8] ^= 1 << bit % 8
    with pytest.raises(IndexDamaged):
        decode_entries([bytes(both[: len(key)])], [bytes(both[len(key) :])])


@given(st.integers(0, 60))
def test_a_shortened_row_is_found(kept: int) -> None:
    for key, row, decode in (
        (head(7, STATE), encode_table(TABLE), lambda _, row: decode_table(7, row)),
        (CLIENT_KEY, encode_client(CLIENT_KEY, CLIENT_ROW), decode_client),
        (KEY, encode_entries(ENTRIES)[0], lambda key, row: decode_entries([key], [row])),
    ):
        if kept < len(row):
            with pytest.raises(IndexDamaged):
                decode(key, row[:kept])


def test_an_intact_row_of_another_form_is_damaged() -> None:
    with pytest.raises(IndexDamaged):
        decode_table(7, sealed(head(7, STATE), b"short"))
    with pytest.raises(IndexDamaged):
        decode_client(CLIENT_KEY, sealed(CLIENT_KEY, b"short"))
    with pytest.raises(IndexDamaged):
        decode_entries([KEY], [sealed(KEY, b"short")])
    assert opened(KEY, sealed(KEY, b"body")) == b"body"


def test_a_client_keeps_its_last_requests() -> None:
    numbers = range(5, 5 + REQUESTS_REMEMBERED)
    row = ClientRow(3, {}).joined({number: Outcome(number) for number in numbers})
    row = row.joined({1: Outcome(99), 100: Outcome(50)})
    assert list(row.requests) == [*numbers[1:], 100]
    assert (row.complete_from, row.last) == (3, 50)
