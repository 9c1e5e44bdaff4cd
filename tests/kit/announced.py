"""A segment store that announces itself and does nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from anabranch.common.contracts.cluster import node_from_bytes, node_to_bytes
from anabranch.common.eventsourcing.beats import Beats
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import NodeRecord
from anabranch.common.runtime.clock import SystemClock


@asynccontextmanager
async def announced(nodes: ObjectStore, node: NodeRecord) -> AsyncIterator[None]:
    """Its record keeps changing within the block, and then no more."""
    beats = Beats(
        nodes,
        node.node_id,
        node.session,
        encode=lambda beat: node_to_bytes(replace(node, beat=beat)),
        session_in=lambda value: node_from_bytes(value).session,
        clock=SystemClock(),
    )
    async with asyncio.TaskGroup() as group:
        beating = group.create_task(beats.run())
        yield
        beating.cancel()
