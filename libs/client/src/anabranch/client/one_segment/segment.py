"""The segment of a stream that has only one: find it, query it, truncate it.

Owns the segment's name and the incarnation of the stream in which it was found. If the segment's
store refuses a request, `named` asks the controller for the stream's state and raises the error of
the stream. A stream that was scaled has several segments for ever, and is refused by name.
"""

from anabranch.client.admin.operations import send
from anabranch.client.backoff import Backoff
from anabranch.client.runtime import Runtime
from anabranch.client.settings import BackoffSettings, OneSegmentSettings
from anabranch.client.wire.control import ControlPlane, SegmentDirectory, current_segments
from anabranch.client.wire.followers import Followers
from anabranch.client.wire.segment_calls import ANSWER_TIME_S, NewRequest, SegmentCalls
from anabranch.common.contracts.commands import TruncateStream
from anabranch.common.errors import (
    AnabranchError,
    BadPacket,
    CutRefused,
    InvalidRequest,
    Retry,
    SegmentNotFound,
    SegmentSealed,
    StreamNotFound,
    StreamSealed,
)
from anabranch.common.model.names import SegmentId, StreamRef
from anabranch.common.model.stream import SegmentOffset, StreamState
from anabranch.common.wire.messages import (
    GetAttributes,
    GetSegmentInfo,
    M,
    ReadSegment,
    Request,
    SegmentInfo,
    SegmentRead,
)

WAIT_MS_MAX = 10_000
"""The longest single read at the tail; a longer wait repeats it."""
_GONE = (StreamState.DELETING, StreamState.DELETED)


class OneSegment:
    """The only segment of a stream. Call `open` first."""

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
        self.name = ""
        self.directory = directory
        self.runtime = runtime
        self.settings = settings
        self._control = control
        self._segment_id = SegmentId(0)
        self._incarnation = 0
        self._followers = Followers(control, stream, runtime.clock, self.new_backoff)

    async def open(self) -> None:
        """Find the segment; repeatable. A sealed stream is found too.

        Raises StreamNotFound, and InvalidRequest for a stream of several segments.
        """
        listed = await current_segments(self._control, self.stream)
        if listed.state in _GONE:
            raise StreamNotFound("the stream is being deleted", stream=str(self.stream))
        if len(listed.segments) != 1:
            raise InvalidRequest(
                "the stream has more than one segment",
                remedy="use a stream that has one segment and never scales",
                stream=str(self.stream),
                segments=len(listed.segments),
            )
        (segment,) = listed.segments
        self.name = segment.name
        self._segment_id = SegmentId(segment.segment_id)
        self._incarnation = listed.incarnation
        await self.directory.prepare([self.name])

    def new_backoff(self, retry_timeout_s: float | None = None) -> Backoff:
        """The backoff of one call."""
        bound_s = self.settings.retry_timeout_s if retry_timeout_s is None else retry_timeout_s
        return Backoff(BackoffSettings(), self.runtime.rng, bound_s)

    # --- asking ---------------------------------------------------------------------------

    async def info(self) -> SegmentInfo:
        """The segment's present bounds. Raises StreamNotFound, InvalidRequest, Unavailable."""

        def request(container_epoch: int) -> Request:
            return GetSegmentInfo(segment=self.name, container_epoch=container_epoch)

        return (await self._ask(request, SegmentInfo))[0]

    async def read(
        self, offset: int, size_max: int, *, wait_s: float = 0.0, whole_appends: bool = True
    ) -> tuple[SegmentRead, bytes]:
        """Bytes from `offset`; none at the tail, after waiting there up to `wait_s` at most.

        Raises SegmentTruncated (fields: start), StreamNotFound, Unavailable, and InvalidRequest
        for an offset beyond the tail.
        """
        clock = self.runtime.clock
        deadline_s = clock.monotonic() + wait_s
        while True:
            left_ms = int((deadline_s - clock.monotonic()) * 1000)
            reply, data = await self._read_once(
                offset, size_max, min(max(left_ms, 0), WAIT_MS_MAX), whole_appends
            )
            if data or reply.end_of_segment or left_ms <= WAIT_MS_MAX:
                return reply, data

    async def _read_once(
        self, offset: int, size_max: int, wait_ms: int, whole_appends: bool
    ) -> tuple[SegmentRead, bytes]:
        def request(container_epoch: int) -> Request:
            return ReadSegment(
                segment=self.name, container_epoch=container_epoch, offset=offset,
                size_max=size_max, wait_ms=wait_ms, whole_appends=whole_appends,
            )  # fmt: skip

        timeout_s = wait_ms / 1000 + ANSWER_TIME_S
        reply, data = await self._ask(request, SegmentRead, timeout_s=timeout_s)
        if reply.offset != offset:
            raise BadPacket("a reply to a read starts at another offset", segment=self.name)
        return reply, data

    async def ask_attributes(self, request: GetAttributes, expected: type[M]) -> M:
        """The answer to `request`, whose segment and epoch are filled in here."""

        def asked(container_epoch: int) -> Request:
            return GetAttributes(
                segment=self.name, container_epoch=container_epoch, attributes=request.attributes
            )

        return (await self._ask(asked, expected))[0]

    async def _ask(
        self, request: NewRequest, expected: type[M], *, timeout_s: float = ANSWER_TIME_S
    ) -> tuple[M, bytes]:
        calls = SegmentCalls(
            self.name,
            directory=self.directory,
            clock=self.runtime.clock,
            backoff=self.new_backoff(),
        )
        try:
            return await calls.ask(request, expected, timeout_s=timeout_s)
        except SegmentNotFound as error:
            raise await self.named(error) from error

    # --- errors of the stream ---------------------------------------------------------------

    async def named(self, error: AnabranchError) -> AnabranchError:
        """The stream's error for a refusal of the segment's store: StreamNotFound, StreamSealed,
        InvalidRequest (it was scaled); any other error unchanged. Raises Unavailable."""
        if not isinstance(error, SegmentSealed | SegmentNotFound):
            return error
        unclear = error if isinstance(error, SegmentNotFound) else None
        try:
            if await self._followers.after(self.name, if_open=unclear):
                return InvalidRequest(
                    "the stream was scaled, so its first segment accepts no more appends",
                    remedy="use a stream that never scales",
                    stream=str(self.stream),
                )
        except (StreamNotFound, SegmentNotFound):
            return StreamNotFound("the stream does not exist any more", stream=str(self.stream))
        if isinstance(error, SegmentSealed):
            return StreamSealed("the stream is sealed", stream=str(self.stream))
        return StreamNotFound("the stream is being deleted", stream=str(self.stream))

    async def require_known(self) -> None:
        """Raises StreamNotFound if the controller knows for certain that the stream is gone."""
        try:
            await self._followers.ask(self.name)
        except Retry:
            return
        except SegmentNotFound as error:
            raise StreamNotFound(
                "the stream does not exist any more", stream=str(self.stream)
            ) from error

    # --- changing -------------------------------------------------------------------------

    async def truncate(self, offset: int) -> None:
        """Remove the bytes before `offset`, an append boundary, for good; repeatable.

        An offset before the present start succeeds. Raises StreamNotFound, StreamSealed, Busy,
        InvalidCut, Unavailable, OutcomeUnknown (it is safe to truncate again).
        """
        cut = (SegmentOffset(self._segment_id, offset),)
        try:
            await send(
                self._control,
                lambda command_id: TruncateStream(
                    command_id=command_id,
                    scope=self.stream.scope,
                    stream=self.stream.stream,
                    incarnation=self._incarnation,
                    cut=cut,
                ),
            )
        except CutRefused:
            return
