"""The members of the cluster: this controller announces itself, and watches all members' records.

Owns: the records as last seen by the watches of two buckets, and the verdicts on the members
(`domain/cluster/liveness.py` has the rules). Several times a second, it reads the records of
members that have been silent for too long and concludes. Listeners are called after changes.

A store whose record does not prove that it has the join token of the cluster, or that is no
registered SPU, is *refused*: it is no member, and nothing follows from its beats (`admission.py`).
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import structlog

from anabranch.common.contracts.cluster import (
    controller_from_bytes,
    controller_to_bytes,
    node_from_bytes,
    node_to_bytes,
)
from anabranch.common.errors import Corrupt, Retry, RevisionConflict, Unavailable
from anabranch.common.eventsourcing.beats import Beats
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.eventsourcing.store_clock import StoreClock
from anabranch.common.model.cluster import ControllerRecord, NodeRecord
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.containment import JOB, Containment
from anabranch.controller.cluster.admission import Admission
from anabranch.controller.cluster.member_notices import log_change, log_hold, outline
from anabranch.controller.domain.cluster.liveness import (
    Hold,
    Kind,
    Liveness,
    Member,
    Moment,
    Sighting,
    Standing,
    Timing,
)
from anabranch.controller.domain.cluster.placement_actions import (
    StoreView,
)

TICK_S = 0.25
READ_S_MAX = 1.0
RETRY_S = 0.5

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MemberRecords:
    """The buckets of the members' records."""

    controllers: ObjectStore
    nodes: ObjectStore

    def of(self, kind: Kind) -> ObjectStore:
        return self.controllers if kind is Kind.CONTROLLER else self.nodes


class Membership:
    """The cluster as this controller sees it."""

    def __init__(
        self,
        me: ControllerRecord,
        records: MemberRecords,
        clock: Clock,
        timing: Timing | None = None,
        *,
        containment: Containment,
        admission: Admission | None = None,
    ) -> None:
        """`admission`: decides which stores may join; None: every store may."""
        self._containment = containment
        self.admission = admission or Admission()
        """The stores that are refused, and why."""
        self._me = me
        self._records = records
        self._clock = clock
        self._liveness = Liveness(
            Member(Kind.CONTROLLER, me.controller_id), me.session, timing or Timing(), self._now()
        )
        self._controllers: dict[str, ControllerRecord] = {}
        self._nodes: dict[str, NodeRecord] = {}
        self._listed = dict.fromkeys(Kind, False)
        self._listeners: list[Callable[[], None]] = []
        self.store_clock = StoreClock()
        """The event store's clock, as this controller's own beats show it."""
        self._beats = Beats(
            records.controllers,
            me.controller_id,
            me.session,
            encode=lambda beat: controller_to_bytes(replace(me, beat=beat)),
            session_in=lambda value: controller_from_bytes(value).session,
            clock=clock,
            store_clock=self.store_clock,
        )

    # --- the present view -------------------------------------------------------------------------

    @property
    def me(self) -> ControllerRecord:
        """This controller, as it announces itself."""
        return self._me

    @property
    def complete(self) -> bool:
        """Whether every stored record has been seen."""
        return all(self._listed.values()) and self.admission.complete

    @property
    def nodes(self) -> Mapping[str, NodeRecord]:
        """Every segment store that announced itself, dead ones included; not the refused ones."""
        return self._nodes

    @property
    def refused(self) -> Mapping[str, NodeRecord]:
        """The refused stores; `admission` says why."""
        return {name: found.record for name, found in self.admission.outsiders.items()}

    @property
    def controllers(self) -> Mapping[str, ControllerRecord]:
        return self._controllers

    @property
    def seeing(self) -> bool:
        """Whether this controller sees its own beats, so that it may trust its view."""
        return not self._liveness.blind(self._now())

    @property
    def unseen_s(self) -> float:
        """The time since this controller last saw its own beat; 0 before the first."""
        return self._liveness.unseen_s(self._now())

    @property
    def hold(self) -> Hold | None:
        """The reason why no member is judged and no container is moved now, if any."""
        return self._liveness.hold(self._now())

    def live_controllers(self) -> frozenset[str]:
        """The ids of the controllers that are alive as far as known, always including this one.

        While this controller is blind, its last view applies.
        """
        live = {name for name, found in self._liveness.of_kind(Kind.CONTROLLER) if found.live}
        return frozenset(live | {self._me.controller_id})

    def stores(self) -> Mapping[str, StoreView]:
        """The live and dead stores, as placement sees them.

        An unregistered store is not live, whatever its record says, and its session is over once
        its record has said so for as long as the store may rely on it.
        """
        now = self._now()
        return self.admission.views(self._liveness.timing, now.s) | {
            name: StoreView(
                live=found.live,
                over=self._liveness.session_over(Member(Kind.STORE, name), now),
                stopped=found.seen.stopped,
                log_home=self._nodes[name].journal_id,
                rack=self._nodes[name].rack,
            )
            for name, found in self._liveness.of_kind(Kind.STORE)
            if name in self._nodes
        }

    @property
    def leased(self) -> frozenset[str]:
        """The live stores that may answer from memory, as far as this controller sees: their last
        beat is younger than their lease."""
        return frozenset(
            name
            for name, found in self._liveness.of_kind(Kind.STORE)
            if found.live and self._clock.monotonic() - found.changed_s < found.seen.lease_s
        )

    def silent_s(self, store: str) -> float:
        """The time since this controller saw the record of the store change."""
        found = self.standing(Kind.STORE, store)
        return self._clock.monotonic() - found.changed_s if found is not None else 0.0

    def dead_after_s(self, store: str) -> float:
        """The silence after which this controller judges the store dead."""
        return self._liveness.dead_after_s(Member(Kind.STORE, store))

    @property
    def down_since(self) -> Mapping[str, int]:
        """The dead stores by node id, and since when they are dead; Unix milliseconds."""
        stores = self._liveness.of_kind(Kind.STORE)
        return {name: found.since_ms for name, found in stores if not found.live}

    def is_down(self, store: str) -> bool:
        """Whether the store is dead as far as known."""
        found = self.standing(Kind.STORE, store)
        return found is None or not found.live

    def standing(self, kind: Kind, member_id: str) -> Standing | None:
        return self._liveness.standings.get(Member(kind, member_id))

    def standings(self, kind: Kind) -> Iterator[tuple[str, Standing]]:
        """(id, standing) of every member of the kind, by id."""
        return self._liveness.of_kind(kind)

    def require_complete(self) -> None:
        """Raises Unavailable until every stored record has been seen."""
        if not self.complete:
            raise Unavailable("the controller has not seen all members of the cluster yet")

    def confirm(self, members: Collection[str]) -> Collection[Member]:
        """Confirm the loss of these members of a hold, or of all if none is given; returns them."""
        hold = self.hold
        held = hold.missing if hold is not None else frozenset()
        named = [member for member in held if not members or member.member_id in members]
        confirmed = self._liveness.confirm(named)
        for member in sorted(confirmed):
            _log.warning(
                "an operator confirmed a loss", kind=member.kind.value, member=member.member_id
            )
        return confirmed

    # --- maintaining it ---------------------------------------------------------------------------

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a verdict, a hold or a record's session changes."""
        self._listeners.append(listener)

    async def serve(self) -> None:
        """Announce, watch and conclude until cancelled.

        Raises ProcessReplaced if another controller has started with this one's id.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beats.run())
            group.create_task(self._watch(Kind.CONTROLLER, self._learn_controller))
            group.create_task(self._watch(Kind.STORE, self._learn_node))
            group.create_task(self._conclude())

    async def forget(self, silent_s: float) -> None:
        """Delete the records of controllers that have been dead and silent for so long.

        The leader calls this, because controllers may draw new ids at every start, and their
        records must not accumulate. Raises Retry, Unknown, RevisionConflict (the controller came
        back).
        """
        now_s = self._clock.monotonic()
        for name, found in list(self.standings(Kind.CONTROLLER)):
            if not found.live and now_s - found.changed_s > silent_s:
                await self._records.controllers.delete(name, found.seen.revision)
                _log.info("removed the record of a controller that is long gone", controller=name)

    async def end_session(self, store: str) -> bool:
        """Mark the record of a store that is dead by its silence as over; returns whether it was.

        The record is changed only if it is still the one that was judged: a store that has beaten
        meanwhile is alive. The session of an unregistered store ends although it is alive. Raises
        Retry, Unknown.
        """
        judged = self._to_end(store)
        if judged is None or not self.seeing or self.hold is not None:
            return False
        record, revision = judged
        try:
            await self._records.nodes.update(store, node_to_bytes(record), revision)
        except RevisionConflict:
            _log.info("a store whose session was to end has changed its record", store=store)
            return False
        kind = "an unregistered" if record.unregistered else "a dead"
        _log.warning(f"ended the session of {kind} store", store=store, session=record.session)
        return True

    def _to_end(self, store: str) -> tuple[NodeRecord, int] | None:
        """The record by which the session of the store ends, and the revision that it replaces;
        None: it goes on, or has ended."""
        outside = self.admission.outsiders.get(store)
        if outside is not None:
            return outside.last_word if self.admission.complete else None
        found, record = self.standing(Kind.STORE, store), self._nodes.get(store)
        if found is None or record is None or found.live or found.seen.ended:
            return None
        return replace(record, over=True), found.seen.revision

    async def is_still_over(self, store: str) -> bool:
        """Whether the store's record is the one by which its session is over. Raises Retry."""
        outside = self.admission.outsiders.get(store)
        if outside is not None:
            ended, revision = outside.ended, outside.revision
        else:
            found = self.standing(Kind.STORE, store)
            ended, revision = (found.seen.ended, found.seen.revision) if found else (False, 0)
        if not ended:
            return False
        stored = await self._records.nodes.get(store)
        return stored is not None and stored.revision == revision

    async def leave(self) -> None:
        """Delete this controller's record, after `serve` has ended in order."""
        await self._beats.end(None)

    async def _watch(self, kind: Kind, learn: Callable[[StoredObject], Sighting | None]) -> None:
        while True:
            try:
                async for found in self._records.of(kind).watch():
                    if found is None:
                        self._listed[kind] = True
                        self._tell()
                    else:
                        with self._containment.contained(
                            JOB, f"record of {kind.value} {found.key}", park_at=0
                        ):
                            self._see(kind, found.key, _learned(learn, found))
            except Retry as error:
                _log.warning("a watch was interrupted", members=kind.value, error=str(error))
            await self._clock.sleep(RETRY_S)

    def _see(self, kind: Kind, name: str, seen: Sighting | None) -> None:
        member = Member(kind, name)
        before = self._liveness.standings.get(member)
        blind = not self.seeing
        if seen is None:
            self._liveness.gone(member)
        else:
            self._liveness.saw(member, seen, self._now())
        after = self._liveness.standings.get(member)
        if outline(before) != outline(after) or blind == self.seeing:
            log_change(member, before, after)
            self._tell()

    def _learn_controller(self, found: StoredObject) -> Sighting | None:
        # A deleted or unreadable record must not be trusted any more.
        self._controllers.pop(found.key, None)
        if not found.value:
            return None
        record = self._controllers[found.key] = controller_from_bytes(found.value)
        return Sighting(found.revision, record.session)

    def _learn_node(self, found: StoredObject) -> Sighting | None:
        try:
            record = node_from_bytes(found.value) if found.value else None
        except Corrupt:
            self._forget_node(found.key)
            raise
        if record is None:
            self._forget_node(found.key)
            return None
        return self._judge(found.key, record, found.revision)

    def _forget_node(self, name: str) -> None:
        self._nodes.pop(name, None)
        self.admission.forget(name)

    def _judge(self, name: str, record: NodeRecord, revision: int) -> Sighting | None:
        """Take the store in, or refuse it; None: it is no member."""
        is_member = self._nodes.pop(name, None) is not None
        now_s = self._clock.monotonic()
        judged = self.admission.judge(name, record, revision, now_s=now_s, is_member=is_member)
        if judged is not None:
            return None
        self._nodes[name] = record
        return Sighting(revision, record.session, record.stopped, record.over, record.lease_s)

    def reconsider(self) -> None:
        """Judge every store again, because SPUs were registered or unregistered."""
        was_complete = self.complete
        self.admission.learn({name: record.session for name, record in self._nodes.items()})
        outside = self.admission.outsiders
        judged = {name: (found.record, found.revision) for name, found in outside.items()}
        for name, record in self._nodes.items():
            found = self.standing(Kind.STORE, name)
            judged[name] = record, found.seen.revision if found is not None else 0
        for name, (record, revision) in judged.items():
            seen = self._judge(name, record, revision)
            if seen is not None or self.standing(Kind.STORE, name) is not None:
                self._see(Kind.STORE, name, seen)
        if not was_complete and self.complete:
            self._tell()

    async def _conclude(self) -> None:
        held = None
        while True:
            for member in self._liveness.suspects(self._now()):
                if not await self._compare(member):
                    break
            changes = self._liveness.conclude(self._now())
            for member, verdict, why in changes:
                _log.warning(
                    "a member of the cluster is down", kind=member.kind.value,
                    member=member.member_id, verdict=verdict.value, why=why,
                )  # fmt: skip
            hold = self.hold
            if hold != held:
                log_hold(hold)
            if changes or hold != held:
                self._tell()
            held = hold
            await self._clock.sleep(TICK_S)

    async def _compare(self, member: Member) -> bool:
        """Read a silent member's record; returns False if that failed."""
        try:
            async with asyncio.timeout(READ_S_MAX):
                found = await self._records.of(member.kind).get(member.member_id)
        except (Retry, TimeoutError) as error:
            _log.warning("cannot read the record of a silent member", error=repr(error))
            return False
        self._liveness.compared(member, found.revision if found else None, self._now())
        return True

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def _now(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.now_ms())


def _learned(
    learn: Callable[[StoredObject], Sighting | None], found: StoredObject
) -> Sighting | None:
    try:
        return learn(found)
    except Corrupt as error:
        _log.error(
            "a stored object cannot be read",
            key=found.key,
            error=str(error),
            remedy=error.remedy_for("command"),
        )
        return None
