"""Writes the state of streams to tier 2, so that readers of tier 2 need no controller.

The job wakes on every change of a stream's state or segments, and every five seconds. It compares
revisions and does not depend on seeing every change: if the mirror has a newer revision than tier
2, the job writes an object, create-only, and then deletes the stream's objects except the last two.
A receipt follows each object, so that readers notice if another process deletes the newest object.

All controllers do this concurrently, and any of them may crash at any step, because

- an object's name holds the revision and determines its bytes, so writing it again, or after
  another controller, changes nothing: a name that is taken is success;
- the highest revision counts, so a late write changes nothing either;
- an object is deleted only if two newer ones were seen, so the highest always stays;
- every session begins with a listing, which finds the remainders of a crash.

Owns: per stream, the revision that tier 2 has. A session opens tier 2, lists it, and writes as
streams change. It ends by a failure or after some hours; the next one lists again. A failing tier 2
therefore costs growing pauses and one log line, and never delays a command or a query.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import structlog

from anabranch.common.contracts.subjects import stream_events
from anabranch.common.errors import AnabranchError, Corrupt, DiskFailed, ObjectExists
from anabranch.common.model.names import StreamRef
from anabranch.common.runtime.clock import Clock
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.storage.receipts import leave_receipt
from anabranch.common.tier2.streams import (
    STREAMS_PREFIX,
    ExportedStream,
    encode_stream,
    receipted_revision,
    revision_in,
    stream_object_name,
    stream_prefix,
    stream_receipt_name,
)
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.containment import Containment
from anabranch.common.workflow.runner import PAUSES
from anabranch.controller.domain.stream.export import (
    ShapedStream,
    decide_exports,
    exported_stream,
    superseded,
)
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.periodic.job import Job

SWEEP_S = 5.0
SESSION_S_MAX = 6 * 3600.0
"""Well below the age at which a session's files in tier 2 count as left over."""
CONCURRENT_MAX = 4
EXPORT = "export"
_STREAMS_PER_TURN = 1000

_log = structlog.get_logger(__name__)

ShapedStreams = Callable[[Collection[str] | None], Iterable[ShapedStream]]
"""The streams with these subjects, or all (`Mirror.shaped_streams`)."""
HistoryOf = Callable[[Stream], Awaitable[History]]
"""All epochs of a stream (`Histories.once`)."""
OpenStorage = Callable[[], AbstractAsyncContextManager[ChunkStorage]]


@dataclass(frozen=True, slots=True)
class _Session:
    """An open tier 2. `told` holds, per stream, the revision that tier 2 has."""

    storage: ChunkStorage
    told: dict[StreamRef, int]
    ends_at_s: float


class StreamExporter:
    """The job that exports streams. It enters `open_storage` once per session."""

    def __init__(
        self,
        streams: ShapedStreams,
        histories: HistoryOf,
        open_storage: OpenStorage,
        container_count: int,
        *,
        clock: Clock,
        containment: Containment,
    ) -> None:
        self._containment = containment
        self._streams = streams
        self._histories = histories
        self._open_storage = open_storage
        self._container_count = container_count
        self._clock = clock
        self._woken: set[str] = set()
        self._work_came = asyncio.Event()
        self._opened = AsyncExitStack()
        """Holds the session's storage open."""
        self._session: _Session | None = None
        self._sweep_at_s = 0.0

    def wake(self, subject: str) -> None:
        """Note that the stream's shape changed. Cheap and idempotent; bounded by the number of
        streams.
        """
        self._woken.add(subject)
        self._work_came.set()

    def job(self) -> Job:
        """The periodic job, which also runs at once after a wake."""
        return Job(
            name="export of streams",
            period_s=SWEEP_S,
            jitter=0.0,
            round=self.round,
            failing="streams cannot be told to tier 2",
            woken=self._work_came,
            retry=PAUSES,
            part="export",
            close=self.close,
        )

    async def round(self) -> None:
        """Export the woken streams, or check all streams when the sweep is due.

        A failure ends the session; the next round begins another one. Raises the errors of the
        storage.
        """
        woken, self._woken = self._woken, set()
        self._work_came.clear()
        now_s = self._clock.monotonic()
        if self._session is not None and now_s >= self._session.ends_at_s:
            await self.close()
        try:
            if self._session is None:
                self._session, self._sweep_at_s = await self._begin(), now_s
            is_sweep = not woken or now_s >= self._sweep_at_s
            await self._tell(self._session.storage, self._session.told, None if is_sweep else woken)
        except (AnabranchError, OSError):
            await self.close()
            raise
        if is_sweep:
            self._sweep_at_s = self._clock.monotonic() + SWEEP_S

    async def _begin(self) -> "_Session":
        ends_at_s = self._clock.monotonic() + SESSION_S_MAX
        storage = await self._opened.enter_async_context(self._open_storage())
        return _Session(storage, await self._learn(storage), ends_at_s)

    async def close(self) -> None:
        """End the session, if there is one."""
        self._session = None
        await self._opened.aclose()

    async def _learn(self, storage: ChunkStorage) -> dict[StreamRef, int]:
        """The revision that tier 2 has of each known stream. Deletes left-over objects.

        A stream that lacks its object or its receipt counts as not exported, and is exported again.
        """
        listed = await storage.list(STREAMS_PREFIX)
        found = {prefix: list(group) for prefix, group in groupby(listed, _prefix_of)}
        told: dict[StreamRef, int] = {}
        left_over: list[str] = []
        for number, (stream, _) in enumerate(list(self._streams(None))):
            if number % _STREAMS_PER_TURN == 0:
                await self._clock.sleep(0)
            assert stream.ref is not None
            names = found.get(stream_prefix(stream.ref), ())
            objects = [name for name in names if revision_in(name) is not None]
            receipts = [name for name in names if receipted_revision(name) is not None]
            if objects and receipts:
                newest = revision_in(objects[-1]) or 0, receipted_revision(receipts[-1]) or 0
                told[stream.ref] = min(newest)
            left_over += [*superseded(objects), *receipts[:-1]]
        await for_each(left_over, CONCURRENT_MAX, partial(_delete, storage))
        return told

    async def _tell(
        self,
        storage: ChunkStorage,
        told: dict[StreamRef, int],
        subjects: Collection[str] | None,
    ) -> None:
        async def tell_one(shaped: ShapedStream) -> None:
            try:
                history = await self._histories(shaped.stream) if shaped.stream.epochs else None
            except Corrupt as error:
                # Only this stream is affected, and the mirror reports the damage too.
                _log.warning(
                    "cannot export a stream to tier 2", stream=str(shaped.stream.ref),
                    error=str(error), remedy=error.remedy_for("command"),
                )  # fmt: skip
                return
            exported = exported_stream(shaped, history, self._container_count)
            await tell(storage, exported)
            told[exported.ref] = exported.revision

        async def tell_apart(shaped: ShapedStream) -> None:
            assert shaped.stream.ref is not None
            subject = stream_events(shaped.stream.ref)
            await self._containment.attempt(EXPORT, subject, partial(tell_one, shaped))

        due = decide_exports(told, self._streams(subjects))
        await for_each(due, CONCURRENT_MAX, tell_apart)


async def tell(storage: ChunkStorage, exported: ExportedStream) -> None:
    """Write the object of one stream, then delete the objects that it supersedes. Idempotent.

    Raises DiskFailed, and other errors of the storage.
    """
    name = stream_object_name(exported.ref, exported.revision)
    # If the name is taken, another controller has written the same bytes.
    with suppress(ObjectExists):
        await storage.put_new(name, [encode_stream(exported)])
    try:
        listed = await storage.list(stream_prefix(exported.ref))
        known = [name for name in listed if receipted_revision(name) is not None]
        await leave_receipt(storage, stream_receipt_name(exported.ref, exported.revision), known)
    except OSError as error:
        raise _unusable(error, name) from error
    for old in superseded([name for name in listed if revision_in(name) is not None]):
        await _delete(storage, old)


async def _delete(storage: ChunkStorage, name: str) -> None:
    try:
        await storage.delete(name)
    except OSError as error:
        raise _unusable(error, name) from error


def _unusable(error: OSError, name: str) -> DiskFailed:
    return DiskFailed(
        "objects of tier 2 cannot be listed or deleted",
        remedy="check the directory of tier 2 and its owner",
        name=name,
        cause=str(error),
    )


def _prefix_of(name: str) -> str:
    return name.rpartition("/")[0] + "/"
