"""A materialised view, as programs use it: a stream's events, folded into the rows of a table.

    events ──reader group──► view ──atomic update per partition──► rows, with the view's positions

Any number of processes may run the same view; the reader group shares the segments among them. Each
event changes its row exactly once, even if processes die at any moment: rows and positions are
saved together, and an event that comes again is skipped if its row reflects it. Events of one
segment, and therefore of one routing key, are folded in their order. Events of several segments
that belong to one row are folded in any order.
"""

from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Self, TypeVar

from anabranch.client.backoff import Backoff
from anabranch.client.groups.reader import GroupReader, GroupReaderSettings
from anabranch.client.groups.status import Lag, ReaderGroupStatus
from anabranch.client.settings import BackoffSettings
from anabranch.client.tables.stored import StoredTable
from anabranch.client.views.beginning import begin, create
from anabranch.client.views.counts import ViewCounts
from anabranch.client.views.goal import CaughtUp
from anabranch.client.views.partition import PartitionView
from anabranch.client.views.parts import ViewParts
from anabranch.client.views.rounds import Recipe
from anabranch.client.views.rows import Rows
from anabranch.client.views.session import CHECK_S, ViewSession
from anabranch.client.views.settings import ViewSettings
from anabranch.common.errors import (
    Closed,
    InvalidRequest,
    ReaderGroupReset,
    ReaderRemoved,
    Remedy,
)
from anabranch.common.runtime.logger import get_logger

_log = get_logger(__name__)

E = TypeVar("E")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """The progress of a view, and the work of this process; from `View.status`.

    ::

        status = await view.status()
        print(status.lag.events, status.folded)
    """

    group: ReaderGroupStatus
    """The status of the view's reader group, with the readers of all processes."""
    folded: int
    """The events that this process has folded into rows since it opened the view."""
    skipped: int
    """The events that came again, and that the rows reflected already."""
    saved: int
    """The rows that this process has put or removed."""
    conflicts: int
    """The updates that were decided again, because another process was faster."""

    @property
    def lag(self) -> Lag:
        """The events that the rows do not reflect yet, or that the group does not know to be saved
        yet."""
        return self.group.lag


class View(Generic[E, K, V]):
    """A materialised view; made by `Client.view`. E, K and V are the types of the events' payloads,
    and of the table's keys and rows.

    ::

        async with client.view(
            "shop/sales", group="shop/totals", table="shop/totals",
            key=lambda event: event.key, fold=lambda row, event: (row or 0) + int(event.payload),
            value=JsonSerializer(),
        ) as view:
            await view.run()

    An async context manager. It ends with the client at the latest.
    """

    def __init__(
        self, parts: ViewParts, recipe: Recipe[E, K, V], settings: ViewSettings, *, create: bool
    ) -> None:
        self._parts = parts
        self._recipe = recipe
        self._settings = settings
        self._creates = create
        self._counts = ViewCounts()
        self._table: StoredTable[K] | None = None
        self._reader: GroupReader | None = None
        self._is_running = False

    # --- life -----------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open the table, and begin the view in it unless it has begun.

        Raises ReaderGroupNotFound, TableNotFound, ScopeNotFound, InvalidRequest (the group does not
        read the stream), ViewMismatch, Unavailable.
        """
        if self._creates:
            await create(self._parts)
        await self._parts.table.open()
        try:
            table: StoredTable[K] = self._parts.table.stored
            await begin(self._parts, table)
        except BaseException:
            await self.close()
            raise
        self._table = table
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop; a pending `run` raises Closed. Repeatable.

        ::

            await view.close()
        """
        self._table = None
        if self._reader is not None:
            await self._reader.close()
        await self._parts.table.close()
        await self._parts.group.close()

    # --- running --------------------------------------------------------------------------

    async def run(self, *, until_caught_up: bool = False) -> None:
        """Fold events until the call is cancelled, or until the group has nothing left for ever.

        With `until_caught_up`, it returns when all events that were in the streams at the time of
        the call are folded, by whichever processes run the view. A call can be cancelled at any
        time, and repeated. If other readers take this one for dead, or the group is reset, it joins
        the group again.

        Raises the errors of the view's functions, and SerializationFailed for an event or a row
        that cannot be deserialized: the next call raises them again. Raises EventsTruncated once
        for truncated events; the next call continues after them. Also raises ReaderGroupNotFound,
        TableNotFound, TableSealed, Unavailable, BufferFull, CorruptBlock, Closed, InvalidKey (a key
        does not fit the table), InvalidRequest (a row is too large).

        ::

            await view.run(until_caught_up=True)
        """
        self._opened()
        if self._is_running:
            raise InvalidRequest("the view is running already")
        self._is_running = True
        try:
            goal = None
            if until_caught_up:
                goal = CaughtUp(self._parts.group, self._parts.bounds)
                await goal.begin()
            backoff = self._new_backoff()
            while not await self._run_session(goal):
                pause_s = backoff.failed(self._parts.runtime.clock.monotonic())
                await self._parts.runtime.clock.sleep(pause_s or 0)
        finally:
            self._is_running = False

    async def _run_session(self, goal: CaughtUp | None) -> bool:
        """Work as one reader of the group; returns whether nothing is left to do."""
        try:
            async with self._new_reader(goal) as reader:
                self._reader = reader
                session = self._new_session(reader)
                await session.run(None if goal is None else goal.is_reached)
        except (ReaderRemoved, ReaderGroupReset) as error:
            _log.warning(
                "a view joins its reader group again",
                group=str(self._parts.group.ref), cause=error.code,
            )  # fmt: skip
            return False
        finally:
            self._reader = None
        return True

    def _new_reader(self, goal: CaughtUp | None) -> GroupReader:
        interval_s = self._settings.save_interval_s
        return self._parts.group.reader(
            settings=GroupReaderSettings(
                reading=self._settings.reading,
                save_interval_s=interval_s if goal is None else min(interval_s, CHECK_S),
                acks="explicit",
            )
        )

    def _new_session(self, reader: GroupReader) -> ViewSession[E, K, V]:
        table = self._opened()
        cache_size = self._settings.cache_size_bytes // table.partition_count

        def new_partition(index: int) -> PartitionView[E, V]:
            return PartitionView(
                index,
                self._parts.group.ref,
                fold=self._recipe.fold,
                values=self._recipe.values,
                rows=Rows(cache_size),
                counts=self._counts,
            )

        return ViewSession(
            reader,
            table,
            self._recipe,
            new_partition=new_partition,
            new_backoff=self._new_backoff,
            clock=self._parts.runtime.clock,
            round_events=self._settings.round_events,
        )

    def _new_backoff(self) -> Backoff:
        timeout_s = self._settings.retry_timeout_s
        return Backoff(BackoffSettings(), self._parts.runtime.rng, timeout_s)

    def _opened(self) -> StoredTable[K]:
        if self._table is None:
            raise Closed(
                "the view is not open", remedy=Remedy(api="use it as `async with client.view(...)`")
            )
        return self._table

    # --- how it stands --------------------------------------------------------------------

    async def status(self) -> ViewStatus:
        """The lag of the view, and the work of this process.

        Raises ReaderGroupNotFound, StreamNotFound, Unavailable.

        ::

            print((await view.status()).lag.seconds)
        """
        counts = self._counts
        return ViewStatus(
            await self._parts.group.status(),
            counts.folded, counts.skipped, counts.saved, counts.conflicts,
        )  # fmt: skip
