"""The provisioner of processes: what it starts and stops for which SPUs."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from anabranch.cli.up import plan
from anabranch.cli.up.directory import DataDirectory
from anabranch.cli.up.parts import ClusterPlan, PartSpec
from anabranch.cli.up.provisioning import ProcessProvisioner
from anabranch.cli.up.stores import KnownStores, StoreSpec
from anabranch.common.provisioning.ports import ProvisionedState, WantedSpu
from anabranch.common.runtime.nats_target import Login
from kit.fixed_catalog import run_at_once


class Processes:
    """Parts that are ready as soon as they are started, and stop when the test says so."""

    def __init__(self, *parts: str) -> None:
        self._ready = plan.PartState(plan.Phase.RUNNING, ready=True)
        self.states: Mapping[str, plan.PartState] = dict.fromkeys(parts, self._ready)
        self.added: list[PartSpec] = []
        self.retired: list[str] = []

    def add(self, spec: PartSpec, before: str = "") -> None:
        assert spec.name not in self.states
        self.added.append(spec)
        self.states = {**self.states, spec.name: self._ready}

    def retire(self, part: str) -> None:
        self.retired.append(part)

    def stop(self, part: str) -> None:
        self.states = {name: state for name, state in self.states.items() if name != part}


class World:
    def __init__(self, root: Path) -> None:
        main = StoreSpec("segstore", "main-0", "main")
        self.plan = ClusterPlan(
            directory=DataDirectory(root), nats_program=Path("nats"), nats_port=1, segstore_port=2,
            gateway_port=3, container_count=1, nats_login=Login("u", SecretStr("p")),
            stores=(main,),
        )  # fmt: skip
        self.processes = Processes("segstore")
        self.kept: list[tuple[KnownStores, tuple[str, ...]]] = []
        ports = iter(range(100, 200))
        self.provisioner = ProcessProvisioner(
            self.plan,
            KnownStores(managed=(main,)),
            self.processes,
            lambda: next(ports),
            lambda known, endpoints: self.kept.append((known, tuple(endpoints))),
        )

    def reconcile(self, *wanted: WantedSpu) -> dict[str, ProvisionedState]:
        found = run_at_once(self.provisioner.reconcile(wanted))
        return {one.name: one.state for one in found}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


MAIN_0, MAIN_1 = (WantedSpu(f"main-{i}", "main", i) for i in range(2))
RUNNING, STOPPING = ProvisionedState.RUNNING, ProvisionedState.STOPPING


def environment(part: PartSpec) -> Mapping[str, str]:
    return {
        name.removeprefix("ANABRANCH_SEGSTORE_"): value for name, value in part.environment.items()
    }


def test_a_store_that_runs_is_left_alone(world: World) -> None:
    assert world.reconcile(MAIN_0) == {"main-0": RUNNING}
    assert (world.processes.added, world.processes.retired, world.kept) == ([], [], [])


def test_another_spu_gets_a_process_with_what_its_group_says(world: World) -> None:
    spu = replace(MAIN_1, rack="left", storage_size_bytes=5, env=(("A", "b"),))
    world.reconcile(MAIN_0, spu)
    (part,) = world.processes.added
    found = environment(part)
    assert part.name == "segstore-2"
    assert part.expendable, "the cluster goes on without it"
    assert (found["NODE_ID"], found["SPU_GROUP"], found["RACK"]) == ("main-1", "main", "left")
    assert (found["TOPIC_STORAGE_SIZE_BYTES"], found["A"]) == ("5", "b")
    ((known, endpoints),) = world.kept
    assert [store.name for store in known.managed] == ["main-0", "main-1"]
    assert endpoints == ("127.0.0.1:2", "127.0.0.1:100")


def test_a_store_runs_on_while_its_spu_is_being_deleted_and_stops_when_it_is_gone(
    world: World,
) -> None:
    world.reconcile(MAIN_0, MAIN_1)
    assert world.reconcile(MAIN_0, replace(MAIN_1, deleting=True))["main-1"] is RUNNING
    assert world.processes.retired == []
    assert world.reconcile(MAIN_0) == {"main-0": RUNNING, "main-1": STOPPING}
    assert world.processes.retired == ["segstore-2"]
    assert [store.name for store in world.kept[-1][0].managed] == ["main-0"]


def test_a_spu_that_comes_back_waits_until_its_former_process_has_stopped(world: World) -> None:
    world.reconcile(MAIN_0, MAIN_1)
    world.reconcile(MAIN_0)
    assert world.reconcile(MAIN_0, MAIN_1)["main-1"] is STOPPING
    assert len(world.processes.added) == 1
    world.processes.stop("segstore-2")
    assert world.reconcile(MAIN_0, MAIN_1)["main-1"] is RUNNING
    assert len(world.processes.added) == 2


def test_no_store_stops_that_was_never_seen_registered(world: World) -> None:
    assert world.reconcile() == {"main-0": RUNNING}
    assert world.processes.retired == []
