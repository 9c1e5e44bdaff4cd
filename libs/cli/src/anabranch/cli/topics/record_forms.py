"""The forms in which `anabranch consume` prints records: functions from records to bytes. Pure.

On a terminal, the control characters of values and keys are escaped; in a pipe or a file, all
bytes are unchanged.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

from anabranch.cli.escapes import readable
from anabranch.cli.event_forms import KEY_WIDTH_MAX, iso_time
from anabranch.cli.templates import Field, parse_template
from anabranch.client.topics.records import Record

FIELDS = (
    "value", "value_base64", "size", "key", "offset", "partition", "topic", "time", "timestamp_ms",
)  # fmt: skip
NO_KEY = "null"
DUMP_WIDTH = 16
_FLUVIO_FIELD = re.compile(r"\{\{\s*([a-z_0-9]+)\s*\}\}")


Form = Callable[[Sequence[Record]], bytes]


class RecordForm(StrEnum):
    """How records are printed."""

    TEXT = "text"
    DYNAMIC = "dynamic"
    BINARY = "binary"
    RAW = "raw"
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def form_of(kind: RecordForm, *, on_terminal: bool, with_keys: bool) -> Form:
    """The function for a form."""
    if kind is RecordForm.TABLE:
        return RecordTable()
    value_of = _VALUES.get(kind)
    if value_of is None:
        return _json_lines if kind is RecordForm.JSON else _yaml_documents
    escaped = on_terminal and kind in (RecordForm.TEXT, RecordForm.DYNAMIC)

    def form(records: Sequence[Record]) -> bytes:
        return b"".join([_line(one, value_of(one.value), escaped, with_keys) for one in records])

    return form


def template_form(text: str, *, on_terminal: bool) -> Form:
    """A line per record, as the template says: ``{{offset}} {{key}}: {{value}}``, or with single
    braces. Raises ValueError for an unknown field."""
    parts = parse_template(_FLUVIO_FIELD.sub(r"{\1}", text), FIELDS).parts

    def form(records: Sequence[Record]) -> bytes:
        return b"".join([b"".join(_filled(one, parts, on_terminal)) + b"\n" for one in records])

    return form


def _filled(record: Record, parts: Iterable[bytes | Field], on_terminal: bool) -> Iterator[bytes]:
    for part in parts:
        found = part if isinstance(part, bytes) else _FIELD_VALUES[part.name](record)
        is_users = not isinstance(part, bytes) and part.name in ("value", "key")
        yield readable(found).encode() if on_terminal and is_users else found


def _line(record: Record, value: bytes, escaped: bool, with_keys: bool) -> bytes:
    line = value + b"\n"
    if with_keys:
        key = NO_KEY if record.key is None else record.key
        line = b"[%b] %b" % (key.encode(), line)
    return readable(line).encode() if escaped else line


def hex_dump(data: bytes) -> bytes:
    """Lines of an offset, 16 bytes in hexadecimal digits, and their printable characters."""
    lines = []
    for at in range(0, max(1, len(data)), DUMP_WIDTH):
        part = data[at : at + DUMP_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):{3 * DUMP_WIDTH - 1}}  |{text}|")
    return "\n".join(lines).encode()


def _dynamic(value: bytes) -> bytes:
    try:
        value.decode()
    except UnicodeDecodeError:
        return hex_dump(value)
    return value


_VALUES: dict[RecordForm, Callable[[bytes], bytes]] = {
    RecordForm.TEXT: bytes,
    RecordForm.RAW: bytes,
    RecordForm.DYNAMIC: _dynamic,
    RecordForm.BINARY: hex_dump,
}


def json_record(record: Record) -> dict[str, object]:
    """The record as JSON; a value that is not UTF-8 becomes `value_base64`."""
    try:
        value = {"value": record.value.decode()}
    except UnicodeDecodeError:
        value = {"value_base64": base64.b64encode(record.value).decode()}
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": record.key,
        **value,
        "timestamp_ms": record.timestamp_ms,
    }


def _json_lines(records: Sequence[Record]) -> bytes:
    return "".join([json.dumps(json_record(one)) + "\n" for one in records]).encode()


def _yaml_documents(records: Sequence[Record]) -> bytes:
    import yaml

    documents = (yaml.safe_dump(json_record(one), sort_keys=False) for one in records)
    return "".join("---\n" + text for text in documents).encode()


_FIELD_VALUES: dict[str, Callable[[Record], bytes]] = {
    "value": lambda one: one.value,
    "value_base64": lambda one: base64.b64encode(one.value),
    "size": lambda one: b"%d" % len(one.value),
    "key": lambda one: (NO_KEY if one.key is None else one.key).encode(),
    "offset": lambda one: b"%d" % one.offset,
    "partition": lambda one: b"%d" % one.partition,
    "topic": lambda one: one.topic.encode(),
    "time": lambda one: iso_time(one.timestamp_ms).encode(),
    "timestamp_ms": lambda one: b"%d" % one.timestamp_ms,
}


class RecordTable:
    """Aligned columns that need not know the records to come: the column of keys grows with
    them."""

    def __init__(self) -> None:
        self._key_width = len("KEY")
        self._has_header = False

    def __call__(self, records: Sequence[Record]) -> bytes:
        rows = [_row(one) for one in records]
        widths = (min(len(row[3]), KEY_WIDTH_MAX) for row in rows)
        self._key_width = max(self._key_width, *widths)
        if not self._has_header:
            rows.insert(0, ("TIME", "PARTITION", "OFFSET", "KEY", "VALUE"))
            self._has_header = True
        return "".join([self._line(*row) for row in rows]).encode()

    def _line(self, time: str, partition: str, offset: str, key: str, value: str) -> str:
        line = f"{time:24}  {partition:>9}  {offset:>10}  {key:{self._key_width}}  {value}"
        return line.rstrip() + "\n"


def _row(one: Record) -> tuple[str, str, str, str, str]:
    key = "–" if one.key is None else readable(one.key.encode(), in_line=True)
    value = readable(one.value, in_line=True)
    return iso_time(one.timestamp_ms), str(one.partition), str(one.offset), key, value
