"""The command `anabranch table load`: entries from a file, a pipe or the keyboard.

Entries are put in large batches, one after the other, so that the later of two entries with one key
stays. If a line is wrong, the entries before it are put.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Protocol

from cyclopts import Parameter

from anabranch.cli.client_session import Session
from anabranch.cli.commands.entry_options import ttl_ms
from anabranch.cli.commands.input_file import chunks_of, opened, size_left
from anabranch.cli.entries.keys import EntryKey
from anabranch.cli.entries.records import EntryParser, LoadedEntry
from anabranch.cli.entries.table import Entries
from anabranch.cli.escapes import unescaped
from anabranch.cli.output import Output
from anabranch.cli.records import Format, KeySource, Record, RecordParser
from anabranch.cli.session import Connection, run_with_session
from anabranch.cli.transfer_progress import TransferProgress, shows_progress
from anabranch.common.errors import AnabranchError, InvalidRequest
from anabranch.common.runtime.clock import SystemClock

BATCH_COUNT = 20_000
BATCH_SIZE_BYTES = 8 * 1024 * 1024


class LoadFormat(StrEnum):
    """How entries stand in the input."""

    RECORDS = "records"
    LINES = "lines"
    JSON = "json"
    CSV = "csv"


class Parser(Protocol):
    """Takes bytes as they arrive, and returns the entries that they complete."""

    @property
    def place(self) -> Mapping[str, int]: ...

    def feed(self, data: bytes) -> Iterator[LoadedEntry]: ...

    def finish(self) -> Iterator[LoadedEntry]: ...


class KeyedParser:
    """The parser of records that have their keys beside or inside them."""

    def __init__(self, records: RecordParser) -> None:
        self._records = records

    @property
    def place(self) -> Mapping[str, int]:
        return self._records.place

    def feed(self, data: bytes) -> Iterator[LoadedEntry]:
        """The entries that these bytes complete. Raises InvalidRequest, EventTooLarge."""
        return map(self._entry, self._records.feed(data))

    def finish(self) -> Iterator[LoadedEntry]:
        """The last entries. Raises as `feed`."""
        return map(self._entry, self._records.finish())

    def _entry(self, record: Record) -> LoadedEntry:
        if record.key is None:
            raise InvalidRequest(
                "an entry has no key",
                remedy="correct the input; all entries before this line were loaded",
                **self.place,
            )
        return LoadedEntry(EntryKey(record.key.encode()), record.event)


def _check_escapes(_type: object, text: str | None) -> None:
    unescaped(text or "")


@Parameter(name="*")
@dataclass(frozen=True)
class LoadOptions:
    """How entries stand in the input, and how long they live."""

    format: LoadFormat = LoadFormat.RECORDS
    (
        "records: lines as `anabranch table scan --json` prints them; lines: each line is a key, "
        "the separator and the value; json: each line is a JSON object, stored as it is under the "
        "key in its field; csv: rows under a header, each stored as a JSON object."
    )
    key_field: str | None = None
    "The field of json or csv input that holds the key."
    key_separator: Annotated[str | None, Parameter(validator=_check_escapes)] = None
    r"The text between key and value of a line, e.g. '\t'. \t, \n, \r, \0 and \\ are understood."
    ttl: str | None = None
    "How long the entries live, e.g. 12h; 0 until they are removed; by default the table's time."

    def parser(self) -> Parser:
        """The parser of such input. Raises InvalidRequest if options contradict each other."""
        ttl_ms(self.ttl)
        if self.format is LoadFormat.RECORDS:
            if self.key_field is not None or self.key_separator is not None:
                raise InvalidRequest(
                    "records have their keys in them",
                    remedy="choose another --format, or omit --key-field and --key-separator",
                )
            return EntryParser()
        separator = None if self.key_separator is None else unescaped(self.key_separator)
        if (self.key_field, separator) == (None, None):
            option = "--key-separator" if self.format is LoadFormat.LINES else "--key-field"
            raise InvalidRequest("the entries have no keys", remedy=f"add {option}")
        source = KeySource(field=self.key_field, separator=separator)
        return KeyedParser(RecordParser(Format(self.format.value), source))


_RECORDS = LoadOptions()
_HERE = Connection()


class Loader:
    """Puts entries in batches. `count` and `size_bytes` count those that are durable."""

    def __init__(self, entries: Entries, ttl_ms: int | None) -> None:
        self._entries = entries
        self._ttl_ms = ttl_ms
        self._batch: list[LoadedEntry] = []
        self._batch_bytes = 0
        self.count = 0
        self.size_bytes = 0
        self.has_failed = False

    async def add(self, entries: Iterable[LoadedEntry]) -> None:
        """Take entries, and put them when they are enough. Entries before an error of the iterable
        are kept."""
        for entry in entries:
            self._batch.append(entry)
            self._batch_bytes += _size_of(entry)
            if len(self._batch) >= BATCH_COUNT or self._batch_bytes >= BATCH_SIZE_BYTES:
                await self.flush()

    async def flush(self) -> None:
        """Return when everything taken is durable."""
        if not self._batch:
            return
        try:
            await self._entries.load(self._batch, ttl_ms=self._ttl_ms)
        except AnabranchError as error:
            self.has_failed = True
            error.fields = {**error.fields, "loaded": self.count}
            raise
        self.count += len(self._batch)
        self.size_bytes += self._batch_bytes
        self._batch, self._batch_bytes = [], 0


def load(
    table: str,
    file: Path | None = None,
    /,
    *,
    options: LoadOptions = _RECORDS,
    connection: Connection = _HERE,
) -> None:
    """Put many entries into a key-value table, from a file or standard input.

    The command succeeds only when all entries are durable. They are not put atomically: of two
    entries with the same key the later one stays.

    Parameters
    ----------
    file
        The file with the entries; by default standard input.
    """
    parser = options.parser()

    async def perform(session: Session, output: Output) -> None:
        async with session.entries(table) as entries:
            loader = Loader(entries, ttl_ms(options.ttl))
            try:
                await _pour(file, parser, loader)
                await loader.flush()
            except AnabranchError:
                if not loader.has_failed:
                    await loader.flush()
                raise
        noun = "entry" if loader.count == 1 else "entries"
        output.done(
            f"loaded {loader.count} {noun} into {table}",
            {"table": table, "entries": loader.count, "bytes": loader.size_bytes},
        )

    run_with_session(connection, perform)


async def _pour(file: Path | None, parser: Parser, loader: Loader) -> None:
    async with opened(file) as descriptor:
        stream = sys.stderr if shows_progress(sys.stderr, descriptor, os.environ) else None
        clock, read_bytes = SystemClock(), 0
        line = TransferProgress(stream, clock, size_left(descriptor), things="entries")
        with closing(line) as progress:
            async for data in chunks_of(descriptor):
                read_bytes += len(data)
                await loader.add(parser.feed(data))
                progress.show(loader.count, loader.size_bytes, read_bytes)
            await loader.add(parser.finish())


def _size_of(entry: LoadedEntry) -> int:
    return len(entry.key.primary) + len(entry.key.secondary or b"") + len(entry.value)
