"""The record numbers that leaders report: the newest count, and only those of the owner."""

from dataclasses import replace

from anabranch.common.contracts.live import LiveContainer, LivePartition, LiveReport
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.controller.cluster.topics.live_numbers import SILENT_S_MAX, LiveNumbers, Numbers

SEGMENT = "topics/_TOPICorders.0123456789ab/1024.#epoch.0"
PLACED = Placement(1024, ("a", "b"), container_epoch=3, state=PlacementState.OPEN)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.placements = {1024: PLACED}
        self.live = LiveNumbers(lambda: self.placements, self.clock)
        self.sequence = 0

    def report(
        self,
        node: str = "a",
        leo: int = 5,
        epoch: int = 3,
        *,
        container: int = 1024,
        sequence: int | None = None,
        full: bool = False,
    ) -> None:
        self.sequence += 1
        one = LivePartition(segment=SEGMENT, base=1, leo=leo, size_bytes=10 * leo)
        self.live.learn(
            LiveReport(
                node_id=node,
                session="s",
                sequence=self.sequence if sequence is None else sequence,
                out_of_storage=full,
                containers=(
                    LiveContainer(container=container, container_epoch=epoch, partitions=(one,)),
                ),
            )
        )

    def leo(self) -> int | None:
        found = self.live.of(1024, SEGMENT)
        return None if found is None else found.leo


def test_the_newest_report_of_the_owner_counts() -> None:
    world = World()
    assert world.leo() is None
    world.report(leo=5)
    world.report(leo=7)
    assert world.live.of(1024, SEGMENT) == Numbers(1, 7, 70)


def test_a_report_that_was_overtaken_is_dropped() -> None:
    world = World()
    world.report(leo=7, sequence=9)
    world.report(leo=5, sequence=8)
    assert world.leo() == 7


def test_a_report_of_another_store_or_of_an_older_epoch_is_dropped() -> None:
    world = World()
    world.report(leo=7)
    world.report("b", leo=9)
    world.report(leo=3, epoch=2)
    assert world.leo() == 7


def test_a_report_that_overtakes_the_placement_counts_once_the_placement_shows_its_epoch() -> None:
    world = World()
    world.report(leo=7)
    world.report("b", leo=8, epoch=4)
    assert world.leo() is None, "neither store is known to lead now"
    world.placements[1024] = replace(PLACED, replicas=("b", "a"), container_epoch=4)
    assert world.leo() == 8
    world.report(leo=9, epoch=3)
    assert world.leo() == 8, "the former leader reports late"


def test_numbers_of_a_former_leader_do_not_count_after_a_fail_over() -> None:
    world = World()
    world.report(leo=7)
    world.placements[1024] = replace(PLACED, replicas=("b", "a"), container_epoch=4)
    assert world.leo() is None


def test_containers_of_streams_are_ignored() -> None:
    world = World()
    world.placements[3] = replace(PLACED, container=3)
    world.report(container=3)
    assert world.live.of(3, SEGMENT) is None


def test_a_deleted_topic_is_forgotten() -> None:
    world = World()
    world.report()
    world.live.forget(lambda name: ".0123456789ab/" in name)
    assert world.leo() is None


def test_a_store_without_room_is_told_of_once_and_forgotten_when_it_is_silent() -> None:
    world, told = World(), list[str]()
    world.live.on_storage_change(told.append)
    world.report(full=True)
    world.report(full=True)
    assert told == ["a"]
    assert world.live.out_of_storage() == {"a"}
    world.clock.now_s = SILENT_S_MAX + 1
    assert world.live.out_of_storage() == frozenset()
    world.report(full=False)
    assert told == ["a", "a"]
