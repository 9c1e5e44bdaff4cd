"""The forms in which entries and changes are printed: functions from a batch to bytes. Pure.

On a terminal, the control characters of keys and values are escaped; in a pipe or a file, all bytes
are unchanged.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from anabranch.cli.entries.keys import StoredKey
from anabranch.cli.entries.records import StoredChange, StoredEntry, change_record, record_of
from anabranch.cli.escapes import readable
from anabranch.cli.event_forms import iso_time
from anabranch.cli.figures import NONE
from anabranch.cli.templates import Template

T = TypeVar("T", StoredEntry, StoredChange)
Form = Callable[[Sequence[T]], bytes]

WIDTH_MAX = 32
"""Of a column that grows with its values."""
REMOVED = "(removed)"


class EntryForm(StrEnum):
    """How entries are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    RAW = "raw"
    ARROW = "arrow"
    PARQUET = "parquet"

    @property
    def is_binary(self) -> bool:
        """Whether it is no text, so that a terminal must not show it."""
        return self.is_columnar

    @property
    def is_columnar(self) -> bool:
        return self in (EntryForm.ARROW, EntryForm.PARQUET)


# --- records ------------------------------------------------------------------------------------


def entry_records(batch: Sequence[StoredEntry]) -> bytes:
    """A line of JSON per entry."""
    return "".join([json.dumps(record_of(entry)) + "\n" for entry in batch]).encode()


def entry_documents(batch: Sequence[StoredEntry]) -> bytes:
    """A YAML document per entry."""
    return _documents([record_of(entry) for entry in batch])


def change_records(batch: Sequence[StoredChange]) -> bytes:
    """A line of JSON per change, with its `position`."""
    return "".join([json.dumps(_placed(change)) + "\n" for change in batch]).encode()


def change_documents(batch: Sequence[StoredChange]) -> bytes:
    """A YAML document per change, with its `position`."""
    return _documents([_placed(change) for change in batch])


def _placed(change: StoredChange) -> dict[str, object]:
    return {**change_record(change), "position": str(change.position)}


def _documents(records: Sequence[Mapping[str, object]]) -> bytes:
    import yaml

    return "".join("---\n" + yaml.safe_dump(dict(one), sort_keys=False) for one in records).encode()


# --- values -------------------------------------------------------------------------------------


def raw_lines(*, values: bool, on_terminal: bool) -> Callable[[Sequence[StoredEntry]], bytes]:
    """Each value on a line; without values, each key. (A pair has a tab between its keys.)"""

    def form(batch: Sequence[StoredEntry]) -> bytes:
        items = [entry.value or b"" if values else _joined(entry.key) for entry in batch]
        if on_terminal:
            return "".join([readable(item) + "\n" for item in items]).encode()
        return b"\n".join([*items, b""])

    return form


def _joined(key: StoredKey) -> bytes:
    return b"\t".join(key) if isinstance(key, tuple) else key


# --- tables -------------------------------------------------------------------------------------


class Columns:
    """Aligned columns that need not know the rows to come: all but the last grow with them."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._widths = [len(name) for name in names]
        self._has_header = False

    def lines(self, rows: Sequence[Sequence[str]]) -> bytes:
        """The rows as lines, with the header before the first ones."""
        for at in range(len(self._names) - 1):
            widest = max([len(row[at]) for row in rows])
            self._widths[at] = max(self._widths[at], min(widest, WIDTH_MAX))
        shown = rows if self._has_header else [self._names, *rows]
        self._has_header = True
        return "".join(map(self._line, shown)).encode()

    def _line(self, row: Sequence[str]) -> str:
        padded = [cell.ljust(width) for cell, width in zip(row, self._widths, strict=True)]
        return "  ".join([*padded[:-1], row[-1]]).rstrip() + "\n"


def entry_table(*, has_pairs: bool, values: bool) -> Callable[[Sequence[StoredEntry]], bytes]:
    """Columns of keys, versions and values."""
    columns = Columns(*_key_columns(has_pairs=has_pairs), "VERSION", *["VALUE"] * values)

    def form(batch: Sequence[StoredEntry]) -> bytes:
        return columns.lines(
            [
                (*_shown(entry.key), str(entry.version), *[_text(entry.value or b"")] * values)
                for entry in batch
            ]
        )

    return form


def change_table(*, has_pairs: bool) -> Callable[[Sequence[StoredChange]], bytes]:
    """Columns of times, keys, versions and values; an entry of the snapshot has no time."""
    columns = Columns("TIME", *_key_columns(has_pairs=has_pairs), "VERSION", "VALUE")

    def form(batch: Sequence[StoredChange]) -> bytes:
        return columns.lines([_change_row(change) for change in batch])

    return form


def _change_row(change: StoredChange) -> tuple[str, ...]:
    time = iso_time(change.time_ms) if change.time_ms else NONE
    value = REMOVED if change.value is None else _text(change.value)
    return time, *_shown(change.key), str(change.version), value


def _key_columns(*, has_pairs: bool) -> tuple[str, ...]:
    return ("KEY", "SECONDARY KEY") if has_pairs else ("KEY",)


def _shown(key: StoredKey) -> tuple[str, ...]:
    parts = key if isinstance(key, tuple) else (key,)
    return tuple(map(_text, parts))


def _text(data: bytes) -> str:
    return readable(data, in_line=True)


# --- templates ----------------------------------------------------------------------------------


def template_form(
    template: Template, fields: "Mapping[str, Callable[[T], bytes]]", *, on_terminal: bool
) -> Form[T]:
    """Each entry or change as the template says."""
    parts = [part if isinstance(part, bytes) else fields[part.name] for part in template.parts]

    def cell(part: "bytes | Callable[[T], bytes]", item: T) -> bytes:
        if isinstance(part, bytes):
            return part
        value = part(item)
        return readable(value).encode() if on_terminal else value

    def form(batch: Sequence[T]) -> bytes:
        return b"".join([cell(part, item) for item in batch for part in parts])

    return form


def _primary(item: StoredEntry | StoredChange) -> bytes:
    return item.key[0] if isinstance(item.key, tuple) else item.key


def _secondary(item: StoredEntry | StoredChange) -> bytes:
    return item.key[1] if isinstance(item.key, tuple) else b""


def _value(item: StoredEntry | StoredChange) -> bytes:
    return item.value or b""


_COMMON: dict[str, Callable[[StoredEntry | StoredChange], bytes]] = {
    "key": _primary,
    "key_base64": lambda item: base64.b64encode(_primary(item)),
    "secondary_key": _secondary,
    "secondary_key_base64": lambda item: base64.b64encode(_secondary(item)),
    "value": _value,
    "value_base64": lambda item: base64.b64encode(_value(item)),
    "size": lambda item: b"%d" % len(_value(item)),
    "version": lambda item: str(item.version).encode(),
    "expires": lambda item: iso_time(item.expires_ms).encode() if item.expires_ms else b"",
    "expires_ms": lambda item: b"%d" % item.expires_ms,
}
ENTRY_FIELDS: Mapping[str, Callable[[StoredEntry], bytes]] = {**_COMMON}
CHANGE_FIELDS: Mapping[str, Callable[[StoredChange], bytes]] = {
    **_COMMON,
    "op": lambda change: b"remove" if change.removed else b"put",
    "time": lambda change: iso_time(change.time_ms).encode() if change.time_ms else b"",
    "time_ms": lambda change: b"%d" % change.time_ms,
    "position": lambda change: str(change.position).encode(),
}
