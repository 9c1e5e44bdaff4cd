"""Says whether what happened to reader groups is right; a part of the referee (`control_referee`).

It keeps a small model of its own: the lives of groups, which streams live, and who subscribes to
them. An event that says that something is done is right only where the model shows it; in the end
nobody subscribes but who is to, and every state stream has a group.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from anabranch.common.model.names import ScopeName, StreamRef, is_internal
from anabranch.common.model.reader_group import (
    STATE_STREAM_PREFIX,
    GroupRef,
    GroupRetention,
    ReaderGroupConfig,
)
from anabranch.controller.domain.reader_group import events
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.stream import events as stream_events

Standing = tuple[int, int]
SubscriberEvent = (
    stream_events.StreamSubscriberAdded
    | stream_events.StreamSubscriberRemoved
    | stream_events.StreamSubscriberReleased
)


class StreamLife(Protocol):
    """What is looked at of the referee's model of a stream."""

    ref: StreamRef
    status: str

    @property
    def is_over(self) -> bool: ...


@dataclass(slots=True)
class GroupLife:
    """One incarnation of a group. `streams`: the lives that it was to subscribe to."""

    ref: GroupRef
    incarnation: int
    scope_incarnation: int
    generation: int = 0
    wanted: tuple[str, ...] = ()
    status: str = "creating"
    joined: bool = False
    commands: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return self.status in ("deleted", "failed")

    @property
    def standing(self) -> Standing:
        return self.incarnation, self.generation


class GroupReferee:
    """`require` notes what is wrong, `accept` that a command was accepted; `present` finds the last
    life of a stream."""

    def __init__(
        self,
        require: Callable[[bool, str], None],
        accept: Callable[[str], None],
        present: Callable[[StreamRef], StreamLife | None],
    ) -> None:
        self._require = require
        self._accept = accept
        self._present = present
        self._lives: dict[str, list[GroupLife]] = {}
        self._subscribers: dict[str, dict[str, Standing]] = {}
        """By stream, of its present life."""

    # --- what is stored -------------------------------------------------------------------------

    def begins(self, ref: StreamRef) -> None:
        """A stream begins a life."""
        self._subscribers[str(ref)] = {}

    def subscribed(self, ref: StreamRef, event: SubscriberEvent) -> None:
        """A stream's event about subscribers was stored."""
        self._accept(event.command_id)
        known = self._subscribers[str(ref)]
        match event:
            case stream_events.StreamSubscriberAdded():
                standing = (event.group_incarnation, event.generation)
                older = known.get(event.subscriber, (0, 0)) < standing
                self._require(older, f"{event.subscriber} goes back at {ref}")
                known[event.subscriber] = standing
            case stream_events.StreamSubscriberRemoved():
                known.pop(event.subscriber, None)
            case stream_events.StreamSubscriberReleased():
                self._require(event.subscriber in known, f"{event.subscriber} is not at {ref}")

    def event(self, subject: str, event: GroupEvent) -> None:
        """A group's event was stored."""
        if isinstance(event, events.GroupCreating):
            self._creating(subject, event)
            return
        life = self._lives[subject][-1]
        match event:
            case events.GroupResetting():
                self._accept(event.command_id)
                self._require(event.generation == life.generation + 1, f"{life.ref}: generation")
                life.generation, life.wanted = event.generation, _wanted(event.config)
                life.status, life.commands = "resetting", [event.command_id]
            case events.GroupDeleting():
                self._accept(event.command_id)
                life.status, life.commands = "deleting", [event.command_id]
            case events.GroupIntentJoined():
                self._accept(event.command_id)
                self._require(life.status == "deleting", f"{life.ref}: joins what is not pending")
                life.commands.append(event.command_id)
            case events.GroupJoinedScope():
                life.joined = True
            case _:
                self._done(life, event)

    def _creating(self, subject: str, event: events.GroupCreating) -> None:
        ref = GroupRef(ScopeName(event.scope), event.group)
        lives = self._lives.setdefault(subject, [])
        if lives:
            self._require(lives[-1].is_over, f"{ref} is created while it lives")
            self._require(event.incarnation == lives[-1].incarnation + 1, f"{ref}: incarnation")
        self._accept(event.command_id)
        life = GroupLife(ref, event.incarnation, event.scope_incarnation)
        life.wanted, life.commands = _wanted(event.config), [event.command_id]
        lives.append(life)

    def _done(self, life: GroupLife, event: GroupEvent) -> None:
        state = self._present(life.ref.state_stream)
        match event:
            case events.GroupStateMade():
                made = state is not None and state.status == "active"
                self._require(made, f"{life.ref}: its state stream is said to be made")
            case events.GroupCreated() | events.GroupReset():
                self._all_know(life)
                life.status, life.commands = "active", []
            case events.GroupUnsubscribed():
                at = [name for name, known in self._subscribers.items() if str(life.ref) in known]
                left = [name for name in at if self._lives_on(name)]
                self._require(not left, f"{life.ref} still subscribes to {left}")
            case events.GroupDeleted():
                gone = state is None or state.is_over
                self._require(gone, f"{life.ref} is deleted before its state stream")
                life.status, life.commands = "deleted", []
            case events.GroupCreateFailed():
                life.status, life.commands = "failed", []
            case _:
                pass

    def _all_know(self, life: GroupLife) -> None:
        for name in life.wanted:
            known = self._subscribers.get(name, {})
            if self._lives_on(name):
                self._require(
                    known.get(str(life.ref)) == life.standing, f"{life.ref}: not at {name}"
                )

    def _lives_on(self, name: str) -> bool:
        scope, _, stream = name.partition("/")
        life = self._present(StreamRef(ScopeName(scope), stream))  # type: ignore[arg-type]
        return life is not None and not life.is_over and life.status != "deleting"

    # --- looking --------------------------------------------------------------------------------

    def running(self, subject: str) -> set[str]:
        """The commands that a group has accepted and not yet ended."""
        return {command for life in self._lives.get(subject, ()) for command in life.commands}

    def inside(self, scope: str, incarnation: int) -> list[str]:
        """The groups that have joined this life of a scope, and live."""
        return [
            str(life.ref)
            for life in self._all()
            if not life.is_over
            and life.joined
            and (life.ref.scope, life.scope_incarnation) == (scope, incarnation)
        ]

    def at_rest(self, streams: Iterable[StreamLife], open_scopes: Mapping[str, int]) -> None:
        """Note everything that is not as it must be when nothing is left to do."""
        active = {}
        for life in self._all():
            legal = ("active", "deleted", "failed")
            self._require(life.status in legal, f"{life.ref} is left in {life.status}")
            if life.is_over:
                continue
            active[str(life.ref)] = life
            lives_in = open_scopes.get(life.ref.scope)
            self._require(lives_in == life.scope_incarnation, f"{life.ref} lives in a dead scope")
            state = self._present(life.ref.state_stream)
            made = state is not None and state.status == "active"
            self._require(made, f"{life.ref} has no state stream")
        for stream in streams:
            self._stream_rests(stream, active)

    def _stream_rests(self, stream: StreamLife, active: Mapping[str, GroupLife]) -> None:
        if stream.is_over:
            return
        if is_internal(stream.ref.stream):
            group = f"{stream.ref.scope}/{stream.ref.stream.removeprefix(STATE_STREAM_PREFIX)}"
            self._require(group in active, f"{stream.ref} belongs to no group")
        for name, standing in self._subscribers[str(stream.ref)].items():
            life = active.get(name)
            right = (
                life is not None and life.standing == standing and str(stream.ref) in life.wanted
            )
            self._require(right, f"{name} still subscribes to {stream.ref}")

    def _all(self) -> Iterable[GroupLife]:
        return (life for lives in self._lives.values() for life in lives)


def _wanted(config: ReaderGroupConfig) -> tuple[str, ...]:
    if config.retention is GroupRetention.NONE:
        return ()
    return tuple(each.stream for each in config.streams)
