"""Turns input lines into events and keys. Pure."""

import csv
import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from anabranch.common.errors import InvalidRequest


class Format(StrEnum):
    """`lines`: each line is an event. `json`: each line is an event and must be a JSON object.
    `csv`: the first line names the fields, each row becomes a JSON object.
    """

    LINES = "lines"
    JSON = "json"
    CSV = "csv"


class Record(NamedTuple):
    event: bytes
    key: str | None


class RecordParser:
    """The parser of one input. Feed it lines; it counts them for its error messages."""

    def __init__(self, form: Format, key_field: str | None) -> None:
        if form is Format.LINES and key_field is not None:
            raise InvalidRequest(
                "plain lines have no fields for a key",
                remedy="add --format json or --format csv",
                key_field=key_field,
            )
        self._form = form
        self._key_field = key_field
        self._header: list[str] | None = None
        self._open_row = ""
        self._line_number = 0

    def feed(self, lines: Iterable[bytes]) -> Iterator[Record]:
        """The records that these lines complete, one by one, so that a wrong line does not lose the
        records before it. Raises InvalidRequest naming the line.

        Empty lines are events of plain input and are skipped in JSON and CSV.
        """
        for line in lines:
            self._line_number += 1
            match self._form:
                case Format.LINES:
                    yield Record(line, None)
                case Format.JSON:
                    if line.strip():
                        yield Record(line, self._key_of(self._json_object(line)))
                case Format.CSV:
                    row = self._csv_row(line)
                    if row is not None:
                        yield Record(json.dumps(row).encode(), self._key_of(row))

    def finish(self) -> None:
        """End the input. Raises InvalidRequest if a row is incomplete."""
        if self._open_row:
            raise self._wrong("the input ends inside a quoted CSV field")

    def _json_object(self, line: bytes) -> dict[str, object]:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise self._wrong("a line is not JSON") from error
        if not isinstance(value, dict):
            raise self._wrong("a line is not a JSON object")
        return value

    def _csv_row(self, line: bytes) -> dict[str, str] | None:
        """The row that this line completes; a quoted field may span lines."""
        try:
            text = self._open_row + line.decode()
        except UnicodeDecodeError as error:
            raise self._wrong("a line is not UTF-8") from error
        if text.count('"') % 2:
            self._open_row = text + "\n"
            return None
        self._open_row = ""
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
        if self._key_field is not None and self._key_field not in header:
            raise self._wrong(f"the header has no field {self._key_field!r}")
        self._header = header

    def _key_of(self, record: dict[str, object] | dict[str, str]) -> str | None:
        """The key field as text; a missing, null or empty one means no key."""
        value = record.get(self._key_field) if self._key_field is not None else None
        if value is None or value == "":
            return None
        return value if isinstance(value, str) else json.dumps(value)

    def _wrong(self, message: str) -> InvalidRequest:
        return InvalidRequest(
            message,
            remedy="correct the input; all lines before this one were written",
            line=self._line_number,
        )
