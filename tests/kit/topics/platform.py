"""Stores, placements, backing streams and live reports around simulated controllers of objects.

`Stores` holds the truth. Each controller sees it through a `Mirror` of its own, which lags. The
truth changes step by step: a container of the stored table is placed after a while, opens on a live
replica under the next container epoch, leaves drained and forgotten stores, and fails over some
time after the death of its owner.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from anabranch.common.contracts.commands import Command, CreateStream
from anabranch.common.contracts.live import LiveContainer, LivePartition, LiveReport
from anabranch.common.contracts.subjects import scope_events, stream_events
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.cluster import LogCopy, Placement, PlacementState
from anabranch.common.model.hashing import container_of
from anabranch.common.model.names import ScopeName, StreamRef, segment_name
from anabranch.common.model.stream import StreamState
from anabranch.common.model.topics import topic_of
from anabranch.common.runtime.clock import Clock
from anabranch.controller.cluster.topics.backing import CREATE_WAIT_MS
from anabranch.controller.domain.scope.state import Scope
from anabranch.controller.domain.stream.state import Stream
from kit.backing_streams import BackingStreams
from kit.rng import Random

FAIL_OVER_S = 3.0
EPOCH_STEP = 1_000_000
"""A store's record numbers in this simulation name the container epoch that they are of."""


@dataclass
class SlowStreams(BackingStreams):
    """Backing streams whose commands are decided by `advance`, each after a while.

    A creation that is decided too late for its caller is void, as in the real command handler.
    """

    clock: Clock | None = None
    rng: Random | None = None
    slowest_s: float = 0.2
    due: deque[tuple[float, float, Command]] = field(default_factory=deque)

    async def post(self, command: Command) -> None:
        """Take the command; `advance` decides it."""
        assert self.clock is not None
        assert self.rng is not None
        now_s = self.clock.monotonic()
        self.posted.append(command)
        self.due.append((now_s, now_s + self.rng.random() * self.slowest_s, command))

    def advance(self) -> None:
        """Decide the commands that are due, unless all are held."""
        assert self.clock is not None
        now_s, later = self.clock.monotonic(), deque[tuple[float, float, Command]]()
        for posted_s, due_s, command in self.due:
            is_void = isinstance(command, CreateStream) and now_s - posted_s > CREATE_WAIT_MS / 1e3
            if self.held or due_s > now_s:
                later.append((posted_s, due_s, command))
            elif not is_void:
                self.queue.append(command)
        self.due = later
        self.decide()


@dataclass(frozen=True)
class Seen:
    """The truth at one moment."""

    placements: Mapping[int, Placement]
    live: Mapping[str, bool]
    streams: Mapping[StreamRef, Stream]
    scopes: Mapping[str, Scope]


class Mirror:
    """The truth as one controller sees it. It is also its `Streams`."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def scope(self, scope: ScopeName) -> Loaded[Scope] | None:
        found = self.seen.scopes.get(scope)
        return None if found is None else Loaded(scope_events(scope), found)

    def readable_stream(self, ref: StreamRef) -> Loaded[Stream] | None:
        found = self.seen.streams.get(ref)
        return None if found is None else Loaded(stream_events(ref), found)

    def names(self) -> Iterable[str]:
        streams = self.seen.streams.items()
        return [ref.stream for ref, one in streams if one.status is not StreamState.DELETED]

    def take(self, seen: Seen) -> list[tuple[str, str]]:
        """See newer facts → the topics and incarnations whose streams have changed."""
        before, self.seen = self.seen, seen
        return [
            topic_of(ref.stream)
            for ref, found in seen.streams.items()
            if before.streams.get(ref) is not found
        ]


class Stores:
    """The stores, the placements of containers, and the streams: the truth."""

    def __init__(self, clock: Clock, rng: Random) -> None:
        self._clock = clock
        self._rng = rng
        self.streams = SlowStreams(clock=clock, rng=rng)
        self.live: dict[str, bool] = {}
        self.dead_since_s: dict[str, float] = {}
        self.registered: set[str] = set()
        self.drained: frozenset[str] = frozenset()
        self.table: Mapping[int, tuple[str, ...]] = {}
        self.placements: dict[int, Placement] = {}
        self.owners: dict[tuple[int, int], str] = {}
        """The store that served each container under each container epoch."""
        self._sequences: dict[str, int] = {}
        self._marks: dict[str, int] = {}

    def seen(self) -> Seen:
        """The truth now."""
        return Seen(
            dict(self.placements),
            dict(self.live),
            dict(self.streams.streams),
            dict(self.streams.scopes),
        )

    def set_live(self, name: str, *, live: bool) -> None:
        """The store comes or dies."""
        if self.live.get(name) and not live:
            self.dead_since_s[name] = self._clock.monotonic()
        self.live[name] = live

    def advance(self) -> None:
        """Do what is due."""
        self.streams.advance()
        for container, nodes in self.table.items():
            found = self.placements.get(container)
            if found is None:
                self.placements[container] = Placement(container, nodes, isr_min=1)
                continue
            self.placements[container] = self._served(self._replaced(found))

    def holding(self, name: str) -> bool:
        """Whether the store has a replica of any container."""
        return any(name in found.replicas for found in self.placements.values())

    def move(self, container: int) -> None:
        """Another live replica leads the container."""
        found = self.placements[container]
        others = [node for node in found.replicas if self.live.get(node) and node != found.owner]
        if others:
            self.placements[container] = self._led(found, self._rng.choice(sorted(others)))

    def _able(self, name: str) -> bool:
        return bool(self.live.get(name)) and name in self.registered and name not in self.drained

    def _replaced(self, found: Placement) -> Placement:
        """The placement with another store in the place of one that is drained or forgotten."""
        for node in found.replicas:
            if node in self.registered and node not in self.drained:
                continue
            others = [
                name
                for name in sorted(self.live)
                if self._able(name) and name not in found.replicas
            ]
            if others:
                new = self._rng.choice(others)
                rows = tuple(new if name == node else name for name in found.replicas)
                return replace(found, replicas=rows)
        return found

    def _served(self, found: Placement) -> Placement:
        live = [node for node in found.replicas if self.live.get(node)]
        isr = tuple(LogCopy(node, "c") for node in sorted(live))
        served_by = self.owners.get((found.container, found.container_epoch))
        if found.owner in live:
            if found.state is PlacementState.OPEN and served_by == found.owner:
                return replace(found, isr=isr)
            return self._led(found, found.owner)
        died_s = self.dead_since_s.get(found.owner, 0.0)
        if live and self._clock.monotonic() - died_s >= FAIL_OVER_S:
            return self._led(found, live[0])
        return replace(found, state=PlacementState.ELECTING)

    def _led(self, found: Placement, owner: str) -> Placement:
        epoch = found.container_epoch + 1
        self.owners[found.container, epoch] = owner
        live = sorted(node for node in found.replicas if self.live.get(node))
        return replace(
            found,
            replicas=(owner, *(node for node in found.replicas if node != owner)),
            state=PlacementState.OPEN,
            container_epoch=epoch,
            log_id="log",
            isr=tuple(LogCopy(node, "c") for node in live),
        )

    def report_of(self, name: str, *, zombie: bool = False, impostor: bool = False) -> LiveReport:
        """The record numbers of every partition that the store leads.

        A `zombie` goes on to report what it has led once, and an `impostor` reports what others
        lead. The numbers of a partition tell the epoch and the store that counted them.
        """
        self._sequences[name] = sequence = self._sequences.get(name, 0) + 1
        epochs: dict[int, int] = {}
        for (container, epoch), owner in sorted(self.owners.items()):
            is_present = self.placements[container].container_epoch == epoch
            if (owner == name and (zombie or is_present)) or (impostor and is_present):
                epochs[container] = epoch
        containers = tuple(
            LiveContainer(
                container=container,
                container_epoch=epoch,
                partitions=tuple(
                    LivePartition(
                        segment=segment,
                        base=0,
                        leo=epoch * EPOCH_STEP + sequence,
                        size_bytes=self.mark_of(name),
                    )
                    for segment in self.segments_in(container)
                ),
            )
            for container, epoch in epochs.items()
        )
        return LiveReport(node_id=name, session=name, sequence=sequence, containers=containers)

    def mark_of(self, name: str) -> int:
        """A number that tells the store apart."""
        return self._marks.setdefault(name, len(self._marks))

    def segments_in(self, container: int) -> list[str]:
        """The names of the partitions' segments in a container."""
        return [
            name
            for ref, stream in self.streams.streams.items()
            for segment in stream.segments[:-1]
            if container_of(name := segment_name(ref, segment.segment_id), 1) == container
        ]
