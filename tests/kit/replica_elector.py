"""A hand-made elector of the simulation of replicated logs: what controllers do, in short.

It raises the container epoch and freezes the ISR on the placement, asks the members for promises,
and has the greatest answer lead. Two of them run, so elections run into each other.
"""

import asyncio
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
from anabranch.controller.domain.cluster import election
from anabranch.controller.domain.cluster.election import Answer
from kit.process_objects import ProcessObjects
from kit.replica_candidates import SimCandidates

if TYPE_CHECKING:
    from kit.replica_log_world import World

NEEDLESS = 0.01
"""The share of looks at which an elector takes a living owner for dead."""


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
            if not found.log_id:
                await self._retarget(found, revision)
                return
            found = election.frozen(found)
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
            replace(found, replicas=others, state=PlacementState.ASSIGNED, isr=()), revision
        )

    async def _elect(self, found: Placement, revision: int) -> None:
        answers: dict[str, Answer] = {}

        async def ask(node: str) -> None:
            with suppress(AnabranchError):
                answers[node] = await self._candidates.promise(
                    node, found.container, found.log_id, found.container_epoch
                )

        winner = ""
        nodes = sorted({*found.replicas, *(copy.node_id for copy in found.isr)})
        for gone in (False, True):
            async with asyncio.TaskGroup() as group:
                for node in nodes:
                    if self._world.is_gone(node) is gone:
                        group.create_task(ask(node))
            winner = election.elect(found.isr, answers)
            if winner:
                break
        if not winner:
            self._world.counts["elections without an answer"] += 1
            return
        await self._write(election.won(found, winner), revision)
        self._world.counts["elections"] += 1

    async def _write(self, placement: Placement, revision: int) -> int:
        key, value = placement_key(placement.container), placement_to_bytes(placement)
        return await self._objects.update(key, value, revision)
