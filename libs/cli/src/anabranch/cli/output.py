"""The output of commands: tables for people, JSON or YAML for programs.

Results go to stdout, everything else to stderr. On a terminal, tables have boxes and colours
(`NO_COLOR` turns the colours off); in a pipe or a file they are aligned columns, and no value is
folded. Programs get one JSON object per line, or one YAML document per result. Errors are one line:
the failure and the remedy.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TextIO

from anabranch.cli.figures import label, value_of
from anabranch.common.errors import AnabranchError


class Form(StrEnum):
    """How results are shown."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Output:
    """The destination of a command's results, in the requested form."""

    def __init__(self, form: Form, stream: TextIO | None = None) -> None:
        self.form = form
        self._stream = stream or sys.stdout

    @property
    def for_programs(self) -> bool:
        """Whether results are records and not text."""
        return self.form is not Form.TABLE

    def done(self, text: str, record: Mapping[str, object]) -> None:
        """One result: `text` for people, `record` for programs."""
        if self.for_programs:
            self._record(record)
        else:
            self._line(text)

    def progress(self, text: str, record: Mapping[str, object]) -> None:
        """The progress of a change that the command waits for; goes to stderr."""
        sys.stderr.write((json.dumps(record) if self.for_programs else text) + "\n")
        sys.stderr.flush()

    def names(self, field: str, names: Iterable[str]) -> None:
        """A list of names, one per line."""
        for name in names:
            self.done(name, {field: name})

    def details(self, title: str, record: Mapping[str, object]) -> None:
        """The properties of one thing; their names say the units of their values."""
        if self.for_programs:
            self._record(record)
            return
        self.table(title, [(label(name), value_of(name, one)) for name, one in record.items()])

    def table(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        """Two columns, for people."""
        shown = [(name.replace("_", " "), value) for name, value in rows]
        if not self._stream.isatty():
            self._line(title)
            self._columns([(f"  {name}", value) for name, value in shown])
            return
        from rich.table import Column, Table

        table = Table(
            Column(style="cyan"),
            Column(overflow="fold"),
            title=title,
            title_justify="left",
            show_header=False,
        )
        for row in shown:
            table.add_row(*row)
        self._print(table)

    def rows(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        records: Iterable[Mapping[str, object]],
        *,
        whole: str = "",
        empty: str = "",
    ) -> None:
        """Several things of a kind: a table for people, a record each for programs.

        `whole`: the column whose values are never wrapped, so that they can be copied. `empty`: the
        line for people instead of a table without rows.
        """
        if self.for_programs:
            for record in records:
                self._record(record)
            return
        rows = list(rows)
        if empty and not rows:
            self._line(empty)
            return
        if not self._stream.isatty():
            self._columns([[name.upper() for name in columns], *rows])
            return
        from rich.table import Column, Table

        shown = [Column(name, overflow="fold", no_wrap=name == whole) for name in columns]
        table = Table(*shown, header_style="bold cyan")
        for row in rows:
            table.add_row(*row)
        self._print(table)

    def _columns(self, rows: Sequence[Sequence[str]]) -> None:
        """Aligned columns, two spaces apart; further lines of a value stand below it."""
        cells = [[cell.split("\n") for cell in row] for row in rows]
        columns = zip(*cells, strict=True)
        widths = [max(len(line) for cell in column for line in cell) for column in columns]
        for row in cells:
            for number in range(max(len(lines) for lines in row)):
                texts = (lines[number] if number < len(lines) else "" for lines in row)
                padded = (text.ljust(width) for text, width in zip(texts, widths, strict=True))
                self._line("  ".join(padded).rstrip())

    def _print(self, shown: object) -> None:
        from rich.console import Console

        # Brackets in a value are no markup.
        Console(file=self._stream, markup=False).print(shown)

    def _record(self, record: Mapping[str, object]) -> None:
        if self.form is Form.JSON:
            self._line(json.dumps(record))
            return
        import yaml

        self._stream.write("---\n" + yaml.safe_dump(_plain(record), sort_keys=False))

    def _line(self, text: str) -> None:
        self._stream.write(text + "\n")


def _plain(value: object) -> object:
    """The value as JSON has it, without the types that only Python knows."""
    return json.loads(json.dumps(value))


def print_error(error: AnabranchError, form: Form, stream: TextIO | None = None) -> None:
    """The error on one line of stderr: its text and remedy, or its JSON body."""
    if form is Form.TABLE:
        text = " ".join(f"error: {error} / try: {error.remedy_for('command')}".split())
    else:
        text = json.dumps({"error": error.to_body("command")})
    print(text, file=stream or sys.stderr)


def print_usage_error(message: str, remedy: str, form: Form, stream: TextIO | None = None) -> None:
    """An invalid command line, on one line of stderr; `remedy` is the help to read."""
    if form is Form.TABLE:
        text = " ".join(f"error: {message} / try: {remedy}".split())
    else:
        body = {"code": "usage", "message": message, "remedy": remedy, "fields": {}}
        text = json.dumps({"error": body})
    print(text, file=stream or sys.stderr)
