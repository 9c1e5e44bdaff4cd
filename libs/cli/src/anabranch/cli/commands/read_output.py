"""The options that say how `anabranch read` prints events, and where to."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from anabranch.cli.byte_target import ByteTarget
from anabranch.cli.commands.printing import (
    Destination,
    Printer,
    TextPrinter,
    refuse_both,
    require_arrow,
)
from anabranch.cli.event_forms import EventForm, form_of, template_form
from anabranch.cli.events import EventBatch
from anabranch.cli.templates import parse_template

if TYPE_CHECKING:
    import pyarrow as pa


def _check_template(_type: object, text: str | None) -> None:
    parse_template(text or "")


@Parameter(name="*")
@dataclass(frozen=True)
class ReadOutput:
    """How events are printed, and where to."""

    output: Annotated[EventForm, Parameter(name=("--output", "-o"))] = EventForm.RAW
    (
        "raw: each payload and a newline; table: columns; json, yaml: records with keys, times and "
        "places; base64: a line each; length: each payload behind its length (4 bytes, unsigned, "
        "big-endian), as `anabranch write --format length` reads it; arrow: an Arrow IPC stream; "
        "parquet: a Parquet file. On a terminal, control characters in text are escaped."
    )
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False
    "Short for --output json."
    format: Annotated[str | None, Parameter(validator=_check_template)] = None
    (
        r"Print each event by a template, e.g. '{key}\t{payload}\n'. Fields: payload, "
        r"payload_base64, size (of the payload in bytes), key (empty for none), time (the event's "
        r"time, else the time at which its block was written; ISO, UTC), timestamp_ms (the same in "
        r"Unix ms), stream, segment, offset, index, and position (a token: --from continues after "
        r"this event). \t, \n, \r, \0 and \\ are understood; {{ and }} print braces; nothing is "
        r"added at the end."
    )
    file: Path | None = None
    "Print to this file, and replace it, instead of standard output."

    @property
    def kind(self) -> EventForm:
        return EventForm.JSON if self.json else self.output

    @property
    def has_positions(self) -> bool:
        return self.format is not None and parse_template(self.format).has_positions

    @property
    def destination(self) -> Destination:
        return Destination(self.file)

    def check(self) -> None:
        """Raises InvalidRequest for options that contradict each other or the place of the output,
        CodecMissing without pyarrow where it is needed."""
        refuse_both(self.format, self.kind, EventForm.RAW)
        if self.kind.is_binary:
            self.destination.check_binary(self.kind, example="events.parquet")
        if self.kind.is_columnar:
            require_arrow()

    def text_printer(self, target: ByteTarget) -> Printer[EventBatch]:
        """The printer of a form that is not columnar."""
        on_terminal = self.destination.is_on_terminal
        if self.format is not None:
            template = parse_template(self.format)
            return TextPrinter(template_form(template, on_terminal=on_terminal), target)
        return TextPrinter(form_of(self.kind, on_terminal=on_terminal), target)

    def column_printer(self, target: ByteTarget) -> "Printer[pa.RecordBatch]":
        """The printer of a columnar form."""
        from anabranch.cli.arrow_files import EVENT_ROWS, ArrowStream, ParquetFile

        if self.kind is EventForm.ARROW:
            return ArrowStream(target, EVENT_ROWS)
        return ParquetFile(target, EVENT_ROWS)
