"""A stream as tier 2 alone shows it, read with nothing running and without Spark."""

from collections.abc import AsyncIterator

from anabranch.common.adapters.chunk_url import open_chunk_storage_read_only
from anabranch.common.model.hashing import container_of
from anabranch.common.model.names import segment_name, stream_ref
from anabranch.common.storage.audit import read_catalog
from anabranch.common.storage.chunk_reader import ChunkReader
from anabranch.common.storage.streams import read_stream
from anabranch.common.wire.block import Block


async def blocks_in_tier2(url: str, stream: str) -> AsyncIterator[Block]:
    """The stream's blocks, segment after segment, every byte verified. Raises what is damaged."""
    storage = await open_chunk_storage_read_only(url, limit_s=60.0)
    reader = ChunkReader(storage)
    ref = stream_ref(stream)
    told = await read_stream(storage, ref)
    ids = told.segment_ids()
    for name in (segment_name(ref, each) for each in ids):
        catalog = (await read_catalog(storage, container_of(name, told.container_count))).catalog
        state = catalog.segments[name]
        content = b"".join(
            [await reader.read(e.ref, 0, e.ref.length) for e in catalog.extents[state.number]]
        )
        assert len(content) == state.length
        at = 0
        while at < len(content):
            block = Block(content, at)
            yield block
            at += block.header.size
