"""Finds streams in tier 2, as the controllers exported them.

Each object about a stream is followed by a *receipt*, which records that the object was created. A
receipt above all objects of its stream means that the newest was deleted by other means.
"""

from collections.abc import AsyncIterator, Sequence
from itertools import groupby

from anabranch.common.errors import (
    Corrupt,
    CorruptManifest,
    ObjectNotFound,
    StreamNotFound,
    TierTwoRewound,
    Unavailable,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.model.stream import StreamState
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.streams import (
    STREAMS_PREFIX,
    ExportedStream,
    decode_stream,
    receipted_revision,
    revision_in,
    stream_prefix,
)

READ_ATTEMPTS_MAX = 3
"""A newer object may replace a listed one before it is read."""


async def list_streams(storage: ChunkStorage) -> AsyncIterator[ExportedStream]:
    """The latest export of each stream, deleted ones included, in no particular order.

    Streams whose objects are replaced during the read are left out. Raises TierTwoRewound,
    CorruptManifest, FormatTooNew.
    """
    async for _, found in audit_streams(storage):
        if isinstance(found, Corrupt):
            raise found
        yield found


async def audit_streams(
    storage: ChunkStorage,
) -> AsyncIterator[tuple[str, ExportedStream | Corrupt]]:
    """Like `list_streams`, but yields the common prefix of each stream's objects, and its export
    or the damage."""
    listed = await storage.list(STREAMS_PREFIX)
    for prefix, names in groupby(listed, lambda name: name.rpartition("/")[0] + "/"):
        try:
            newest = await _newest(storage, prefix, list(names))
            if newest is not None:
                yield prefix, decode_stream(await storage.get(newest), newest)
        except ObjectNotFound:
            continue
        except Corrupt as error:
            yield prefix, error


async def read_stream(storage: ChunkStorage, ref: StreamRef) -> ExportedStream:
    """The latest export of the stream.

    Raises StreamNotFound (also for a deleted one), TierTwoRewound, CorruptManifest, FormatTooNew,
    Unavailable.
    """
    for _ in range(READ_ATTEMPTS_MAX):
        prefix = stream_prefix(ref)
        newest = await _newest(storage, prefix, await storage.list(prefix))
        if newest is None:
            raise StreamNotFound("tier 2 does not know the stream", stream=str(ref))
        try:
            data = await storage.get(newest)
        except ObjectNotFound:
            continue
        found = decode_stream(data, newest)
        if found.ref != ref:
            raise CorruptManifest("an object of tier 2 describes another stream", stream=str(ref))
        if found.state is StreamState.DELETED:
            raise StreamNotFound("the stream is deleted", stream=str(ref))
        return found
    raise Unavailable("the stream's description in tier 2 changes too fast", stream=str(ref))


async def _newest(storage: ChunkStorage, prefix: str, listed: Sequence[str]) -> str | None:
    """The name of the newest object about a stream. Raises TierTwoRewound.

    An apparent loss is listed once more, because a list may pass the place of an object before the
    object and its receipt are created, and reach the receipt afterwards.
    """
    for names in (listed, None):
        found = await storage.list(prefix) if names is None else names
        told = [name for name in found if revision_in(name) is not None]
        newest = max((revision_in(name) or 0 for name in told), default=0)
        receipt = max((receipted_revision(name) or 0 for name in found), default=0)
        if newest >= receipt:
            return told[-1] if told else None
    raise TierTwoRewound(
        "the newest object about a stream was deleted",
        prefix=prefix,
        newest=newest,
        receipt=receipt,
    )
