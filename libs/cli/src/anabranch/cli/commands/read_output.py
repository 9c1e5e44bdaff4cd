"""The options that say how `anabranch read` prints events, and where to."""

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

from cyclopts import Parameter

from anabranch.cli.byte_target import ByteTarget, new_file, standard_output
from anabranch.cli.event_forms import EventForm, Form, form_of, template_form
from anabranch.cli.events import EventBatch
from anabranch.cli.templates import parse_template
from anabranch.client.serializers import require_pyarrow
from anabranch.common.errors import CodecMissing, InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

B = TypeVar("B", contravariant=True)


class Printer(Protocol[B]):
    """Prints batches of one kind."""

    def write(self, batch: B) -> None: ...

    def close(self) -> None:
        """Print the end, behind the last batch."""
        ...


class TextPrinter:
    """Prints each batch in a form that needs no end, and shows it at once."""

    def __init__(self, form: Form, target: ByteTarget) -> None:
        self._form = form
        self._target = target

    def write(self, batch: EventBatch) -> None:
        self._target.write(self._form(batch))
        self._target.flush()

    def close(self) -> None:
        """Nothing follows."""


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
    def is_on_terminal(self) -> bool:
        return self.file is None and sys.stdout.isatty()

    def check(self) -> None:
        """Raises InvalidRequest for options that contradict each other or the place of the output,
        CodecMissing without pyarrow where it is needed."""
        kind = self.kind
        if self.format is not None and kind is not EventForm.RAW:
            raise InvalidRequest(
                "a template is a form of its own", remedy="give --format or --output", output=kind
            )
        if kind is EventForm.PARQUET and self.file is None:
            raise InvalidRequest("a Parquet file needs a name", remedy="add --file events.parquet")
        if kind.is_binary and self.is_on_terminal:
            raise InvalidRequest(
                "a terminal cannot show binary output", output=kind,
                remedy="add --file, or send the output to a file or another command",
            )  # fmt: skip
        if kind.is_columnar:
            _require_arrow()

    def text_printer(self, target: ByteTarget) -> Printer[EventBatch]:
        """The printer of a form that is not columnar."""
        on_terminal = self.is_on_terminal
        if self.format is not None:
            template = parse_template(self.format)
            return TextPrinter(template_form(template, on_terminal=on_terminal), target)
        return TextPrinter(form_of(self.kind, on_terminal=on_terminal), target)

    def column_printer(self, target: ByteTarget) -> "Printer[pa.RecordBatch]":
        """The printer of a columnar form."""
        from anabranch.cli.arrow_files import ArrowStream, ParquetFile

        return ArrowStream(target) if self.kind is EventForm.ARROW else ParquetFile(target)

    def target(self) -> AbstractContextManager[ByteTarget]:
        """The open destination. Raises InvalidRequest for a file that cannot be written."""
        return standard_output() if self.file is None else new_file(self.file)


def _require_arrow() -> None:
    try:
        require_pyarrow()
    except CodecMissing as error:
        raise CodecMissing(
            "the forms arrow and parquet require a package that is not installed",
            remedy="pip install 'anabranch[arrow]'",
            **error.fields,
        ) from error
