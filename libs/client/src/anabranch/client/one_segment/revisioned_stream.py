"""A revisioned stream: a log of entries that is appended to on condition that it did not grow.

It lies on a stream of one segment. A *revision* is a place between two appends, as the segment's
byte offset: what is read from it on is everything that was appended later. All entries of one
append share a block and therefore the revision behind it. The *mark* is a revision that is kept
with the segment; it moves in the same step as the append that it was given with, so whoever reads
it finds that append at it.

Every append happens exactly once, however often it is sent (`exact_appends`). Calls may be made
concurrently; appends keep the order of their calls.
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
from anabranch.common.errors import Closed, CorruptBlock, InvalidRequest
from anabranch.common.model.names import StreamRef
from anabranch.common.wire.block import Block
from anabranch.common.wire.messages import AttributeUpdate, AttributeValues, GetAttributes

MARK = b"anabranch:mark\x00\x01"
"""The attribute that holds the mark."""


@dataclass(frozen=True, slots=True)
class Entries:
    """What was read. `revisions[i]` is the revision behind the append of `entries[i]`, `next` the
    one to read on from. `at_tail`: nothing lay beyond; `sealed`: and nothing ever will."""

    entries: tuple[bytes, ...]
    revisions: tuple[int, ...]
    next: int
    at_tail: bool
    sealed: bool = False


class RevisionedStream:
    """See the module. An async context manager; made by `Client.revisioned_stream`."""

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
        """Find the segment; repeatable. A sealed stream can be opened, and read.

        Raises StreamNotFound, InvalidRequest (it has several segments), Unavailable.
        """
        await self._segment.open()
        self._runtime.open_parts.add(self)
        self._open = True

    async def close(self) -> None:
        """Stop; repeatable. An append under way is told OutcomeUnknown."""
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
                remedy="use it as `async with client.revisioned_stream(…)`",
                stream=str(self.stream),
            )

    # --- reading --------------------------------------------------------------------------

    async def head(self) -> int:
        """The first revision that can be read from. Raises StreamNotFound, Unavailable."""
        self._require_open()
        return (await self._segment.info()).start

    async def tail(self) -> int:
        """The revision behind all that is stored. Raises StreamNotFound, Unavailable."""
        self._require_open()
        length = (await self._segment.info()).length
        self._appends.tail_seen(length)
        return length

    async def read(self, after: int, *, wait_s: float = 0.0) -> Entries:
        """The entries from revision `after` on, about 2 MiB of them; read on from their `next`.

        At the tail it waits for more, up to `wait_s`, and then returns none. Raises
        SegmentTruncated (fields: start), InvalidRequest (`after` is no revision, or the stream was
        scaled), CorruptBlock (damaged, or no entries at all: a byte stream), StreamNotFound,
        Unavailable.
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
        """The revision that was last given as a mark. Raises StreamNotFound, Unavailable."""
        self._require_open()
        asked = GetAttributes(segment=self._segment.name, attributes=(MARK,))
        found = await self._segment.ask_attributes(asked, AttributeValues)
        return found.values[0].value if found.values else None

    # --- writing --------------------------------------------------------------------------

    async def append(self, entries: Sequence[bytes]) -> int:
        """Append all of them → the revision behind them.

        Raises StreamSealed, StreamNotFound, EventTooLarge, InvalidRequest, Overloaded,
        Unavailable (nothing was done), OutcomeUnknown (it may have been done).
        """
        self._require_open()
        behind = await self._appends.append(_block(entries))
        assert behind is not None, "an unconditional append failed on a condition"
        return behind

    async def append_if(
        self, entries: Sequence[bytes], expected: int, *, mark: int | None = None
    ) -> int | None:
        """Append all of them if the tail is at `expected` → the revision behind them.

        None: the tail was elsewhere, and nothing was written. `mark` becomes the stream's mark in
        the same step. Raises as `append`.
        """
        self._require_open()
        updates = () if mark is None else (AttributeUpdate(MARK, "replace", mark),)
        return await self._appends.append(_block(entries), expected=expected, updates=updates)

    async def truncate(self, revision: int) -> None:
        """Give up what lies before the revision, for good; one before the head is success.

        Raises StreamNotFound, StreamSealed, NotAtBoundary, Busy, Unavailable, OutcomeUnknown
        (truncating again is safe).
        """
        self._require_open()
        await self._segment.truncate(revision)


def _block(entries: Sequence[bytes]) -> EntryBlock:
    if not entries:
        raise InvalidRequest("an append needs at least one entry")
    return EntryBlock(tuple(entries))
