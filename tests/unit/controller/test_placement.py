"""Which store owns which container, and what is written once for ever."""

from dataclasses import replace
from typing import get_args

import pytest

from anabranch.common.contracts.cluster import (
    controller_from_bytes,
    controller_to_bytes,
    leader_from_bytes,
    leader_to_bytes,
    node_from_bytes,
    node_to_bytes,
    placement_from_bytes,
    placement_to_bytes,
)
from anabranch.common.contracts.queries import ContainerDescription
from anabranch.common.errors import Corrupt, FormatTooNew, InvalidSetting
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import (
    JETSTREAM,
    REPLICATED,
    Abandonment,
    ControllerRecord,
    Endpoint,
    LeaderRecord,
    LogCopy,
    NodeRecord,
    Placement,
    PlacementState,
    VoidLogs,
)
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.controller.cluster.constants import settle_constants
from anabranch.controller.domain.cluster.descriptions import PHASES, describe, phase, serving

NODE = NodeRecord("node-1", Endpoint("127.0.0.1", 4000), "journal-1")


def test_only_an_open_placement_of_a_known_store_serves() -> None:
    opened = Placement(0, ("node-1",), 3, "log", PlacementState.OPEN)
    nodes = {"node-1": NODE}

    assert serving(opened, nodes) == (3, NODE.endpoint)
    assert serving(opened, {}) == (0, None)
    assert serving(Placement(0, ("node-1",), 3), nodes) == (0, None)
    assert serving(None, nodes) == (0, None)


def test_every_container_is_described_placed_or_not() -> None:
    placements = {
        1: Placement(1, ("node-1",), 3, "log", PlacementState.OPEN, 2),
        2: Placement(2, ("gone",), 4, "log", PlacementState.FAILED, 7, "disk-failed"),
    }

    assert describe(range(3), placements, {"node-1": NODE}, {}) == (
        ContainerDescription(container=0, state="unassigned"),
        ContainerDescription(
            container=1, state="open", container_epoch=3, node_id="node-1",
            host="127.0.0.1", port=4000, restarts=2, log="journal",
        ),
        ContainerDescription(
            container=2, state="failed", container_epoch=4, node_id="gone",
            restarts=7, reason="disk-failed", log="journal",
        ),
    )  # fmt: skip


def test_a_container_is_unavailable_while_its_store_is_down() -> None:
    opened = Placement(0, ("node-1",), 3, "log", PlacementState.OPEN)
    down = {"node-1": 1234}

    told = describe(range(1), {0: opened}, {"node-1": NODE}, down)[0]

    assert (told.state, told.since_ms, told.container_epoch) == ("unavailable", 1234, 3)
    offline = replace(opened, state=PlacementState.OFFLINE, reason="log-not-here")
    told = describe(range(1), {0: offline}, {"node-1": NODE}, down)[0]
    assert (told.state, told.reason, told.since_ms) == ("offline", "log-not-here", 0)


def test_a_container_with_a_shared_log_is_described_with_the_lease_of_its_store() -> None:
    journal = Placement(0, ("node-1",), 3, "log", PlacementState.OPEN)
    shared = replace(journal, log_home=JETSTREAM)
    fresh = Placement(0, ("node-1",), 3)

    def told(found: Placement, leased: set[str]) -> tuple[str, str]:
        described = describe(range(1), {0: found}, {"node-1": NODE}, {}, leased)[0]
        return described.log, described.lease

    assert told(shared, {"node-1"}) == ("jetstream", "held")
    assert told(shared, {"node-2"}) == ("jetstream", "lapsed")
    assert told(journal, {"node-1"}) == ("journal", "")
    assert told(fresh, {"node-1"}) == ("", "")


def test_the_phase_of_a_container_says_what_it_waits_for() -> None:
    opened = ContainerDescription(container=0, state="open", log="jetstream")
    down = opened.model_copy(update={"state": "unavailable"})

    assert phase(opened) == "open"
    assert phase(opened.model_copy(update={"target": "b"})) == "moving"
    assert phase(down) == "waiting"
    assert phase(down.model_copy(update={"log": "journal"})) == "unavailable"
    assert phase(down.model_copy(update={"log": ""})) == "unavailable"
    states = get_args(ContainerDescription.model_fields["state"].annotation)
    assert set(PHASES) == {*states, "moving", "waiting"}


def test_records_survive_being_stored() -> None:
    placement = Placement(3, ("a", "b"), 9, "log", PlacementState.FAILED, 4, "disk")

    assert placement_from_bytes(placement_to_bytes(placement)) == placement
    void, given_up = VoidLogs(2, 9, abandoned_ms=5), Abandonment("older", 77, 5)
    moving = replace(placement, target="b", previous_log="x", void=void, abandoned=given_up)
    assert placement_from_bytes(placement_to_bytes(moving)) == moving
    pinned = replace(placement, pinned=True)
    assert placement_from_bytes(placement_to_bytes(pinned)) == pinned
    shared = replace(placement, log_home=JETSTREAM)
    assert placement_from_bytes(placement_to_bytes(shared)) == shared
    isr = (LogCopy("a", "1"), LogCopy("b", "2"))
    led = replace(placement, log_home=REPLICATED, isr=isr, isr_min=2, wanted=("a", "c"))
    assert placement_from_bytes(placement_to_bytes(led)) == led
    node = replace(
        NODE, session="s", beat=7, stopped=True, over=True, lease_s=2.25, rack="r", proof="p"
    )
    assert node_from_bytes(node_to_bytes(node)) == node
    controller = ControllerRecord("c", "s", 7, "host", 12, 1000)
    assert controller_from_bytes(controller_to_bytes(controller)) == controller
    leader = LeaderRecord("c", "s", 3)
    assert leader_from_bytes(leader_to_bytes(leader)) == leader


def test_a_placement_of_an_earlier_release_is_read() -> None:
    stored = (
        b'{"schema_number":1,"container":3,"replicas":["a"],"container_epoch":9,"log_id":"log",'
        b'"state":"failed","restarts":4,"reason":"disk"}'
    )
    assert placement_from_bytes(stored) == Placement(
        3, ("a",), 9, "log", PlacementState.FAILED, 4, "disk"
    )
    second = stored.replace(b'"schema_number":1', b'"schema_number":2,"target":"b"')
    assert placement_from_bytes(second).target == "b"
    assert not placement_from_bytes(second).pinned
    third = stored.replace(b'"schema_number":1', b'"schema_number":3,"pinned":true')
    assert placement_from_bytes(third).log_home == ""
    node = b'{"schema_number":1,"node_id":"node-1","host":"127.0.0.1","port":4000,'
    assert node_from_bytes(node + b'"journal_id":"journal-1"}') == NODE


def test_the_stored_forms_are_these() -> None:
    assert node_to_bytes(NODE) == (
        b'{"schema_number":1,"node_id":"node-1","host":"127.0.0.1","port":4000,'
        b'"journal_id":"journal-1","session":"","beat":0,"stopped":false,"over":false,'
        b'"lease_s":0.0,"rack":"","proof":"","peer_host":"","peer_port":0,'
        b'"unregistered":false,"spu_group":""}'
    )
    assert placement_to_bytes(Placement(0, ("n",))) == (
        b'{"schema_number":5,"container":0,"replicas":["n"],"container_epoch":0,"log_id":"",'
        b'"state":"assigned","restarts":0,"reason":"","target":"","previous_log":"","void":null,'
        b'"abandoned":null,"pinned":false,"log_home":"","isr":[],"isr_min":0,"wanted":[]}'
    )


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"schema_number":1,"node_id":5}', b"\xff"])
def test_damaged_records_are_refused(data: bytes) -> None:
    with pytest.raises(Corrupt):
        node_from_bytes(data)


def test_records_of_a_newer_release_are_refused_by_name() -> None:
    with pytest.raises(FormatTooNew):
        placement_from_bytes(b'{"schema_number":6}')


async def test_the_constants_never_change() -> None:
    store = InMemoryObjectStore()
    await settle_constants(store, 4, None)
    await settle_constants(store, 4, None)

    with pytest.raises(InvalidSetting) as refusal:
        await settle_constants(store, 8, None)

    assert "ANABRANCH_CONTROLLER_CONTAINER_COUNT=4" in refusal.value.remedy


async def test_the_number_of_buckets_is_chosen_at_the_first_start() -> None:
    store = InMemoryObjectStore()
    assert (await settle_constants(store, 4, 64)).buckets == 64
    assert (await settle_constants(store, 4, None)).buckets == 64, "what is stored counts"
    assert (await settle_constants(InMemoryObjectStore(), 4, None)).buckets == SHARD_COUNT

    with pytest.raises(InvalidSetting) as refusal:
        await settle_constants(store, 4, 32)

    assert "ANABRANCH_CONTROLLER_BUCKET_COUNT=64" in refusal.value.remedy
