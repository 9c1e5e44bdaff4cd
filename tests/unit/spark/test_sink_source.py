"""The sinks as Spark calls them: which key a micro-batch has, and which calls do nothing."""

from collections.abc import Mapping
from typing import cast

import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType

from anabranch.common.errors import Defect
from anabranch.common.model.names import stream_ref
from anabranch.common.runtime.nats_target import nats_target
from anabranch.spark.options.write import WriteOptions
from anabranch.spark.writing.planning import _batch_key
from anabranch.spark.writing.reports import SinkKey, TaskReport
from anabranch.spark.writing.schema import written_columns
from anabranch.spark.writing.source import (
    BATCH_ID,
    QUERY_ID,
    MicroBatchSink,
    TaskMessage,
    micro_batch_key,
)

OPTIONS = WriteOptions(stream_ref("plant/out"), nats_target("nats://127.0.0.1:1"))


class Task:
    """A task with Spark's local properties."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self._properties.get(name)


def task(**changes: str) -> TaskContext:
    found = {QUERY_ID: "a-query", BATCH_ID: "7"}
    return cast("TaskContext", Task({**found, **changes}))


def test_a_micro_batch_has_the_key_of_its_query_and_its_number() -> None:
    assert micro_batch_key(OPTIONS, task()) == SinkKey("a-query", 7)
    assert micro_batch_key(OPTIONS, task(**{BATCH_ID: "8"})) == SinkKey("a-query", 8)
    assert micro_batch_key(OPTIONS, task(**{QUERY_ID: "other"})) == SinkKey("other", 7)
    named = WriteOptions(OPTIONS.target, OPTIONS.place, application="mine")
    assert micro_batch_key(named, task()) == SinkKey("mine", 7)


@pytest.mark.parametrize("missing", [QUERY_ID, BATCH_ID])
def test_a_task_that_does_not_know_its_batch_writes_nothing(missing: str) -> None:
    known = {QUERY_ID: "a-query", BATCH_ID: "7"}
    del known[missing]
    with pytest.raises(Defect, match="does not tell the task"):
        micro_batch_key(OPTIONS, cast("TaskContext", Task(known)))


def test_each_plain_batch_write_has_a_name_of_its_own_that_is_forgotten() -> None:
    one, other = _batch_key(OPTIONS), _batch_key(OPTIONS)
    assert one.application != other.application
    assert one.is_drawn
    named = WriteOptions(OPTIONS.target, OPTIONS.place, application="mine", version=3)
    assert _batch_key(named) == SinkKey("mine", 3)


def test_a_commit_of_another_batch_and_an_abort_reach_no_cluster() -> None:
    schema = StructType([StructField("event", BinaryType())])
    sink = MicroBatchSink(OPTIONS, written_columns(schema))
    message = TaskMessage(TaskReport(SinkKey("a-query", 6)))
    sink.abort([message], 6)  # the restarted query continues the transaction
    with pytest.raises(AssertionError):
        sink.commit([message], 7)
