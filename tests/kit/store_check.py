"""What a store that was started again must show, of everything it ever said."""

from anabranch.common.errors import SegmentNotFound
from anabranch.common.model.names import transaction_segment
from anabranch.common.model.topics import TOPIC_MARK
from anabranch.common.wire.block import FLAG_PARTS_BEFORE, Block
from anabranch.common.wire.messages import GetSegmentInfo, SegmentInfo
from kit.history import History, Place
from kit.record_numbers import check_numbers
from kit.store_world import Client, Life


async def check_everything(life: Life) -> None:
    """Read every segment to its end and hold it against the history."""
    await life.opened()
    client = Client(life)
    world = life.world
    found = {segment: await _info(client, segment) for segment in sorted(world.created)}
    for segment, info in found.items():
        _check_fate(world.history, segment, info)
        if info is not None and world.transients.get(segment, world.lives) < world.lives:
            assert info.deleted, f"{segment} outlived its connection"
    for segment, info in found.items():
        # of what no one may read is seen what is merged
        if info is not None and not info.deleted and transaction_segment(segment) is None:
            await _check_living(client, segment, info)
    for counter in world.counters:
        await counter.check(client)


async def _info(client: Client, segment: str) -> SegmentInfo | None:
    try:
        info = await client.control(GetSegmentInfo(segment=segment, even_gone=True))
    except SegmentNotFound:
        return None
    assert isinstance(info, SegmentInfo)
    return info


def _check_fate(history: History, segment: str, info: SegmentInfo | None) -> None:
    assert info is not None, f"{segment} is lost"
    if info.merged_into:
        history.merge(segment, Place(info.merged_into, info.merged_offset, info.length))
    elif info.deleted:
        assert segment in history.deleting, f"{segment} is gone, and nobody asked for it"
        history.deleted.add(segment)
    else:
        assert segment not in history.deleted, f"{segment} rose from the dead"
        assert segment not in history.merged, f"{segment} is still there after its merge"


async def _check_living(client: Client, segment: str, info: SegmentInfo) -> None:
    history = client.life.world.history
    history.check_start(segment, info.start)
    content, sealed = await client.read_all(segment, info.start)
    assert sealed or segment not in history.sealed_at, f"{segment} was unsealed"
    assert info.length == info.start + len(content), f"{segment}: {info} is not what was read"
    history.check_segment(segment, content, info.start)
    _check_references(client, segment, content, info.start)
    if TOPIC_MARK in segment:
        await check_numbers(client, info, content)


def _check_references(client: Client, segment: str, content: bytes, start: int) -> None:
    """Each reference lies directly behind an upload, and each upload directly before one."""
    world = client.life.world
    uploads = {
        (place.offset, place.length)
        for name, place in world.history.merged.items()
        if name in world.uploads and place.target == segment and place.offset >= start
    }
    references: set[tuple[int, int]] = set()
    at = 0
    while at < len(content):
        block = Block(content, at)
        if block.header.flags & FLAG_PARTS_BEFORE:
            found = block.reference(start + at)
            references.add((found.offset, found.length))
        at += block.header.size
    assert references == uploads, f"{segment}: {references} refer to {uploads}"
