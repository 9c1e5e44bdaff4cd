"""Known bugs of controllers of topics, planted on purpose."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from anabranch.common.contracts.objects import TOPIC, TOPIC_CONTAINERS_KEY, TopicContainers
from anabranch.common.model.objects import ClusterObject, Partition, Topic
from anabranch.common.model.topics import incarnation_from
from anabranch.controller.cluster.objects.local_store import Changed, Damaged, LocalStore
from anabranch.controller.cluster.topic_containers import TopicContainerTable
from anabranch.controller.cluster.topics.doomed_controller import DoomedController
from anabranch.controller.cluster.topics.live_numbers import LiveNumbers
from anabranch.controller.cluster.topics.partition_controller import PartitionController
from anabranch.controller.cluster.topics.shelf import Shelf
from anabranch.controller.cluster.topics.topic_controller import TopicController
from anabranch.controller.domain.cluster.objects import topics
from anabranch.controller.domain.cluster.objects.actions import Action
from anabranch.controller.domain.cluster.objects.dooming import Doom
from anabranch.controller.domain.cluster.objects.partitions import ContainerView
from anabranch.controller.domain.cluster.objects.topics import TopicPlan, _Planner


def deletes_lost_with_the_watch() -> AbstractContextManager[object]:
    """A full list adds and changes objects, and removes none."""
    sync_all = LocalStore.sync_all

    def sync(
        self: LocalStore[Any, Any],
        objects: Iterable[ClusterObject[Any, Any]],
        damaged: Iterable[Damaged] = (),
    ) -> Changed:
        present = {one.key: one for one in objects}
        return sync_all(self, {**self.objects, **present}.values(), damaged)

    return patch.object(LocalStore, "sync_all", sync)


def numbers_of_former_leaders() -> AbstractContextManager[object]:
    """Live numbers count whichever store reports them, and under any container epoch."""

    def of(self: LiveNumbers, container: int, segment: str) -> object:
        held = self._containers.get(container)
        return None if held is None else held.segments.get(segment)

    return patch.multiple(LiveNumbers, of=of, _is_outdated=lambda *_: False)


def numbers_of_any_store() -> AbstractContextManager[object]:
    """Live numbers of the present container epoch count, whichever store reports them."""

    def of(self: LiveNumbers, container: int, segment: str) -> object:
        held, placed = self._containers.get(container), self._placements().get(container)
        if held is None or placed is None or held.epoch != placed.container_epoch:
            return None
        return held.segments.get(segment)

    def is_outdated(self: LiveNumbers, _node_id: str, found: Any) -> bool:
        placed = self._placements().get(found.container)
        return placed is not None and found.container_epoch < placed.container_epoch

    return patch.multiple(LiveNumbers, of=of, _is_outdated=is_outdated)


@contextmanager
def deleted_without_a_doom() -> Iterator[None]:
    """A topic is deleted before its doom is stored."""
    delete = _Planner._delete

    def delete_at_once(self: _Planner, topic: Topic) -> None:
        world = self._world
        self._world = replace(world, doomed=world.doomed | {topic.incarnation})
        delete(self, topic)
        self._world = world

    with patch.object(_Planner, "_delete", delete_at_once):
        yield


@contextmanager
def containers_after_the_status() -> Iterator[None]:
    """The table of containers is written after the status that names them."""
    perform = TopicController._perform

    async def status_first(self: TopicController, plan: TopicPlan, before: TopicContainers) -> bool:
        changed = await perform(self, replace(plan, containers=None), before)
        if plan.containers is not None:
            await self._inputs.table.write(before, plan.containers)
        return changed

    with patch.object(TopicController, "_perform", status_first):
        yield


def last_writer_allocates() -> AbstractContextManager[object]:
    """The last writer of the table wins, without compare-and-set."""

    async def write(
        self: TopicContainerTable, _before: TopicContainers, after: TopicContainers
    ) -> bool:
        stored = await self._cluster.get(TOPIC_CONTAINERS_KEY)
        return await self._write(stored, after)

    return patch.object(TopicContainerTable, "write", write)


@contextmanager
def pending_topics_do_not_see_one_another() -> Iterator[None]:
    """Each topic of a plan is assigned with the numbers from before the plan."""
    add, count = _Planner.add, _Planner._count

    def add_alone(self: _Planner, topic: Topic) -> None:
        highest, self._cursor = self._cursor, self._world.containers.cursor
        with patch.object(_Planner, "_count", lambda *_: None):
            add(self, topic)
        self._cursor = max(highest, self._cursor)

    with patch.object(_Planner, "add", add_alone), patch.object(_Planner, "_count", count):
        yield


def recreated_with_the_same_incarnation() -> AbstractContextManager[object]:
    """A topic's incarnation follows from its name, so that the next one has its stream."""
    create = Shelf.create

    async def create_again(self: Shelf[Any, Any], new: ClusterObject[Any, Any]) -> Any:
        if self.kind is TOPIC:
            new = replace(new, incarnation=incarnation_from(new.key))
        return await create(self, new)

    return patch.object(Shelf, "create", create_again)


def partitions_deleted_unconfirmed() -> AbstractContextManager[object]:
    """A partition is deleted as soon as its topic is not in the mirror."""

    async def confirmed(_self: PartitionController, actions: Sequence[Action]) -> list[Action]:
        return list(actions)

    return patch.object(PartitionController, "_confirmed", confirmed)


def orphans_doomed_unconfirmed() -> AbstractContextManager[object]:
    """A stream is doomed as soon as its topic is not in the mirror."""

    async def has_topic(_self: DoomedController, _doom: Doom) -> bool:
        return False

    return patch.object(DoomedController, "_has_topic", has_topic)


def online_before_the_stream() -> AbstractContextManager[object]:
    """A partition is created online as soon as its container serves."""

    def at_once(partition: Partition, view: ContainerView, *_: object, **__: object) -> Partition:
        return replace(partition, status=view.serving or partition.status)

    return patch.object(topics, "first_version", at_once)


TOPIC_BUGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "deletes lost with the watch": deletes_lost_with_the_watch,
    "numbers of former leaders": numbers_of_former_leaders,
    "numbers of any store": numbers_of_any_store,
    "deleted without a doom": deleted_without_a_doom,
    "containers after the status": containers_after_the_status,
    "last writer allocates": last_writer_allocates,
    "pending topics do not see one another": pending_topics_do_not_see_one_another,
    "recreated with the same incarnation": recreated_with_the_same_incarnation,
    "partitions deleted unconfirmed": partitions_deleted_unconfirmed,
    "orphans doomed unconfirmed": orphans_doomed_unconfirmed,
    "online before the stream": online_before_the_stream,
}
