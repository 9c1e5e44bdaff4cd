"""Finding streams in tier 2, as the controllers told of them.

Each object about a stream is followed by a *receipt*, which says that it was created. A receipt
above all objects of its stream means that the newest was deleted by somebody else.
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
"""An object that is listed may be replaced by a newer one before it is read."""


async def list_streams(storage: ChunkStorage) -> AsyncIterator[ExportedStream]:
    """What tier 2 tells last of each stream, deleted ones included; sorted by nothing.

    What is replaced while it is read is left out. Raises TierTwoRewound, CorruptManifest,
    FormatTooNew.
    """
    async for _, found in audit_streams(storage):
        if isinstance(found, Corrupt):
            raise found
        yield found


async def audit_streams(
    storage: ChunkStorage,
) -> AsyncIterator[tuple[str, ExportedStream | Corrupt]]:
    """As `list_streams`, each with what its objects' names start with, or what is wrong with it."""
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
    """The stream as tier 2 tells of it last.

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

    What looks wrong is listed once more, because a list may pass the place of an object before it
    is created and come to its receipt after.
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
