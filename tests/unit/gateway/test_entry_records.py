"""Entries and changes as records, over HTTP and on the command line."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.entries.records import EntryParser
from anabranch.cli.entries.records import change_record as change_of_the_command
from anabranch.cli.entries.records import record_of as record_of_the_command
from anabranch.client import Change, Entry, TablePosition, Version
from anabranch.gateway.events.records import Encoding
from anabranch.gateway.http.routes.entries import _ENCODER
from anabranch.gateway.tables.keys import EntryKey, EntryRange, key_after
from anabranch.gateway.tables.page_tokens import entries_token, last_key
from anabranch.gateway.tables.records import change_record, parse_entries, record_of

NUMBERS = st.integers(0, 2**53)
DATA = st.binary() | st.text().map(str.encode)
KEYS = DATA | st.tuples(DATA, DATA)
VERSIONS = st.builds(Version, NUMBERS, NUMBERS, NUMBERS)
ENTRIES = st.builds(Entry, KEYS, st.none() | DATA, VERSIONS, NUMBERS)
NOWHERE = TablePosition("a/b", 1, {})


@given(ENTRIES)
def test_an_entry_is_the_same_record_over_http_and_from_the_command(entry: Entry[Any, Any]) -> None:
    assert record_of(entry) == record_of_the_command(entry)


@given(ENTRIES, st.integers(0, 2**53), st.booleans())
def test_a_change_is_the_same_record_over_http_and_from_the_command(
    entry: Entry[Any, Any], time_ms: int, removed: bool
) -> None:
    value = None if removed else entry.value
    change = Change(
        entry.key, value, entry.version, time_ms, NOWHERE, value is None, entry.expires_ms
    )
    assert change_record(change) == change_of_the_command(change)


@given(KEYS, DATA, VERSIONS, NUMBERS, st.sampled_from([Encoding.RECORD, Encoding.BASE64]))
def test_the_record_of_an_entry_is_read_as_its_key_and_value(
    key: bytes | tuple[bytes, bytes],
    value: bytes,
    version: Version,
    expires_ms: int,
    encoding: Encoding,
) -> None:
    line = _ENCODER.encode(record_of(Entry(key, value, version, expires_ms), encoding))
    parser = EntryParser()
    (over_http,) = parse_entries(line, None, 1)
    (by_command,) = [*parser.feed(line), *parser.finish()]

    expected = EntryKey(*key) if isinstance(key, tuple) else EntryKey(key)
    assert over_http == (expected, value)
    assert tuple(by_command) == (tuple(expected), value)


@given(KEYS, st.text(), st.builds(EntryRange, *[st.none() | DATA] * 4))
def test_a_page_token_has_the_last_key_of_its_page(
    key: bytes | tuple[bytes, bytes], life: str, entries: EntryRange
) -> None:
    assert last_key(life, entries, entries_token(life, entries, key)) == key


@given(KEYS, KEYS)
def test_the_bound_after_a_key_is_the_lowest_one_above_it(
    key: bytes | tuple[bytes, bytes], other: bytes | tuple[bytes, bytes]
) -> None:
    bound = key_after(key, EntryRange())
    assert key < bound  # type: ignore[operator]
    if type(other) is type(key) and key < other:  # type: ignore[operator]
        assert bound <= other  # type: ignore[operator]
