"""The forms in which events are printed: functions from a batch to bytes. Pure.

On a terminal, the control characters of payloads and keys are escaped; in a pipe or a file, all
bytes are unchanged.
"""

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import chain, repeat

from anabranch.cli.escapes import readable
from anabranch.cli.events import EventBatch
from anabranch.cli.framing import length_framed
from anabranch.cli.templates import Field, Template
from anabranch.client import Event

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEY_WIDTH_MAX = 32
TIME_WIDTH = 24

Form = Callable[[EventBatch], bytes]


class EventForm(StrEnum):
    """How events are printed."""

    RAW = "raw"
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    BASE64 = "base64"
    LENGTH = "length"
    ARROW = "arrow"
    PARQUET = "parquet"

    @property
    def is_binary(self) -> bool:
        """Whether it is no text, so that a terminal must not show it."""
        return self in (EventForm.LENGTH, EventForm.ARROW, EventForm.PARQUET)

    @property
    def is_columnar(self) -> bool:
        return self in (EventForm.ARROW, EventForm.PARQUET)


def form_of(kind: EventForm, *, on_terminal: bool) -> Form:
    """The function for a form that is not columnar."""
    assert not kind.is_columnar, "batches of Arrow are written by `arrow_files`"
    match kind:
        case EventForm.TABLE:
            return EventTable()
        case EventForm.RAW if on_terminal:
            return _readable_lines
    return _FORMS[kind]


# --- whole payloads and records -----------------------------------------------------------------


def _lines(batch: EventBatch) -> bytes:
    return b"\n".join([*batch.payloads, b""])


def _readable_lines(batch: EventBatch) -> bytes:
    return "".join([readable(payload) + "\n" for payload in batch.payloads]).encode()


def _base64_lines(batch: EventBatch) -> bytes:
    return b"\n".join([*map(base64.b64encode, batch.payloads), b""])


def _framed(batch: EventBatch) -> bytes:
    return length_framed(batch.payloads)


def _json_lines(batch: EventBatch) -> bytes:
    return "".join([json.dumps(record_of(event)) + "\n" for event in batch.events()]).encode()


def _yaml_documents(batch: EventBatch) -> bytes:
    import yaml

    records = map(record_of, batch.events())
    return "".join("---\n" + yaml.safe_dump(record, sort_keys=False) for record in records).encode()


def record_of(event: Event) -> dict[str, object]:
    """The event as a JSON record; a payload that is not UTF-8 becomes `payload_base64`."""
    try:
        payload = {"payload": event.payload.decode()}
    except UnicodeDecodeError:
        payload = {"payload_base64": base64.b64encode(event.payload).decode()}
    return {
        **payload,
        "key": event.key,
        "timestamp_ms": event.timestamp_ms,
        "segment": event.segment,
        "offset": event.position.offset,
        "index": event.position.event_index,
    }


_FORMS: dict[EventForm, Form] = {
    EventForm.RAW: _lines,
    EventForm.BASE64: _base64_lines,
    EventForm.LENGTH: _framed,
    EventForm.JSON: _json_lines,
    EventForm.YAML: _yaml_documents,
}


# --- tables -------------------------------------------------------------------------------------


class EventTable:
    """Aligned columns that need not know the events to come: the column of keys grows with them."""

    def __init__(self) -> None:
        self._key_width = len("KEY")
        self._has_header = False

    def __call__(self, batch: EventBatch) -> bytes:
        rows = [_row(event) for event in batch.events()]
        widths = (min(len(key), KEY_WIDTH_MAX) for _, key, _ in rows)
        self._key_width = max(self._key_width, *widths)
        if not self._has_header:
            rows.insert(0, ("TIME", "KEY", "PAYLOAD"))
            self._has_header = True
        return "".join([self._line(*row) for row in rows]).encode()

    def _line(self, time: str, key: str, payload: str) -> str:
        return f"{time:{TIME_WIDTH}}  {key:{self._key_width}}  {payload}".rstrip() + "\n"


def _row(event: Event) -> tuple[str, str, str]:
    key = "–" if event.key is None else readable(event.key.encode(), in_line=True)
    return iso_time(event.timestamp_ms), key, readable(event.payload, in_line=True)


# --- templates ----------------------------------------------------------------------------------


def template_form(template: Template, *, on_terminal: bool) -> Form:
    """Each event as the template says. Columns are made per batch and then interleaved, which needs
    no call per event and field."""

    def column(part: bytes | Field, batch: EventBatch) -> Iterable[bytes]:
        if isinstance(part, bytes):
            return repeat(part)
        values = _COLUMNS[part.name](batch)
        if on_terminal and part.name in ("payload", "key"):
            return [readable(value).encode() for value in values]
        return values

    def form(batch: EventBatch) -> bytes:
        # The payloads say how many events there are; literal text has no end of its own.
        columns = [repeat(b"", len(batch.payloads)), *(column(p, batch) for p in template.parts)]
        return b"".join(chain.from_iterable(zip(*columns, strict=False)))

    return form


def iso_time(unix_ms: int) -> str:
    """``2026-11-22T12:00:05.123Z``, which `--from` takes; the number itself for another age."""
    try:
        found = _EPOCH + timedelta(milliseconds=unix_ms)
    except OverflowError:
        return str(unix_ms)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _texts(of_event: Callable[[Event], object]) -> Callable[[EventBatch], Iterable[bytes]]:
    return lambda batch: [str(of_event(event)).encode() for event in batch.events()]


def _payloads(batch: EventBatch) -> Sequence[bytes]:
    return batch.payloads


_COLUMNS: dict[str, Callable[[EventBatch], Iterable[bytes]]] = {
    "payload": _payloads,
    "payload_base64": lambda batch: map(base64.b64encode, batch.payloads),
    "size": lambda batch: [b"%d" % len(payload) for payload in batch.payloads],
    "key": _texts(lambda event: event.key or ""),
    "time": _texts(lambda event: iso_time(event.timestamp_ms)),
    "timestamp_ms": _texts(lambda event: event.timestamp_ms),
    "stream": _texts(lambda event: event.segment.rpartition("/")[0]),
    "segment": _texts(lambda event: event.segment),
    "offset": _texts(lambda event: event.offset),
    "index": _texts(lambda event: event.event_index),
    "position": lambda batch: map(str.encode, batch.positions()),
}
