"""The streaming reader with Spark's interface: for Spark 4.2 and newer.

Spark keeps one `StreamFollower` in a process of the driver for the whole query, and pickles another
one into every task, which calls only `read`.

    prepareForTriggerAvailableNow ─► initialOffset ─► latestOffset ─► partitions ─► tasks: read
                                                          ▲                             │
                         commit(end of the last batch) ───┴──── reportLatestOffset ◄────┘

This module is imported in every task, which imports no more than it needs.
"""

import logging
import os
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from anabranch.common.errors import NotFound, Retry
from anabranch.common.runtime.logger import get_logger
from anabranch.spark.errors_shown import told_to_users
from anabranch.spark.following.offsets import Offset, parse_offset, to_json
from anabranch.spark.options.follow import Budget, FollowOptions
from anabranch.spark.reading.source import ReadPartition

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
    """Follows streams by cuts. State, on the driver only: the client, the end at which
    `availableNow` stops, and the offsets that were planned and released last."""

    def __init__(self, options: FollowOptions) -> None:
        self._options = options
        self._kept: KeptClient | None = None
        self._target: Offset | None = None
        self._consumed: Offset | None = None
        self._generation: int | None = None
        self._released: Offset = {}

    def __reduce__(self) -> tuple[type, tuple[FollowOptions]]:
        return StreamFollower, (self._options,)

    # --- on the driver --------------------------------------------------------------------

    def initialOffset(self) -> dict[str, str]:  # noqa: N802
        with told_to_users():
            start = self._ask(lambda follower: follower.initial())
            self._subscribe(start)
        return to_json(start)

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
            end = self._ask(lambda follower: follower.latest(begin, budget, self._target))
        self._consumed = end
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
            begin, stop = parse_offset(start), parse_offset(end)
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
        from anabranch.spark.reading.batch import PartitionRead, read

        assert isinstance(partition, ReadPartition)
        how = PartitionRead(self._options.place, self._options.columns, partition.watermarks)
        with told_to_users():
            yield from read(how, partition.incarnations, partition.pieces)
        spare_imported()
