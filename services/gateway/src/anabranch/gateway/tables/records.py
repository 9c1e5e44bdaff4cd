"""Entries, changes and keys as JSON, the same as those of `anabranch table scan --json`. Pure.

    entry    {"key": "apple", "value": "5", "version": "0.17.42", "expires_ms": 0}
    change   {"key": "apple", "removed": false, "value": "5", "version": …, "expires_ms": …,
              "time_ms": …}; a removal has neither value nor expiry

An entry of a table with secondary keys also has `secondary_key`. Bytes that are not UTF-8 are in
base64, under the field's name with `_base64` at its end; requests may send any field so.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Literal, TypeVar

import msgspec

from anabranch.client import Change, Insert, Put, Remove, Replace, Version
from anabranch.client.tables.entries import TableUpdate
from anabranch.common.errors import BodyTooLarge, InvalidRequest
from anabranch.gateway.events.bodies import json_lines
from anabranch.gateway.events.records import Encoding, text_field
from anabranch.gateway.tables.keys import EntryKey, KeyedEntry, StoredKey

StoredChange = Change[StoredKey, bytes]
EntryUpdate = TableUpdate[EntryKey, bytes]
ENTRY_ENCODINGS = (Encoding.RECORD, Encoding.BASE64)
"""The encodings of entries: `base64` has every key and value in base64."""

_NO_TEXT = msgspec.Raw(b'""')

S = TypeVar("S", bound=msgspec.Struct)


class KeyFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key; each part as text or in base64."""

    key: str | None = None
    key_base64: str | None = None
    secondary_key: str | None = None
    secondary_key_base64: str | None = None

    def entry_key(self) -> EntryKey:
        """The key. Raises InvalidRequest if it is missing or ambiguous."""
        primary = _bytes_of("key", self.key, self.key_base64)
        if primary is None:
            raise InvalidRequest("an entry has no key", remedy="send key or key_base64")
        secondary = _bytes_of("secondary_key", self.secondary_key, self.secondary_key_base64)
        return EntryKey(primary, secondary)


class EntryFields(KeyFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry to put. `version` and `expires_ms` are ignored, so that the entries of a scan can be
    sent back."""

    value: str | None = None
    value_base64: str | None = None
    version: str | None = None
    expires_ms: int = 0

    def entry_value(self) -> bytes:
        """The value. Raises InvalidRequest if it is missing or ambiguous."""
        value = _bytes_of("value", self.value, self.value_base64)
        if value is None:
            raise InvalidRequest("an entry has no value", remedy="send value or value_base64")
        return value


class UpdateFields(EntryFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One update of a batch."""

    op: Literal["put", "insert", "replace", "remove"]

    def update(self) -> EntryUpdate:
        """The update. Raises InvalidRequest for a field that it lacks or cannot have."""
        key = self.entry_key()
        match self.op:
            case "put" | "insert":
                self._refuse_version()
                value = self.entry_value()
                return Put(key, value) if self.op == "put" else Insert(key, value)
            case "replace":
                if self.version is None:
                    raise InvalidRequest(
                        "a replacement has no version",
                        remedy="send the version of the entry, or put without one",
                    )
                return Replace(key, self.entry_value(), Version.parse(self.version))
            case "remove":
                if (self.value, self.value_base64) != (None, None):
                    raise InvalidRequest("a removal has a value", remedy="omit the value")
                return Remove(key, None if self.version is None else Version.parse(self.version))

    def _refuse_version(self) -> None:
        if self.version is not None:
            raise InvalidRequest(
                f"the operation {self.op} has a version",
                remedy="omit the version, or send the operation replace",
            )


class _BatchFields(msgspec.Struct, forbid_unknown_fields=True):
    updates: list[UpdateFields]


class _LookUpFields(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[KeyFields | str]


def record_of(entry: KeyedEntry, encoding: Encoding = Encoding.RECORD) -> dict[str, object]:
    """The entry as data; without a value if it was read without one."""
    value = {} if entry.value is None else text_field("value", entry.value, encoding)
    return {
        **_key_record(entry.key, encoding),
        **value,
        "version": str(entry.version),
        "expires_ms": entry.expires_ms,
    }


def change_record(change: StoredChange, encoding: Encoding = Encoding.RECORD) -> dict[str, object]:
    """The change as data."""
    record = {**_key_record(change.key, encoding), "removed": change.removed}
    if change.value is not None:
        record |= {**text_field("value", change.value, encoding), "expires_ms": change.expires_ms}
    return {**record, "version": str(change.version), "time_ms": change.time_ms}


def parse_entries(
    body: bytes, key_field: str | None, entries_max: int
) -> Iterator[tuple[EntryKey, bytes]]:
    """The entries of NDJSON: one `EntryFields` per line, or, with `key_field`, any JSON objects,
    each stored as it is under the key in that field.

    Raises InvalidRequest (with the line), BodyTooLarge.
    """
    lines = json_lines(body)
    if not lines:
        raise InvalidRequest("the body contains no entry", remedy="send one entry per line")
    if len(lines) > entries_max:
        raise BodyTooLarge("too many entries in one body", entries=len(lines), limit=entries_max)
    for number, line in enumerate(lines, 1):
        try:
            if key_field is None:
                fields = _parsed(line, EntryFields, "an entry")
                yield fields.entry_key(), fields.entry_value()
            else:
                yield EntryKey(_key_in(line, key_field)), line
        except InvalidRequest as error:
            error.fields = {"line": number, **error.fields}
            raise


def parse_batch(body: bytes) -> list[EntryUpdate]:
    """The updates of a batch. Raises InvalidRequest."""
    return [each.update() for each in _parsed(body, _BatchFields, "a batch").updates]


def parse_look_up(body: bytes) -> list[EntryKey]:
    """The keys of a look-up. Raises InvalidRequest."""
    return [
        EntryKey(each.encode()) if isinstance(each, str) else each.entry_key()
        for each in _parsed(body, _LookUpFields, "a look-up").keys
    ]


def _key_record(key: StoredKey, encoding: Encoding) -> dict[str, object]:
    if not isinstance(key, tuple):
        return {**text_field("key", key, encoding)}
    primary, secondary = key
    return {
        **text_field("key", primary, encoding),
        **text_field("secondary_key", secondary, encoding),
    }


def _bytes_of(name: str, text: str | None, in_base64: str | None) -> bytes | None:
    if in_base64 is None:
        return None if text is None else text.encode()
    if text is not None:
        raise InvalidRequest(f"{name} is given twice", remedy=f"omit {name} or {name}_base64")
    try:
        return base64.b64decode(in_base64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"{name}_base64 is not base64", name=f"{name}_base64") from error


def _parsed(data: bytes, kind: type[S], thing: str) -> S:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"{thing} is not of the expected form", reason=str(error)) from error


def _key_in(line: bytes, field: str) -> bytes:
    """The key in a field of a JSON object: text, or a number as it is written."""
    try:
        line.decode()
        raw = msgspec.json.decode(line, type=dict[str, msgspec.Raw]).get(field, _NO_TEXT)
        key = msgspec.json.decode(raw, type=str | int | float)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(
            "an entry is not a JSON object with a key of text or a number",
            key_field=field, reason=str(error),
        ) from error  # fmt: skip
    if key == "":
        raise InvalidRequest("an entry has no key in its field", key_field=field)
    return key.encode() if isinstance(key, str) else bytes(raw).strip()
