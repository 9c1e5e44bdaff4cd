"""Known bugs of reader groups, planted on purpose: the simulation must find each of them.

Each is a context manager under which readers behave as if one line were missing or wrong.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from anabranch.client.groups import apply, balance, checkpoints, liveness, member, succession
from anabranch.client.groups import updates as u
from anabranch.client.groups.ledger import Ledger
from anabranch.client.groups.member import GroupMember
from anabranch.client.groups.reading import GroupReading
from anabranch.client.groups.state import GroupSegment, ReaderGroupState
from anabranch.client.reading.frontier import FUTURE, Position
from anabranch.client.reading.intake import SegmentEnd

Planted = Callable[[], AbstractContextManager[object]]


def lease_never_checked() -> AbstractContextManager[object]:
    """A reader hands out whatever its lease says."""
    return patch.object(GroupMember, "valid_until_s", float("inf"))


def no_margin() -> AbstractContextManager[object]:
    """A lease lasts as long for who has it as for who waits for its end."""
    return patch.object(liveness, "MARGIN_SHARE", 0.0)


@contextmanager
def lost_without_the_beat() -> Iterator[None]:
    """A reader is taken for lost though it gave another sign of life."""
    real = apply.apply

    def applied(state: ReaderGroupState, update: u.AnyUpdate) -> ReaderGroupState:
        if isinstance(update, u.Lost) and update.reader_id in state.readers:
            update = u.Lost(
                reader_id=update.reader_id,
                nonce=update.nonce,
                beat=state.readers[update.reader_id].beat,
            )
        return real(state, update)

    with (
        patch.object(apply, "apply", applied),
        patch.object(member, "is_still", lambda state, lost: lost.reader_id in state.readers),
    ):
        yield


def nonce_not_checked() -> AbstractContextManager[object]:
    """What a reader says counts, whoever has its id by now."""
    return patch.object(
        ReaderGroupState, "is_online", lambda self, reader_id, *_: reader_id in self.readers
    )


def taken_from_others() -> AbstractContextManager[object]:
    """Who asks for a segment gets it, though another has it."""
    return patch.object(
        GroupSegment,
        "is_unassigned",
        property(lambda self: not self.is_finished and self.position != FUTURE),
    )


def completed_before_processed() -> AbstractContextManager[object]:
    """A segment is said to be finished when its last event is given."""
    return patch.object(Ledger, "is_processed", lambda *_: True)


def saved_when_given() -> AbstractContextManager[object]:
    """What is given counts as processed at once."""
    real = Ledger.give

    def give(self: Ledger, segment: str, behind: Position, in_hand: Position | None) -> None:
        real(self, segment, behind, in_hand)
        self.holdings[segment].processed = behind

    return patch.object(Ledger, "give", give)


def released_without_dropping() -> AbstractContextManager[object]:
    """What was read ahead of a segment that is given up is handed out all the same."""
    return patch.object(GroupReading, "_stop_giving", lambda *_: None)


def successor_after_one() -> AbstractContextManager[object]:
    """A successor is opened after the first of its predecessors."""
    return patch.object(succession, "_before", lambda *_: [])


def positions_not_given_on() -> AbstractContextManager[object]:
    """A segment is read from its start again when it changes hands."""
    real = GroupReading.gained

    def gained(self: GroupReading, segment: GroupSegment) -> None:
        real(self, replace(segment, position=Position(0)))

    return patch.object(GroupReading, "gained", gained)


def read_from_the_next_block() -> AbstractContextManager[object]:
    """The rest of a block that was given in part is skipped when its segment changes hands."""
    real = GroupReading.gained

    def gained(self: GroupReading, segment: GroupSegment) -> None:
        at = segment.position
        real(self, segment)
        if at.event_index:
            batch = self._source._segments[segment.name]  # type: ignore[attr-defined]
            behind = next(b.next_offset for b in batch.blocks if b.offset == at.offset)
            self._source.drop(segment.name)
            self._source.open(segment.name, Position(behind), segment.end_offset)

    return patch.object(GroupReading, "gained", gained)


def never_saved() -> AbstractContextManager[object]:
    """Beats save nothing."""
    return patch.object(GroupReading, "news", lambda *_: ())


def said_once() -> AbstractContextManager[object]:
    """What could not be appended is forgotten."""

    async def append(self: GroupMember, updates: Any) -> None:
        with contextlib.suppress(Exception):
            await self._log.append(updates)

    return patch.object(GroupMember, "_append", append)


def forgotten_on_leaving() -> AbstractContextManager[object]:
    """What is being appended when a reader leaves is not said again."""
    real = GroupMember.leave

    async def leave(self: GroupMember, saved: tuple[u.Saved, ...]) -> None:
        self._saying = []
        await real(self, saved)

    return patch.object(GroupMember, "leave", leave)


@contextmanager
def acquired_before_checkpoint() -> Iterator[None]:
    """A reader that a checkpoint waits for may take more segments."""
    real_acquired, real_share = apply._acquired, GroupMember.share

    def acquired(state: ReaderGroupState, update: u.Acquired) -> ReaderGroupState:
        with patch.object(ReaderGroupState, "due_checkpoint", lambda *_: None):
            return real_acquired(state, update)

    def share(self: GroupMember) -> None:
        with patch.object(ReaderGroupState, "due_checkpoint", lambda *_: None):
            real_share(self)

    with (
        patch.object(apply, "_acquired", acquired),
        patch.object(GroupMember, "share", share),
    ):
        yield


def checkpoint_not_noted() -> AbstractContextManager[object]:
    """What a reader gives up before it reaches a checkpoint is not in it."""
    return patch.object(checkpoints, "noted", lambda state, *_: state)


def checkpoint_passed() -> AbstractContextManager[object]:
    """A reader is told of a checkpoint, goes on, and says where it stands by then."""
    real = GroupReading._do_what_is_due

    async def do(self: GroupReading) -> None:
        due = self._due
        if due is not None and due.kind == "user" and self._on_checkpoint is not None:
            if getattr(self, "_told", 0) < due.number:
                self._told = due.number  # type: ignore[attr-defined]
                self._left = 2  # type: ignore[attr-defined]
                await self._on_checkpoint(due.name)
            if self._left > 0:  # type: ignore[attr-defined]
                self._left -= 1  # type: ignore[attr-defined]
                self._is_due = False
                return
            told, self._on_checkpoint = self._on_checkpoint, None
            await real(self)
            self._on_checkpoint = told
            return
        await real(self)

    return patch.object(GroupReading, "_do_what_is_due", do)


def reached_too_late_counts() -> AbstractContextManager[object]:
    """A reader that is gone may complete a checkpoint, by where it stood."""
    real = checkpoints.reached

    def reached(state: ReaderGroupState, name: str, reader_id: str) -> ReaderGroupState:
        checkpoint = state.checkpoint(name)
        if checkpoint is None:
            return state
        changed = replace(checkpoint, waiting={}, positions=dict(checkpoint.positions))
        return real(checkpoints._with_checkpoint(state, changed), name, reader_id)

    return patch.object(checkpoints, "reached", reached)


def ownership_not_grown() -> AbstractContextManager[object]:
    """A reset begins to count ownerships again."""
    return patch.object(ReaderGroupState, "after", lambda self, *_: self)


def lost_never_said() -> AbstractContextManager[object]:
    """Nobody takes over for who is lost."""

    async def remove(self: GroupMember) -> None:
        return

    return patch.object(GroupMember, "_remove_silent", remove)


def never_levelled() -> AbstractContextManager[object]:
    """Who has too much keeps it."""
    return patch.object(balance, "_level", lambda *_: None)


def ends_not_followed() -> AbstractContextManager[object]:
    """Nothing follows a segment's end."""
    real = GroupReading._ended

    def ended(self: GroupReading, end: SegmentEnd) -> None:
        real(self, SegmentEnd(end.segment, (), end.reached_end_offset))

    return patch.object(GroupReading, "_ended", ended)


@contextmanager
def ends_not_heeded() -> Iterator[None]:
    """A bounded stream is read beyond its end."""
    with (
        patch.object(succession, "within_end", lambda *_: True),
        patch.object(apply, "within_end", lambda *_: True),
    ):
        yield


def reset_not_seen() -> AbstractContextManager[object]:
    """A reader does not look at its group's generation, and believes to be online."""
    real = GroupMember._conclude

    def conclude(self: GroupMember) -> None:
        self._generation = (self.state.incarnation, self.state.generation)
        if self.state.is_online(self.reader_id, self._nonce):
            real(self)
        else:
            self._lease.valid_until_s = self._clock.monotonic() + self._lease.lease_s

    return patch.object(GroupMember, "_conclude", conclude)


def asked_without_processing() -> AbstractContextManager[object]:
    """With explicit acknowledgements, asking counts as one too."""
    real = Ledger.asked

    def asked(self: Ledger) -> None:
        explicit, self.explicit = self.explicit, False
        real(self)
        self.explicit = explicit

    return patch.object(Ledger, "asked", asked)


GROUP_BUGS: Mapping[str, Planted] = {
    "lease never checked": lease_never_checked,
    "no margin": no_margin,
    "lost without the beat": lost_without_the_beat,
    "nonce not checked": nonce_not_checked,
    "taken from others": taken_from_others,
    "completed before processed": completed_before_processed,
    "saved when given": saved_when_given,
    "released without dropping": released_without_dropping,
    "successor after one": successor_after_one,
    "positions not given on": positions_not_given_on,
    "read from the next block": read_from_the_next_block,
    "never saved": never_saved,
    "said once": said_once,
    "forgotten on leaving": forgotten_on_leaving,
    "acquired before checkpoint": acquired_before_checkpoint,
    "checkpoint not noted": checkpoint_not_noted,
    "checkpoint passed": checkpoint_passed,
    "reached too late counts": reached_too_late_counts,
    "ownership not grown": ownership_not_grown,
    "lost never said": lost_never_said,
    "never levelled": never_levelled,
    "ends not followed": ends_not_followed,
    "ends not heeded": ends_not_heeded,
    "reset not seen": reset_not_seen,
    "asked without processing": asked_without_processing,
}
