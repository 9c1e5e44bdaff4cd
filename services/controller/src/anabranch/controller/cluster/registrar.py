"""Registers stores as custom SPUs, and ends the sessions of unregistered ones; on the leader.

It compares states, after every change and every second:

    a member has no SPU, and `spu_registration` is *automatic*  → register it, with the next free id
    an unregistered store has a session                         → end the session, and mark the
                                                                  record, so that the store waits
    an unregistered store is stopped, or over for long, and no  → delete its record
      placement names it

Every write is a compare-and-set, so two leaders for a moment do no harm.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from anabranch.common.errors import Conflict, Invalid, Retry, Unknown
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import Placement
from anabranch.common.model.objects import Spu, SpuStatus
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.containment import JOB, Containment
from anabranch.controller.cluster.membership import Membership
from anabranch.controller.domain.cluster.joining import Refusal, to_register

LOOK_S = 1.0
GRACE_S = 3.0
"""How long the leader leaves the session of a new store alone that may be registered soon."""
FORGET_S = 60.0
"""A store that waits for its registration announces itself again sooner."""

_log = structlog.get_logger(__name__)


class KnownSpus(Protocol):
    """A view of the registered SPUs."""

    @property
    def objects(self) -> Mapping[str, Spu]: ...

    @property
    def listed(self) -> bool:
        """Whether every stored SPU has been seen."""
        ...


class Lead(Protocol):
    """Whether this controller leads."""

    @property
    def leading(self) -> bool: ...

    def on_change(self, listener: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class Inputs:
    """The views and the actions of the registrar.

    `register` creates the SPU unless one has its name; `reserved` are ids that SPU groups will use;
    `placements` are those of all containers.
    """

    members: Membership
    lead: Lead
    spus: KnownSpus
    nodes: ObjectStore
    register: Callable[[Spu], Awaitable[None]]
    reserved: Callable[[], Collection[int]]
    placements: Callable[[], Mapping[int, Placement]]


class Registrar:
    """Keeps the registered SPUs and the stores in line."""

    def __init__(self, around: Inputs, clock: Clock, containment: Containment) -> None:
        self._around = around
        self._clock = clock
        self._containment = containment
        self._changed = asyncio.Event()
        around.members.on_change(self._changed.set)
        around.lead.on_change(self._changed.set)

    def look(self) -> None:
        """Look again: SPUs were registered or unregistered."""
        self._around.members.reconsider()
        self._changed.set()

    async def serve(self) -> None:
        """Register and end sessions, while this controller leads, until cancelled."""
        while True:
            self._changed.clear()
            with self._containment.contained(JOB, "registering stores", park_at=0):
                try:
                    await self._step()
                except (Retry, Conflict, Unknown) as error:
                    _log.warning("the step failed, retrying", error=str(error))
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _step(self) -> None:
        members = self._around.members
        able = members.complete and members.seeing and self._around.spus.listed
        if not able or not self._around.lead.leading:
            return
        if members.admission.policy == "automatic":
            await self._register()
        now_s, named = self._clock.monotonic(), self._named()
        for name, found in members.admission.of(Refusal.UNREGISTERED).items():
            if found.was_member or name in named or now_s - found.since_s > GRACE_S:
                await members.end_session(name)
        await self._forget(named)

    async def _register(self) -> None:
        around = self._around
        ids = {name: spu.spec.spu_id for name, spu in around.spus.objects.items()}
        known = {
            name: node
            for name, node in around.members.nodes.items()
            if not around.members.is_down(name)
        }
        for name, spec in to_register(known, ids, around.reserved()).items():
            try:
                await around.register(Spu(name, spec, SpuStatus()))
            except (Conflict, Invalid) as error:
                # An operator was faster, or this controller has not seen the newest SPUs yet.
                _log.warning("a store cannot be registered", store=name, error=str(error))
            else:
                _log.info("registered a store as a custom SPU", store=name, spu=spec.spu_id)

    def _named(self) -> set[str]:
        """The stores that placements name."""
        found = self._around.placements().values()
        return {name for one in found for name in (*one.replicas, *one.wanted, one.target)}

    async def _forget(self, named: Collection[str]) -> None:
        """Delete the records of unregistered stores that hold nothing and are stopped, or over for
        long."""
        now_s = self._clock.monotonic()
        for name, outside in self._around.members.admission.of(Refusal.UNREGISTERED).items():
            rested_s = now_s - outside.over_s if outside.over_s is not None else 0.0
            if name not in named and (outside.record.stopped or rested_s > FORGET_S):
                await self._around.nodes.delete(name, outside.revision)
                _log.info("removed the record of an unregistered store", store=name)
