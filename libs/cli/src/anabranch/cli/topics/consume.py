"""The command `anabranch consume`: the records of a topic, in many forms, as they come."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from cyclopts import CycloptsError, Parameter

from anabranch.cli.byte_target import ByteTarget
from anabranch.cli.commands.printing import Destination, Printer, TextPrinter, print_batches
from anabranch.cli.session import ClusterAddress, run_async, session_on
from anabranch.cli.topics.record_forms import RecordForm, form_of, template_form
from anabranch.cli.topics.starts import ConsumeStart, start_of
from anabranch.client import Client
from anabranch.client.topics.consumer import TopicConsumer
from anabranch.client.topics.records import RecordBatch
from anabranch.common.errors import InvalidRequest, RecordEvicted
from anabranch.common.runtime.clock import Clock, SystemClock

COMMIT_S = 10.0
LAST_COMMIT_S = 3.0
"""How long the command may take to commit after Ctrl-C."""
_HERE = ClusterAddress()


def _check_format(_type: object, text: str | None) -> None:
    template_form(text or "", on_terminal=False)


def _check_count(_type: object, count: int | None) -> None:
    if count is not None and count < 0:
        raise ValueError("records are counted from 0 on")


Count = Annotated[int | None, Parameter(validator=_check_count)]


@Parameter(name="*")
@dataclass(frozen=True)
class Extent:
    """Which records are consumed."""

    beginning: Annotated[Count, Parameter(name=("--beginning", "-B"))] = None
    "Start at the beginning of each partition, or so many records after it; -B alone is -B 0."
    head: Annotated[Count, Parameter(name=("--head", "-H"))] = None
    "Start so many records after the beginning of each partition."
    tail: Annotated[Count, Parameter(name=("--tail", "-T"))] = None
    "Start so many records before the end of each partition."
    start: str | None = None
    (
        "Start at this record number in each partition, or at a time such as 2026-11-20T12:00 "
        "(UTC, or with an offset)."
    )
    end: Count = None
    "End behind this record number in each partition."
    num_records: Annotated[Count, Parameter(name=("--num-records", "-n"))] = None
    "End after so many records."
    disable_continuous: Annotated[
        bool, Parameter(name=("--disable-continuous", "-d"), negative="")
    ] = False
    "Stop at the present end of each partition, instead of waiting for more records."
    partition: Annotated[
        tuple[int, ...], Parameter(name=("--partition", "-p"), negative_iterable="")
    ] = ()
    "Only this partition; may be repeated."
    all_partitions: Annotated[bool, Parameter(name=("--all-partitions", "-A"), negative="")] = False
    "All partitions, also those that are added meanwhile: the default."

    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    "Both mean the same: no record can be read before every in-sync copy has it."

    def first(self) -> ConsumeStart:
        """Raises CycloptsError for options that contradict each other."""
        if self.partition and self.all_partitions:
            raise CycloptsError(
                msg="the argument '--all-partitions' cannot be used with '--partition'"
            )
        return start_of(beginning=self.beginning, head=self.head, tail=self.tail, start=self.start)


@Parameter(name="*")
@dataclass(frozen=True)
class RecordOutput:
    """How records are printed."""

    output: Annotated[RecordForm, Parameter(name=("--output", "-o", "-O"))] = RecordForm.TEXT
    (
        "text: each value and a newline; dynamic: the same, and values that are not UTF-8 as "
        "binary; binary: values in hexadecimal digits; raw: as text, unchanged also on a terminal; "
        "table: columns; json, yaml: records with keys, times, partitions and record numbers."
    )
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False
    "Short for --output json."
    key_value: Annotated[bool, Parameter(name=("--key-value", "-k"), negative="")] = False
    "Print each value behind its key: [key] value, with [null] for no key."
    format: Annotated[str | None, Parameter(name=("--format", "-F"), validator=_check_format)] = (
        None
    )
    (
        "Print each record as a line of this form, e.g. '{{offset}} {{key}}: {{value}}'. Fields: "
        "value, value_base64, size, key (null for none), offset, partition, topic, time (ISO, "
        "UTC), timestamp_ms."
    )

    @property
    def kind(self) -> RecordForm:
        return RecordForm.JSON if self.json else self.output

    def check(self) -> None:
        """Raises InvalidRequest for options that contradict each other."""
        if self.format is not None and (self.kind is not RecordForm.TEXT or self.key_value):
            raise InvalidRequest(
                "a format is a form of its own", remedy="give --format, or --output and --key-value"
            )

    def printer(self, target: ByteTarget) -> Printer[RecordBatch]:
        on_terminal = sys.stdout.isatty()
        if self.format is not None:
            form = template_form(self.format, on_terminal=on_terminal)
        else:
            form = form_of(self.kind, on_terminal=on_terminal, with_keys=self.key_value)
        return TextPrinter(lambda batch: form(batch.records()), target)


_FROM_THE_END = Extent()
_TEXT = RecordOutput()


def consume(
    topic: str,
    /,
    *,
    extent: Extent = _FROM_THE_END,
    consumer: Annotated[str | None, Parameter(name=("--consumer", "-c"))] = None,
    output: RecordOutput = _TEXT,
    address: ClusterAddress = _HERE,
) -> None:
    """Print a topic's records as they come, from its end or from another place on.

    Records of one partition keep their order. The command waits for more records until Ctrl-C,
    unless an option ends it.

    Parameters
    ----------
    consumer
        Resume behind the records that a consumer of this name has printed before, and commit the
        printed ones under it. --start wins over its offsets.
    """
    output.check()
    start = extent.first()

    async def perform() -> None:
        async with session_on(address.target.address) as session:
            if sys.stderr.isatty() and sys.stdout.isatty():
                _tell(f"Consuming records from '{topic}' {start.text}")
            following = Consuming(consumer, extent, SystemClock())
            batches = following.batches(_opened(session.client, topic, start, extent, consumer))
            destination = Destination(None)
            await print_batches(batches, output.printer, destination, _size_of, things="records")

    run_async(perform())


def _opened(
    client: Client, topic: str, start: ConsumeStart, extent: Extent, name: str | None
) -> TopicConsumer[bytes]:
    return client.topics.consumer(
        topic,
        partitions=extent.partition or None,
        start=start.offset,
        until_end=extent.disable_continuous,
        isolation=extent.isolation,
        name=name,
        commit=None if name is None else "manual",
    )


@dataclass
class Consuming:
    """The records of one command, and the offsets that it has printed.

    It commits these itself, because a block may hold records behind the last one to be printed.
    """

    name: str | None
    extent: Extent
    clock: Clock
    seen: dict[tuple[str, int], int] = field(default_factory=dict)
    """(topic, partition) → the number of the last printed record, since the last commit."""

    async def batches(self, consumer: TopicConsumer[bytes]) -> AsyncGenerator[RecordBatch, None]:
        """Batches up to the end, the count or the last record number. A batch counts as printed
        once the next one is asked for."""
        left = self.extent.num_records
        async with consumer:
            try:
                commit_at_s = self.clock.monotonic() + COMMIT_S
                while (left is None or left > 0) and not self._is_behind_end(consumer):
                    batch = await _next(consumer)
                    if batch is None:
                        break
                    batch = self._cut(batch, left)
                    if not len(batch):
                        continue
                    left = None if left is None else left - len(batch)
                    yield batch
                    self.seen[batch.topic, batch.partition] = batch.next_offset - 1
                    if self.clock.monotonic() >= commit_at_s:
                        await self._commit(consumer)
                        commit_at_s = self.clock.monotonic() + COMMIT_S
            finally:
                async with asyncio.timeout(LAST_COMMIT_S):
                    await self._commit(consumer)

    def _cut(self, batch: RecordBatch, left: int | None) -> RecordBatch:
        end = batch.next_offset if self.extent.end is None else self.extent.end + 1
        count = max(0, min(len(batch), end - batch.offset))
        count = count if left is None else min(count, left)
        return batch if count == len(batch) else batch.before(count)

    def _is_behind_end(self, consumer: TopicConsumer[bytes]) -> bool:
        """Whether every partition has been read up to the last record number."""
        end, at = self.extent.end, consumer.positions() if self.extent.end is not None else {}
        return end is not None and bool(at) and all(number > end for number in at.values())

    async def _commit(self, consumer: TopicConsumer[bytes]) -> None:
        if self.name is not None and self.seen:
            seen, self.seen = self.seen, {}
            await consumer.commit(seen)


async def _next(consumer: TopicConsumer[bytes]) -> RecordBatch | None:
    """The next batch; a gap of evicted records is told, and reading continues behind it."""
    while True:
        try:
            return await consumer.next_batch()
        except RecordEvicted as error:
            _tell(f"warning: {error}")


def _tell(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _size_of(batch: RecordBatch) -> tuple[int, int]:
    return len(batch), sum(map(len, batch.values))
