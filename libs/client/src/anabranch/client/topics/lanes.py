"""The lanes of a producer, one per partition, and the choice among them.

A record with a key goes to the partition of the key. Records without one go to the partitions in
turn, a batch to each: a partition without a leader is passed over, and so is one whose store does
not answer at the moment, as long as another partition is better.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from anabranch.client.topics.partitioner import Key, key_bytes, partition_of
from anabranch.client.writing.appender import SegmentAppender
from anabranch.client.writing.lanes import KEYS_CACHED_MAX, KeyRoutes, Lanes
from anabranch.client.writing.outbox import Outbox
from anabranch.client.writing.placing import Placing
from anabranch.common.errors import InvalidRequest, PartitionNotFound, Remedy
from anabranch.common.runtime.ids import Rng

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


class PartitionLanes(Lanes):
    """The lanes by partition index. Partitions are only added."""

    def __init__(self, start: Callable[[str], SegmentAppender]) -> None:
        super().__init__(start)
        self.refusal = InvalidRequest(
            "the producer is not open",
            remedy=Remedy(api="use it as `async with client.topics.producer(...)`"),
        )
        self.led: frozenset[int] = frozenset()
        """The partitions that had a leader at the last refresh."""
        self._lanes: list[SegmentAppender] = []
        self._aimed: dict[int, KeyRoutes] = {}

    def open_partitions(self, segments: Sequence[str]) -> bool:
        """Add the partitions behind the known ones; returns whether there were any."""
        known = [lane.segment for lane in self._lanes]
        assert list(segments[: len(known)]) == known[: len(segments)], "partitions stay"
        for segment in segments[len(known) :]:
            lane = self._by_segment[segment] = self._start(segment)
            self._lanes.append(lane)
            self.outboxes.append(lane.outbox)
        return len(segments) > len(known)

    def lane(self, partition: int) -> SegmentAppender:
        """The lane of the partition. Raises PartitionNotFound, and the `refusal`."""
        if not self._lanes:
            raise self.refusal.copy()
        if not 0 <= partition < len(self._lanes):
            raise PartitionNotFound(
                "the producer knows no such partition",
                remedy=Remedy(
                    "use an index below the number of partitions",
                    api="use an index below `partition_count`; if the partition is new, refresh "
                    "the producer first",
                ),
                partition=partition, partitions=len(self._lanes),
            )  # fmt: skip
        return self._lanes[partition]

    def route(self, key: Key) -> tuple[Outbox, bytes]:
        """(the outbox of the key's partition, the key as stored). Raises InvalidRequest, and the
        `refusal`."""
        stored = key_bytes(key)
        if not self.outboxes:
            raise self.refusal.copy()
        return self.outboxes[partition_of(stored, len(self.outboxes))], stored

    def aimed(self, partition: int) -> tuple[KeyRoutes, Outbox]:
        """(the routes that lead every key to this partition, its outbox). Raises as `lane`."""
        outbox = self.lane(partition).outbox
        if partition not in self._aimed:
            self._aimed[partition] = KeyRoutes(
                lambda key: (outbox, key_bytes(key)), KEYS_CACHED_MAX // 64
            )
        return self._aimed[partition], outbox

    def choose(self, stored: bytes | None, partition: int | None, turns: "Turns") -> int:
        """The partition of one record: the given one, that of its key, or the next one in turn.

        Raises as `lane`.
        """
        if partition is None and stored is not None and self._lanes:
            partition = partition_of(stored, len(self._lanes))
        if partition is None:
            partition = turns.next_turn()
        self.lane(partition)
        return partition

    def is_ready(self, partition: int) -> bool:
        """Whether a record for any partition may go to this one."""
        lane = self._lanes[partition]
        return partition in self.led and not lane.is_stalled


class Turns(Placing):
    """Records without keys go to the partitions in turn; see the module."""

    def __init__(self, lanes: PartitionLanes, rng: Rng, tracer: "Tracer | None") -> None:
        super().__init__(lanes, rng, tracer)
        self._partitions = lanes
        self._turn: int | None = None
        self.aim: Outbox | None = None
        """The outbox of a chosen partition, which no turn changes."""

    def draw(self) -> Outbox:
        """The outbox of the next partition. The first one is chosen at random, so that producers
        of few records do not all prefer one partition. Raises the lanes' refusal."""
        if self.aim is not None:
            self.keyless = self.aim
            return self.aim
        self.keyless = self._partitions.outboxes[self.next_turn()]
        return self.keyless

    def next_turn(self) -> int:
        """The partition whose turn it is. Raises the lanes' refusal."""
        lanes, count = self._partitions, len(self._partitions.outboxes)
        if not count:
            raise lanes.refusal.copy()
        if self._turn is None:
            self._turn = int(self._rng.random() * count) - 1
        turns = ((self._turn + step) % count for step in range(1, count + 1))
        self._turn = next(filter(lanes.is_ready, turns), (self._turn + 1) % count)
        return self._turn
