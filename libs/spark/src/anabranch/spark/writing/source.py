"""The sinks with Spark's interface: one for a batch write, one for the micro-batches of a query.

Spark pickles a sink for the tasks and again for its commit. The sink of a query is even created
anew for each micro-batch, and once more in the process of the commit: there, only the reports tell
the query's id.

Spark calls `abort` also after a commit that failed, and when a query is stopped in the middle of a
micro-batch, which the restarted query then runs again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from anabranch.spark.errors_shown import told_to_users
from anabranch.spark.options.write import WriteOptions
from anabranch.spark.writing.reports import SinkKey, TaskReport
from anabranch.spark.writing.schema import Written

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""The local properties that Spark gives the tasks of a micro-batch."""


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """The message of a task to the driver."""

    report: TaskReport


class BatchSink(DataSourceArrowWriter):
    """A batch write: one transaction under `key`, which was fixed when the write was planned."""

    def __init__(self, options: WriteOptions, key: SinkKey | None, has: Written) -> None:
        self._options = options
        self._key = key
        self._has = has

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        from anabranch.spark.writing.tasks import write_rows

        with told_to_users():
            partition = _task().partitionId()
            return TaskMessage(write_rows(self._options, self._key, self._has, iterator, partition))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from anabranch.spark.writing.tasks import commit

        with told_to_users():
            commit(self._options, _reports(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        from anabranch.spark.writing.tasks import abort

        if self._key is not None:
            with told_to_users():
                abort(self._options, self._key)


class MicroBatchSink(DataSourceStreamArrowWriter):
    """A streaming query: each micro-batch is one transaction under (application, batch id)."""

    def __init__(self, options: WriteOptions, has: Written) -> None:
        self._options = options
        self._has = has

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        from anabranch.spark.writing.tasks import write_rows

        with told_to_users():
            task = _task()
            key = micro_batch_key(self._options, task) if self._options.exactly_once else None
            return TaskMessage(
                write_rows(self._options, key, self._has, iterator, task.partitionId())
            )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        from anabranch.spark.writing.tasks import commit

        reports = _reports(messages)
        assert all(report.key.version == batchId for report in reports if report and report.key)
        with told_to_users():
            commit(self._options, reports)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the restarted query continues the transaction, or its lease expires."""


def micro_batch_key(options: WriteOptions, task: TaskContext) -> SinkKey:
    """The key of the micro-batch that the task belongs to. Raises Defect if Spark names none."""
    from anabranch.common.errors import Defect

    query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        raise Defect(
            "Spark does not tell the task its query and batch",
            remedy="report the version of Spark; with exactly_once=false, the write needs neither",
        )
    return SinkKey(options.application or query, int(batch))


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "Spark calls write in a task"
    return task


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport | None]:
    """The reports; None where a task failed."""
    return [each.report if isinstance(each, TaskMessage) else None for each in messages]
