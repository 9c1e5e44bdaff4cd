"""The commands `anabranch table scan` and `table watch`: entries and changes in many forms."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.byte_target import ByteTarget
from anabranch.cli.commands.entry_options import KeyOptions
from anabranch.cli.commands.printing import (
    Destination,
    Printer,
    TextPrinter,
    print_batches,
    refuse_both,
    require_arrow,
)
from anabranch.cli.entries import forms
from anabranch.cli.entries.forms import CHANGE_FIELDS, ENTRY_FIELDS, EntryForm
from anabranch.cli.entries.records import StoredChange, StoredEntry
from anabranch.cli.entries.table import SNAPSHOT, ScanRequest
from anabranch.cli.output import Form
from anabranch.cli.session import ClusterAddress, run_async, session_on
from anabranch.cli.templates import parse_template

_HERE = ClusterAddress()
POSITION_LENGTH_MIN = 32
STARTS = (SNAPSHOT, "earliest", "now")


def _check_entry_template(_type: object, text: str | None) -> None:
    parse_template(text or "", ENTRY_FIELDS)


def _check_change_template(_type: object, text: str | None) -> None:
    parse_template(text or "", CHANGE_FIELDS)


def _check_start(_type: object, start: str) -> None:
    """Distinguish a typing error from a position, which is a long run of URL-safe text."""
    if start not in STARTS and len(start) < POSITION_LENGTH_MIN:
        raise ValueError(f"not {', '.join(STARTS)} or a position")


@Parameter(name="*")
@dataclass(frozen=True)
class KeyRange:
    """Which entries: all bounds that are given hold together."""

    prefix: str | None = None
    "Entries whose key begins so."
    start: str | None = None
    "The lowest key of the range."
    end: str | None = None
    "The range ends before this key."
    primary: str | None = None
    "The entries of one primary key; the other bounds are then secondary keys."
    base64_keys: Annotated[bool, Parameter(negative="", show_default=False)] = False
    "All keys on the command line are base64."

    def request(self, *, values: bool, count: int | None) -> ScanRequest:
        """The scan of this range. Raises InvalidKey."""
        keys = KeyOptions(base64_keys=self.base64_keys)

        def bound(text: str | None) -> bytes | None:
            return None if text is None else keys.bytes_of(text)

        return ScanRequest(
            bound(self.start), bound(self.end), bound(self.prefix), bound(self.primary),
            values=values, count=count,
        )  # fmt: skip


@Parameter(name="*")
@dataclass(frozen=True)
class EntryOutput:
    """How entries are printed, and where to."""

    output: Annotated[EntryForm, Parameter(name=("--output", "-o"))] = EntryForm.TABLE
    (
        "table: columns; json, yaml: records, of which `anabranch table load` takes those in JSON; "
        "raw: each value and a newline; arrow: an Arrow IPC stream; parquet: a Parquet file. On a "
        "terminal, control characters are escaped."
    )
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False
    "Short for --output json."
    format: Annotated[str | None, Parameter(validator=_check_entry_template)] = None
    (
        r"Print each entry by a template, e.g. '{key}\t{value}\n'. Fields: key, key_base64, "
        r"secondary_key, secondary_key_base64, value, value_base64, size (of the value in bytes), "
        r"version, expires (ISO, UTC; nothing for never), expires_ms (0 for never). \t, \n, \r, \0 "
        r"and \\ are understood; {{ and }} print braces; nothing is added at the end."
    )
    file: Path | None = None
    "Print to this file, and replace it, instead of standard output."

    @property
    def kind(self) -> EntryForm:
        return EntryForm.JSON if self.json else self.output

    @property
    def destination(self) -> Destination:
        return Destination(self.file)

    def check(self) -> None:
        """Raises InvalidRequest for options that contradict each other or the place of the output,
        CodecMissing without pyarrow where it is needed."""
        refuse_both(self.format, self.kind, EntryForm.TABLE)
        if self.kind.is_columnar:
            self.destination.check_binary(self.kind, example="entries.parquet")
            require_arrow()

    def printer(
        self, target: ByteTarget, *, has_pairs: bool, values: bool
    ) -> Printer[Sequence[StoredEntry]]:
        """The printer of entries with or without secondary keys and values."""
        if self.kind.is_columnar:
            from anabranch.cli.arrow_files import ArrowStream, ParquetFile
            from anabranch.cli.entries.arrow_rows import rows_of

            rows = rows_of(has_pairs=has_pairs, values=values)
            in_stream = self.kind is EntryForm.ARROW
            return ArrowStream(target, rows) if in_stream else ParquetFile(target, rows)
        return TextPrinter(self._form(has_pairs=has_pairs, values=values), target)

    def _form(self, *, has_pairs: bool, values: bool) -> Callable[[Sequence[StoredEntry]], bytes]:
        on_terminal = self.destination.is_on_terminal
        if self.format is not None:
            template = parse_template(self.format, ENTRY_FIELDS)
            return forms.template_form(template, ENTRY_FIELDS, on_terminal=on_terminal)
        match self.kind:
            case EntryForm.JSON:
                return forms.entry_records
            case EntryForm.YAML:
                return forms.entry_documents
            case EntryForm.RAW:
                return forms.raw_lines(values=values, on_terminal=on_terminal)
        return forms.entry_table(has_pairs=has_pairs, values=values)


@Parameter(name="*")
@dataclass(frozen=True)
class ChangeOutput:
    """How changes are printed, and where to."""

    output: Annotated[Form, Parameter(name=("--output", "-o"))] = Form.TABLE
    "table: columns; json, yaml: records. On a terminal, control characters are escaped."
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False
    "Short for --output json."
    format: Annotated[str | None, Parameter(validator=_check_change_template)] = None
    (
        r"Print each change by a template, e.g. '{op} {key}\t{value}\n'. Fields: those of "
        r"`anabranch table scan`, op (put or remove), time (at which the store took the change; "
        r"ISO, UTC; nothing for an entry of the snapshot), time_ms (the same in Unix ms, or 0), "
        r"and position (a token: --from continues after this change)."
    )
    file: Path | None = None
    "Print to this file, and replace it, instead of standard output."

    @property
    def kind(self) -> Form:
        return Form.JSON if self.json else self.output

    @property
    def destination(self) -> Destination:
        return Destination(self.file)

    def printer(self, target: ByteTarget, *, has_pairs: bool) -> Printer[Sequence[StoredChange]]:
        """The printer of changes with or without secondary keys."""
        return TextPrinter(self._form(has_pairs=has_pairs), target)

    def _form(self, *, has_pairs: bool) -> Callable[[Sequence[StoredChange]], bytes]:
        if self.format is not None:
            template = parse_template(self.format, CHANGE_FIELDS)
            on_terminal = self.destination.is_on_terminal
            return forms.template_form(template, CHANGE_FIELDS, on_terminal=on_terminal)
        match self.kind:
            case Form.JSON:
                return forms.change_records
            case Form.YAML:
                return forms.change_documents
        return forms.change_table(has_pairs=has_pairs)


_ENTRIES = EntryOutput()
_CHANGES = ChangeOutput()
_ALL = KeyRange()


def scan(
    table: str,
    /,
    *,
    keys: KeyRange = _ALL,
    values: Annotated[bool, Parameter(negative="--no-values")] = True,
    count: Annotated[int | None, Parameter(name=["--count", "-n"])] = None,
    output: EntryOutput = _ENTRIES,
    address: ClusterAddress = _HERE,
) -> None:
    """Print the entries of a key-value table in the order of their keys.

    Parameters
    ----------
    values
        Read the values too; --no-values: the keys alone.
    count
        End after this many entries.
    """
    output.check()
    request = keys.request(values=values, count=count)

    async def perform() -> None:
        async with session_on(address.target.address) as session, session.entries(table) as entries:
            printer = partial(output.printer, has_pairs=entries.has_pairs, values=values)
            await print_batches(
                entries.scan(request), printer, output.destination, _size_of, things="entries"
            )

    run_async(perform())


def watch(
    table: str,
    /,
    *,
    start: Annotated[str, Parameter(name="--from", validator=_check_start)] = SNAPSHOT,
    count: Annotated[int | None, Parameter(name=["--count", "-n"])] = None,
    output: ChangeOutput = _CHANGES,
    address: ClusterAddress = _HERE,
) -> None:
    """Print the changes of a key-value table as they happen, until Ctrl-C.

    Parameters
    ----------
    start
        snapshot: all entries first, then every change; now: later changes only; earliest: also the
        earlier ones that compaction has left; or a position: a {position} of --format, or the id of
        a change from the HTTP gateway.
    count
        End after this many changes.
    """
    refuse_both(output.format, output.kind, Form.TABLE)

    async def perform() -> None:
        async with session_on(address.target.address) as session, session.entries(table) as entries:
            printer = partial(output.printer, has_pairs=entries.has_pairs)
            await print_batches(
                entries.watch(start, count), printer, output.destination, _size_of, things="changes"
            )

    run_async(perform())


def _size_of(batch: Sequence[StoredEntry] | Sequence[StoredChange]) -> tuple[int, int]:
    return len(batch), sum([len(item.value or b"") for item in batch])
