"""Says whether what happened to tables is right; a part of the referee (`control_referee`).

It keeps a small model of its own: the lives of tables and their table segments. An event that says
that something is done is right only where the stores show it, and nothing is done in a store that
no stored event asks for; in the end every partition is as the state of its table says.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.common.model.names import (
    ScopeName,
    SegmentId,
    SegmentKind,
    segment_kind,
    segment_name,
)
from anabranch.common.model.table import TableRef
from anabranch.common.tier2.state import SegmentState
from anabranch.controller.domain.kv_table import events
from anabranch.controller.domain.kv_table.events import TableEvent
from anabranch.segstore.domain.container.decide import Known
from anabranch.segstore.domain.container.operations import (
    CreateOperation,
    DeleteOperation,
    SealOperation,
)
from kit.sim_segments import ControlOperation


@dataclass(slots=True)
class TableLife:
    """One incarnation of a table."""

    ref: TableRef
    incarnation: int
    scope_incarnation: int
    partitions: tuple[str, ...]
    commands: list[str]
    status: str = "creating"
    joined: bool = False
    is_to_be_sealed: bool = False

    @property
    def is_over(self) -> bool:
        return self.status in ("deleted", "failed")


def is_of_table(segment: str) -> bool:
    """Whether the segment is a partition of a table."""
    return segment_kind(segment) is SegmentKind.TABLE


@dataclass(slots=True)
class TableReferee:
    """`require` notes what is wrong, `accept` that a command was accepted; `lives_in(scope,
    incarnation)`: whether that life of a scope is not over; `segments`: what the stores have."""

    require: Callable[[bool, str], None]
    accept: Callable[[str], None]
    lives_in: Callable[[str, int], bool]
    segments: Mapping[str, Known]
    lives: dict[str, list[TableLife]] = field(default_factory=dict)
    owners: dict[str, TableLife] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)

    # --- what is stored -------------------------------------------------------------------------

    def event(self, subject: str, event: TableEvent) -> None:
        """A table's event was stored."""
        if isinstance(event, events.TableCreating):
            self._creating(subject, event)
            return
        life = self.lives[subject][-1]
        match event:
            case events.TableJoinedScope():
                open_to_it = self.lives_in(life.ref.scope, life.scope_incarnation)
                self.require(open_to_it, f"{life.ref} joined a dead scope")
                life.joined = True
            case events.TableConfigUpdated() | events.TableCommandSatisfied():
                self.accept(event.command_id)
            case events.TableSealing():
                self._begin(life, "sealing", event.command_id)
                life.is_to_be_sealed = True
            case events.TableDeleting():
                self._begin(life, "deleting", event.command_id)
            case events.TableIntentJoined():
                self.accept(event.command_id)
                pending = life.status in ("sealing", "deleting")
                self.require(pending, f"{life.ref}: joins what is not pending")
                life.commands.append(event.command_id)
            case _:
                self._done(life, event)

    def _creating(self, subject: str, event: events.TableCreating) -> None:
        ref = TableRef(ScopeName(event.scope), event.table)
        lives = self.lives.setdefault(subject, [])
        if lives:
            self.require(lives[-1].is_over, f"{ref} is created while it lives")
            self.require(event.incarnation == lives[-1].incarnation + 1, f"{ref}: incarnation")
        names = tuple(segment_name(ref.segments, SegmentId(p.segment_id)) for p in event.partitions)
        self.require(not set(names) & set(self.owners), f"{ref}: segments are used again")
        self.accept(event.command_id)
        life = TableLife(ref, event.incarnation, event.scope_incarnation, names, [event.command_id])
        lives.append(life)
        self.owners.update(dict.fromkeys(names, life))

    def _begin(self, life: TableLife, status: str, command_id: str) -> None:
        self.accept(command_id)
        life.status, life.commands = status, [command_id]

    def _done(self, life: TableLife, event: TableEvent) -> None:
        """An event that says that something was done in the stores, or never will be."""
        match event:
            case events.TableCreated():
                self._all(life, is_live=True, is_sealed=False)
                life.status = "active"
            case events.TableSealed():
                self._all(life, is_live=True, is_sealed=True)
                life.status = "sealed"
            case events.TableDeleted():
                self._all(life, is_live=False)
                life.status = "deleted"
            case _:
                life.status = "failed"
        life.commands = []

    def _all(self, life: TableLife, *, is_live: bool, is_sealed: bool | None = None) -> None:
        for name in life.partitions:
            known = self.segments.get(name)
            right = isinstance(known, SegmentState) == is_live
            if isinstance(known, SegmentState) and is_sealed is not None:
                right = right and known.sealed == is_sealed
            self.require(right, f"{life.ref}: {name} is {known}")

    # --- what is done in the stores -------------------------------------------------------------

    def performed(self, operation: ControlOperation, before: Known) -> None:
        """A store changed a partition."""
        name = operation.segment
        life = self.owners.get(name)
        if life is None:
            self.require(False, f"{name} is touched, and was never planned")
            return
        match operation:
            case CreateOperation():
                self.require(name not in self.made, f"{name} is made twice")
                self.require(not life.is_over, f"{name} is made after its table's end")
                self.made.add(name)
            case SealOperation():
                sealed = isinstance(before, SegmentState) and before.sealed
                self.require(sealed or life.is_to_be_sealed, f"{name} is sealed, and nobody asked")
            case DeleteOperation():
                due = life.is_over or life.status == "deleting"
                self.require(due, f"{name} is deleted, and nobody asked")
            case _:
                self.require(False, f"{name} is changed as no partition is")

    # --- looking --------------------------------------------------------------------------------

    def running(self, subject: str) -> set[str]:
        """The commands that a table has accepted and not yet ended."""
        return {command for life in self.lives.get(subject, ()) for command in life.commands}

    def inside(self, scope: str, incarnation: int) -> list[str]:
        """The tables that have joined this life of a scope, and live."""
        return [
            str(life.ref)
            for life in self._each()
            if not life.is_over
            and life.joined
            and (life.ref.scope, life.scope_incarnation) == (scope, incarnation)
        ]

    def at_rest(self, open_scopes: Mapping[str, int]) -> None:
        """Note everything that is not as it must be when nothing is left to do."""
        for life in self._each():
            legal = ("active", "sealed", "deleted", "failed")
            self.require(life.status in legal, f"{life.ref} is left in {life.status}")
            if life.is_over:
                self._all(life, is_live=False)
                continue
            lives_in = open_scopes.get(life.ref.scope)
            self.require(lives_in == life.scope_incarnation, f"{life.ref} lives in a dead scope")
            self._all(life, is_live=True, is_sealed=life.status == "sealed")

    def _each(self) -> Iterable[TableLife]:
        return (life for lives in self.lives.values() for life in lives)
