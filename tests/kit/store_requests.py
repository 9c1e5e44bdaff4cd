"""What clients of a simulated store ask of it, but for appends and reads."""

from contextlib import suppress

from anabranch.common.errors import (
    Conflict,
    NotAtBoundary,
    OffsetMismatch,
    OutcomeUnknown,
    SegmentNotFound,
)
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import (
    AttributeUpdate,
    AttributeValues,
    ConditionalAppend,
    CreateSegment,
    DeleteSegment,
    Done,
    FlushContainer,
    GetAttributes,
    GetSegmentInfo,
    LocateOffset,
    MergeSegments,
    OffsetLocated,
    Sealed,
    SealSegment,
    SegmentInfo,
    SegmentsMerged,
    SetupAppend,
    Stamp,
    Truncated,
    TruncateSegment,
    UpdateAttributes,
)
from kit.history import HistoryViolation, Place, make_event
from kit.store_world import Client


async def create(client: Client, segment: str, stamp: Stamp) -> None:
    """Create a segment, remembering that it exists once the store said so."""
    reply = await client.control(CreateSegment(segment=segment, stamp=stamp))
    assert isinstance(reply, Done)
    client.life.world.created.add(segment)


async def seal(client: Client, segment: str, stamp: Stamp) -> None:
    """Seal a segment; its length may never change from now on."""
    reply = await client.control(SealSegment(segment=segment, stamp=stamp))
    assert isinstance(reply, Sealed)
    client.life.world.history.sealed_at[segment] = reply.length


async def delete(client: Client, segment: str, stamp: Stamp) -> None:
    """Delete a segment: it may never be seen again."""
    client.life.world.history.deleting.add(segment)
    reply = await client.control(DeleteSegment(segment=segment, stamp=stamp))
    assert isinstance(reply, Done)
    client.life.world.history.deleted.add(segment)


async def flush(client: Client, container: int) -> None:
    """Move everything acknowledged to tier 2."""
    reply = await client.control(FlushContainer(container=container))
    assert isinstance(reply, Done)


async def info_of(client: Client, segment: str) -> SegmentInfo:
    info = await client.control(GetSegmentInfo(segment=segment))
    assert isinstance(info, SegmentInfo)
    return info


async def truncate(client: Client, segment: str, share: float, stamp: Stamp) -> None:
    """Truncate at the boundary after this share of what the segment has."""
    history = client.life.world.history
    info = await info_of(client, segment)
    wanted = info.start + int((info.length - info.start) * share)
    located = await client.control(LocateOffset(segment=segment, offset=wanted))
    assert isinstance(located, OffsetLocated)
    offset = located.offset
    history.truncating[segment] = max(offset, history.truncating.get(segment, 0))
    try:
        reply = await client.control(TruncateSegment(segment=segment, stamp=stamp, offset=offset))
    except NotAtBoundary as error:
        raise HistoryViolation(f"{segment}: {offset} was located and refused") from error
    assert isinstance(reply, Truncated)
    assert reply.start >= offset
    history.truncated[segment] = max(offset, history.truncated.get(segment, 0))


async def merge(client: Client, target: str, sources: tuple[str, ...], stamp: Stamp) -> None:
    """Merge the sources into the target; where their bytes are may never change from now on."""
    history = client.life.world.history
    history.merging |= {(source, target) for source in sources}
    request = MergeSegments(segment=target, stamp=stamp, sources=sources)
    reply = await client.control(request)
    assert isinstance(reply, SegmentsMerged)
    assert [place.source for place in reply.merged] == list(sources)
    for place in reply.merged:
        history.merge(place.source, Place(target, place.offset, place.length))


class Counter:
    """Adds 1 to an attribute of its own with every request, some of which append an event too.

    What was not answered is sent again, the same, until it is: the attribute then tells how
    many requests were performed, each once.
    """

    def __init__(self, segment: str, client_id: bytes, *, appends: bool) -> None:
        self.segment = segment
        self.client_id = client_id
        self.appends = appends
        self.done = 0
        self.attempted = 0
        self.busy = False

    async def count(self, client: Client, stamp: Stamp) -> None:
        """One request, in the hope that nobody appends meanwhile."""
        if self.busy:
            return
        self.busy = True
        try:
            await self._count(client, stamp)
        finally:
            self.busy = False

    async def _count(self, client: Client, stamp: Stamp) -> None:
        number = self.done + 1
        again = self.attempted >= number
        update = AttributeUpdate(self.client_id, "accumulate", 1)
        if self.appends:
            await self._append(client, number, update, again=again)
        else:
            self.attempted = number
            request = UpdateAttributes(
                segment=self.segment,
                stamp=stamp,
                client_id=self.client_id,
                request_number=number,
                updates=(update,),
            )
            await client.control(request)
        self.done = number

    async def _append(
        self, client: Client, number: int, update: AttributeUpdate, *, again: bool
    ) -> None:
        info = await info_of(client, self.segment)
        event = make_event(self.client_id, number, 30)
        block = encode_block(
            [event], writer_id=self.client_id, first_event_number=number, base_timestamp_ms=0
        )
        history = client.life.world.history
        history.attempt(self.segment, self.client_id, number, [event])
        self.attempted = number
        request = ConditionalAppend(
            segment=self.segment,
            writer_id=self.client_id,
            first_event_number=number,
            count=1,
            expected_length=info.length,
            updates=(update,),
        )
        with suppress(OffsetMismatch):
            reply = await client.append_if(request, block)
            if not again and reply.length != info.length + len(block):
                raise HistoryViolation(f"{self.segment}: appended in spite of its condition")
            history.acknowledge(self.segment, self.client_id, number)
            return
        raise Conflict("somebody else appended meanwhile")

    async def check(self, client: Client) -> None:
        """The attribute, the number that the store remembers and what was told agree."""
        setup = SetupAppend(segment=self.segment, writer_id=self.client_id, session=0)
        try:
            values = await client.control(GetAttributes(segment=self.segment))
            last = await client.last_event_number(setup)
        except (SegmentNotFound, OutcomeUnknown):
            return
        assert isinstance(values, AttributeValues)
        found = {value.attribute: value.value for value in values.values}.get(self.client_id, 0)
        if not (self.done <= found == last <= self.attempted):
            raise HistoryViolation(
                f"{self.segment}: counted {found}, numbered {last}, told {self.done}, "
                f"asked {self.attempted}"
            )
