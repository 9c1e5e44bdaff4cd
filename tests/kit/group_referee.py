"""Judges the readers of a group by what was written, what they were given, and what the log says.

It knows the streams' events and their order, sees every entry of the log as it is applied, and is
told of every event that is handed out, and of every one that an application is done with. It uses
the group's state for what that is, a claim on paper, and none of the code that makes it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from anabranch.client.groups import updates as u
from anabranch.client.groups.state import (
    Checkpoint,
    GroupSegment,
    ReaderGroupState,
)
from anabranch.client.reading.frontier import FUTURE, Position
from kit.group_process import SimProcess
from kit.group_streams import CELLS, SimEvent, SimSegment

DELAY_S = 5.0
"""Within which what a reader sends is in the log, while nothing is lost, slow or away."""

How = Literal["", "given", "lost", "offline", "exactly", "left"]
GIVEN: How = "given"


class BrokenPromise(AssertionError):
    """A guarantee of reader groups does not hold."""


@dataclass(eq=False)
class Session:
    """One reader, from when it joins until it ends. `leaves_behind`: it was cancelled, so what it
    had in hand is given again. `called`: its checkpoint calls, each with what it had done by then.
    """

    reader_id: str
    process: SimProcess
    save_interval_s: float
    nonce: int = 0
    generation: int = 0
    leaves_behind: bool = False
    removed_s: float | None = None
    done: dict[str, Position] = field(default_factory=dict)
    called: dict[str, Mapping[str, Position]] = field(default_factory=dict)


@dataclass(eq=False)
class Span:
    """One ownership of a segment. `begin`: where it began; `next`: behind what was given;
    `how`: it ended."""

    session: Session
    ownership: int
    begin: Position
    next: Position
    how: How = ""


@dataclass(slots=True)
class Fate:
    """Of an event: the span under which it was given and done last, and when."""

    given: Span
    done: Span | None = None
    done_s: float = 0.0


@dataclass(eq=False)
class Generation:
    """What was seen since the group was made, or reset the last time."""

    start: Mapping[str, Position]
    fates: dict[int, Fate] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    replayed: int = 0
    ended_s: float | None = None
    later: dict[str, bool] = field(default_factory=dict)
    """What is known of segments: whether they come after the start."""


class Referee:
    """See the module. `segments`: all there are, by name."""

    def __init__(
        self,
        segments: Mapping[str, SimSegment],
        time_s: Callable[[], float],
        state: ReaderGroupState,
    ) -> None:
        self.sessions: dict[int, Session] = {}
        self.replayed = 0
        self._segments = segments
        self._time_s = time_s
        self._state = state
        self._ownerships: dict[str, int] = {}
        self._generations = {state.generation: Generation(state.positions())}
        self._exact: set[tuple[str, int]] = set()

    @property
    def lease_s(self) -> float:
        return self._state.config.lease_ms / 1000

    @property
    def present(self) -> Generation:
        return self._generations[self._state.generation]

    def joined(self, session: Session) -> None:
        """A session begins to speak under its nonce."""
        self.sessions[session.nonce] = session

    def reset(self, state: ReaderGroupState) -> None:
        """The group begins again with this state."""
        self.present.ended_s = self._time_s()
        self._state = state
        self._generations[state.generation] = Generation(state.positions())

    # --- what the log says --------------------------------------------------------------------

    def applied(
        self, before: ReaderGroupState, update: u.AnyUpdate, after: ReaderGroupState
    ) -> None:
        """An entry was folded."""
        self._state = after
        if self._speaks_too_late(before, update) and after != before:
            raise BrokenPromise(f"an entry of a reader that is not online has an effect: {update}")
        self._check_lost(before, update, after)
        if after.segments is not before.segments:
            for name, segment in after.segments.items():
                old = before.segments.get(name)
                if old is None or old.position == FUTURE != segment.position:
                    self._opened(segment)
                elif segment is not old:
                    self._changed(old, update, segment)
            for name in before.segments.keys() - after.segments.keys():
                self._gone(before.segments[name], after)
        if after.checkpoints is not before.checkpoints:
            self._check_checkpoints(before, update, after)

    def _speaks_too_late(self, before: ReaderGroupState, update: u.AnyUpdate) -> bool:
        nonce = getattr(update, "nonce", None)
        if nonce is None or isinstance(update, u.Joined):
            return False
        reader = before.readers.get(getattr(update, "reader_id", ""))
        return reader is None or reader.nonce != nonce

    def _check_lost(
        self, before: ReaderGroupState, update: u.AnyUpdate, after: ReaderGroupState
    ) -> None:
        gone = before.readers.keys() - after.readers.keys()
        for reader_id in gone:
            session = self.sessions.get(before.readers[reader_id].nonce)
            if session is None:
                continue
            session.removed_s = self._time_s()
            now_s = self._time_s()
            if isinstance(update, u.Lost) and not session.process.troubled(
                now_s - 2 * self.lease_s - DELAY_S, now_s
            ):
                raise BrokenPromise(f"{reader_id} was taken for lost and had no trouble at all")

    def _opened(self, segment: GroupSegment) -> None:
        if segment.position > Position(0):
            raise BrokenPromise(f"{segment.name} is begun in its middle: {segment}")
        self._check_keys()

    def _check_keys(self) -> None:
        cells: set[tuple[str, int]] = set()
        for name, segment in self._state.segments.items():
            if segment.position != FUTURE:
                model = self._segments[name]
                own = {(str(model.stream), cell) for cell in model.cells}
                if own & cells:
                    raise BrokenPromise(f"a key is in two segments that are open: {name}")
                cells |= own

    def _changed(self, old: GroupSegment, update: u.AnyUpdate, new: GroupSegment) -> None:
        if new.position != old.position:
            self._moved(old, update, new.position)
        if old.ownership != new.ownership:
            if old.owner:
                self._taken_away(old, update)
            if new.owner:
                self._acquired(new, update)
        if new.is_finished and not old.is_finished:
            self._finished(new)

    def _moved(self, old: GroupSegment, update: u.AnyUpdate, position: Position) -> None:
        """A position is saved: everything before must be done, and its owner must have said so."""
        if position < old.position:
            raise BrokenPromise(f"{old.name} goes back from {old.position} to {position}")
        if isinstance(update, u.PutOffline):
            named = update.reader_id == old.owner
        else:
            spoken: Sequence[u.Saved] = getattr(update, "saved", ())
            if isinstance(update, u.Completed):
                spoken = (update.at,)
            named = getattr(update, "nonce", 0) == self._state_nonce(old) and any(
                (at.segment, at.ownership) == (old.name, old.ownership) for at in spoken
            )
        if not named:
            raise BrokenPromise(f"{old.name} is moved by one that does not have it: {update}")
        self._check_done(old.name, old.position, position)

    def _state_nonce(self, segment: GroupSegment) -> int:
        span = self.present.spans.get(segment.name)
        return -1 if span is None else span.session.nonce

    def _check_done(self, name: str, first: Position, last: Position) -> None:
        segment, fates = self._segments[name], self.present.fates
        for event in segment.between(first, last):
            fate = fates.get(event.number)
            if (fate is None or fate.done is None) and not segment.is_truncated(event):
                raise BrokenPromise(f"{name} is saved at {last}, and {event} is not processed")

    def _acquired(self, new: GroupSegment, update: u.AnyUpdate) -> None:
        if not isinstance(update, u.Acquired) or update.reader_id != new.owner:
            raise BrokenPromise(f"{new.name} is given to {new.owner} by {update}")
        if new.ownership <= self._ownerships.get(new.name, 0):
            raise BrokenPromise(f"{new.name} has an ownership that was there before: {new}")
        if new.position == FUTURE or new.is_finished:
            raise BrokenPromise(f"{new.name} is acquired and cannot be read: {new}")
        self._ownerships[new.name] = new.ownership
        session = self.sessions[update.nonce]
        at = new.position
        self.present.spans[new.name] = Span(session, new.ownership, at, at)

    def _taken_away(self, old: GroupSegment, update: u.AnyUpdate) -> None:
        how: How = GIVEN
        if isinstance(update, u.Lost):
            how = "lost"
        elif isinstance(update, u.PutOffline):
            how = "exactly" if update.positions.get(old.name) is not None else "offline"
        elif isinstance(update, u.Left):
            how = "left"
        self.present.spans[old.name].how = how

    def _finished(self, new: GroupSegment) -> None:
        """All of it was processed, and what follows it is what does."""
        segment = self._segments[new.name]
        end = segment.end if new.end_offset is None else Position(new.end_offset)
        self._check_done(new.name, new.position, end)
        if new.end_offset is None and not segment.is_sealed:
            raise BrokenPromise(f"{new.name} is finished, and still grows")

    def _gone(self, old: GroupSegment, after: ReaderGroupState) -> None:
        """It was replaced by what follows it."""
        segment = self._segments[old.name]
        names = {each.name for each in segment.after}
        if not names & after.segments.keys():
            raise BrokenPromise(f"{old.name} is gone, and nothing follows it")
        end = segment.end if old.end_offset is None else Position(old.end_offset)
        self._check_done(old.name, old.position, end)

    # --- what is handed out -------------------------------------------------------------------

    def handed_out(
        self, session: Session, name: str, ownership: int, events: Sequence[SimEvent]
    ) -> None:
        """The application gets these events now, all of one block."""
        generation = self._generations[session.generation]
        if self._is_tolerated(session, generation):
            return
        owner = self._state.segments.get(name)
        mine = (session.reader_id, ownership)
        if owner is None or (owner.owner, owner.ownership) != mine:
            raise BrokenPromise(f"{session.reader_id} hands out {name} ({ownership}), not its own")
        span = generation.spans[name]
        if span.session is not session:
            raise BrokenPromise(f"{session.reader_id} hands out what its namesake has: {name}")
        segment = self._segments[name]
        if name not in generation.begun:
            generation.begun.add(name)
            if self._end_of(segment) is None:
                raise BrokenPromise(f"{name} lies behind the end")
            self._check_before(segment, generation)
        for event in events:
            self._check_order(segment, span, event, owner.end_offset)
            self._check_replay(generation, span, event)
            span.next = event.behind
            fate = generation.fates.setdefault(event.number, Fate(span))
            fate.given = span

    def _is_tolerated(self, session: Session, generation: Generation) -> bool:
        """One that was put offline, or is of an older generation, finds out within its lease."""
        ended_s = session.removed_s if generation is self.present else generation.ended_s
        if ended_s is None or not (generation is not self.present or self._was_put(session)):
            return False
        if self._time_s() > ended_s + self.lease_s:
            raise BrokenPromise(f"{session.reader_id} hands out when its lease is long over")
        return True

    def _was_put(self, session: Session) -> bool:
        return (session.reader_id, session.nonce) in self._exact

    def put_offline(self, session: Session) -> None:
        """Somebody says that it is gone, who may be wrong."""
        self._exact.add((session.reader_id, session.nonce))

    def _check_before(self, segment: SimSegment, generation: Generation) -> None:
        """All that comes before the segment is processed."""
        start = generation.start
        for before in segment.before:
            first = start.get(before.name)
            if first is None and not self._is_after_start(before, generation):
                continue
            self._check_done(before.name, first or Position(0), before.end)

    def _is_after_start(self, segment: SimSegment, generation: Generation) -> bool:
        """Whether it comes after a segment of the start cut."""
        known = generation.later.get(segment.name)
        if known is None:
            known = generation.later[segment.name] = any(
                each.name in generation.start or self._is_after_start(each, generation)
                for each in segment.before
            )
        return known

    def _check_order(
        self, segment: SimSegment, span: Span, event: SimEvent, end_offset: int | None
    ) -> None:
        if event.at < span.next:
            raise BrokenPromise(f"{event} of {segment.name} comes again under the same ownership")
        if end_offset is not None and event.at.offset >= end_offset:
            raise BrokenPromise(f"{event} of {segment.name} lies behind the end")
        for left_out in segment.between(span.next, event.at):
            if not segment.is_truncated(left_out):
                raise BrokenPromise(f"{left_out} of {segment.name} is left out before {event}")

    def _check_replay(self, generation: Generation, span: Span, event: SimEvent) -> None:
        fate = generation.fates.get(event.number)
        if fate is None:
            return
        by = fate.done or fate.given
        generation.replayed += 1
        self.replayed += 1
        where = f"{event} of {by.session.reader_id}, again by {span.session.reader_id}"
        if fate.done is None:
            if by.how not in ("lost", "offline", "exactly") and not by.session.leaves_behind:
                raise BrokenPromise(f"{where}: it was given, and given back unprocessed ({by.how})")
            return
        if by.session.removed_s is not None and fate.done_s >= by.session.removed_s:
            return
        if by.how not in ("lost", "offline"):
            raise BrokenPromise(f"{where}: it was processed, and the reader not lost ({by.how!r})")
        saved_s = fate.done_s + by.session.save_interval_s * 1.1 + DELAY_S
        if saved_s < (by.session.removed_s or self._time_s()) and not by.session.process.troubled(
            fate.done_s, saved_s
        ):
            raise BrokenPromise(f"{where}: it was processed long before, and never saved")

    # --- what applications are done with ------------------------------------------------------

    def done(self, session: Session, name: str, events: Sequence[SimEvent]) -> None:
        """The application has said that it has processed these."""
        generation = self._generations[session.generation]
        for event in events:
            fate = generation.fates.get(event.number)
            if fate is not None and fate.given.session is session:
                fate.done, fate.done_s = fate.given, self._time_s()
            session.done[name] = event.behind

    def told_truncated(self, session: Session, name: str) -> None:
        """The reader was told that events of the segment are gone."""
        self._generations[session.generation].told.add(name)

    def called(self, session: Session, checkpoint: str) -> None:
        """The reader's `on_checkpoint` is called."""
        session.called[checkpoint] = dict(session.done)

    def done_up_to(self, session: Session, name: str) -> Position:
        """Behind what the session has said to have processed of what it has."""
        begin = self.present.spans[name].begin
        return max(begin, session.done.get(name, begin))

    # --- checkpoints --------------------------------------------------------------------------

    def _check_checkpoints(
        self, before: ReaderGroupState, update: u.AnyUpdate, after: ReaderGroupState
    ) -> None:
        known = {each.number for each in before.checkpoints if each.is_complete}
        for each in after.checkpoints:
            if each.is_complete and each.number not in known:
                self._check_cut(each)
        if isinstance(update, u.CheckpointReached):
            reached = after.checkpoint(update.name)
            waited = before.checkpoint(update.name)
            if reached is not None and waited is not None and reached is not waited:
                self._check_reached(reached, self.sessions[update.nonce], after)

    def _check_cut(self, checkpoint: Checkpoint) -> None:
        """Every key has one place: the first segment that is named of all that ever had it."""
        refs = {str(self._segments[name].stream) for name in checkpoint.positions}
        for ref in refs:
            chain = [each for each in self._segments.values() if str(each.stream) == ref]
            for cell in range(CELLS):
                named = [
                    checkpoint.positions[each.name]
                    for each in sorted(chain, key=lambda each: each.segment_id)
                    if cell in each.cells and each.name in checkpoint.positions
                ]
                if not named or any(at != FUTURE for at in named[1:]):
                    raise BrokenPromise(f"no cut of {ref}, cell {cell}: {checkpoint}")

    def _check_reached(
        self, checkpoint: Checkpoint, session: Session, state: ReaderGroupState
    ) -> None:
        """Its positions lie where the reader stood when it was called."""
        called = session.called.get(checkpoint.name)
        if checkpoint.kind == "silent" or called is None:
            return
        for segment in state.owned_by(session.reader_id):
            position, model = checkpoint.positions[segment.name], self._segments[segment.name]
            done = called.get(segment.name)
            begin = self.present.spans[segment.name].begin
            if done is None or done < begin:
                done = begin
            for event in model.between(min(done, position), max(done, position)):
                if not model.is_truncated(event):
                    raise BrokenPromise(
                        f"{session.reader_id} stood at {done} of {segment.name}, and reached "
                        f"{checkpoint.name} at {position}"
                    )

    # --- at the end ---------------------------------------------------------------------------

    def unprocessed(self) -> list[str]:
        """What was to be read and was not, or was lost without a word."""
        generation = self.present
        found = []
        for name, first, last in self._extent(generation):
            segment = self._segments[name]
            for event in segment.between(first, last):
                fate = generation.fates.get(event.number)
                if fate is not None and fate.done is not None:
                    continue
                if not segment.is_truncated(event):
                    found.append(f"{event} of {name} is not processed")
                elif name not in generation.told:
                    found.append(f"{event} of {name} was truncated, and nobody was told")
        return found

    def _extent(self, generation: Generation) -> list[tuple[str, Position, Position]]:
        """Segment, from where and to where it is to be read."""
        found = []
        for name, segment in self._segments.items():
            first = generation.start.get(name)
            if first == FUTURE or (first is None and self._is_after_start(segment, generation)):
                first = Position(0)
            last = self._end_of(segment)
            if first is not None and last is not None:
                found.append((name, first, last))
        return found

    def _end_of(self, segment: SimSegment) -> Position | None:
        """To where it is to be read; None: it lies behind the end of its stream's reading.

        Of all segments of the end that have some key, that stream ends in the oldest.
        """
        ends = {end.name: end.offset for end in self._state.ends}
        named = [each for each in self._segments.values() if each.name in ends]
        here = [each for each in named if each.stream == segment.stream]
        if not here:
            return segment.end
        last = min(
            (each for each in here if segment.cells.start in each.cells),
            key=lambda each: each.segment_id,
        )
        if last is segment and ends[last.name] != FUTURE.offset:
            return Position(ends[last.name])
        return segment.end if last.segment_id > segment.segment_id else None
