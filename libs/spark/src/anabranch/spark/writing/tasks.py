"""The functions that Spark calls: one writes a task's rows, and others run on the driver."""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from anabranch.client.client import Client
from anabranch.common.model.names import StreamRef
from anabranch.common.runtime.clock import SystemClock
from anabranch.spark.options.write import WriteOptions
from anabranch.spark.writing.background import client_in_background
from anabranch.spark.writing.columns import Place, event_slices
from anabranch.spark.writing.committing import abort_batch, commit_batch
from anabranch.spark.writing.outputs import EVENT_BYTES_MAX, open_output
from anabranch.spark.writing.reports import SinkKey, TaskReport
from anabranch.spark.writing.schema import Written
from anabranch.spark.writing.streams import require_target

if TYPE_CHECKING:
    import pyarrow as pa


def write_rows(
    options: WriteOptions,
    key: SinkKey | None,
    has: Written,
    batches: "Iterator[pa.RecordBatch]",
    partition: int,
) -> TaskReport:
    """Write the rows of a task; they are durable when it returns. A task without rows connects to
    nothing. Raises InvalidRequest, EventTooLarge, and as the client's writers."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return TaskReport()
    with client_in_background(options.place) as background:
        output = background.run(open_output(background.client, options, key, has))
        try:
            for rows in _slices(chain([first], batches), partition):
                background.run(output.take(rows))
            return background.run(output.finish())
        finally:
            background.run(output.close())


def _slices(batches: "Iterable[pa.RecordBatch]", partition: int) -> "Iterator[pa.RecordBatch]":
    clock, rows_before = SystemClock(), 0
    for batch in batches:
        place = Place(partition, rows_before)
        yield from event_slices(batch, place, EVENT_BYTES_MAX, clock.now_ms())
        rows_before += batch.num_rows


# --- on the driver ------------------------------------------------------------------------


def prepare(options: WriteOptions) -> None:
    """Look whether the target exists before a batch write; create a missing stream if asked."""
    _on_driver(options, lambda client: require_target(client, options))


def commit(options: WriteOptions, reports: Sequence[TaskReport | None]) -> None:
    """As `commit_batch`. A batch without rows connects to nothing."""
    if any(report is not None and report.key is not None for report in reports):
        _on_driver(options, lambda client: commit_batch(client, options, reports))


def abort(options: WriteOptions, key: SinkKey) -> None:
    """As `abort_batch`."""
    assert isinstance(options.target, StreamRef)
    _on_driver(options, lambda client: abort_batch(client, options, key))


def _on_driver(options: WriteOptions, work: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    with client_in_background(options.place) as background:
        background.run(work(background.client))
