"""A hand-made elector of the simulation of replicated logs: what controllers do, in short.

It raises the container epoch and freezes the ISR on the placement, asks the members for promises,
and has the greatest answer lead. Two of them run, so elections run into each other.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import AnabranchError
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.segstore.domain.log.replica.history import position_of
from anabranch.segstore.ports_replica import CopyState
from kit.process_objects import ProcessObjects
from kit.replica_candidates import SimCandidates

if TYPE_CHECKING:
    from kit.replica_log_world import World

PROMISE_S_MAX = 1.0
NEEDLESS = 0.01
"""The share of looks at which an elector takes a living owner for dead."""


def elected(found: Placement, answers: Mapping[str, CopyState]) -> str:
    """The store that leads next; "" if no member of the ISR answered."""
    able = [
        copy.node_id
        for copy in found.isr
        if copy.node_id in answers and answers[copy.node_id].copy_id == copy.copy_id
    ]
    return max(able, key=lambda node: position_of(answers[node].end), default="")


class Elector:
    """One elector, which never dies but may be paused."""

    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        process = self.process = world.processes.new(name)
        self.way = world.bucket_way(process)
        self._objects = ProcessObjects(world.placements, self.way, self.way)
        self._candidates = SimCandidates(world.network, name, process)
        process.start(self._run())

    async def _run(self) -> None:
        rng = self._world.rng
        while True:
            await asyncio.sleep(rng.random() * 0.6)
            for container in range(self._world.container_count):
                with suppress(AnabranchError):
                    await self._look(container)

    async def _look(self, container: int) -> None:
        stored = await self._objects.get(placement_key(container))
        assert stored is not None
        found, revision = placement_from_bytes(stored.value), stored.revision
        if found.state is not PlacementState.ELECTING:
            if not self._is_due(found):
                return
            if not found.isr:
                await self._retarget(found, revision)
                return
            found = replace(
                found, container_epoch=found.container_epoch + 1, state=PlacementState.ELECTING
            )
            revision = await self._write(found, revision)
        await self._elect(found, revision)

    def _is_due(self, found: Placement) -> bool:
        world = self._world
        if not world.calm and world.rng.random() < NEEDLESS:
            return True
        return found.state is PlacementState.FAILED or world.is_gone(found.owner)

    async def _retarget(self, found: Placement, revision: int) -> None:
        """No store served it: the next one tries."""
        others = (*found.replicas[1:], found.owner)
        await self._write(
            replace(found, replicas=others, state=PlacementState.ASSIGNED, log_id=""), revision
        )

    async def _elect(self, found: Placement, revision: int) -> None:
        answers: dict[str, CopyState] = {}

        async def ask(node: str) -> None:
            with suppress(AnabranchError, TimeoutError):
                async with asyncio.timeout(PROMISE_S_MAX):
                    answers[node] = await self._candidates.promise(
                        node, found.container, found.log_id, found.container_epoch
                    )

        async with asyncio.TaskGroup() as group:
            for copy in found.isr:
                group.create_task(ask(copy.node_id))
        winner = elected(found, answers)
        if not winner:
            self._world.counts["elections without an answer"] += 1
            return
        others = tuple(node for node in found.replicas if node != winner)
        await self._write(
            replace(found, replicas=(winner, *others), state=PlacementState.ASSIGNED), revision
        )
        self._world.counts["elections"] += 1

    async def _write(self, placement: Placement, revision: int) -> int:
        key, value = placement_key(placement.container), placement_to_bytes(placement)
        return await self._objects.update(key, value, revision)
