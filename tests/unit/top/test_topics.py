"""The pane of topics: asked of objects in memory, and shown only if there are any."""

from anabranch.cli.top.panes import View, pane, panes
from anabranch.cli.top.snapshot import Part, Snapshot, Topics
from anabranch.cli.top.topics import ask_topics
from anabranch.client import Client
from anabranch.common.model.objects import Computed, TopicSpec
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds, system_rng
from kit.fake_control_plane import FakeControlPlane
from kit.topic_objects import ObjectsController


def client_of(controller: ObjectsController) -> Client:
    control, ids = FakeControlPlane(controller), SeededIds(1)
    control.new_command_id = ids.new_id  # type: ignore[method-assign]
    return Client(control, clock=SystemClock(), ids=ids, rng=system_rng())


async def test_the_lines_name_spus_topics_and_partitions_that_need_attention() -> None:
    controller = ObjectsController(page_size=100)
    controller.register(5001, "store-5001")
    async with client_of(controller) as client:
        await client.topics.create_from("fine", TopicSpec())
        await client.topics.create_from("wide", TopicSpec(replicas=Computed(1, 9)))
        controller.slow = True
        await client.topics.create_from("slow", TopicSpec(replicas=Computed(2)))
        found = await ask_topics(client, 50)
        cut = await ask_topics(client, 1)
    assert [line.about for line in found.lines] == [
        "SPU 5001", "slow", "wide", "slow-0", "slow-1",
    ]  # fmt: skip
    assert (found.count, found.troubled, found.is_whole) == (3, 5, True)
    assert (len(cut.lines), cut.troubled) == (1, 5)
    shown = pane(Snapshot(1, "here", topics=Part(found, 1)), View.TOPICS)
    assert shown.title == "3 topics; in trouble"
    assert [len(row.cells) for row in shown.rows] == [len(shown.columns)] * 5


def test_a_cluster_without_topics_has_no_pane_of_them() -> None:
    nothing = Snapshot(1, "here", topics=Part(Topics(), 1))
    assert View.TOPICS not in [one.view for one in panes(nothing)]
    some = Snapshot(1, "here", topics=Part(Topics(count=1), 1))
    assert View.TOPICS in [one.view for one in panes(some)]
