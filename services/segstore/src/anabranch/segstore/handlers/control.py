"""Control requests on segments: one function per message, the same for every door.

Each finds the container and, once the segments are resident, hands the request over; the answer
comes through `deliver`, once everything it depended on is durable. What keeps a request from being
decided at all (wrong store, container not open) is raised, or delivered where it had to wait.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass

from anabranch.common.contracts.segment_requests import MERGE_SOURCES_MAX
from anabranch.common.errors import AnabranchError, DiskFailed, Unavailable
from anabranch.common.wire.messages import (
    CheckTruncation,
    CreateSegment,
    DeleteSegment,
    FlushContainer,
    GetAttributes,
    GetSegmentInfo,
    LocateOffset,
    MergeSegments,
    Message,
    Request,
    SealSegment,
    TruncateSegment,
    UpdateAttributes,
    failed,
)
from anabranch.segstore.shell.container.reader import (
    boundary_before,
    locate_now,
    locate_tiered,
    truncation_place,
)
from anabranch.segstore.shell.container.replies import Deliver
from anabranch.segstore.shell.memory.boundaries import TieredBoundary
from anabranch.segstore.shell.memory.segment_index import InTierTwo
from anabranch.segstore.shell.node.store import OpenContainer, Store

Spawn = Callable[[Coroutine[None, None, None]], None]
"""Run work that must wait, in a task group that outlives the request."""

TIER_TWO_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class ControlDesk:
    """What control requests need of the door they come through."""

    store: Store
    spawn: Spawn


Handler = Callable[[ControlDesk, Message, Deliver], None]


def _load_first(
    desk: ControlDesk,
    request: Request,
    deliver: Deliver,
    perform: Callable[[OpenContainer], None],
    others: Iterable[str] = (),
) -> None:
    """Find the container, wait until the segments are resident, and perform the request."""
    found = desk.store.find(request.segment, request.container_epoch)
    found.container.load_first(
        (request.segment, *others),
        lambda: perform(found),
        lambda error: deliver(failed(error)),
    )


def handle_create(desk: ControlDesk, request: Message, deliver: Deliver) -> None:
    """CreateSegment → Done."""
    assert isinstance(request, CreateSegment)
    _load_first(desk, request, deliver, lambda found: found.container.create(request, deliver))


def handle_seal(desk: ControlDesk, request: Message, deliver: Deliver) -> None:
    """SealSegment → Sealed."""
    assert isinstance(request, SealSegment)
    _load_first(desk, request, deliver, lambda found: found.container.seal(request, deliver))


def handle_delete(desk: ControlDesk, request: Message, deliver: Deliver) -> None:
    """DeleteSegment → Done."""
    assert isinstance(request, DeleteSegment)
    _load_first(desk, request, deliver, lambda found: found.container.delete(request, deliver))


def handle_truncate(desk: ControlDesk, request: Message, deliver: Deliver) -> None:
    """TruncateSegment, or the check before it → Truncated."""
    assert isinstance(request, TruncateSegment)

    def truncate(found: OpenContainer) -> None:
        place = truncation_place(found.container, request)
        if place is None:
            found.container.truncate(request, deliver)
        else:
            found.container.residency.pin(request.segment)
            desk.spawn(_truncate_tiered(found, request, place, deliver))

    _load_first(desk, request, deliver, truncate)


async def _truncate_tiered(
    found: OpenContainer, request: TruncateSegment, place: InTierTwo, deliver: Deliver
) -> None:
    """Boundaries never change, so what was found is true when the container decides."""
    try:
        async with asyncio.timeout(TIER_TWO_DEADLINE_S):
            lower = await boundary_before(found.tier_two, place, request.offset)
        boundary = TieredBoundary(place.number, lower)
        found.container.truncate(request, deliver, boundary)
    except (AnabranchError, OSError, TimeoutError) as error:
        deliver(failed(tier_two_error(error)))
    finally:
        found.container.residency.unpin(request.segment)


def handle_merge(desk: ControlDesk, request: Message, deliver: Deliver) -> None:
    """MergeSegments → SegmentsMerged."""
    assert isinstance(request, MergeSegments)
    desk.store.check_together(request.segment, request.sources)
    # more of them are refused before any is looked at
    sources = request.sources[:MERGE_SOURCES_MAX]
    _load_first(
        desk, request, deliver, lambda found: found.container.merge(request, deliver), sources
    )


def handle_update_attributes(desk: ControlDesk, request: Message, deliver: Deliver) -> None:
    """UpdateAttributes → Done."""
    assert isinstance(request, UpdateAttributes)
    _load_first(
        desk, request, deliver, lambda found: found.container.update_attributes(request, deliver)
    )


def handle_attributes(desk: ControlDesk, request: Message, deliver: Deliver) -> None:
    """GetAttributes → AttributeValues."""
    assert isinstance(request, GetAttributes)
    _load_first(desk, request, deliver, lambda found: found.container.attributes(request, deliver))


def handle_info(desk: ControlDesk, request: Message, deliver: Deliver) -> None:
    """GetSegmentInfo → SegmentInfo."""
    assert isinstance(request, GetSegmentInfo)
    _load_first(desk, request, deliver, lambda found: found.container.info(request, deliver))


def handle_locate(desk: ControlDesk, request: Message, deliver: Deliver) -> None:
    """LocateOffset → OffsetLocated."""
    assert isinstance(request, LocateOffset)

    def locate(found: OpenContainer) -> None:
        place = locate_now(found.container, request)
        if isinstance(place, InTierTwo):
            desk.spawn(_locate_tiered(found, request, place, deliver))
        else:
            deliver(place)

    _load_first(desk, request, deliver, locate)


async def _locate_tiered(
    found: OpenContainer, request: LocateOffset, place: InTierTwo, deliver: Deliver
) -> None:
    try:
        async with asyncio.timeout(TIER_TWO_DEADLINE_S):
            deliver(await locate_tiered(found.tier_two, request, place))
    except (AnabranchError, OSError, TimeoutError) as error:
        deliver(failed(tier_two_error(error)))


def handle_flush(desk: ControlDesk, request: Message, deliver: Deliver) -> None:
    """FlushContainer → Done."""
    assert isinstance(request, FlushContainer)
    found = desk.store.by_number(request.container)
    found.container.check_serving()
    found.flusher.request(deliver)


def tier_two_error(error: AnabranchError | OSError | TimeoutError) -> AnabranchError:
    """What to tell someone whose request failed in tier 2."""
    if isinstance(error, AnabranchError):
        return error
    if isinstance(error, TimeoutError):
        return Unavailable("tier 2 did not answer in time", seconds=TIER_TWO_DEADLINE_S)
    return DiskFailed("reading stored bytes failed", cause=str(error))


CONTROL: Mapping[type[Message], Handler] = {
    CreateSegment: handle_create,
    SealSegment: handle_seal,
    DeleteSegment: handle_delete,
    TruncateSegment: handle_truncate,
    CheckTruncation: handle_truncate,
    MergeSegments: handle_merge,
    UpdateAttributes: handle_update_attributes,
    GetAttributes: handle_attributes,
    GetSegmentInfo: handle_info,
    LocateOffset: handle_locate,
    FlushContainer: handle_flush,
}
