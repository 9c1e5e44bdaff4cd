"""Finds the successors of a segment: asks the controller until the answer is final.

    open ──the stream is being sealed: pause, ask again──► followed, or sealed for ever

A scale publishes the successors before it seals any segment, so a reader or writer at the end of a
scaled segment gets its answer at once. `open` at the end of a segment means that the whole stream
is being sealed.

A segment that no store knows any more was deleted: by a truncation if it has successors, otherwise
together with its stream.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from anabranch.client.backoff import Backoff
from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane, current_segments
from anabranch.common.contracts.stream_queries import Successor, Successors, SuccessorsFound
from anabranch.common.errors import (
    AnabranchError,
    Retry,
    ScopeNotFound,
    SegmentNotFound,
    StreamNotFound,
    Unavailable,
)
from anabranch.common.model.names import StreamRef, parse_segment_name
from anabranch.common.model.stream import StreamState
from anabranch.common.runtime.clock import Clock

T = TypeVar("T")


_DELETED = (StreamState.DELETING, StreamState.DELETED)


class Followers:
    """The successors of one stream's segments. `new_backoff` bounds the time without an answer."""

    def __init__(
        self,
        control: ControlPlane,
        stream: StreamRef,
        clock: Clock,
        new_backoff: Callable[[], Backoff],
    ) -> None:
        self._control = control
        self._stream = stream
        self._clock = clock
        self._new_backoff = new_backoff

    async def ask(self, segment: str) -> SuccessorsFound:
        """Return the controller's present answer. Raises StreamNotFound, and SegmentNotFound for a
        segment that the stream, in its present incarnation, never had."""
        query = Successors(
            scope=self._stream.scope,
            stream=self._stream.stream,
            segment_id=parse_segment_name(segment)[1],
        )
        return await self._control.query(
            "successors", query, SuccessorsFound, timeout_s=QUERY_TIMEOUT_S
        )

    async def present(self, segment: str) -> SuccessorsFound:
        """Return the controller's present answer about a segment that the caller has met in a
        store. Raises StreamNotFound as `after`, and Unavailable when the time is up."""
        return await self._answered(lambda: self._of_this_life(segment))

    async def after(
        self, segment: str, *, if_open: AnabranchError | None = None
    ) -> tuple[Successor, ...]:
        """Return the successors of a sealed segment, sorted by key range; none if the stream is
        sealed and ends with it.

        The caller has met the segment in a store. If the stream never had it, a new stream has
        taken the name, and the call raises StreamNotFound. Raises `if_open` if it is given and the
        controller answers `open`; otherwise retries, and raises Unavailable when the time is up.
        """

        async def attempt() -> tuple[Successor, ...]:
            found = await self._of_this_life(segment)
            if found.status != "open":
                return found.successors
            raise if_open or Unavailable(
                "the controller did not return the successors of a sealed segment", segment=segment
            )

        return await self._answered(attempt)

    async def _of_this_life(self, segment: str) -> SuccessorsFound:
        try:
            return await self.ask(segment)
        except SegmentNotFound as error:
            raise StreamNotFound(
                "the stream was deleted, and another one was created under its name",
                remedy="open a new writer or reader if you mean the new stream",
                stream=str(self._stream),
                segment=segment,
            ) from error

    async def in_place_of(self, segment: str, missing: SegmentNotFound) -> tuple[Successor, ...]:
        """Return the successors of a segment that a truncation has deleted from its store.

        Raises StreamNotFound if the stream is deleted or is being deleted, `missing` if the
        controller names no successors, and Unavailable if no answer came in time.
        """

        async def attempt() -> tuple[Successor, ...]:
            try:
                listed = await current_segments(self._control, self._stream)
            except ScopeNotFound as error:
                raise self._deleted() from error
            if listed.state in _DELETED:
                raise self._deleted()
            found = await self.ask(segment)
            if found.status != "followed":
                raise missing
            return found.successors

        return await self._answered(attempt)

    def _deleted(self) -> StreamNotFound:
        return StreamNotFound("the stream was deleted", stream=str(self._stream))

    async def _answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry the attempt on errors of the kind Retry, as long as the backoff allows."""
        backoff = self._new_backoff()
        while True:
            try:
                return await attempt()
            except Retry:
                pause_s = backoff.failed(self._clock.monotonic())
                if pause_s is None:
                    raise
            await self._clock.sleep(pause_s)
