"""The supervisor of an embedded cluster as the provisioner of its SPU groups.

Every second, the task `keep_provisioned` asks the controllers for the managed SPUs, and starts and
stops processes accordingly. It never ends the cluster: while no controller answers, the stores run
as they are.

A process is stopped only if its SPU was seen registered before, in the same run. Otherwise an
answer from a cluster that has lost its metadata would stop every store.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Protocol

from anabranch.cli.up import plan
from anabranch.cli.up.parts import GATEWAY, ClusterPlan, PartSpec, store_part
from anabranch.cli.up.ports import LOOPBACK
from anabranch.cli.up.stores import MAIN, KnownStores, StoreSpec, main_replicas, store_of
from anabranch.client import Client
from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.model.objects import SpuType
from anabranch.common.provisioning.ports import (
    Provisioned,
    ProvisionedState,
    Provisioner,
    WantedSpu,
)
from anabranch.common.runtime.clock import Clock

LOOK_S = 1.0
RETRY_S = 1.0


class Processes(Protocol):
    """The supervisor, as the provisioner uses it."""

    @property
    def states(self) -> Mapping[str, plan.PartState]: ...

    def add(self, spec: PartSpec, before: str = "") -> None: ...

    def retire(self, part: str) -> None: ...


class ProcessProvisioner:
    """A `Provisioner` that runs processes. `stores`: the managed ones that start with the cluster.

    `take_port` draws a free port. `changed` gets the stores, with their endpoints by part, after
    every change.
    """

    def __init__(
        self,
        cluster: ClusterPlan,
        known: KnownStores,
        processes: Processes,
        take_port: Callable[[], int],
        changed: Callable[[KnownStores, Sequence[str]], None],
    ) -> None:
        self._cluster = cluster
        self._known = known
        self._processes = processes
        self._take_port = take_port
        self._changed = changed
        placed = zip(cluster.segstores, cluster.segstore_endpoints, strict=True)
        self._endpoints = {store.part: endpoint for store, endpoint in placed}
        self._stores = {store.name: store for store in cluster.segstores if store.name}
        self._seen: set[str] = set()
        self._stopping: dict[str, StoreSpec] = {}

    async def reconcile(self, wanted: Sequence[WantedSpu]) -> Sequence[Provisioned]:
        """See `Provisioner.reconcile`."""
        before = dict(self._stores)
        self._forget_stopped()
        names = {spu.name for spu in wanted}
        self._seen |= names
        for name in self._stores.keys() & self._seen - names:
            store = self._stopping[name] = self._stores.pop(name)
            self._processes.retire(store.part)
            self._endpoints.pop(store.part, None)
        self._seen &= names
        for spu in wanted:
            if spu.name not in self._stores and spu.name not in self._stopping:
                self._start(store_of(spu, self._known))
        if self._stores != before:
            managed = tuple(self._stores[name] for name in sorted(self._stores))
            known = KnownStores(self._known.custom, managed)
            self._changed(known, tuple(self._endpoints.values()))
        return self._provisioned()

    def _start(self, store: StoreSpec) -> None:
        endpoint = f"{LOOPBACK}:{self._take_port()}"
        self._stores[store.name] = store
        self._endpoints[store.part] = endpoint
        self._processes.add(started_later(store_part(self._cluster, store, endpoint)), GATEWAY)

    def _forget_stopped(self) -> None:
        for name, store in list(self._stopping.items()):
            if store.part not in self._processes.states:
                del self._stopping[name]

    def _provisioned(self) -> Sequence[Provisioned]:
        states = self._processes.states
        found: list[Provisioned] = []
        for name, store in sorted({**self._stores, **self._stopping}.items()):
            state = states.get(store.part, plan.PartState())
            word = ProvisionedState.RUNNING if state.ready else ProvisionedState.STARTING
            if name in self._stopping:
                word = ProvisionedState.STOPPING
            found.append(Provisioned(name, word, state.reason))
        return found


def started_later(part: PartSpec) -> PartSpec:
    """The part of a store that a running cluster starts, and goes on without."""
    return replace(part, expendable=True)


async def wanted_spus(client: Client) -> Sequence[WantedSpu]:
    """The managed SPUs that are registered, with their groups' templates. Raises Retry."""
    env = {group.name: group.spec.env async for group in client.spu_groups.list()}
    return [
        WantedSpu(
            spu.name,
            spu.group,
            spu.spec.spu_id,
            spu.spec.rack,
            spu.spec.storage_size_bytes,
            env.get(spu.group, ()),
            spu.deleting,
        )
        async for spu in client.spus.list()
        if spu.spec.type is SpuType.MANAGED and not spu.refused
    ]


async def ensure_main(
    client: Client, known: KnownStores, stores: Sequence[StoreSpec], count: int | None
) -> None:
    """Create the group `main`, or scale it if the user asked for a number of stores.

    `stores`: those that start with the cluster. Raises Retry, Conflict, Invalid.
    """
    groups = {group.name: group async for group in client.spu_groups.list()}
    found, replicas = groups.get(MAIN), main_replicas(known, count)
    if found is not None:
        if replicas is not None and replicas != found.spec.replicas and not found.deleting:
            await client.spu_groups.scale(MAIN, replicas)
        return
    members = sum(store.group == MAIN for store in stores)
    if not members:
        return
    spus = [spu async for spu in client.spus.list() if not spu.refused]
    if len(spus) < len(stores) - len([store for store in stores if store.name]):
        raise Unavailable("the stores with ids of their own are not registered yet")
    min_id = max((spu.spec.spu_id for spu in spus), default=-1) + 1
    await client.spu_groups.create(MAIN, replicas=members, min_id=min_id, storage_size=0)


async def keep_provisioned(
    connect: Callable[[], AbstractAsyncContextManager[Client]],
    provisioner: Provisioner,
    ensure: Callable[[Client], Awaitable[None]],
    report: Callable[[str], None],
    clock: Clock,
) -> None:
    """Reconcile until cancelled. `report` gets the reason why that fails now; "": it succeeds."""
    while True:
        try:
            async with connect() as client:
                await ensure(client)
                while True:
                    await provisioner.reconcile(await wanted_spus(client))
                    report("")
                    await clock.sleep(LOOK_S)
        except AnabranchError as error:
            report(str(error))
        await clock.sleep(RETRY_S)
