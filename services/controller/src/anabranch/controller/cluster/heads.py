"""Notices that a shard ends before a message that controllers have already read.

This happens if the NATS server's data was replaced by an older copy, or if the server cut a damaged
end off a stream when it started. The later decisions are lost, but segment stores and clients have
acted on them. A controller that continued would decide the same things differently under the same
revisions. It therefore stops with a named error.

While it runs, a controller compares the shard with the messages that it has folded (the event
store's `follow`). Across restarts, all controllers keep the highest sequences that any of them has
folded in the KV bucket `ana_cluster`; they compare at start and once a minute. They read this
record before the heads, which only grow, so a race cannot make a record exceed a head. An older
copy of *all* the server's data contains an older record; only a controller that kept running
notices it.
"""

from collections.abc import Awaitable, Callable, Sequence

import structlog

from anabranch.common.contracts.cluster import ShardHeads
from anabranch.common.contracts.subjects import HEADS_KEY
from anabranch.common.errors import ObjectExists, Retry, RevisionConflict, StreamRewound, Unknown
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.clock import Clock

PERIOD_S = 60.0
SETTING = "ANABRANCH_CONTROLLER_ACCEPT_REWOUND"
NONE_READ = (0,) * SHARD_COUNT

_log = structlog.get_logger(__name__)


def require_not_rewound(recorded: Sequence[int], heads: Sequence[int]) -> None:
    """Raises StreamRewound for the first shard that ends too early; both sequences are by shard."""
    for shard, (read, newest) in enumerate(zip(recorded, heads, strict=True)):
        if newest < read:
            raise StreamRewound(
                "a shard ends before the last message that controllers have read",
                remedy="stop all controllers and bring the server's newest data back; if what "
                f"is missing is lost for good, start one of them with {SETTING}=true",
                shard=shard,
                read=read,
                newest=newest,
            )


class HeadWatch:
    """Compares heads. `last_sequence(shard)` asks the event store, `reached` the mirror."""

    def __init__(
        self,
        objects: ObjectStore,
        last_sequence: Callable[[int], Awaitable[int]],
        reached: Callable[[], Sequence[int]],
        clock: Clock,
    ) -> None:
        self._objects = objects
        self._last_sequence = last_sequence
        self._reached = reached
        self._clock = clock

    async def check(self, *, accept: bool = False) -> None:
        """Compare the record with the event store. Raises StreamRewound, Unavailable.

        If `accept`, the missing messages are known to be lost, and the record is set to the heads.
        """
        stored, recorded = await self._recorded()
        heads = [await self._last_sequence(shard) for shard in range(SHARD_COUNT)]
        try:
            require_not_rewound(recorded, heads)
        except StreamRewound as error:
            if not accept:
                raise
            _log.warning("accepted a shard that has lost messages", error=str(error))
            await self._write(stored, heads)

    async def serve(self) -> None:
        """Compare and record until cancelled. Raises StreamRewound."""
        while True:
            await self._clock.sleep(PERIOD_S)
            try:
                await self.check()
                await self.record()
            except (Retry, Unknown) as error:
                _log.info("cannot record the heads of the shards", error=str(error))

    async def record(self) -> None:
        """Record the sequences that the mirror has reached. Raises Unavailable, OutcomeUnknown."""
        stored, recorded = await self._recorded()
        highest = [max(pair) for pair in zip(recorded, self._reached(), strict=True)]
        if highest != list(recorded):
            await self._write(stored, highest)

    async def _recorded(self) -> tuple[StoredObject | None, Sequence[int]]:
        stored = await self._objects.get(HEADS_KEY)
        if stored is None:
            return None, NONE_READ
        return stored, ShardHeads.parsed(stored.value).heads

    async def _write(self, stored: StoredObject | None, heads: Sequence[int]) -> None:
        value = ShardHeads(heads=tuple(heads)).to_bytes()
        try:
            if stored is None:
                await self._objects.create(HEADS_KEY, value)
            else:
                await self._objects.update(HEADS_KEY, value, stored.revision)
        except (ObjectExists, RevisionConflict):
            return  # another controller recorded concurrently; the next round records the rest
