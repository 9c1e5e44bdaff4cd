"""Turns input into events and keys. Pure.

    bytes ──splitter──► lines or framed events ──format and key source──► records

All bytes of an event are kept, a carriage return at the end of a line too, but for CSV, whose rows
become JSON objects.
"""

import base64
import binascii
import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from anabranch.cli.framing import FRAME_SIZE_BYTES_MAX, Lengths, Lines, Splitter, Whole
from anabranch.common.errors import AnabranchError, InvalidRequest


class Format(StrEnum):
    """`lines`: each line is an event. `json`: each line is an event and must be a JSON object.
    `csv`: the first line names the fields, each row becomes a JSON object. `base64`: each line is
    an event in base64. `length`, `whole`: see `framing`.
    """

    LINES = "lines"
    JSON = "json"
    CSV = "csv"
    BASE64 = "base64"
    LENGTH = "length"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where routing keys come from: all have `key`, or each event has its own.

    `field`: the field of a JSON or CSV record; `separator`: the text between a line's key and its
    event. An empty key means none.
    """

    key: str | None = None
    field: str | None = None
    separator: str | None = None


class Record(NamedTuple):
    event: bytes
    key: str | None


class RecordParser:
    """The parser of one input. Feed it bytes; it counts their lines or events for its errors."""

    def __init__(self, form: Format, keys: KeySource | None = None) -> None:
        """Raises InvalidRequest for keys that input of this format cannot have."""
        keys = keys or KeySource()
        _check(form, keys)
        self._field = keys.field
        self._key = keys.key or None
        self._separator = b"" if keys.separator is None else keys.separator.encode()
        self._splitter: Splitter = _SPLITTERS.get(form, Lines)()
        self._counted = "event" if form in _SPLITTERS else "line"
        self._rows = _CsvRows()
        self._header: list[str] | None = None
        self._number = 0
        makers: dict[Format, Callable[[bytes], Record | None]] = {
            Format.JSON: self._json,
            Format.CSV: self._csv,
            Format.BASE64: self._base64,
        }
        plain = self._separated if self._separator else self._plain
        self._record_of = makers.get(form, plain)

    @property
    def place(self) -> Mapping[str, int]:
        """The present line or event, counted from 1, as a field of an error; empty before it."""
        return {self._counted: self._number} if self._number else {}

    def feed(self, data: bytes) -> Iterator[Record]:
        """The records that these bytes complete, one by one, so that a wrong line does not lose the
        records before it. Raises InvalidRequest and EventTooLarge, with the place.

        Empty lines are events of plain input and are skipped in JSON and CSV.
        """
        return self._records(lambda: self._splitter.feed(data))

    def finish(self) -> Iterator[Record]:
        """The rest of the records. Raises as `feed`, and InvalidRequest if a row is incomplete."""
        yield from self._records(self._splitter.finish)
        if self._rows.is_open:
            raise self._wrong("the input ends inside a quoted CSV field")

    def _records(self, split: Callable[[], Iterable[bytes]]) -> Iterator[Record]:
        record_of = self._record_of
        try:
            for frame in split():
                self._number += 1
                record = record_of(frame)
                if record is not None:
                    yield record
        except AnabranchError as error:
            if self._counted not in error.fields:  # the splitter knows no numbers
                error.fields = {self._counted: self._number + 1, **error.fields}
            raise

    # --- one line or event ------------------------------------------------------------------

    def _plain(self, event: bytes) -> Record:
        return Record(event, self._key)

    def _separated(self, line: bytes) -> Record:
        key, separator, event = line.partition(self._separator)
        if not separator:
            raise self._wrong("a line has no key separator", separator=repr(self._separator)[1:])
        try:
            return Record(event, key.decode() or None)
        except UnicodeDecodeError as error:
            raise self._wrong("a key is not UTF-8") from error

    def _base64(self, line: bytes) -> Record:
        try:
            return Record(base64.b64decode(line.strip(), validate=True), self._key)
        except binascii.Error as error:
            raise self._wrong("a line is not base64") from error

    def _json(self, line: bytes) -> Record | None:
        if not line.strip():
            return None
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._wrong("a line is not JSON") from error
        if not isinstance(value, dict):
            raise self._wrong("a line is not a JSON object")
        return Record(line, self._key_of(value))

    def _csv(self, line: bytes) -> Record | None:
        try:
            text = self._rows.completed(line.decode())
        except UnicodeDecodeError as error:
            raise self._wrong("a line is not UTF-8") from error
        if self._rows.size > FRAME_SIZE_BYTES_MAX:
            raise self._wrong("a quoted CSV field does not end")
        row = None if text is None else self._csv_row(text)
        return None if row is None else Record(json.dumps(row).encode(), self._key_of(row))

    def _csv_row(self, text: str) -> dict[str, str] | None:
        if not text.strip():
            return None
        try:
            (row,) = csv.reader([text], strict=True)
        except (csv.Error, ValueError) as error:
            raise self._wrong("a line is not CSV") from error
        if self._header is None:
            self._set_header(row)
            return None
        if len(row) != len(self._header):
            raise self._wrong(f"a row has {len(row)} fields, the header {len(self._header)}")
        return dict(zip(self._header, row, strict=True))

    def _set_header(self, header: list[str]) -> None:
        if self._field is not None and self._field not in header:
            raise self._wrong(f"the header has no field {self._field!r}")
        self._header = header

    def _key_of(self, record: dict[str, object] | dict[str, str]) -> str | None:
        """The key field as text; a missing, null or empty one means no key."""
        if self._field is None:
            return self._key
        value = record.get(self._field)
        if value is None or value == "":
            return None
        return value if isinstance(value, str) else json.dumps(value)

    def _wrong(self, message: str, **fields: str) -> InvalidRequest:
        return InvalidRequest(
            message,
            remedy=f"correct the input; all {self._counted}s before this one were written",
            **self.place,
            **fields,
        )


class _CsvRows:
    """Joins the lines of a row: a quoted field may span several."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._quotes = 0
        self.size = 0

    @property
    def is_open(self) -> bool:
        return bool(self._lines)

    def completed(self, line: str) -> str | None:
        """The row that this line completes, perhaps with a carriage return, which the `csv` module
        takes for its end; None if it is still open."""
        self._lines.append(line)
        self._quotes += line.count('"')
        self.size += len(line) + 1
        if self._quotes % 2:
            return None
        row = "\n".join(self._lines)
        self._lines, self._quotes, self.size = [], 0, 0
        return row


_SPLITTERS: Mapping[Format, Callable[[], Splitter]] = {
    Format.LENGTH: Lengths,
    Format.WHOLE: Whole,
}
"""Of formats that are no lines."""


def _check(form: Format, keys: KeySource) -> None:
    if sum(source is not None for source in (keys.key, keys.field, keys.separator)) > 1:
        raise InvalidRequest(
            "events have one source of keys",
            remedy="give one of --key, --key-field and --key-separator",
        )
    if keys.field is not None and form not in (Format.JSON, Format.CSV):
        raise InvalidRequest(
            "only json and csv input has fields for a key",
            remedy="add --format json or --format csv",
            key_field=keys.field,
        )
    if keys.separator is not None and form is not Format.LINES:
        raise InvalidRequest(
            "only plain lines have a key before their event",
            remedy="omit --key-separator, or use --format lines",
        )
    if keys.separator == "":
        raise InvalidRequest(
            "the key separator is empty", remedy="use at least one character, such as '\\t'"
        )
