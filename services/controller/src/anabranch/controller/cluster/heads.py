"""Notices that a shard ends before what was already read from it.

That happens when the NATS server's data was replaced by an older copy, or when the server cut a
damaged end off a stream as it started. What was decided since is gone, but segment stores and
clients have acted on it; to go on as if nothing had happened would decide the same things
differently under the same revisions. So the service stops, by name.

Within its life a controller compares with what it has folded itself (the event store's `follow`).
Beyond it, all controllers keep the highest sequences that any of them has folded in the KV bucket
`ana_cluster`, and compare at their start and once a minute. They are read before the heads, which
only grow; a record above a head is therefore never a matter of order. An older copy of *all* the
server's data brings an older record with it and is noticed by a controller that went on running,
or not at all.
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
    """Both by shard. Raises StreamRewound, naming the first shard that ends too early."""
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
    """See the module. `last_sequence(shard)` asks the event store, `reached` the own mirror."""

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

        `accept`: what is missing is known to be lost, so the record is set to what there is.
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
        """Note what the own mirror has reached. Raises Unavailable, OutcomeUnknown."""
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
            return  # another controller recorded at the same time; the next round sees it
