"""Streams with all their scales, cuts of them, and random logs of a group that reads them."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anabranch.client.groups import updates as u
from anabranch.client.groups.state import GroupEnd, GroupSegment, ReaderGroupState
from anabranch.client.reading.frontier import FUTURE, Position
from anabranch.common.model.names import segment_id, segment_name, stream_ref
from anabranch.common.model.reader_group import GroupStream, ReaderGroupConfig
from kit.rng import Random

CUTS = ((0.5,), (0.25, 0.5), (0.25, 0.75), (0.5, 0.75), (), (0.25, 0.5, 0.75))
Cut = Mapping[str, Position]


@dataclass(frozen=True, slots=True)
class ModelSegment:
    """A segment with its whole life: `length` bytes, and what comes before and after it."""

    name: str
    segment_id: int
    start: float
    end: float
    length: int
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class ModelStream:
    """A sealed stream that was scaled at random; segments whose range stays are kept."""

    def __init__(self, stream: str, random: Random, epochs: int) -> None:
        self.stream = stream
        self.segments: dict[str, ModelSegment] = {}
        present: list[ModelSegment] = []
        for epoch in range(epochs):
            present = self._epoch(epoch, random, present)

    def _epoch(
        self, epoch: int, random: Random, before: Sequence[ModelSegment]
    ) -> list[ModelSegment]:
        ranges = list(itertools.pairwise((0.0, *random.choice(CUTS), 1.0)))
        kept = [each for each in before if (each.start, each.end) in ranges]
        new = [keys for keys in ranges if keys not in [(each.start, each.end) for each in kept]]
        made = []
        for start, end in new:
            old = [each for each in before if each.start < end and start < each.end]
            number = segment_id(epoch, len(self.segments))
            name = segment_name(stream_ref(self.stream), number)
            length = random.choice((0, 10, 30))
            made.append(
                ModelSegment(name, number, start, end, length, tuple(each.name for each in old))
            )
            self.segments[name] = made[-1]
        for each in before:
            after = tuple(new.name for new in made if each.name in new.before)
            if after:
                known = self.segments[each.name]
                self.segments[each.name] = ModelSegment(
                    known.name, known.segment_id, known.start, known.end, known.length,
                    known.before, after,
                )  # fmt: skip
        return [*kept, *made]

    def walk(self, random: Random, from_: Iterable[str]) -> set[str]:
        """Some segments, read to their ends, with all that comes before them."""
        finished = set(from_)
        for each in self.segments.values():
            if each.after and finished.issuperset(each.before) and random.random() < 0.5:
                finished.add(each.name)
        return finished

    def cut(self, random: Random, finished: set[str], least: Cut) -> dict[str, Position]:
        """A cut where these are finished, not before `least`."""
        cut = {}
        for name, each in self.segments.items():
            if name in finished:
                continue
            if finished.issuperset(each.before):
                first = max(least.get(name, Position(0)).offset, 0)
                cut[name] = Position(random.randint(first, each.length))
            elif not finished.isdisjoint(each.before):
                cut[name] = FUTURE
        return cut


@dataclass(frozen=True, slots=True)
class ModelGroup:
    """A group's first state, and what is to be read of its streams, start and end considered."""

    streams: Mapping[str, ModelSegment]
    state: ReaderGroupState
    wanted: frozenset[str]

    def read_to(self, segment: GroupSegment) -> int:
        """The offset at which its reading ends."""
        length = self.streams[segment.name].length
        return length if segment.end_offset is None else min(length, segment.end_offset)

    def successors(self, segment: GroupSegment) -> tuple[u.GroupSuccessor, ...]:
        """What a reader is told that has read it to its end."""
        known = self.streams[segment.name]
        if segment.end_offset is not None and segment.end_offset < known.length:
            return ()
        after = (self.streams[name] for name in known.after)
        return tuple(
            u.GroupSuccessor(each.name, each.segment_id, each.start, each.end) for each in after
        )


def model_group(random: Random, *, epochs: int, streams: int, bounded: bool) -> ModelGroup:
    """Streams at random, from random cuts, and to random ends if `bounded`."""
    known: dict[str, ModelSegment] = {}
    segments: dict[str, GroupSegment] = {}
    ends: list[GroupEnd] = []
    wanted: set[str] = set()
    names = [f"s/x{n}" for n in range(streams)]
    for name in names:
        model = ModelStream(name, random, epochs)
        known |= model.segments
        start_read = model.walk(random, ())
        start = model.cut(random, start_read, {})
        end_read = model.walk(random, start_read)
        end = model.cut(random, end_read, start) if bounded else {}
        begun = {each: at.offset for each, at in end.items() if at != FUTURE}
        for each, at in start.items():
            place = model.segments[each]
            segments[each] = GroupSegment(
                each, place.segment_id, place.start, place.end, at, begun.get(each)
            )
        for each, at in end.items():
            place = model.segments[each]
            ends.append(GroupEnd(each, place.segment_id, place.start, place.end, at.offset))
        wanted |= (end_read | begun.keys() if bounded else model.segments.keys()) - start_read
    config = ReaderGroupConfig(tuple(map(GroupStream, names)))
    state = ReaderGroupState(1, 0, config, segments, tuple(ends))
    return ModelGroup(known, state, frozenset(wanted))


class RandomLog:
    """Entries that readers may write: in time, again, or long after they should have."""

    def __init__(self, group: ModelGroup, random: Random, readers: int) -> None:
        self._group = group
        self._random = random
        self._readers = [f"r{n}" for n in range(readers)]
        self._written: list[u.AnyUpdate] = []
        self._nonces = 0

    def next(self, state: ReaderGroupState) -> u.AnyUpdate:
        """An entry; one in five was written before."""
        if self._written and self._random.random() < 0.2:
            return self._random.choice(self._written)
        update = self._new(state)
        self._written.append(update)
        return update

    def _new(self, state: ReaderGroupState) -> u.AnyUpdate:
        random = self._random
        reader_id = random.choice(self._readers)
        reader = state.readers.get(reader_id)
        if reader is None:
            self._nonces += 1
            return u.Joined(reader_id=reader_id, nonce=self._nonces)
        chance = random.random()
        if chance < 0.03:
            return u.Left(
                reader_id=reader_id, nonce=reader.nonce, saved=self._some(state, reader_id)
            )
        if chance < 0.06:
            return u.Lost(reader_id=reader_id, nonce=reader.nonce, beat=reader.beat)
        if chance < 0.09:
            saved = self._some(state, reader_id)
            return u.PutOffline(
                reader_id=reader_id, positions={at.segment: at.position for at in saved}
            )
        if chance < 0.2:
            kind: u.CheckpointKind = random.choice(("user", "user", "automatic", "silent"))
            return u.CheckpointBegun(name=f"c{random.randrange(6)}", checkpoint=kind)
        if chance < 0.21:
            return u.CheckpointsCancelled()
        return self._at_work(state, reader_id, reader.nonce)

    def _at_work(self, state: ReaderGroupState, reader_id: str, nonce: int) -> u.AnyUpdate:
        random = self._random
        due = state.due_checkpoint(reader_id, nonce)
        kind = random.randrange(5)
        if kind == 0 and due is not None:
            saved = self._some(state, reader_id)
            return u.CheckpointReached(name=due.name, reader_id=reader_id, nonce=nonce, saved=saved)
        if kind <= 1:
            names = random.sample(sorted(state.segments), min(3, len(state.segments)))
            return u.Acquired(reader_id=reader_id, nonce=nonce, segments=tuple(names))
        if kind == 2:
            saved = self._some(state, reader_id)[:1]
            return u.Released(reader_id=reader_id, nonce=nonce, saved=saved)
        owned = state.owned_by(reader_id)
        if kind == 3 and owned:
            return self.completed(random.choice(owned), nonce)
        number = state.readers[reader_id].beat + 1
        return u.Beat(
            reader_id=reader_id, nonce=nonce, number=number, saved=self._some(state, reader_id)
        )

    def completed(self, segment: GroupSegment, nonce: int) -> u.Completed:
        """Its reader has processed all of it."""
        at = u.Saved(segment.name, segment.ownership, Position(self._group.read_to(segment)))
        successors = self._group.successors(segment)
        return u.Completed(reader_id=segment.owner, nonce=nonce, at=at, successors=successors)

    def _some(self, state: ReaderGroupState, reader_id: str) -> tuple[u.Saved, ...]:
        saved = []
        for each in state.owned_by(reader_id):
            if self._random.random() < 0.7:
                last = max(each.position.offset, self._group.read_to(each))
                at = Position(self._random.randint(each.position.offset, last))
                unread = self._random.choice((None, 0, 1000))
                saved.append(u.Saved(each.name, each.ownership, max(at, each.position), unread))
        return tuple(saved)
