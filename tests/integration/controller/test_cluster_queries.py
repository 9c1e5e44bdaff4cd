"""Two controllers on one NATS server: what each tells of the cluster, and how each is asked."""

import asyncio

from nats.aio.client import Client

from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore
from anabranch.common.contracts import subjects
from anabranch.common.contracts.container_queries import ContainerExplained, ExplainContainer
from anabranch.common.contracts.membership import (
    ClusterOverview,
    ConfirmLosses,
    ControllerList,
    ListControllers,
    LossesConfirmed,
    ShowCluster,
)
from anabranch.common.contracts.queries import (
    DrainStore,
    ListNodes,
    NodeList,
    StoreDrained,
    UndrainStore,
)
from anabranch.common.errors import ProcessReplaced
from anabranch.common.model.cluster import Endpoint, NodeRecord
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.exit_codes import expected_errors
from anabranch.common.runtime.service import Lifetime
from anabranch.controller.adapters.peers import Peers
from anabranch.controller.settings import Settings
from anabranch.controller.wiring import run_controller
from kit.announced import announced
from kit.controller_caller import DEADLINE_S, Caller, StartController, until
from kit.infra import NatsServer


async def known(caller: Caller, count: int) -> ControllerList:
    """The controllers, once the one that is asked knows so many and a leader among them."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = await caller.ask("list_controllers", ListControllers(), ControllerList)
            leaders = [one for one in found.controllers if one.leader]
            if (len(found.controllers), len(leaders)) == (count, 1):
                return found
            await asyncio.sleep(0.02)


async def test_controllers_know_each_other_and_can_be_asked_one_by_one(
    controller: StartController, caller: Caller, client: Client
) -> None:
    async with controller():
        alone = (await known(caller, 1)).controllers[0]
        assert alone.live
        assert alone.term == 1
        async with controller():
            both = {one.controller_id for one in (await known(caller, 2)).controllers}
            peers = Peers(client, lambda: [*both, "gone", "me"], "me")
            answers = await peers.ask_peers("cluster_overview", b"{}", DEADLINE_S)
            views = [ClusterOverview.model_validate_json(answer) for _, answer in answers]
            assert [name for name, _ in answers] == sorted(both), "each has told its own"
            assert [view.answered_by for view in views] == sorted(both)
            assert {view.leader for view in views} <= {alone.controller_id, ""}
        left = await known(caller, 1)
        assert left.controllers[0].controller_id == alone.controller_id, "the other one has left"


async def test_the_cluster_is_shown_with_its_stores_and_containers(
    controller: StartController, caller: Caller, client: Client
) -> None:
    nodes = JetStreamObjectStore(client, SystemClock(), subjects.NODES_BUCKET)
    node = NodeRecord("node-1", Endpoint("127.0.0.1", 4000), "journal-1", "session-1")
    async with controller(), announced(nodes, node):
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = await caller.ask("cluster_overview", ShowCluster(), ClusterOverview)
                if found.containers == {"assigned": 4}:
                    break
                await asyncio.sleep(0.02)
        assert (found.stores.known, found.stores.live) == (1, 1)
        assert (found.controllers.known, found.controllers.live) == (1, 1)
        assert found.leader == found.answered_by
        assert found.hold is None
        (told,) = (await caller.ask("list_nodes", ListNodes(), NodeList)).nodes
        assert (told.node_id, told.session, told.live) == ("node-1", "session-1", True)
        assert (told.containers, told.containers_open) == (4, 0)
        explained = await caller.ask(
            "explain_container", ExplainContainer(container=2), ContainerExplained
        )
        assert explained.container.node_id == "node-1"
        assert explained.reasons == ("node-1 is opening the container.",)
        for name, change in (("drain_store", DrainStore), ("undrain_store", UndrainStore)):
            drained = await caller.ask(name, change(node_id="node-1"), StoreDrained)
            assert (drained.node.draining, drained.node.containers) == (name == "drain_store", 4)
        done = await caller.ask("confirm_losses", ConfirmLosses(), LossesConfirmed)
        assert (done.controllers, done.stores) == ((), ())


async def test_of_two_controllers_under_one_id_the_older_one_ends_with_a_named_error(
    nats_server: NatsServer,
) -> None:
    settings = Settings(
        nats_url=nats_server.url, nats_monitor_url=nats_server.monitor_url, controller_id="twin"
    )
    older, later = Lifetime(), Lifetime()
    ended: list[ProcessReplaced] = []

    async def run_older() -> None:
        try:
            await run_controller(settings, older)
        except* ProcessReplaced as errors:
            ended.extend(e for e in expected_errors(errors) if isinstance(e, ProcessReplaced))

    async with asyncio.TaskGroup() as group:
        first = group.create_task(run_older())
        await until(lambda: older.ready)
        group.create_task(run_controller(settings, later))
        async with asyncio.timeout(DEADLINE_S):
            await first
        assert [error.fields["id"] for error in ended] == ["twin"]
        await until(lambda: later.ready)
        later.request_stop()
