"""Entries and changes as records of JSON, the same as those of the HTTP gateway. Pure.

    entry    {"key": "apple", "value": "5", "version": "0.17.42", "expires_ms": 0}
    change   {"key": "apple", "removed": false, "value": "5", "expires_ms": 0, "version": …,
              "time_ms": …}; a removal has neither value nor expiry

An entry of a table with secondary keys also has `secondary_key`. Bytes that are not UTF-8 are in
base64, under the field's name with `_base64` at its end.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from anabranch.cli.entries.keys import EntryKey, StoredKey
from anabranch.cli.framing import Lines
from anabranch.client import Change, Entry
from anabranch.common.errors import AnabranchError, InvalidRequest

StoredEntry = Entry[StoredKey, bytes] | Entry[StoredKey, None]
StoredChange = Change[StoredKey, bytes]
_FIELDS = {"key", "secondary_key", "value"}
_KNOWN = _FIELDS | {f"{name}_base64" for name in _FIELDS} | {"version", "expires_ms"}


class LoadedEntry(NamedTuple):
    """An entry to put."""

    key: EntryKey
    value: bytes


def record_of(entry: StoredEntry) -> dict[str, object]:
    """The entry as data; without a value if it was read without one."""
    return {
        **key_record(entry.key),
        **({} if entry.value is None else _field("value", entry.value)),
        "version": str(entry.version),
        "expires_ms": entry.expires_ms,
    }


def change_record(change: StoredChange) -> dict[str, object]:
    """The change as data."""
    record = {**key_record(change.key), "removed": change.removed}
    if change.value is not None:
        record |= {**_field("value", change.value), "expires_ms": change.expires_ms}
    return {**record, "version": str(change.version), "time_ms": change.time_ms}


def key_record(key: StoredKey) -> dict[str, object]:
    """The key as fields of a record."""
    if not isinstance(key, tuple):
        return {**_field("key", key)}
    return {**_field("key", key[0]), **_field("secondary_key", key[1])}


def _field(name: str, data: bytes) -> dict[str, object]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


class EntryParser:
    """The parser of lines of records. Feed it bytes; it counts their lines for its errors."""

    def __init__(self) -> None:
        self._splitter = Lines()
        self._number = 0

    @property
    def place(self) -> Mapping[str, int]:
        """The present line, counted from 1, as a field of an error; empty before it."""
        return {"line": self._number} if self._number else {}

    def feed(self, data: bytes) -> Iterator[LoadedEntry]:
        """The entries that these bytes complete, one by one. Raises InvalidRequest, EventTooLarge.

        Empty lines are skipped.
        """
        return self._entries(lambda: self._splitter.feed(data))

    def finish(self) -> Iterator[LoadedEntry]:
        """The last entry, if its line has no end. Raises as `feed`."""
        return self._entries(self._splitter.finish)

    def _entries(self, split: Callable[[], Iterable[bytes]]) -> Iterator[LoadedEntry]:
        try:
            for line in split():
                self._number += 1
                if line.strip():
                    yield _loaded(line)
        except AnabranchError as error:
            error.fields = {"line": max(self._number, 1), **error.fields}
            raise


def _loaded(line: bytes) -> LoadedEntry:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _wrong("a line is not JSON") from error
    if not isinstance(record, dict) or not record.keys() <= _KNOWN:
        raise _wrong("a line is not a record of an entry")
    key, secondary, value = (_bytes_in(record, name) for name in ("key", "secondary_key", "value"))
    if key is None or value is None:
        raise _wrong("an entry has no key or no value")
    return LoadedEntry(EntryKey(key, secondary), value)


def _bytes_in(record: Mapping[str, object], name: str) -> bytes | None:
    text, in_base64 = record.get(name), record.get(f"{name}_base64")
    if text is not None and in_base64 is not None:
        raise _wrong(f"an entry has both {name} and {name}_base64")
    try:
        match text, in_base64:
            case None, None:
                return None
            case str(), None:
                return text.encode()
            case None, str():
                return base64.b64decode(in_base64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _wrong(f"the {name} of an entry cannot be decoded") from error
    raise _wrong(f"the {name} of an entry is not text")


def _wrong(message: str) -> InvalidRequest:
    return InvalidRequest(
        message, remedy="correct the input; all entries before this line were loaded"
    )
