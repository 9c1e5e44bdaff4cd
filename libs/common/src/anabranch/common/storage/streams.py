"""Finding streams in tier 2, as the controllers told of them."""

from collections.abc import AsyncIterator

from anabranch.common.errors import CorruptManifest, ObjectNotFound, StreamNotFound, Unavailable
from anabranch.common.model.names import StreamRef
from anabranch.common.model.stream import StreamState
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.streams import (
    STREAMS_PREFIX,
    ExportedStream,
    decode_stream,
    revision_in,
    stream_prefix,
)

READ_ATTEMPTS_MAX = 3
"""An object that is listed may be replaced by a newer one before it is read."""


async def list_streams(storage: ChunkStorage) -> AsyncIterator[ExportedStream]:
    """What tier 2 tells last of each stream, deleted ones included; sorted by nothing.

    What is replaced while it is read is left out. Raises CorruptManifest, FormatTooNew.
    """
    names = await storage.list(STREAMS_PREFIX)
    told = [name for name in names if revision_in(name) is not None]
    for name, following in zip(told, [*told[1:], ""], strict=True):
        if name.rpartition("/")[0] == following.rpartition("/")[0]:
            continue
        try:
            data = await storage.get(name)
        except ObjectNotFound:
            continue
        yield decode_stream(data, name)


async def read_stream(storage: ChunkStorage, ref: StreamRef) -> ExportedStream:
    """The stream as tier 2 tells of it last.

    Raises StreamNotFound (also for a deleted one), CorruptManifest, FormatTooNew, Unavailable.
    """
    for _ in range(READ_ATTEMPTS_MAX):
        names = await storage.list(stream_prefix(ref))
        told = [name for name in names if revision_in(name) is not None]
        if not told:
            raise StreamNotFound("tier 2 tells of no such stream", stream=str(ref))
        try:
            data = await storage.get(told[-1])
        except ObjectNotFound:
            continue
        found = decode_stream(data, told[-1])
        if found.ref != ref:
            raise CorruptManifest("what tier 2 tells is of another stream", stream=str(ref))
        if found.state is StreamState.DELETED:
            raise StreamNotFound("the stream is deleted", stream=str(ref))
        return found
    raise Unavailable("what tier 2 tells of the stream changes too fast", stream=str(ref))
