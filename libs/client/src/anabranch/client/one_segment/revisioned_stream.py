"""A revisioned stream: a log of entries that can be appended to on condition that it did not grow.

It lies on a stream of one segment. A *revision* is a place between two appends, as a byte offset in
the segment: reading from it returns every later append. All entries of one append share a block,
and therefore the revision after it. The *mark* is a revision that the segment stores. An append can
set it in the same step, so a reader of the mark always finds that append.

Every append happens exactly once, however often the client sends it (`exact_appends`). Calls may be
concurrent; appends keep the order of their calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from anabranch.client.one_segment.exact_appends import EntryBlock, ExactAppends
from anabranch.client.one_segment.segment import OneSegment
from anabranch.client.runtime import Runtime
from anabranch.client.settings import OneSegmentSettings
from anabranch.client.wire.control import ControlPlane, SegmentDirectory
from anabranch.common.errors import Closed, CorruptBlock, InvalidRequest, Remedy
from anabranch.common.model.names import StreamRef
from anabranch.common.wire.block import Block
from anabranch.common.wire.messages import AttributeUpdate, AttributeValues, GetAttributes

MARK = b"anabranch:mark\x00\x01"
"""The attribute that holds the mark."""


@dataclass(frozen=True, slots=True)
class Entries:
    """A page of entries. `revisions[i]` is the revision after the append of `entries[i]`; the next
    read starts at `next`. `at_tail`: the log had no more entries; `sealed`: and it never will."""

    entries: tuple[bytes, ...]
    revisions: tuple[int, ...]
    next: int
    at_tail: bool
    sealed: bool = False


class RevisionedStream:
    """A log with conditional appends: an async context manager, made by `Client.revisioned_stream`.
    See the module.

    ::

        async with client.revisioned_stream("plant/log") as log:
            page = await log.read(await log.head())
            await log.append_if([b"entry"], page.next)
    """

    def __init__(
        self,
        stream: StreamRef,
        *,
        control: ControlPlane,
        directory: SegmentDirectory,
        runtime: Runtime,
        settings: OneSegmentSettings,
    ) -> None:
        self.stream = stream
        self._runtime = runtime
        self._settings = settings
        self._segment = OneSegment(
            stream, control=control, directory=directory, runtime=runtime, settings=settings
        )
        self._appends = ExactAppends(self._segment)
        self._open = False

    # --- life -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Find the segment; repeatable. A sealed stream can be opened and read.

        Raises StreamNotFound, InvalidRequest (it has several segments), Unavailable.
        """
        await self._segment.open()
        self._runtime.open_parts.add(self)
        self._open = True

    async def close(self) -> None:
        """Stop; repeatable. A pending append raises OutcomeUnknown."""
        self._open = False
        self._runtime.open_parts.discard(self)
        await self._appends.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _require_open(self) -> None:
        if not self._open:
            raise Closed(
                "the revisioned stream is not open",
                remedy=Remedy(api="use it as `async with client.revisioned_stream(...)`"),
                stream=str(self.stream),
            )

    # --- reading --------------------------------------------------------------------------

    async def head(self) -> int:
        """The first revision that can be read from. Raises StreamNotFound, Unavailable.

        ::

            page = await log.read(await log.head())
        """
        self._require_open()
        return (await self._segment.info()).start

    async def tail(self) -> int:
        """The revision after the last stored entry. Raises StreamNotFound, Unavailable.

        ::

            revision = await log.tail()
        """
        self._require_open()
        length = (await self._segment.info()).length
        self._appends.tail_seen(length)
        return length

    async def read(self, after: int, *, wait_s: float = 0.0) -> Entries:
        """The entries from revision `after` on, about 2 MiB of them. Continue at the page's `next`.

        At the tail it waits for more, up to `wait_s`, and then returns an empty page. Raises
        SegmentTruncated (fields: start), InvalidRequest (`after` is no revision, or the stream was
        scaled), CorruptBlock (the bytes are damaged, or are a byte stream), StreamNotFound,
        Unavailable.

        ::

            page = await log.read(0)
            page = await log.read(page.next, wait_s=10.0)
        """
        self._require_open()
        size_max = self._settings.read_size_bytes
        reply, data = await self._segment.read(after, size_max, wait_s=wait_s)
        entries: list[bytes] = []
        revisions: list[int] = []
        view, at = memoryview(data), 0
        while at < len(data):
            block = self._verified(view, at, after + at)
            at += block.header.size
            found = block.events()
            entries += found
            revisions += [after + at] * len(found)
        self._appends.tail_seen(after + at)
        at_tail = reply.at_tail or reply.end_of_segment
        return Entries(
            tuple(entries), tuple(revisions), after + at, at_tail, sealed=reply.end_of_segment
        )

    def _verified(self, view: memoryview, at: int, offset: int) -> Block:
        try:
            return Block(view, at)
        except CorruptBlock as error:
            raise CorruptBlock(
                error.message,
                remedy="if another program writes this stream as a byte stream, read it as one; "
                       "otherwise its bytes are damaged",
                stream=str(self.stream), offset=offset, cause=str(error),
            ) from error  # fmt: skip

    async def mark(self) -> int | None:
        """The current mark; None before the first. Raises StreamNotFound, Unavailable.

        ::

            revision = await log.mark()
        """
        self._require_open()
        asked = GetAttributes(segment=self._segment.name, attributes=(MARK,))
        found = await self._segment.ask_attributes(asked, AttributeValues)
        return found.values[0].value if found.values else None

    # --- writing --------------------------------------------------------------------------

    async def append(self, entries: Sequence[bytes]) -> int:
        """Append all entries. Returns the revision after them.

        Raises StreamSealed, StreamNotFound, EventTooLarge, InvalidRequest, Overloaded, Unavailable
        (the stream is unchanged), OutcomeUnknown (the append may have happened).

        ::

            revision = await log.append([b"first", b"second"])
        """
        self._require_open()
        behind = await self._appends.append(_block(entries))
        assert behind is not None, "an unconditional append failed on a condition"
        return behind

    async def append_if(
        self, entries: Sequence[bytes], expected: int, *, mark: int | None = None
    ) -> int | None:
        """Append all entries if the tail is at `expected`. Returns the revision after them.

        None: the tail was elsewhere, and nothing was written. `mark` becomes the stream's mark in
        the same step. Raises as `append`.

        ::

            if await log.append_if([b"entry"], page.next) is None:
                page = await log.read(page.next)
        """
        self._require_open()
        updates = () if mark is None else (AttributeUpdate(MARK, "replace", mark),)
        return await self._appends.append(_block(entries), expected=expected, updates=updates)

    async def truncate(self, revision: int) -> None:
        """Remove the entries before the revision, for good. A revision before the head succeeds.

        Raises StreamNotFound, StreamSealed, NotAtBoundary, Busy, Unavailable, OutcomeUnknown (it is
        safe to truncate again).

        ::

            await log.truncate(page.revisions[0])
        """
        self._require_open()
        await self._segment.truncate(revision)


def _block(entries: Sequence[bytes]) -> EntryBlock:
    if not entries:
        raise InvalidRequest("an append needs at least one entry")
    return EntryBlock(tuple(entries))
