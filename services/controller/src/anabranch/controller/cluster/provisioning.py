"""Has a provisioner run the managed SPUs; on the leader.

It compares states: after every change of an SPU or a group, and every few seconds, the provisioner
gets all managed SPUs. Two leaders for a moment do no harm, because they ask for the same.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import structlog

from anabranch.common.errors import Retry
from anabranch.common.model.objects import Spu, SpuGroup, SpuType
from anabranch.common.provisioning.ports import Provisioned, Provisioner, WantedSpu
from anabranch.common.runtime.clock import Clock

LOOK_S = 5.0

_log = structlog.get_logger(__name__)


class Lead(Protocol):
    """Whether this controller leads."""

    @property
    def leading(self) -> bool: ...


class Provisioning:
    """Keeps a process running for each managed SPU. `wanted`: these SPUs; None until all are
    known."""

    def __init__(
        self,
        provisioner: Provisioner,
        wanted: Callable[[], list[WantedSpu] | None],
        lead: Lead,
        clock: Clock,
    ) -> None:
        self._provisioner = provisioner
        self._wanted = wanted
        self._lead = lead
        self._clock = clock
        self._changed = asyncio.Event()
        self._told: Mapping[str, Provisioned] = {}

    def wake(self) -> None:
        """Look again: SPUs or groups have changed."""
        self._changed.set()

    async def serve(self) -> None:
        """Reconcile, while this controller leads, until cancelled."""
        while True:
            self._changed.clear()
            wanted = self._wanted()
            if wanted is not None and self._lead.leading:
                try:
                    self._log_changes(await self._provisioner.reconcile(wanted))
                except Retry as error:
                    _log.warning("cannot provision the managed SPUs, retrying", error=str(error))
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _log_changes(self, found: Iterable[Provisioned]) -> None:
        now = {one.name: one for one in found}
        for name, one in now.items():
            if self._told.get(name) != one:
                _log.info("provisioned", spu=name, state=one.state.value, reason=one.reason)
        self._told = now


def wanted_of(spus: Iterable[Spu], groups: Mapping[str, SpuGroup]) -> list[WantedSpu]:
    """The managed SPUs, with the environment of their groups' templates."""
    wanted: list[WantedSpu] = []
    for spu in spus:
        if spu.spec.type is SpuType.MANAGED:
            group = groups.get(spu.owner)
            wanted.append(
                WantedSpu(
                    spu.key,
                    spu.owner,
                    spu.spec.spu_id,
                    spu.spec.rack,
                    spu.spec.storage_size_bytes,
                    group.spec.env if group is not None else (),
                    spu.deleting,
                )
            )
    return wanted
