"""The streaming reader with Spark's interface: for Spark 4.2 and newer.

Spark keeps one `StreamFollower` in a process of the driver for the whole query, and pickles another
one into every task, which calls only `read`.

    prepareForTriggerAvailableNow ─► initialOffset ─► latestOffset ─► partitions ─► tasks: read
                                                          ▲                             │
                         commit(end of the last batch) ───┴──── reportLatestOffset ◄────┘

Spark keeps the end of the first micro-batch, but not its start, for which it asks again: a second
time in the life of the process, and once more if a restart repeats that micro-batch. The first
micro-batch of a query from the tail is therefore empty. Its end is the tail that later ones begin
at, and nothing before it has to be known.

This module is imported in every task, which imports no more than it needs.
"""

import logging
import os
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from anabranch.common.errors import NotFound, Retry
from anabranch.common.runtime.logger import get_logger
from anabranch.spark.errors_shown import told_to_users
from anabranch.spark.following.offsets import Offset, parse_offset, to_json
from anabranch.spark.options.follow import Budget, FollowOptions
from anabranch.spark.reading.source import ReadPartition, partition_read

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from anabranch.spark.following.follower import Follower
    from anabranch.spark.following.kept_client import KeptClient
    from anabranch.spark.places.stores import StorePlace

CLIENT_NAME = "anabranch-spark-query"
T = TypeVar("T")

_log = get_logger(__name__)


def budget_of(limit: ReadLimit, options: Budget) -> Budget:
    """The budget of one batch. Spark knows one limit; a second one comes from the options."""
    match limit:
        case ReadMaxBytes():
            return Budget(limit.max_bytes, options.rows)
        case ReadMaxRows():
            return Budget(options.bytes, limit.max_rows)
    return Budget()


class StreamFollower(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows streams by cuts. State, on the driver only: the client, the start of a query that has
    no micro-batch yet, whether an end was told, the end at which `availableNow` stops, and the
    offsets that were planned and released last."""

    def __init__(self, options: FollowOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._kept: KeptClient | None = None
        self._start: Offset | None = None
        self._has_end = False
        self._target: Offset | None = None
        self._consumed: Offset | None = None
        self._generation: int | None = None
        self._released: Offset = {}

    def __reduce__(self) -> tuple[type, tuple[FollowOptions, StructType]]:
        return StreamFollower, (self._options, self._schema)

    # --- on the driver --------------------------------------------------------------------

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        with told_to_users():
            if self._start is None:
                self._start = self._first_start()
            self._subscribe(self._start)
        return to_json(self._start)

    def _first_start(self) -> Offset:
        if self._options.start == "tail" and self._target is not None:
            return self._target
        return self._ask(lambda follower: follower.initial())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with told_to_users():
            self._target = self._ask(lambda follower: follower.tails())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        budget = self._options.budget
        if budget.bytes is not None:
            return ReadMaxBytes(budget.bytes)
        return ReadAllAvailable() if budget.rows is None else ReadMaxRows(budget.rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        budget = budget_of(limit, self._options.budget)
        with told_to_users():
            begin = parse_offset(start)
            self._subscribe(begin)
            if self._options.start == "tail" and self._start == begin and not self._has_end:
                end: Offset = begin
            else:
                end = self._ask(lambda follower: follower.latest(begin, budget, self._target))
        self._consumed, self._has_end = end, True
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        consumed = self._consumed
        if consumed is None:
            return None
        try:
            tails, lag_bytes = self._ask(lambda follower: follower.backlog(consumed))
        except (Retry, NotFound):  # A report must not end the query.
            return None
        return {**to_json(tails), "lag_bytes": lag_bytes}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        cores = len(os.sched_getaffinity(0))
        with told_to_users():
            begin: Offset = parse_offset(start)
            stop: Offset = parse_offset(end)
            if self._start is not None and not self._has_end:  # The first micro-batch runs again.
                first_end = stop
                stop = self._ask(lambda follower: follower.not_before(begin, first_end))
            plan = self._ask(lambda follower: follower.plan(begin, stop, cores))
        return [
            ReadPartition(plan.incarnations, pieces, plan.watermarks) for pieces in plan.partitions
        ]

    def commit(self, end: dict[str, Any]) -> None:
        with told_to_users():
            offset = parse_offset(end)
            try:
                self._release(offset)
            except Retry as error:
                _log.warning("no cut is released; the next commit does it", cause=str(error))

    def stop(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _subscribe(self, start: Offset) -> None:
        """Once in the life of the process; the group may exist."""
        from anabranch.spark.following.releases import subscribe

        group = self._options.reader_group
        if group is not None and self._generation is None:
            self._generation = self._run(lambda place: subscribe(place.client, group, start))

    def _release(self, offset: Offset) -> None:
        from anabranch.spark.following.releases import release

        group, generation = self._options.reader_group, self._generation
        if group is None or generation is None:  # Before the first offset, nothing is new.
            return
        released = self._released
        self._run(lambda place: release(place.client, group, generation, offset, released))
        self._released = offset

    def _ask(self, question: "Callable[[Follower], Coroutine[Any, Any, T]]") -> T:
        from anabranch.spark.following.follower import Follower

        return self._run(lambda place: question(Follower(place, self._options)))

    def _run(self, work: "Callable[[StorePlace], Coroutine[Any, Any, T]]") -> T:
        if self._kept is None:
            from anabranch.client import connect
            from anabranch.common.runtime.clock import SystemClock
            from anabranch.spark.following.kept_client import KeptClient
            from anabranch.spark.places.stores import StorePlace

            async def open_place() -> StorePlace:
                return StorePlace(await connect(self._options.place, name=CLIENT_NAME))

            # Spark started the process for this reader alone, and shows its standard error.
            logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
            self._kept = KeptClient(open_place, SystemClock())
        return self._kept.run(work)

    # --- in a task ------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from anabranch.spark.places.opening import spare_imported
        from anabranch.spark.reading.batch import read
        from anabranch.spark.reading.losses import OnLoss

        assert isinstance(partition, ReadPartition)
        on_loss = OnLoss.FAIL if self._options.fail_on_data_loss else OnLoss.PASS
        how = replace(partition_read(self._options, partition, self._schema), on_loss=on_loss)
        with told_to_users():
            yield from read(how, partition.incarnations, partition.pieces)
        spare_imported()
