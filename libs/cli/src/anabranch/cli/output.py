"""What commands print: tables and short lines for people, one JSON object per line for programs.

Results go to stdout, everything else to stderr. Errors are one line: what happened, what to do.
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
    """Where a command's results go, in the form that its caller asked for."""

    def __init__(self, as_json: bool, stream: TextIO | None = None) -> None:
        self.as_json = as_json
        self._stream = stream or sys.stdout

    def done(self, text: str, record: Mapping[str, object]) -> None:
        """One result: `text` for people, `record` for programs."""
        self._line(json.dumps(record) if self.as_json else text)

    def names(self, field: str, names: Iterable[str]) -> None:
        """A list of names, one per line."""
        for name in names:
            self.done(name, {field: name})

    def details(self, title: str, record: Mapping[str, object]) -> None:
        """One thing's properties."""
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
    ) -> None:
        """Many things of a kind: a table for people, one record per line for programs."""
        if self.as_json:
            for record in records:
                self._line(json.dumps(record))
            return
        table = Table(*(Column(name, overflow="fold") for name in columns))
        for row in rows:
            table.add_row(*row)
        # Brackets in a reason are its own, not rich's.
        Console(file=self._stream, markup=False).print(table)

    def _line(self, text: str) -> None:
        self._stream.write(text + "\n")


def moment(unix_ms: int) -> str:
    """A time as people read it, in UTC, to the second."""
    return datetime.fromtimestamp(unix_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def counted(count: int, noun: str) -> str:
    """``1 event``, ``2 events``: for nouns that take an s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def print_error(error: AnabranchError, as_json: bool, stream: TextIO | None = None) -> None:
    """The error on one line of stderr: its text and remedy, or its JSON body."""
    if as_json:
        text = json.dumps({"error": error.to_body()})
    else:
        text = " ".join(f"error: {error} / try: {error.remedy}".split())
    print(text, file=stream or sys.stderr)


def print_usage_error(message: str, as_json: bool, stream: TextIO | None = None) -> None:
    """A command line that makes no sense, on one line of stderr."""
    remedy = "anabranch --help"
    if as_json:
        body = {"code": "usage", "message": message, "remedy": remedy, "fields": {}}
        text = json.dumps({"error": body})
    else:
        text = " ".join(f"error: {message} / try: {remedy}".split())
    print(text, file=stream or sys.stderr)
