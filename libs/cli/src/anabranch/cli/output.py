"""The output of commands: tables and short lines for people, one JSON object per line for programs.

Results go to stdout, everything else to stderr. Errors are one line: the failure and the remedy.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TextIO

from rich.console import Console
from rich.table import Column, Table

from anabranch.common.errors import AnabranchError


class Output:
    """The destination of a command's results, in the requested form."""

    def __init__(self, as_json: bool, stream: TextIO | None = None) -> None:
        self.as_json = as_json
        self._stream = stream or sys.stdout

    def done(self, text: str, record: Mapping[str, object]) -> None:
        """One result: `text` for people, `record` for programs."""
        self._line(json.dumps(record) if self.as_json else text)

    def progress(self, text: str, record: Mapping[str, object]) -> None:
        """The progress of a change that the command waits for; goes to stderr."""
        sys.stderr.write((json.dumps(record) if self.as_json else text) + "\n")
        sys.stderr.flush()

    def names(self, field: str, names: Iterable[str]) -> None:
        """A list of names, one per line."""
        for name in names:
            self.done(name, {field: name})

    def details(self, title: str, record: Mapping[str, object]) -> None:
        """The properties of one thing."""
        if self.as_json:
            self._line(json.dumps(record))
            return
        self.table(title, [(name, str(value)) for name, value in record.items()])

    def table(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        """Two columns, for people."""
        columns = (Column("name"), Column("value", overflow="fold"))
        table = Table(*columns, title=title, title_justify="left", show_header=False)
        for name, value in rows:
            table.add_row(name.replace("_", " "), value)
        Console(file=self._stream).print(table)

    def rows(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        records: Iterable[Mapping[str, object]],
        *,
        whole: str = "",
    ) -> None:
        """Several things of a kind: a table for people, one record per line for programs.

        `whole`: the column whose values are never wrapped, so that they can be copied.
        """
        if self.as_json:
            for record in records:
                self._line(json.dumps(record))
            return
        shown = [Column(name, overflow="fold", no_wrap=name == whole) for name in columns]
        table = Table(*shown)
        for row in rows:
            table.add_row(*row)
        # Brackets in a value are no markup.
        Console(file=self._stream, markup=False).print(table)

    def _line(self, text: str) -> None:
        self._stream.write(text + "\n")


def moment(unix_ms: int) -> str:
    """A time for people, in UTC, to the second."""
    return datetime.fromtimestamp(unix_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def counted(count: int, noun: str) -> str:
    """``1 event``, ``2 events``: for nouns that take an s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def print_error(error: AnabranchError, as_json: bool, stream: TextIO | None = None) -> None:
    """The error on one line of stderr: its text and remedy, or its JSON body."""
    if as_json:
        text = json.dumps({"error": error.to_body("command")})
    else:
        text = " ".join(f"error: {error} / try: {error.remedy_for('command')}".split())
    print(text, file=stream or sys.stderr)


def print_usage_error(message: str, as_json: bool, stream: TextIO | None = None) -> None:
    """An invalid command line, on one line of stderr."""
    remedy = "anabranch --help"
    if as_json:
        body = {"code": "usage", "message": message, "remedy": remedy, "fields": {}}
        text = json.dumps({"error": body})
    else:
        text = " ".join(f"error: {message} / try: {remedy}".split())
    print(text, file=stream or sys.stderr)
