"""The command `anabranch produce`: records from standard input, a file or the keyboard.

At a terminal it prompts for a record after the other, and says `Ok!` when one is stored. Otherwise
it sends records as they arrive, and succeeds only when all of them are durable.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from anabranch.cli.commands.input_file import chunks_of, opened
from anabranch.cli.commands.input_options import InputOptions, pour
from anabranch.cli.figures import counted
from anabranch.cli.output import Output
from anabranch.cli.records import Format, Record, RecordParser
from anabranch.cli.session import Connection, run_with_client
from anabranch.cli.sink import EventSink
from anabranch.cli.topics.options import FOREIGN_CODECS
from anabranch.client import Client
from anabranch.client.topics.producer import TopicProducer

PROMPT = "> "
_HERE = Connection()


def _check_codec(_type: object, codec: str | None) -> None:
    if codec in FOREIGN_CODECS:
        raise ValueError(f"the codec {codec} is not available; use none or zstd")
    if codec not in (None, "none", "zstd"):
        raise ValueError("use none or zstd")


@Parameter(name="*")
@dataclass(frozen=True)
class ProduceOptions:
    """How the input becomes records, and where they go."""

    raw: Annotated[bool, Parameter(negative="")] = False
    "The whole input is one record; otherwise each line is one."
    key: str | None = None
    "The key of all records."
    key_separator: str | None = None
    r"Each line is a key, this text and the value, e.g. '\t'; an empty key means none."
    partition: Annotated[int | None, Parameter(name=("--partition", "-p"))] = None
    "Send all records to this partition, whatever their keys are."
    compression: Annotated[str | None, Parameter(validator=_check_codec)] = None
    "none or zstd; by default the codec of the topic."
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    "Both mean the same: a record is acknowledged when every in-sync copy has it."

    @property
    def input(self) -> InputOptions:
        form = Format.WHOLE if self.raw else Format.LINES
        return InputOptions(format=form, key=self.key, key_separator=self.key_separator)


_LINES = ProduceOptions()


def produce(
    topic: str,
    /,
    file: Annotated[Path | None, Parameter(name=("--file", "-f"))] = None,
    *,
    options: ProduceOptions = _LINES,
    connection: Connection = _HERE,
) -> None:
    """Produce records to a topic: the lines of standard input or of a file.

    Records with a key go to the partition of their key, the others to all partitions in turn. The
    command succeeds only when all records are durable.

    Parameters
    ----------
    file
        The file with the records; by default standard input.
    """
    options.input.parser()  # refuses a wrong command line before it connects

    async def perform(client: Client, output: Output) -> None:
        async with client.topics.producer(topic, compression=options.compression) as producer:
            sink = RecordSink(producer, options.partition)
            if file is None and not options.raw and _is_interactive(output):
                await _converse(options.input.parser(), sink)
                return
            await pour(file, options.input, sink)
        output.done(
            f'produced {counted(sink.events, "record")} to "{topic}"',
            {"topic": topic, "records": sink.events, "bytes": sink.size_bytes},
        )

    run_with_client(connection, perform)


class RecordSink(EventSink):
    """Takes the records of one command; `partition`: for all of them."""

    def __init__(self, producer: TopicProducer[bytes], partition: int | None) -> None:
        super().__init__(producer)
        if partition is not None:
            self._take = partial(producer.write, partition=partition)


def _is_interactive(output: Output) -> bool:
    return not output.for_programs and sys.stdin.isatty() and sys.stdout.isatty()


async def _converse(parser: RecordParser, sink: EventSink) -> None:
    """Prompt for lines until the input ends; answer each when its record is durable."""
    async with opened(None) as descriptor:
        _show(PROMPT)
        async for data in chunks_of(descriptor):
            await _answer(parser.feed(data), sink)
            _show(PROMPT)
        await _answer(parser.finish(), sink)
    _show("\n")


async def _answer(records: Iterable[Record], sink: EventSink) -> None:
    for record in records:
        await sink.write([record])
        await sink.flush()
        _show("Ok!\n")


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
