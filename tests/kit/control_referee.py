"""Says whether what the controllers stored and did is right; knows none of their states.

It is told of every stored domain event and of every operation of a segment store in the order in
which they happened, keeps a small model of its own, and notes what contradicts it:

* an event that ends a work is stored only after the stores have done all of it, and once;
* nothing is done in a store that no stored event asks for at that moment: no segment is made for a
  stream that is gone or was never to be, none is sealed before its successors are told of;
* a command is accepted once, and whoever joins wants the same as those he joins;
* which operations run is what the aggregate's own state says after every event;
* a stream joins only a scope that is not deleted, and no scope is deleted around a joined stream;
* what is said of reader groups is as `control_groups` says, of key-value tables as
  `control_tables` says, and of transactions as `transaction_referee` says.

`at_rest` looks at the end: every stream in one legal state, every segment as that state says.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.common.contracts.commands import (
    Command,
    ScaleStream,
    TruncateStream,
    UpdateStream,
)
from anabranch.common.contracts.subjects import stream_events as stream_subject
from anabranch.common.model.names import (
    ScopeName,
    SegmentId,
    StreamName,
    StreamRef,
    segment_name,
    transaction_segment,
)
from anabranch.common.model.stream import StreamConfig
from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain.scope import state as scope_events
from anabranch.controller.domain.scope.state import ScopeEvent
from anabranch.controller.domain.stream import events
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.segstore.domain.container.decide import Known
from anabranch.segstore.domain.container.operations import (
    CreateOperation,
    DeleteOperation,
    MergeOperation,
    SealOperation,
    TruncateOperation,
)
from kit.control_groups import GroupReferee
from kit.control_lives import (
    COMMIT,
    CREATE,
    DELETE,
    SCALE,
    SEAL,
    TRUNCATE,
    UPDATE,
    Life,
    Work,
    bounds_of,
    gone_before,
    may_be_sealed,
    name_in,
    next_epoch,
    plan_roll,
    roll,
)
from kit.control_looks import Looks
from kit.control_tables import TableReferee, is_of_table
from kit.sim_segments import ControlOperation, SimSegments
from kit.transaction_referee import TransactionReferee
from kit.watermark_segments import WatermarkSegments, is_of_watermarks


@dataclass(slots=True)
class Name:
    """What was seen of a scope."""

    incarnation: int = 0
    status: str = ""
    commands: list[str] = field(default_factory=list)


class Referee:
    """See the module. `wrong`: what was found, in words; `accepted`: ids of commands."""

    def __init__(self, segments: SimSegments, sent: Mapping[str, Command], clock: Clock) -> None:
        self.wrong: list[str] = []
        self._segments: Mapping[str, Known] = segments.known
        self._look = Looks(self._require, segments)
        self._sent = sent
        self._lives: dict[str, list[Life]] = {}
        self._owners: dict[str, Life] = {}
        self._scopes: dict[str, Name] = {}
        self.accepted: set[str] = set()
        self._made: set[str] = set()
        self.groups = GroupReferee(self._require, self._accept, self._present)
        self.tables = TableReferee(self._require, self._accept, self._lives_in, self._segments)
        self.transactions = TransactionReferee(self._require, self._lives, segments, clock)
        self._watermarks = WatermarkSegments(self._require, self._lives, self._segments)

    # --- what is stored -------------------------------------------------------------------------

    def scope_event(self, subject: str, event: ScopeEvent) -> None:
        """A scope's event was stored."""
        name = subject.split(".")[4]
        scope = self._scopes.setdefault(name, Name())
        match event:
            case scope_events.ScopeCreated():
                self._accept(event.command_id)
                scope.incarnation, scope.status = event.incarnation, "active"
            case scope_events.ScopeDeleting():
                self._accept(event.command_id)
                scope.status, scope.commands = "deleting", [event.command_id]
            case scope_events.ScopeIntentJoined():
                self._accept(event.command_id)
                scope.commands.append(event.command_id)
            case scope_events.ScopeReopened():
                scope.status, scope.commands = "active", []
            case scope_events.ScopeDeleted():
                scope.status, scope.commands = "deleted", []
                inside = [
                    str(life.ref) for life in self._living(name, scope.incarnation) if life.joined
                ]
                inside += self.groups.inside(name, scope.incarnation)
                inside += self.tables.inside(name, scope.incarnation)
                self._require(not inside, f"scope {name} is deleted around {inside}")

    def stream_event(self, subject: str, event: StreamEvent) -> None:
        """A stream's event was stored."""
        if isinstance(event, events.StreamCreating):
            self._creating(subject, event)
            return
        life = self._lives[subject][-1]
        self.transactions.stream_event(life, event)
        match event:
            case events.StreamJoinedScope():
                open_to_it = self._lives_in(life.ref.scope, life.scope_incarnation)
                self._require(open_to_it, f"{life.ref} joined a dead scope")
                life.joined = True
            case events.StreamUpdating() | events.StreamUpdateApplied() | events.StreamScaling():
                self._reshaping(life, event)
            case events.StreamTruncating():
                self._accept(event.command_id)
                cut = {name_in(life, place.segment_id): place.offset for place in event.cut}
                life.works[TRUNCATE] = Work([event.command_id], cut=cut)
            case events.StreamReleasing():
                self._require(TRUNCATE not in life.works, f"{life.ref}: truncated twice at once")
                cut = {name_in(life, place.segment_id): place.offset for place in event.cut}
                life.works[TRUNCATE] = Work([], cut=cut)
            case events.StreamSealing():
                self._begin(life, SEAL, event.command_id)
            case events.StreamDeleting():
                self._begin(life, DELETE, event.command_id)
            case events.StreamIntentJoined():
                self._joined(life, event)
            case events.StreamUpdated() if not event.then_scales:
                self._accept(event.command_id)
            case events.StreamCommandSatisfied():
                self._accept(event.command_id)
            case (
                events.StreamSubscriberAdded()
                | events.StreamSubscriberRemoved()
                | events.StreamSubscriberReleased()
            ):
                self.groups.subscribed(life.ref, event)
            case _:
                self._done(life, event)
        self._owners.update(dict.fromkeys(plan_roll(life), life))

    def _creating(self, subject: str, event: events.StreamCreating) -> None:
        lives = self._lives.setdefault(subject, [])
        ref = StreamRef(ScopeName(event.scope), StreamName(event.stream))
        self.groups.begins(ref)
        if lives:
            self._require(lives[-1].is_over, f"{ref} is created while it lives")
            self._require(event.incarnation == lives[-1].incarnation + 1, f"{ref}: incarnation")
        keys = {
            segment_name(ref, SegmentId(s.segment_id)): (s.key_start, s.key_end)
            for s in event.segments
        }
        names = list(keys)
        self._require(not set(names) & set(self._owners), f"{ref}: segments are used again")
        life = Life(ref, event.incarnation, event.scope_incarnation, names, keys)
        lives.append(life)
        self._owners.update(dict.fromkeys(names, life))
        self._accept(event.command_id)
        next_epoch(life, names)
        life.works[CREATE] = Work([event.command_id], created=tuple(names))

    def _reshaping(
        self,
        life: Life,
        event: events.StreamUpdating | events.StreamUpdateApplied | events.StreamScaling,
    ) -> None:
        match event:
            case events.StreamScaling():
                self._accept(event.command_id)
                life.works[SCALE] = self._scaling(life, event, [event.command_id])
            case events.StreamUpdating():
                self._begin(life, UPDATE, event.command_id)
                self._require(SCALE in life.works, f"{life.ref}: an update waits for nothing")
            case events.StreamUpdateApplied():
                self._require(next(iter(life.works), "") == UPDATE, f"{life.ref}: it overtakes")
                work = self._end(life, UPDATE)
                if event.created:
                    scale = self._scaling(life, event, work.commands)
                    life.works = {SCALE: scale, **life.works}

    def _scaling(
        self,
        life: Life,
        event: events.StreamScaling | events.StreamUpdateApplied,
        commands: list[str],
    ) -> Work:
        created = tuple(name_in(life, s.segment_id) for s in event.created)
        self._require(not set(created) & set(self._owners), f"{life.ref}: segments used again")
        self._owners.update(dict.fromkeys(created, life))
        life.planned.update(zip(created, bounds_of(event.created), strict=True))
        sealed = tuple(name_in(life, segment) for segment in event.sealed)
        self._require(set(sealed) <= set(life.current), f"{life.ref}: seals what is not current")
        return Work(commands, sealed=sealed, created=created, ranges=bounds_of(event.created))

    def _begin(self, life: Life, kind: str, command_id: str) -> None:
        self._accept(command_id)
        self._require(kind not in life.works, f"{life.ref}: {kind} is accepted twice")
        life.works[kind] = Work([command_id])
        if kind == DELETE:
            life.status = "deleting"
            life.works.pop(CREATE, None)

    def _joined(self, life: Life, event: events.StreamIntentJoined) -> None:
        self._accept(event.command_id)
        work = life.works.get(event.intent)
        if work is None:
            self.wrong.append(f"{life.ref}: joins a {event.intent} that is not pending")
            return
        work.commands.append(event.command_id)
        match self._sent.get(event.command_id):
            case ScaleStream(seal=seal, new_ranges=ranges):
                wanted = {name_in(life, segment) for segment in seal}
                bounds = tuple((new.key_start, new.key_end) for new in ranges)
                same = (wanted, bounds) == (set(work.sealed), work.ranges)
                self._require(same, f"{life.ref}: joins a scale that is another one")
            case UpdateStream(config=config):
                same = event.intent == SCALE or config == self._config_of(work)
                self._require(same, f"{life.ref}: joins another update")
            case TruncateStream(cut=cut):
                wanted_cut = {name_in(life, place.segment_id): place.offset for place in cut}
                self._require(wanted_cut == work.cut, f"{life.ref}: joins another truncation")

    def _config_of(self, update: Work) -> StreamConfig | None:
        asked = self._sent.get(update.commands[0])
        return asked.config if isinstance(asked, UpdateStream) else None

    def _done(self, life: Life, event: StreamEvent) -> None:
        """An event that says that something was done in the stores."""
        match event:
            case events.StreamCreateFailed():
                life.works.pop(CREATE, None)
                life.status = "failed"
            case events.StreamCreated():
                self._end(life, CREATE)
                self._look.all_live(life, life.current)
                life.status = "active"
            case events.StreamSuccessorsMade():
                work = life.works[SCALE]
                work.is_told = True
                self._look.all_live(life, work.created)
            case events.StreamScaled():
                work = self._end(life, SCALE)
                self._look.all_sealed(life, work.sealed, event.sizes)
                stay = [name for name in life.current if name not in work.sealed]
                life.current = sorted([*stay, *work.created], key=life.planned.__getitem__)
                next_epoch(life, life.current)
                life.sealed_in.update(dict.fromkeys(work.sealed, life.epoch))
                life.made_in.update(dict.fromkeys(work.created, life.epoch))
            case events.StreamCutChecked():
                life.works[TRUNCATE].is_checked = True
                if event.cut:
                    cut = {name_in(life, place.segment_id): place.offset for place in event.cut}
                    life.works[TRUNCATE].cut = cut
                self._look.truncatable(life, life.works[TRUNCATE].cut)
            case events.StreamTruncated():
                work = self._end(life, TRUNCATE)
                self._look.all_deleted(life, gone_before(life, work.cut))
                life.gone.update(gone_before(life, work.cut))
                life.starts.update(work.cut)
            case events.StreamTruncateFailed():
                self._end(life, TRUNCATE)
                self._look.unchanged(life, self._made)
            case events.StreamSealed():
                self._end(life, SEAL)
                self._look.all_sealed(life, life.current, event.lengths)
                life.status = "sealed"
            case events.StreamDeleted():
                self._end(life, DELETE)
                self._look.all_deleted(life, life.planned)
                life.gone.update(life.planned)
                life.status = "deleted"
            case _:
                self._commits(life, event)

    def _commits(self, life: Life, event: StreamEvent) -> None:
        """An event of a batch of transactions, or of a roll."""
        match event:
            case events.StreamCommitStarted():
                batch, reference = event.transactions, event.reference_epoch
                life.works[COMMIT] = Work([], batch=batch, reference=reference)
            case events.StreamRollMade():
                work = life.works[COMMIT]
                work.is_told = True
                told = tuple(name_in(life, s.segment_id) for s in (*event.taken, *event.renewed))
                self._require(told == (*work.created, *work.renewed), f"{life.ref}: rolls wrongly")
                self._look.all_live(life, told)
                self._look.all_sealed(life, work.created, event.lengths)
            case events.StreamRolled():
                work = life.works[COMMIT]
                self._look.all_sealed(life, life.current, event.sizes)
                roll(life, work)
                self._owners.update(dict.fromkeys(life.planned, life))
            case events.StreamCommitFinished():
                self._end(life, COMMIT)
            case events.StreamDrained():
                self._require(COMMIT not in life.works, f"{life.ref}: drained around a batch")
                life.is_drained = True
            case _:
                pass

    def _end(self, life: Life, kind: str) -> Work:
        work = life.works.pop(kind, None)
        self._require(work is not None, f"{life.ref}: ends a {kind} that nobody asked for")
        return work if work is not None else Work([])

    def _accept(self, command_id: str) -> None:
        self._require(command_id not in self.accepted, f"{command_id} is accepted twice")
        self.accepted.add(command_id)

    # --- what is done in the stores -------------------------------------------------------------

    def performed(self, operation: ControlOperation, before: Known) -> None:
        """A store changed something."""
        name = operation.segment
        if transaction_segment(name) is not None:
            self.transactions.performed(operation)
            return
        if is_of_watermarks(name):
            self._watermarks.performed(operation)
            return
        if is_of_table(name):
            self.tables.performed(operation, before)
            return
        life = self._owners.get(name)
        if life is None:
            self.wrong.append(f"{name} is touched, and was never planned")
            return
        match operation:
            case CreateOperation():
                self._require(name not in self._made, f"{name} is made twice")
                self._require(not life.is_over, f"{name} is made after its stream's end")
                self._made.add(name)
            case SealOperation():
                self._require(may_be_sealed(life, name, before), f"{name} is sealed too soon")
            case DeleteOperation():
                truncation = life.works.get(TRUNCATE, Work([]))
                due = (
                    DELETE in life.works
                    or life.is_over
                    or name in gone_before(life, truncation.cut)
                )
                self._require(due or name in life.gone, f"{name} is deleted, and nobody asked")
            case MergeOperation():
                work = life.works.get(COMMIT, Work([]))
                takes = name in (work.created or life.current)
                self._require(takes, f"{name} takes what nobody commits to it")
                self.transactions.merged(life, operation)
            case TruncateOperation():
                work = life.works.get(TRUNCATE, Work([]))
                wanted = work.cut.get(name) if work.is_checked else None
                past = max(0, life.starts.get(name, 0))
                allowed = operation.offset in (wanted, past)
                self._require(allowed, f"{name} is truncated where nobody asked")

    # --- what must be so in the end -------------------------------------------------------------

    def running(self, subject: str) -> set[str]:
        """The commands that a stream, group or table has accepted and not yet ended."""
        lives = self._lives.get(subject, ())
        return (
            self.groups.running(subject)
            | self.tables.running(subject)
            | {
                command
                for life in lives
                for work in life.works.values()
                for command in work.commands
            }
        )

    def at_rest(self) -> None:
        """Note everything that is not as it must be when nothing is left to do."""
        for name, scope in self._scopes.items():
            self._require(scope.status in ("active", "deleted"), f"scope {name} is {scope.status}")
        scopes, present = self._scopes.items(), []
        open_scopes = {name: s.incarnation for name, s in scopes if s.status == "active"}
        for lives in self._lives.values():
            present.append(lives[-1])
            for life in lives:
                self._look.rests(life, open_scopes)
        self.groups.at_rest(present, open_scopes)
        self.tables.at_rest(open_scopes)
        self.transactions.at_rest()
        self._watermarks.at_rest()
        for name in self._segments:
            if is_of_watermarks(name) or is_of_table(name):
                continue
            self._require(_parent(name) in self._owners, f"{name} belongs to nobody")

    # --- looking --------------------------------------------------------------------------------

    def _lives_in(self, name: str, incarnation: int) -> bool:
        """Whether that life of a scope is not over."""
        scope = self._scopes.get(name, Name())
        return scope.incarnation == incarnation and scope.status != "deleted"

    def _living(self, scope: str, incarnation: int) -> Iterable[Life]:
        for lives in self._lives.values():
            for life in lives:
                inside = (life.ref.scope, life.scope_incarnation) == (scope, incarnation)
                if inside and not life.is_over:
                    yield life

    def _present(self, ref: StreamRef) -> Life | None:
        lives = self._lives.get(stream_subject(ref))
        return lives[-1] if lives else None

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            self.wrong.append(what)


def _parent(name: str) -> str:
    found = transaction_segment(name)
    return name if found is None else found.parent
